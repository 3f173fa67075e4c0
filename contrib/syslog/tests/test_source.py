"""The source that listens: what is stored of what comes over UDP, TCP and TLS, who may send, and what is counted as lost."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
import pytest
from headrace.testing import MemorySink
from headrace_contract import SourceContract
from headrace_syslog import SyslogSource, losses
from taking import Taking, counted, free_port, has_ipv6, make

from tests.eventually import eventually
from tests.listening_sources import each_closed, expect_refused, forget
from tests.servers.certificates import make_certificates

TCP = {"tcp_port": 0}
UDP = {"udp_port": 0}


@pytest.fixture
def taking(tmp_path: Path) -> Iterator[Callable[..., Taking]]:
    yield from each_closed(Taking, tmp_path)


class TestSyslogSource(SourceContract):
    several_queues = False
    odd_bodies: ClassVar[Sequence[bytes]] = (*SourceContract.odd_bodies[:-1], b"new\nline", b"x" * 60_000)

    def make_source(self) -> SyslogSource:
        return make(self.tmp_path, tcp_port=0)

    def add_queue(self) -> str:
        return "buffer"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        one = Taking(self.tmp_path, **TCP)
        try:
            wanted = one.log.latest + len(bodies)
            one.send(counted(*bodies))
            eventually(lambda: one.log.latest == wanted, "messages are stored")
        finally:
            one.close()

    def forget(self, queue: str, before: int) -> None:
        forget(self.make_source(), queue, before)


def test_lines_and_counted_messages(taking: Callable[..., Taking]) -> None:
    one = taking(**TCP)
    one.send(b"<13>a\n<13>b")
    assert one.await_stored(2) == [b"<13>a", b"<13>b"]
    one.send(counted(b"<13>c\nd", b"<13>e"))
    assert one.await_stored(4)[2:] == [b"<13>c\nd", b"<13>e"]
    records = one.records()
    assert records is not None
    assert records.headers is not None
    assert [dict(each) for each in records.headers] == [{"peer": b"127.0.0.1", "protocol": b"tcp"}] * 4


def test_datagrams(taking: Callable[..., Taking]) -> None:
    one = taking(**UDP)
    one.send_datagrams(b"<13>a\n", b"", b"<13>b\nc", b"<13>1 - - - - - -")
    assert one.await_stored(3) == [b"<13>a\n", b"<13>b\nc", b"<13>1 - - - - - -"]
    records = one.records()
    assert records is not None
    assert records.headers is not None
    assert [dict(each) for each in records.headers] == [{"peer": b"127.0.0.1", "protocol": b"udp"}] * 3


def test_many_messages_in_their_order(taking: Callable[..., Taking]) -> None:
    one = taking(**TCP, **UDP)
    lines = [b"<13>message %d %s" % (number, b"x" * (number % 200)) for number in range(30_000)]
    with one.connect() as lined, one.connect() as counting:
        lined.sendall(b"".join(line + b"\n" for line in lines))
        counting.sendall(counted(*lines))
        found = one.await_stored(2 * len(lines))
    assert sorted(found) == sorted([*lines, *lines])
    firsts = list(dict.fromkeys(found))
    assert firsts == lines  # each of the two came in its order


def test_tls_with_certificates_of_senders(taking: Callable[..., Taking], tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "certificates")
    given = {"ssl_certificate": files.server, "ssl_key": files.server_key, "ssl_client_ca": files.authority}
    one = taking(tls_port=0, **{name: str(path) for name, path in given.items()})
    with one.connect_tls(files.client_context()) as connection:
        connection.sendall(counted(*[b"<13>%d" % number for number in range(10_000)]))
        found = one.await_stored(10_000)
    assert found == [b"<13>%d" % number for number in range(10_000)]
    stranger = ssl.create_default_context(cafile=str(files.authority))
    with one.connect_tls(stranger) as connection:  # TLS 1.3 tells it only to who reads
        assert _is_ended(connection)
    with one.connect("tls") as plain:
        plain.sendall(b"<13>no TLS\n")
        eventually(lambda: _is_ended(plain), "the connection is ended")
    assert one.stored() == found


def _is_ended(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1000)
    except (ConnectionError, ssl.SSLError):
        return True


def test_only_allowed_peers(taking: Callable[..., Taking]) -> None:
    one = taking(**TCP, **UDP, allow=("192.0.2.0/24", "2001:db8::1"))
    with one.connect() as connection:
        assert _is_ended(connection)
    one.send_datagrams(b"<13>a", b"<13>b")
    one.await_loss(losses.REFUSED, 3)
    other = taking(**TCP, **UDP, allow=("127.0.0.0/8",))
    other.send(b"<13>a\n")
    other.send_datagrams(b"<13>a")
    assert other.await_stored(2) == [b"<13>a", b"<13>a"]
    assert one.stored() == []


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_addresses_of_both_kinds(taking: Callable[..., Taking]) -> None:
    one = taking(**TCP, host="::", allow=("127.0.0.1", "::1"))
    for host in ("127.0.0.1", "::1"):
        with one.connect(host=host) as connection:
            connection.sendall(b"<13>a\n")
    one.await_stored(2)
    records = one.records()
    assert records is not None
    assert records.headers is not None
    assert {each["peer"] for each in records.headers} == {b"127.0.0.1", b"::1"}


def test_messages_that_are_too_long_are_counted(
    taking: Callable[..., Taking], caplog: pytest.LogCaptureFixture
) -> None:
    one = taking(**TCP, **UDP, message_bytes=500)
    one.send(b"<13>" + b"x" * 497 + b"\n<13>a\n")
    one.send(counted(b"<13>" + b"x" * 4970, b"<13>b"))
    one.send_datagrams(b"<13>" + b"x" * 497, b"<13>c")
    assert sorted(one.await_stored(3)) == [b"<13>a", b"<13>b", b"<13>c"]
    one.await_loss(losses.TOO_LONG, 3)
    one.reader.poll(10, timedelta(0))
    one.close()
    assert f"3 {losses.TOO_LONG} (3 since the start)" in caplog.text


def test_broken_framing_ends_the_connection(taking: Callable[..., Taking]) -> None:
    one = taking(**TCP)
    with one.connect() as connection:
        connection.sendall(counted(b"<13>a") + b"<13>b\n")
        assert _is_ended(connection)
    one.await_loss(losses.FRAMING, 1)
    one.send(b"100 <13>half")
    one.await_loss(losses.INCOMPLETE, 1)


def test_connections_are_limited(taking: Callable[..., Taking]) -> None:
    one = taking(**TCP, max_connections=1)
    with one.connect() as first:
        first.sendall(b"<13>a\n")
        one.await_stored(1)
        with one.connect() as second:
            assert _is_ended(second)
        one.await_loss(losses.CONNECTIONS, 1)
        first.sendall(b"<13>b\n")
        assert one.await_stored(2) == [b"<13>a", b"<13>b"]


def test_a_full_buffer_lets_connections_wait(taking: Callable[..., Taking]) -> None:
    one = taking(**TCP, buffer_max_bytes=1024**2)
    bodies = [b"<13>%06d %s" % (number, b"x" * 1000) for number in range(20_000)]
    with one.connect() as connection:
        connection.setblocking(False)
        data = memoryview(counted(*bodies))
        sent = 0
        found: list[bytes] = []

        def send_more() -> bool:
            """Send what the other side takes; return whether it takes nothing."""
            nonlocal sent
            try:
                sent += connection.send(data[sent:])
            except BlockingIOError:
                return True
            return False

        eventually(lambda: send_more() and one.log.status().used_bytes > 700_000, "the sender has to wait")
        assert sent < len(data)
        while len(found) < len(bodies):
            if sent < len(data):
                send_more()
            records = one.log.read(len(found), 10_000)
            if records is not None:
                found += records.bodies
                one.trim() if records.end == one.log.latest else None
    assert found == bodies
    assert one.listener.losses() == {}


def test_datagrams_that_the_kernel_drops_are_counted(taking: Callable[..., Taking]) -> None:
    one = taking(**UDP, buffer_max_bytes=1024**2, udp_receive_bytes=8192)
    body = b"<13>" + b"x" * 2000

    def lost() -> bool:
        one.send_datagrams(*[body] * 100)
        return one.listener.losses().get(losses.KERNEL, 0) > 0

    eventually(lost, "the kernel drops datagrams")


def test_what_was_read_is_stored_when_the_source_is_closed(taking: Callable[..., Taking]) -> None:
    one = taking(**TCP, **UDP)
    with one.connect() as connection:
        connection.sendall(b"<13>a\n<13>incomple")
        one.await_stored(1)
        one.send_datagrams(b"<13>b")
        one.close()
        assert _is_ended(connection)
    with Taking(one.log.directory.parent, **TCP).log as log:
        records = log.read(0, 10)
        assert records is not None
        assert list(records.bodies) == [b"<13>a", b"<13>b"]


def test_a_port_or_a_certificate_that_cannot_be_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        source = make(tmp_path, udp_port=0, tcp_port=taken.getsockname()[1])
        with pytest.raises(hr.JobError, match=r"cannot listen on 127\.0\.0\.1 port") as refused:
            source.open(hr.Queue("buffer"), hr.EARLIEST)
        assert refused.value.option == "tcp_port"
    (tmp_path / "nothing.pem").touch()
    with pytest.raises(hr.JobError, match="the certificate or its key cannot be used"):
        make(tmp_path, tls_port=0, ssl_certificate=str(tmp_path / "nothing.pem")).open(hr.Queue("buffer"), hr.EARLIEST)


@pytest.mark.parametrize(
    ("options", "option", "message"),
    [
        ({}, "udp_port", "there is no port to listen on"),
        ({"udp_port": 70_000}, "udp_port", "is not a port from 0 to 65535"),
        (
            {"tcp_port": 601, "tls_port": 601, "ssl_certificate": "x"},
            "tls_port",
            "port 601 is already the port without TLS",
        ),
        ({"tls_port": 6514}, "ssl_certificate", "TLS needs this option"),
        ({**TCP, "ssl_client_ca": "x"}, "ssl_client_ca", "it can be used only together with tls_port"),
        ({**TCP, "allow": ("10.0.0.1/8",)}, "allow", "has host bits set"),
        ({**TCP, "host": "0.0.0.0"}, "allow", "anybody who reaches 0.0.0.0 could send messages"),
        (
            {"tls_port": 0, **TCP, "ssl_certificate": "x", "ssl_client_ca": "x", "host": "::"},
            "allow",
            "anybody who reaches",
        ),
        (
            {**TCP, "message_bytes": 100_000, "buffer_max_bytes": 800_000},
            "message_bytes",
            "too small for a message of 100000",
        ),
    ],
)
def test_options_that_cannot_be_used(tmp_path: Path, options: dict[str, Any], option: str, message: str) -> None:
    expect_refused(lambda: make(tmp_path, **options).settings.validate(), option, message)


@pytest.mark.parametrize(
    "options",
    [
        {**TCP, "anonymous": True},
        {**UDP, "allow": ("10.0.0.0/8",)},
        {"tls_port": 0, "ssl_certificate": "x", "ssl_client_ca": "y"},
        {**UDP, "host": "::1"},
    ],
)
def test_options_that_can(tmp_path: Path, options: dict[str, Any]) -> None:
    make(tmp_path, **{"host": "0.0.0.0", **options}).settings.validate()


def test_a_job_that_reads_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    port, sink = free_port(), MemorySink()
    stream = hr.stream("tests", "syslog").from_syslog(
        tcp_port=port, buffer="buffer", format="syslog", metadata={"peer": "peer", "received": "time"}
    )
    taken = stream.select("host", "app", "peer", "message", new="timestamp > received - interval '1' day")
    handle = taken.to(sink).start("light", checkpoint="state", checkpoint_interval="100 ms")
    try:
        eventually(lambda: _sent(port, b"<13>Nov 26 10:00:00 web app: hello\n"), "it listens")
        eventually(lambda: len(sink.rows) > 0, "rows arrive")
    finally:
        handle.stop()
    assert {name: sink.rows[0][name] for name in ("host", "app", "peer", "message")} == {
        "host": "web", "app": "app", "peer": "127.0.0.1", "message": "hello",
    }  # fmt: skip


def test_a_table_of_sql(taking: Callable[..., Taking]) -> None:
    one = taking(**TCP)
    one.send(b"<13>1 2026-11-26T12:00:00Z web app - - - hello\n<13>1 2026-11-26T12:00:00Z db app - - - fine\n")
    one.await_stored(2)
    one.close()
    text = """
        CREATE TABLE messages (host STRING, severity INT, message STRING, peer STRING METADATA) WITH (
            'connector' = 'syslog', 'udp-port' = '0', 'tcp-port' = '0', 'allow' = '10.0.0.0/8, 192.0.2.1',
            'buffer' = 'DIRECTORY');
        SELECT host, severity, message, peer FROM messages WHERE host = 'web'
    """
    found = hr.sql(text.replace("DIRECTORY", str(one.log.directory)))
    assert found.collect().rows() == [("web", 5, "hello", "127.0.0.1")]


def _sent(port: int, data: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(data)
    except ConnectionRefusedError:
        return False
    return True
