"""Real senders and receivers: logger of util-linux, rsyslog and syslog-ng. What is not installed is skipped."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySource
from headrace_buffer import RecordLog
from headrace_syslog import SyslogCodec
from programs import forwarding_rsyslog, forwarding_syslog_ng, listens, logger, rsyslog, syslog_ng
from taking import Taking, free_port

from tests.eventually import eventually
from tests.servers.certificates import make_certificates

JOB = """
import json, sys
import headrace as hr
given = json.loads(sys.argv[1])
(hr.stream("tests", "senders").from_syslog(
    **given, buffer="buffer", format="syslog", schema={"host": "string", "app": "string", "message": "string"},
    metadata={"offset": "offset"})
   .to_file("out", format="json").start("light", checkpoint="state", checkpoint_interval="50 ms").wait())
"""
MESSAGES = 30_000
KILLS = 3


@pytest.fixture
def taking(tmp_path: Path) -> Iterator[Taking]:
    made = Taking(tmp_path, udp_port=0, tcp_port=0)
    yield made
    made.close()


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize("standard", ["rfc3164", "rfc5424"])
@pytest.mark.parametrize("counted", [False, True])
def test_logger(taking: Taking, protocol: str, standard: str, counted: bool) -> None:
    port = taking.ports[protocol]
    command = [logger(), "--server", "127.0.0.1", "--port", str(port), f"--{protocol}", f"--{standard}"]
    command += ["--tag", "app/part", "--id=77", "--priority", "local3.warning"]
    if counted and protocol == "tcp":
        command.append("--octet-count")
    if standard == "rfc5424":
        command += ["--sd-id", "zoo@123", "--sd-param", 'tiger="hun\\"gry"', "--msgid", "ID7"]
    for text in ("one: two", "three é"):
        subprocess.run([*command, text], check=True)
    taking.await_stored(2)
    records = taking.records()
    assert records is not None
    codec = SyslogCodec(SyslogCodec.Settings.of({}))
    raw = hr.RawBatch(records.times, hr.ReadPosition(2), records.bodies, times=records.times, headers=records.headers)
    found = codec.record_decoder(codec.default_schema(), None, {"how": "protocol"}).decode_records(raw)
    assert not found.bad
    rows = found.frame.sort("message").to_dicts()
    assert [row["message"] for row in rows] == ["one: two", "three é"]
    for row in rows:
        assert (row["facility_name"], row["severity_name"], row["app"], row["process_id"], row["how"]) == (
            "local3", "warning", "app/part", "77", protocol,
        )  # fmt: skip
        assert row["host"]
        assert row["timestamp"] is not None
        if standard == "rfc5424":
            assert row["message_id"] == "ID7"
            assert json.loads(row["structured_data"])["zoo@123"] == {"tiger": 'hun"gry'}


class Job:
    """A job of its own process, which writes what it takes to files."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self.options = options
        self.port = int(options["tls_port" if "tls_port" in options else "tcp_port"])

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", JOB, json.dumps(self.options)], cwd=self.directory)

    def drain(self) -> None:
        """Write what the buffer still holds."""
        text = JOB.replace(".start(", ".run(").replace(".wait()", "")
        done = subprocess.run([sys.executable, "-c", text, json.dumps(self.options)], cwd=self.directory, check=False)
        assert done.returncode == 0

    def rows(self) -> list[dict[str, Any]]:
        parts = (self.directory / "out").glob("*.json")
        return [json.loads(line) for part in parts for line in part.read_bytes().splitlines()]


def forwarded(job: Job, sender: AbstractContextManager[Any], taken_port: int) -> set[int]:
    """Send numbered messages through a sender to a job that is killed meanwhile, and return the numbers that it wrote.

    Fails if the job has not written each record of its buffer once.
    """
    sent = 0
    with sender, socket.create_connection(("127.0.0.1", taken_port)) as connection:
        for _ in range(KILLS):
            process = job.start()
            try:
                before = len(job.rows())
                share = range(sent, sent + MESSAGES // (KILLS + 1))
                connection.sendall(b"".join(_line(number) for number in share))
                sent = share.stop
                eventually(lambda known=before: len(job.rows()) > known, "rows are written")  # type: ignore[misc]
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
        process = job.start()
        try:
            eventually(lambda: listens(job.port), "the job listens")
            connection.sendall(b"".join(_line(number) for number in range(sent, MESSAGES)))
            last = str(MESSAGES - 1)
            eventually(lambda: any(row["message"] == last for row in job.rows()), "the last message is written")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    job.drain()
    rows = job.rows()
    with RecordLog(job.directory / "buffer") as log:
        assert sorted(row["offset"] for row in rows) == list(range(log.latest))
    assert {(row["host"], row["app"]) for row in rows} <= {("web-1", "app")}
    return {int(row["message"]) for row in rows}


def _line(number: int) -> bytes:
    return b"<14>1 2026-11-26T12:00:00.000000Z web-1 app 7 - - %d\n" % number


@pytest.mark.servers
def test_rsyslog_sends_to_a_job_that_is_killed(tmp_path: Path) -> None:
    taken, port = free_port(), free_port()
    job = Job(tmp_path, tcp_port=port)
    found = forwarded(job, rsyslog(tmp_path, forwarding_rsyslog(taken, port), taken), taken)
    print(f"rsyslog: {MESSAGES - len(found)} of {MESSAGES} messages were under way at {KILLS} kills")
    assert len(found) > MESSAGES / (KILLS + 1)


@pytest.mark.servers
def test_syslog_ng_sends_over_tls_to_a_job_that_is_killed(tmp_path: Path) -> None:
    taken, port = free_port(), free_port()
    files = make_certificates(tmp_path / "certificates")
    job = Job(tmp_path, tls_port=port, ssl_certificate=str(files.server), ssl_key=str(files.server_key),
              ssl_client_ca=str(files.authority))  # fmt: skip
    found = forwarded(job, syslog_ng(tmp_path, forwarding_syslog_ng(taken, port, files), taken), taken)
    print(f"syslog-ng: {MESSAGES - len(found)} of {MESSAGES} messages were under way at {KILLS} kills")
    assert len(found) > MESSAGES / (KILLS + 1)


RSYSLOG_TAKES = """
module(load="imtcp")
input(type="imtcp" address="127.0.0.1" port="PORT")
template(name="parts" type="string"
         string="%syslogfacility-text%|%syslogseverity-text%|%timestamp:::date-rfc3339%|%hostname%|%app-name%|%procid%|%structured-data%|%msg%\\n")
action(type="omfile" file="FILE" template="parts")
"""
SYSLOG_NG_TAKES = """
source rows { syslog(ip("127.0.0.1") port(PORT) transport("tcp")); };
destination file { file("FILE" template("$FACILITY|$LEVEL|$ISODATE|$HOST|$PROGRAM|$PID|$SDATA|$MSG\\n") template-escape(no)); };
log { source(rows); destination(file); };
"""


@pytest.mark.servers
@pytest.mark.parametrize(("run", "text"), [(rsyslog, RSYSLOG_TAKES), (syslog_ng, SYSLOG_NG_TAKES)])
def test_receivers_take_what_the_sink_sends(tmp_path: Path, run: Callable[..., Any], text: str) -> None:
    port, file = free_port(), tmp_path / "received"
    bodies = [b'{"n": %d, "at": "2026-11-26T12:00:00.5Z"}' % number for number in range(5_000)]
    stream = hr.stream("tests", "sent").from_(
        MemorySource({"q": bodies}), format="json", schema={"n": "int64", "at": "timestamp"}
    )
    rows = stream.select(
        severity="3", timestamp="at", host="'web-1'", process_id="n", message="'row ' || cast(n as string) || ' é'",
        structured_data="""'{"x@1": {"y": "a \\"b\\""}}'""",
    )  # fmt: skip
    with run(tmp_path, text.replace("PORT", str(port)).replace("FILE", str(file)), port):
        rows.to_syslog("127.0.0.1", port=port, facility="local0").run("light", show_progress=False)
        eventually(lambda: file.exists() and file.read_bytes().count(b"\n") >= 5_000, "all rows are received")
    found = file.read_text(encoding="utf-8").splitlines()
    assert len(found) == 5_000
    parts = [line.split("|") for line in found]
    assert {tuple(part[:2] + part[3:5]) for part in parts} == {("local0", "err", "web-1", "headrace")}
    assert [int(part[5]) for part in parts] == list(range(5_000))
    assert [part[7].strip() for part in parts] == [f"row {number} é" for number in range(5_000)]
    assert {part[6] for part in parts} == {r'[x@1 y="a \"b\""]'}
    assert {part[2][:19] for part in parts} <= {"2026-11-26T12:00:00"}
