"""Servers that are not what they seem: where a login goes, and what an answer may take."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from headrace.foundation.errors import HeadraceError, JobError, OptionError, RetriableError
from headrace_elasticsearch import (
    ElasticsearchSink,
    ElasticsearchSinkSettings,
    ElasticsearchSource,
    ElasticsearchSourceSettings,
    answers,
)
from headrace_elasticsearch.connection import Connection
from scripted_server import ScriptedServer

from tests.raw_server import RawServer
from tests.servers.certificates import Certificates, make_certificates

PASSWORD = "s3same-0pen"


@pytest.fixture
def raw_server() -> Iterator[Callable[[Callable[[socket.socket], None]], RawServer]]:
    made: list[RawServer] = []

    def make(answer: Callable[[socket.socket], None]) -> RawServer:
        made.append(RawServer(answer))
        return made[-1]

    yield make
    for server in made:
        server.close()


def source(url: str, **options: object) -> ElasticsearchSource:
    given = {"url": url, "index": "t", "user": "reader", "password": PASSWORD, "request_timeout": "500 ms", **options}
    return ElasticsearchSource(ElasticsearchSourceSettings.of(given))


def refused(url: str, **options: object) -> HeadraceError:
    made = source(url, **options)
    with pytest.raises((JobError, RetriableError)) as caught:
        made.queues()
    made.close()
    assert PASSWORD not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    """Whoever can answer once must not get the login sent to another host, nor the request's answer from there."""
    other = ScriptedServer({})

    def redirect(connected: socket.socket) -> None:
        connected.sendall(f"HTTP/1.1 {status} Go\r\nlocation: {other.url}/t\r\ncontent-length: 0\r\n\r\n".encode())

    server = RawServer(redirect)
    error = refused(server.url)
    assert isinstance(error, JobError)
    assert f"status {status}" in str(error)
    assert other.requests == []
    other.close()
    server.close()


def test_a_login_goes_to_no_other_host_without_tls() -> None:
    with pytest.raises(OptionError, match="plaintext_login=True"):
        source("http://search.example:9200")


def test_an_answer_without_end_is_given_up(
    raw_server: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "ANSWER_BYTES_MAX", 8 * 1024**2)

    def endless(connected: socket.socket) -> None:
        connected.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            connected.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")

    error = refused(raw_server(endless).url, request_timeout="30 s")
    assert "the answer is longer than 8,388,608 bytes" in str(error)


def test_an_answer_that_trickles_is_given_up(
    raw_server: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_TIMEOUTS_MAX", 1)
    stop = threading.Event()

    def trickle(connected: socket.socket) -> None:
        connected.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
        while not stop.wait(0.02):
            connected.sendall(b" ")

    error = refused(raw_server(trickle).url, request_timeout="2 s")
    stop.set()
    assert "the answer has not ended after 2 s" in str(error)


def test_an_answer_that_unpacks_to_much_takes_little_memory(
    raw_server: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "ANSWER_BYTES_MAX", 8 * 1024**2)
    bomb = gzip.compress(bytes(256 * 1024**2))

    def bombard(connected: socket.socket) -> None:
        head = f"content-encoding: gzip\r\ncontent-length: {len(bomb)}\r\n\r\n"
        connected.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + head.encode() + bomb)

    tracemalloc.start()
    try:
        error = refused(raw_server(bombard).url, request_timeout="30 s")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "the answer is longer than" in str(error)
    assert peak < 64 * 1024**2


@pytest.mark.parametrize(
    "answer",
    [b"", b"\x00" * 1000, b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000],
    ids=["nothing", "zeros", "cut off", "headers without end"],
)  # fmt: skip
def test_an_answer_that_is_none(answer: bytes, raw_server: Callable[..., RawServer]) -> None:
    refused(raw_server(lambda connected: connected.sendall(answer)).url)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_answer_comes_whole_and_the_connection_is_used_again(packed: bool, chunked: bool) -> None:
    content = json.dumps({"values": [str(number) * 7 for number in range(200_000)]}).encode()
    sent = gzip.compress(content) if packed else content
    opened = []

    def answer(connected: socket.socket) -> None:
        opened.append(connected)
        for _ in range(2):
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            head += b"content-encoding: gzip\r\n" if packed else b""
            if chunked:
                pieces = [sent[at : at + 50_000] for at in range(0, len(sent), 50_000)]
                body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
                connected.sendall(head + b"transfer-encoding: chunked\r\n\r\n" + body)
            else:
                connected.sendall(head + b"content-length: %d\r\n\r\n" % len(sent) + sent)
            connected.recv(65536)

    server = RawServer(answer)
    connection = Connection(ElasticsearchSourceSettings.of({"url": server.url, "index": "t", "compress": packed}))
    for _ in range(2):
        assert connection.ask("GET", "/t") == json.loads(content)
    assert len(opened) == 1
    connection.close()
    server.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("trusted", ["of the system", "another authority", "another fingerprint"])
def test_a_server_whose_certificate_is_not_trusted_gets_no_login(trusted: str, certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    options = {
        "of the system": {},
        "another authority": {"ssl_ca": str(certificates.stranger_authority)},
        "another fingerprint": {"ssl_fingerprint": "00" * 32},
    }[trusted]
    server = ScriptedServer({}, context)
    error = refused(server.url, request_timeout="5 s", **options)
    assert isinstance(error, JobError)
    assert error.option == ("ssl_fingerprint" if "fingerprint" in trusted else "ssl_ca")
    assert server.url in str(error)
    assert "check the certificates" in str(error.hint)
    assert server.requests == [], "nothing was sent"
    made = source(server.url, request_timeout="5 s", ssl_ca=str(certificates.authority))
    with pytest.raises(
        (JobError, RetriableError)
    ):  # the listener does speak TLS: with trust it is asked, and has nothing to say
        made.queues()
    assert server.requests != []
    made.close()
    server.close()


@pytest.mark.parametrize(
    "answer",
    [{}, [], [1], "x", 7, None, {"status": "ok"}, {"t": 1}, {"t": {"settings": {}}}, {"version": "9"}, b"<html>It works!</html>"],
    ids=repr,
)  # fmt: skip
def test_another_server_is_named_as_such(answer: object) -> None:
    asked = {
        "GET /t/_settings/index.number_of_shards": (200, answer),
        "GET /": (200, answer),
        "GET /_resolve/index/*": (200, {}),
    }
    for prepare in (_asked_for_queues, _prepared):
        server = ScriptedServer(asked)
        with pytest.raises(JobError) as caught:
            prepare(server.url)
        assert caught.value.option in ("url", "index")
        assert server.url in str(caught.value) or "is not JSON" in str(caught.value)
        server.close()


def _asked_for_queues(url: str) -> None:
    made = source(url, request_timeout="5 s")
    try:
        made.queues()
    finally:
        made.close()


def _prepared(url: str) -> None:
    sink = ElasticsearchSink(ElasticsearchSinkSettings.of({"url": url, "index": "t", "create_index": True}))
    try:
        sink.prepare(None)
    finally:
        sink.close()
