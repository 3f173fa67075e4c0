"""Messages of syslog that one core takes and decodes: ``python -m benchmarks.syslog [messages] [--udp-seconds 60]``.

First the format alone, over batches of 20,000. Then whole jobs: a sender in another process sends over TCP, TLS or UDP to a job in this
process, which puts the messages into the buffer on disk, decodes them to all columns, and counts them. This process runs on one core,
the sender on the others; the figures are also given for a second of processor time. Messages have about 160 bytes. Datagrams are sent for 5
seconds, or as long as is said.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import socket
import ssl
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import headrace as hr
import numpy as np
from headrace_syslog import SyslogCodec

from tests.servers.certificates import Certificates, make_certificates

BATCH = 20_000
_AT = 1_795_694_400_000_000


def older(count: int) -> list[bytes]:
    """Return messages of RFC 3164."""
    return [
        b"<%d>Nov %2d 12:00:%02d host%d.example.org sshd[%d]: Failed password for invalid user u%d from 10.0.%d.%d port %d ssh2, "
        b"attempt %d of many"
        % (8 * (n % 24) + n % 8, n % 30 + 1, n % 60, n % 50, n, n % 997, n % 256, n % 199, n % 65536, n)
        for n in range(count)
    ]  # fmt: skip


def newer(count: int, data: bytes = b'[timeQuality tzKnown="1" isSynced="1"]') -> list[bytes]:
    """Return messages of RFC 5424; %d in ``data`` makes it another one in each."""
    return [
        b"<%d>1 2026-11-26T12:00:%02d.%06dZ host%d.example.org sshd %d ID%d %s Failed password for user u%d from 10.0.%d.%d port %d"
        % (8 * (n % 24) + n % 8, n % 60, n, n % 50, n, n % 7, data % n if b"%d" in data else data, n % 997, n % 256, n % 199, n % 65536)
        for n in range(count)
    ]  # fmt: skip


def decoded(what: str, messages: list[bytes]) -> None:
    """Print how many messages the format decodes to all columns."""
    codec = SyslogCodec(SyslogCodec.Settings.of({}))
    decoder = codec.decoder(codec.default_schema())
    raws = []
    for begin in range(0, len(messages), BATCH):
        bodies = hr.Bodies.of(messages[begin : begin + BATCH])
        offsets = np.arange(begin, begin + len(bodies), dtype=np.int64)
        raws.append(hr.RawBatch(offsets, hr.ReadPosition(0), bodies, times=np.full(len(bodies), _AT, dtype=np.int64)))
    decoder.decode_records(raws[0])  # what is compiled once per process
    begun = time.process_time()
    rows = sum(decoder.decode_records(raw).frame.height for raw in raws)
    seconds = time.process_time() - begun
    assert rows == len(messages)
    print(f"{'decode ' + what:<52} {rows / seconds:>12,.0f} messages per CPU second", flush=True)


def send(protocol: str, port: int, messages: list[bytes], files: Certificates, rate: int, rounds: int) -> None:
    """Send messages; datagrams so many times, at a rate. Runs in a process of its own."""
    if protocol == "udp":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            begun = time.perf_counter()
            for number, message in enumerate(itertools.chain.from_iterable(itertools.repeat(messages, rounds))):
                if number % 100 == 0:
                    time.sleep(max(0.0, begun + number / rate - time.perf_counter()))
                sender.sendto(message, ("127.0.0.1", port))
        return
    connection: socket.socket = socket.create_connection(("127.0.0.1", port))
    if protocol == "tls":
        context = ssl.create_default_context(cafile=str(files.authority))
        connection = context.wrap_socket(connection, server_hostname="localhost")
    with connection:
        for begin in range(0, len(messages), 1_000):
            part = messages[begin : begin + 1_000]
            framed = b"".join(b"%d %s" % (len(each), each) for each in part)
            connection.sendall(b"".join(each + b"\n" for each in part) if protocol == "lines" else framed)


class Count(hr.Sink):
    """Counts rows, and says when all are there."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.rows = wanted, 0
        self.done = threading.Event()

    def batch_insert(self, batch: hr.SinkBatch) -> None:
        self.rows += len(batch)
        if self.rows >= self.wanted:
            self.done.set()


def job(
    what: str,
    protocol: str,
    messages: list[bytes],
    directory: Path,
    files: Certificates,
    rate: int = 0,
    rounds: int = 1,
) -> None:
    """Print how many messages a job takes and decodes."""
    count = len(messages) * rounds
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    sink = Count(count)
    ports = {"udp": "udp_port", "tls": "tls_port"}
    secured = {"ssl_certificate": str(files.server), "ssl_key": str(files.server_key)} if protocol == "tls" else {}
    stream = hr.stream("benchmarks", "syslog").from_syslog(
        **{ports.get(protocol, "tcp_port"): port}, **secured, buffer=str(directory / f"buffer {what}"), format="syslog",
        buffer_max_bytes="4 GiB",
    )  # fmt: skip
    handle = stream.to(sink).start("light", checkpoint=str(directory / f"state {what}"), checkpoint_interval="1 s")
    process = multiprocessing.get_context("fork").Process(
        target=_send, args=(protocol, port, messages, files, rate, rounds)
    )
    try:
        time.sleep(1)  # it listens
        begun, used = time.perf_counter(), time.process_time()
        process.start()
        sink.done.wait(60 if protocol != "udp" else count / rate + 3)
        seconds, used = time.perf_counter() - begun, time.process_time() - used
    finally:
        handle.stop()
        process.join()
    lost = f", {count - sink.rows:,} of {count:,} lost" if sink.rows < count else f", all of {count:,}"
    print(
        f"{what:<52} {sink.rows / seconds:>12,.0f} messages/s {sink.rows / used:>12,.0f} per CPU second{lost}",
        flush=True,
    )


def _send(protocol: str, port: int, messages: list[bytes], files: Certificates, rate: int, rounds: int) -> None:
    os.sched_setaffinity(0, _other_cores())
    send(protocol, port, messages, files, rate, rounds)


def _other_cores() -> set[int]:
    every = set(range(os.cpu_count() or 1))
    return every - {min(every)} or every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("messages", type=int, nargs="?", default=500_000)
    parser.add_argument("--udp-seconds", type=int, default=5)
    given = parser.parse_args()
    count = given.messages
    os.sched_setaffinity(0, {0})
    few = min(count, 200_000)
    decoded("RFC 3164", older(few))
    decoded("RFC 5424, the same structured data", newer(few))
    decoded("RFC 5424, other structured data in each", newer(few, b'[request@32473 id="%d" user="ann"]'))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        files = make_certificates(directory / "certificates")
        job("job over TCP, counted, RFC 5424", "counted", newer(count), directory, files)
        job("job over TCP, lines, RFC 3164", "lines", older(count), directory, files)
        job("job over TLS, counted, RFC 5424", "tls", newer(count), directory, files)
        for rate in (50_000, 100_000):
            job(f"job over UDP at {rate:,}/s, RFC 3164", "udp", older(rate), directory, files, rate, given.udp_seconds)


if __name__ == "__main__":
    main()
