"""The source that listens: who may send, what a body holds, and that every 200 is kept, with real senders and kills."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
import pytest
import urllib3
from headrace.testing import MemorySink, MemorySource
from headrace_contract import SourceContract
from headrace_http import HttpSource, HttpSourceSettings
from headrace_http.listener import HttpListener

from tests.eventually import eventually
from tests.listening_sources import HttpListening, each_closed, expect_refused, forget
from tests.servers.certificates import Certificates, make_certificates

KEY = "key of signatures"
_RECORDS_A_REQUEST = 50


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def make(directory: Path, **options: Any) -> HttpSource:
    return HttpSource(HttpSourceSettings.of({"port": 0, "buffer": str(directory / "buffer"), **options}, plugin="http"))


class Taking(HttpListening):
    """A source that listens, and a client that sends to it."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(make(directory, **options), client_ca=options.get("client_ca"))

    def send(
        self,
        body: bytes,
        kind: str = "application/json",
        *,
        method: str = "POST",
        url: str | None = None,
        **headers: str,
    ) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.pool.request(method, url or self.url, body=body, headers={"Content-Type": kind, **named})


@pytest.fixture
def taking(tmp_path: Path) -> Iterator[Callable[..., Taking]]:
    yield from each_closed(Taking, tmp_path)


class TestHttpSource(SourceContract):
    several_queues = False
    odd_bodies: ClassVar[Sequence[bytes]] = (
        b'"new\\nline"',
        b"[1, 2]",
        b'{"a": "\xc3\xa9"}',
        b'"' + b"x" * 100_000 + b'"',
    )
    many_writes = 5

    def make_source(self) -> HttpSource:
        return make(self.tmp_path)

    def add_queue(self) -> str:
        return "buffer"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        one = Taking(self.tmp_path)
        try:
            for is_json, group in groupby(bodies, _is_json):
                for some in batched(group, _RECORDS_A_REQUEST) if is_json else ([body] for body in group):
                    sent = one.send(b"[" + b",".join(some) + b"]") if is_json else one.send(some[0], "text/plain")
                    assert sent.status == 200
        finally:
            one.close()

    def forget(self, queue: str, before: int) -> None:
        forget(self.make_source(), queue, before)


def batched(bodies: Iterable[bytes], count: int) -> Iterator[list[bytes]]:
    rest = iter(bodies)
    while some := list(islice(rest, count)):
        yield some


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def test_an_answer_is_sent_at_once(taking: Callable[..., Taking]) -> None:
    """Its second part does not wait until the sender has confirmed the first one."""
    one = taking()
    assert one.send(b"[1]").status == 200
    listener = one.source._shared.listener
    assert isinstance(listener, HttpListener)
    (connection,) = listener._server.server_state.connections
    accepted = connection.transport.get_extra_info("socket")
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("kind", "body", "records"),
    [
        ("application/json", b' {"a":\n 1} ', [b'{"a":\n 1}']),
        ("application/json; charset=utf-8", b'[{"a": 1}, {"a": [2, 3]} , 7]', [b'{"a": 1}', b'{"a": [2, 3]}', b"7"]),
        ("application/json", b"[]", []),
        ("application/cloudevents+json", b"{}", [b"{}"]),
        ("application/x-ndjson", b'{"a": 1}\r\n\n{"a": 2}\n', [b'{"a": 1}', b'{"a": 2}']),
        ("text/plain", b"one line\nanother", [b"one line", b"another"]),
    ],
)
def test_bodies(taking: Callable[..., Taking], kind: str, body: bytes, records: list[bytes]) -> None:
    one = taking()
    for sent, headers in (
        (body, {}),
        (gzip.compress(body[:3]) + gzip.compress(body[3:]), {"Content_Encoding": "gzip"}),
    ):
        answer = one.send(sent, kind, **headers)
        assert (answer.status, answer.json()) == (200, {"records": len(records)})
    assert one.stored() == records * 2


@pytest.mark.parametrize(
    ("body", "kind", "headers", "status", "reason"),
    [
        (b"{", "application/json", {}, 400, "the body is not JSON"),
        (b"[1, {]", "application/json", {}, 400, "the body is not JSON"),
        (b"", "application/json", {}, 400, "the body is not JSON"),
        (b"[" * 20_000, "application/json", {}, 400, "the body is not JSON"),
        (b"{}", "application/xml", {}, 415, "content type 'application/xml' is not supported"),
        (b"{}", "application/json", {"Content_Encoding": "br"}, 415, "content encoding 'br' is not supported"),
        (b"{}", "application/json", {"Content_Encoding": "gzip"}, 400, "the body is not gzip"),
        (
            gzip.compress(b"{}", mtime=0)[:-4],
            "application/json",
            {"Content_Encoding": "gzip"},
            400,
            "ends in the middle",
        ),
        (
            gzip.compress(b" " * 100_000, mtime=0),
            "application/json",
            {"Content_Encoding": "gzip"},
            413,
            "more than 50000 bytes after",
        ),
        (b" " * 50_001, "application/json", {}, 413, "more than 50000 bytes"),
    ],
)
def test_what_is_refused_is_not_stored(
    taking: Callable[..., Taking], body: bytes, kind: str, headers: Mapping[str, str], status: int, reason: str
) -> None:
    one = taking(request_bytes=50_000)
    answer = one.send(body, kind, **headers)
    assert (answer.status, reason in answer.json()["error"]) == (status, True), answer.data
    assert one.stored() == []


def test_a_body_whose_length_is_not_known_is_cut_off_when_it_is_too_large(taking: Callable[..., Taking]) -> None:
    one = taking(request_bytes=50_000)
    answer = one.pool.request(
        "POST", one.url, body=iter([b" " * 40_000] * 3), headers={"Content-Type": "application/json"}
    )
    assert answer.status == 413
    assert one.stored() == []


def test_paths_methods_and_health(taking: Callable[..., Taking]) -> None:
    one = taking(path="/in/events", token="letmein")
    base = one.url.removesuffix("/in/events")
    assert one.send(b"{}", url=f"{base}/in", Authorization="Bearer letmein").status == 404
    assert one.send(b"", method="GET", Authorization="Bearer letmein").status == 405
    health = one.pool.request("GET", f"{base}/-/health")
    assert (health.status, health.json()) == (200, {"status": "ok"})
    assert one.send(b"{}", method="PUT", Authorization="Bearer letmein").status == 200


def test_a_token_is_asked_for(taking: Callable[..., Taking], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    one = taking(token="letmein")
    for headers in (
        {},
        {"Authorization": "Bearer letmeout"},
        {"Authorization": "Basic letmein"},
        {"Authorization": "Bearer"},
    ):
        answer = one.send(b"{}", **headers)
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert one.stored() == []
    assert one.send(b"{}", Authorization="bearer letmein").status == 200
    assert "letmein" not in caplog.text + repr(one.source.settings)
    assert one.url in caplog.text


def test_bodies_are_signed(taking: Callable[..., Taking]) -> None:
    one = taking(signature_key=KEY, signature_header="X-Signed")
    body = gzip.compress(b'{"a": 1}')
    signed = hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest()
    other = hmac.new(b"another key", body, hashlib.sha256).hexdigest()
    for given in ({}, {"X_Signed": "sha256="}, {"X_Signed": f"sha256={other}"}, {"X_Signed": "\u00fc"}):
        assert one.send(body, Content_Encoding="gzip", **given).status == 403
    assert one.send(body, Content_Encoding="gzip", X_Signed=f"sha256={signed}").status == 200
    assert one.stored() == [b'{"a": 1}']


def test_the_signatures_of_the_sink_fit(
    taking: Callable[..., Taking], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = taking(signature_key=KEY)
    bodies = [b'{"n": %d}' % number for number in range(1_000)]
    rows = hr.stream("tests", "forward").from_(MemorySource({"q": bodies}), format="json", schema={"n": "int64"})
    rows.to_http(one.url, signature_key=KEY, compress=True).run("light", show_progress=False)
    assert sorted(json.loads(each)["n"] for each in one.stored()) == list(range(1_000))


def test_a_full_buffer_is_answered_with_429(taking: Callable[..., Taking]) -> None:
    body = b"[" + b",".join([b'"' + b"x" * 1_000 + b'"'] * 50) + b"]"
    for when_full in ("block", "drop_newest"):
        one = taking(buffer_max_bytes=1024**2, when_full=when_full)
        statuses = [one.send(body).status for _ in range(40)]
        assert set(statuses) == {200, 429}
        assert len(one.stored()) == 50 * statuses.count(200)
        assert one.send(body).headers["Retry-After"] == "5"
        one.source.stored({hr.Queue("buffer"): hr.ReadPosition(one.reader.latest)})
        assert one.send(body).status == 200


def test_tls_with_certificates_of_senders(taking: Callable[..., Taking], tmp_path: Path) -> None:
    made: Certificates = make_certificates(tmp_path)
    given = {"ssl_certificate": str(made.server), "ssl_key": str(made.server_key), "ssl_client_ca": str(made.authority)}
    one = taking(**given)
    url = one.url.replace("127.0.0.1", "localhost")
    assert url.startswith("https://")
    known = urllib3.PoolManager(
        retries=False, ca_certs=str(made.authority), cert_file=str(made.client), key_file=str(made.client_key)
    )
    with known, urllib3.PoolManager(retries=False, ca_certs=str(made.authority)) as unknown:
        assert known.request("POST", url, body=b"{}", headers={"Content-Type": "application/json"}).status == 200
        with pytest.raises(urllib3.exceptions.HTTPError):
            unknown.request("POST", url, body=b"{}", headers={"Content-Type": "application/json"})


def test_a_port_or_a_certificate_that_cannot_be_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        source = make(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(hr.JobError, match=r"cannot listen on 127\.0\.0\.1 port"):
            source.open(hr.Queue("buffer"), hr.EARLIEST)
    (tmp_path / "nothing.pem").touch()
    with pytest.raises(hr.JobError, match="the certificate or its key cannot be used"):
        make(tmp_path, ssl_certificate=str(tmp_path / "nothing.pem")).open(hr.Queue("buffer"), hr.EARLIEST)


@pytest.mark.parametrize(
    ("options", "option", "message"),
    [
        ({"host": "0.0.0.0"}, "token", "anybody who reaches 0.0.0.0 could send records"),
        ({"host": "::", "token": "x"}, "ssl_certificate", "the token would be sent unencrypted"),
        ({"path": "events"}, "path", "is not a path"),
        ({"signature_header": "a b"}, "signature_header", "is not a name of a header"),
        ({"ssl_key": "key.pem"}, "ssl_key", "only together with ssl_certificate"),
        ({"port": 70_000}, "port", "65535"),
    ],
)
def test_options_that_cannot_be_used(tmp_path: Path, options: dict[str, Any], option: str, message: str) -> None:
    expect_refused(lambda: make(tmp_path, **options).settings.validate(), option, message)


@pytest.mark.parametrize(
    "options", [{"anonymous": True}, {"signature_key": "k"}, {"token": "x", "plaintext_login": True}, {"host": "::1"}]
)
def test_options_that_can(tmp_path: Path, options: dict[str, Any]) -> None:
    make(tmp_path, **{"host": "0.0.0.0", **options}).settings.validate()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_sends_to_a_running_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    port, sink = free_port(), MemorySink()
    stream = hr.stream("tests", "curl").from_http(port=port, buffer="buffer", format="json", schema={"n": "int64"})
    handle = stream.to(sink).start("light", checkpoint="state", checkpoint_interval="100 ms")
    try:
        (tmp_path / "lines").write_bytes(b'{"n": 1}\n{"n": 2}\n')
        address = f"http://127.0.0.1:{port}/"
        eventually(
            lambda: subprocess.run(["curl", "-sf", f"{address}-/health"], check=False).returncode == 0, "it listens"
        )
        kind = "Content-Type: application/x-ndjson"
        subprocess.run(
            ["curl", "-sfS", address, "-H", kind, "--data-binary", "@lines"], check=True, capture_output=True
        )
        eventually(lambda: sorted(row["n"] for row in sink.rows) == [1, 2], "rows arrive")
    finally:
        handle.stop()


JOB = """
import sys
import headrace as hr
(hr.stream("tests", "killed").from_http(port=int(sys.argv[1]), buffer="buffer", format="json", schema={"n": "int64"})
   .to_file("out", format="json").start("light", checkpoint="state", checkpoint_interval="50 ms").wait())
"""


def test_every_record_that_was_answered_with_200_is_there_once_though_the_job_is_killed(tmp_path: Path) -> None:
    """A sender sends one number after the other, the same again when it gets no answer; the job is killed five times meanwhile."""
    port, killed = free_port(), threading.Event()
    (tmp_path / "job.py").write_text(JOB)
    answered: set[int] = set()
    again: set[int] = set()

    def send() -> None:
        number = 0
        with urllib3.PoolManager(retries=False, timeout=5.0) as pool:
            while not killed.is_set():
                try:
                    body = b'{"n": %d}' % number
                    answer = pool.request(
                        "POST", f"http://127.0.0.1:{port}/", body=body, headers={"Content-Type": "application/json"}
                    )
                except urllib3.exceptions.HTTPError:
                    again.add(number)
                    killed.wait(0.01)
                    continue
                if answer.status == 200:
                    answered.add(number)
                    number += 1

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(5):
            seen = len(answered)
            job = subprocess.Popen([sys.executable, "job.py", str(port)], cwd=tmp_path)
            eventually(partial(_is_longer, answered, seen + 50), "records are accepted")
            job.send_signal(signal.SIGKILL)
            job.wait()
    finally:
        killed.set()
        sender.join()
    done = subprocess.run(
        [sys.executable, "-c", JOB.replace(".start(", ".run(").replace(".wait()", ""), str(port)],
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0
    found = [
        json.loads(line)["n"] for part in (tmp_path / "out").glob("*.json") for line in part.read_bytes().splitlines()
    ]
    assert answered <= set(found)
    twice = {number for number, count in Counter(found).items() if count > 1}
    assert twice <= again  # only what the sender has sent again
    assert len(again) <= 6  # the first one before the job listens, and one for each kill


def _is_longer(found: set[int], count: int) -> bool:
    return len(found) > count
