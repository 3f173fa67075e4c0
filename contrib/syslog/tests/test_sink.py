"""What rows become as messages, over UDP, TCP and TLS, and what is refused."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET
from headrace.foundation.errors import DataError, OptionError
from headrace.interfaces.sink import SinkBatch
from headrace.testing import MemorySource
from headrace_syslog import SyslogCodec, SyslogSink, SyslogSinkSettings
from headrace_syslog.rendering import MessageMaker
from syslog_receiver import Receiver, parsed
from taking import free_port

from tests.eventually import eventually
from tests.servers.certificates import Certificates, make_certificates

NOW = dt.datetime(2026, 11, 26, 12, 0, 0, 123_456, dt.UTC)


def settings(**options: Any) -> SyslogSinkSettings:
    return SyslogSinkSettings.of({"host": "127.0.0.1", "from_host": "here", **options}, plugin="syslog")


def batch(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, str]) -> SinkBatch:
    frame = pl.DataFrame(list(rows), schema=dict(hr.Schema.of(schema)), orient="row")
    offsets = pl.Series(OFFSET, range(len(rows)), dtype=pl.Int64)
    return SinkBatch(hr.Queue("q"), frame.with_columns(offsets, pl.lit(0, pl.Int32).alias(INDEX)))


def message(row: Mapping[str, Any], schema: Mapping[str, str], **options: Any) -> str:
    maker = MessageMaker(settings(**options), hr.Schema.of(schema))
    [found] = maker.messages(batch([row], schema)).to_list()
    return str(found)


FULL = {
    "facility": "int64", "severity": "string", "timestamp": "timestamp", "host": "string", "app": "string", "process_id": "int64",
    "message_id": "string", "structured_data": "string", "message": "string",
}  # fmt: skip


def test_columns_with_names_of_fields() -> None:
    kind = hr.Schema.of(FULL)["timestamp"]
    time = NOW if getattr(kind, "time_zone", None) else NOW.replace(tzinfo=None)
    row = {
        "facility": 4, "severity": "Crit", "timestamp": time, "host": "web-1", "app": "two words é", "process_id": 7, "message_id": "",
        "structured_data": '{"a@1": {"b": "\\"]\\\\", "c =": ["1", "2"]}, "d": {}}', "message": "two\nlines é",
    }  # fmt: skip
    data = r'[a@1 b="\"\]\\" c__="1" c__="2"][d]'
    expected = f"<34>1 2026-11-26T12:00:00.123456Z web-1 two_words_ 7 - {data} two\nlines é"
    assert message(row, FULL) == expected
    assert message(dict.fromkeys(FULL), FULL) == "<14>1 - here headrace - - -"


def test_rows_without_such_columns() -> None:
    schema = {"user": "string", "count": "int64"}
    row = {"user": "ann", "count": 2}
    assert message(row, schema) == '<14>1 - here headrace - - - {"user":"ann","count":2}'
    changed = message(row, schema, facility="local7", severity="debug", app="x", message="user")
    assert changed == "<191>1 - here x - - - ann"


def test_the_format_reads_what_the_sink_writes() -> None:
    row = {"facility": 23, "severity": 7, "host": "h", "app": "a", "process_id": "p", "message_id": "m",
           "structured_data": '{"x":{"y":["1","[2]"]}}', "message": " text"}  # fmt: skip
    schema = {name: "int64" if name in ("facility", "severity") else "string" for name in row}
    codec = SyslogCodec(SyslogCodec.Settings.of({}))
    read = codec.decoder(hr.Schema.of(schema)).decode(hr.Bodies.of([message(row, schema).encode()]))
    assert read.frame.to_dicts() == [row]


@pytest.mark.parametrize(
    ("row", "schema", "reason"),
    [
        ({"severity": 8}, {"severity": "int64"}, "column 'severity': 8 is not a severity"),
        ({"severity": -1}, {"severity": "int64"}, "column 'severity': -1 is not a severity"),
        ({"facility": "lokal0"}, {"facility": "string"}, "column 'facility': 'lokal0' is not a facility"),
        ({"structured_data": '{"a": 1}'}, {"structured_data": "string"}, "is not JSON such as"),
        ({"message": "x" * 500}, {"message": "string"}, "more than message_bytes = 500"),
    ],
)
def test_rows_that_have_no_form(row: Mapping[str, Any], schema: Mapping[str, str], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        message(row, schema, message_bytes=500)


@pytest.mark.parametrize(
    ("options", "option", "problem"),
    [
        ({"host": "a b"}, "host", "is not a name or address"),
        ({"port": 70_000}, "port", "is not a port"),
        ({"facility": "x"}, "facility", "'x' is not one of kern"),
        ({"severity": "error"}, "severity", "'error' is not one of emerg"),
        ({"app": "two words"}, "app", "is not printable ASCII"),
        ({"protocol": "udp", "message_bytes": 70_000}, "message_bytes", "a datagram can have at most 65507 bytes"),
        ({"ssl_ca": "x"}, "ssl_ca", "only with TLS"),
        ({"ssl_key": "x", "protocol": "tls"}, "ssl_key", "only together with ssl_certificate"),
    ],
)
def test_options_that_cannot_be_used(options: Mapping[str, Any], option: str, problem: str) -> None:
    with pytest.raises(OptionError) as refused:
        settings(**options).validate()
    assert refused.value.option == option
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "options", "problem"),
    [
        ({"severity": "float64"}, {}, "column 'severity' is Float64"),
        ({"timestamp": "string"}, {}, "column 'timestamp' is String"),
        ({"host": "binary"}, {}, "column 'host' is Binary"),
        ({"structured_data": "int64"}, {}, "column 'structured_data' is Int64"),
        ({"message": "int64"}, {}, "column 'message' does not contain text"),
        ({"text": "string"}, {"message": "txt"}, "there is no column 'txt'"),
    ],
)
def test_columns_that_do_not_fit(schema: Mapping[str, str], options: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        SyslogSink(settings(**options)).check(hr.Schema.of(schema))


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "certificates")


@pytest.fixture
def secured(certificates: Certificates) -> Iterator[Receiver]:
    """A receiver that wants certificates of senders."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.authority))
    context.load_cert_chain(certificates.server, certificates.server_key)
    context.verify_mode = ssl.CERT_REQUIRED
    receiver = Receiver(context)
    yield receiver
    receiver.stop()


ROWS = batch([{"message": f"row {number}"} for number in range(2_000)], {"message": "string"})


def test_tls(certificates: Certificates, secured: Receiver) -> None:
    trust = {"host": "localhost", "port": secured.port, "protocol": "tls", "ssl_ca": str(certificates.authority)}
    sink = SyslogSink(settings(**trust, ssl_certificate=str(certificates.client), ssl_key=str(certificates.client_key)))
    for _ in range(2):
        sink.batch_insert(ROWS)
    eventually(lambda: len(secured.messages) == 2 * len(ROWS), "all messages arrive")
    sink.close()
    assert [parsed(each).text for each in secured.messages[:2]] == [b"row 0", b"row 1"]


def test_certificates_that_do_not_fit(certificates: Certificates, secured: Receiver) -> None:
    given = {"host": "localhost", "port": secured.port, "protocol": "tls"}
    with pytest.raises(hr.JobError, match="ends the connection after the handshake") as refused:
        SyslogSink(settings(**given, ssl_ca=str(certificates.authority))).prepare(None)
    assert refused.value.option == "ssl_certificate"
    with pytest.raises(hr.JobError, match="the certificate of localhost is not trusted"):
        SyslogSink(settings(**given, ssl_ca=str(certificates.stranger_authority))).prepare(None)
    with pytest.raises(hr.JobError, match=r"cannot use 'missing\.pem'"):
        SyslogSink(settings(**given, ssl_ca="missing.pem")).prepare(None)


def test_a_connection_that_has_ended_is_opened_again() -> None:
    receiver = Receiver()
    sink = SyslogSink(settings(port=receiver.port))
    sink.batch_insert(ROWS)
    receiver.stop()
    with pytest.raises(hr.RetriableError, match="cannot be reached"):
        sink.batch_insert(ROWS)
    receiver.start()
    sink.batch_insert(ROWS)
    sink.close()
    receiver.stop()
    assert len(receiver.messages) == 2 * len(ROWS)


def test_a_receiver_that_takes_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sink = SyslogSink(settings(port=listening.getsockname()[1], timeout="100 ms"))
        large = batch([{"message": "x" * 50_000}] * 400, {"message": "string"})
        with pytest.raises(hr.RetriableError, match="cannot be reached"):
            sink.batch_insert(large)
    with pytest.raises(hr.RetriableError):
        SyslogSink(settings(port=free_port())).prepare(None)


def test_datagrams() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiving:
        receiving.bind(("127.0.0.1", 0))
        sink = SyslogSink(settings(port=receiving.getsockname()[1], protocol="udp"))
        sink.batch_insert(batch([{"message": "a\nb"}, {"message": ""}], {"message": "string"}))
        sink.close()
        assert [parsed(receiving.recv(1000)).text for _ in range(2)] == [b"a\nb", b""]


def test_a_job_and_its_dead_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    receiver = Receiver()
    bodies = [b'{"severity": %d, "message": "row %d"}' % (number % 9, number) for number in range(90)]
    stream = hr.stream("tests", "syslog").from_(
        MemorySource({"q": bodies}), format="json", schema={"severity": "int64", "message": "string"}
    )
    stream = stream.dead_letters(lambda bad: bad.select("reason").to_file("bad", format="json"))
    stream.to_syslog("127.0.0.1", port=receiver.port).run("light", show_progress=False)
    receiver.stop()
    assert [parsed(each).priority for each in receiver.messages] == [
        8 + number % 9 for number in range(90) if number % 9 < 8
    ]
    [bad] = (tmp_path / "bad").glob("*.json")
    assert bad.read_text().count("8 is not a severity") == 10
