"""Requests of the HTTP sink: bodies, keys, answers, secrets. Each against a web server."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET
from headrace.interfaces.sink import SinkBatch
from headrace.testing import MemorySink, MemorySource
from headrace_http import HttpSink, HttpSinkSettings
from receiver import OK, Receiver, Reply, Request, receiving

from tests.eventually import eventually

ROWS = [{"n": number} for number in range(6)]


def send(url: str, rows: list[dict[str, Any]] = ROWS, schema: Any = None, **options: Any) -> hr.JobReport:
    """Run a job that sends rows of one queue; a refused row stops it unless ``dead_letters`` are given."""
    source = MemorySource({"a": [json.dumps(row).encode() for row in rows]})
    stream = hr.stream("test", "hooks").from_(source, format="json", schema=schema or {"n": "int64"})
    report: hr.JobReport = stream.to_http(url, **options).run("light", show_progress=False)
    return report


def batch_of(numbers: Iterable[int]) -> SinkBatch:
    frame = pl.DataFrame({"n": list(numbers)}).with_row_index(OFFSET).with_columns(
        pl.col(OFFSET).cast(pl.Int64), pl.lit(0, dtype=pl.Int32).alias(INDEX)
    )  # fmt: skip
    return SinkBatch(hr.Queue("a"), frame, None, "test.hooks.sink")


def refusing(*numbers: int, status: int = 422) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        bad = [row for row in request.rows() if row["n"] in numbers]
        return (status, {}, f"no: {bad[0]['n']}".encode()) if bad else OK

    return answer


# -------------------------------------------------------------------------------------------------------- bodies, keys


@pytest.mark.parametrize(
    ("options", "bodies"),
    [
        ({}, [b'[{"n":0},{"n":1},{"n":2},{"n":3},{"n":4},{"n":5}]']),
        ({"request_rows": 4}, [b'[{"n":0},{"n":1},{"n":2},{"n":3}]', b'[{"n":4},{"n":5}]']),
        ({"request_bytes": 20}, [b'[{"n":0},{"n":1}]', b'[{"n":2},{"n":3}]', b'[{"n":4},{"n":5}]']),
        ({"request_rows": 3, "body": "ndjson"}, [b'{"n":0}\n{"n":1}\n{"n":2}\n', b'{"n":3}\n{"n":4}\n{"n":5}\n']),
        ({"body": "row"}, [b'{"n":%d}' % n for n in range(6)]),
        ({"request_rows": 5, "template": '{"to": "ops", "rows": $rows}'},
         [b'{"to": "ops", "rows": [{"n":0},{"n":1},{"n":2},{"n":3},{"n":4}]}', b'{"to": "ops", "rows": [{"n":5}]}']),
    ],
)  # fmt: skip
def test_bodies(options: dict[str, Any], bodies: list[bytes]) -> None:
    with receiving() as receiver:
        send(receiver.url, **options)
    assert [request.body for request in receiver.requests] == bodies
    assert len(set(receiver.keys())) == len(bodies)


def test_values_as_json_has_them() -> None:
    source = MemorySource({"a": [b"{}"]})
    stream = hr.stream("test", "hooks").from_(source, format="json", schema={"x": "string"})
    job = stream.select(f="CAST(0.1 AS FLOAT)", d="CAST('-0.000000000000000001' AS DECIMAL(38, 18))", j="'{\"a\":[1]}'")
    with receiving() as receiver:
        job.to_http(receiver.url, json_columns=["j"]).run("light", show_progress=False)
    [request] = receiver.requests
    [row] = json.loads(request.body, parse_float=Decimal)
    assert row == {"f": Decimal("0.1"), "d": "-0.000000000000000001", "j": {"a": [1]}}


def test_rows_have_ids_and_requests_say_which_rows_they_hold() -> None:
    with receiving() as receiver:
        send(receiver.url, row_id="id", request_rows=4)
    rows = [row for request in receiver.requests for row in request.rows()]
    assert [row["n"] for row in rows] == list(range(6))
    assert len({row["id"] for row in rows}) == 6
    places = [
        (r.headers["headrace-queue"], r.headers["headrace-first"], r.headers["headrace-last"])
        for r in receiver.requests
    ]
    assert [place[1:] for place in places] == [("0.0", "3.0"), ("4.0", "5.0")]
    assert all("a" in place[0] for place in places)


# -------------------------------------------------------------------------------------------------------------- answers


def test_bad_rows_are_found_and_are_dead_letters() -> None:
    letters = MemorySink()
    source = MemorySource({"a": [json.dumps(row).encode() for row in ROWS]})
    stream = hr.stream("test", "hooks").from_(source, format="json", schema={"n": "int64"})
    with receiving(refusing(1, 4)) as receiver:
        report = (
            stream.dead_letters(lambda bad: bad.to(letters)).to_http(receiver.url).run("light", show_progress=False)
        )
    assert sorted(row["n"] for row in receiver.rows()) == [0, 2, 3, 5]
    assert report.dead_letters == 2
    reasons = [str(row) for row in letters.rows]
    assert sorted("no: 1" in reason for reason in reasons) == [False, True]
    assert all("answered with status 422" in reason for reason in reasons)


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    answers: list[Reply] = [(429, {"retry-after": "7"}, b"slow down"), (503, {}, b""), OK]
    with receiving(lambda request: answers.pop(0)) as receiver:
        sink = HttpSink(HttpSinkSettings.of({"url": receiver.url}, plugin="http"))
        sink.check(None)
        batch = batch_of([1, 2])
        with pytest.raises(hr.RetriableError, match="status 429: slow down") as first:
            sink.batch_insert(batch)
        assert first.value.after == timedelta(seconds=7)
        with pytest.raises(hr.RetriableError, match="status 503"):
            sink.batch_insert(batch)
        sink.batch_insert(batch)
        sink.close()
    assert len(set(receiver.keys())) == 1, "the same request has the same key"
    assert [row["n"] for row in receiver.rows()] == [1, 2]


def test_what_is_stored_is_not_sent_again() -> None:
    answers = [OK, (503, {}, b""), OK, OK]
    with receiving(lambda request: answers.pop(0)) as receiver:
        sink = HttpSink(HttpSinkSettings.of({"url": receiver.url, "request_rows": 2}, plugin="http"))
        sink.check(None)
        batch = batch_of(range(6))
        with pytest.raises(hr.RetriableError):
            sink.batch_insert(batch)
        sink.batch_insert(batch)
        sink.close()
    assert [[row["n"] for row in request.rows()] for request in receiver.requests] == [[0, 1], [2, 3], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "check the token"),
        (404, "is the path right"),
        (302, "redirects are not followed"),
        (418, "retry_statuses"),
    ],
)
def test_what_a_person_must_mend_stops_the_job(status: int, hint: str) -> None:
    with receiving(lambda request: (status, {}, b"because")) as receiver, pytest.raises(hr.JobFailedError) as failed:
        send(receiver.url)
    assert f"answered with status {status}: because" in str(failed.value.__cause__)
    assert hint in str(failed.value.__cause__)


# -------------------------------------------------------------------------------------------------------------- secrets


def test_secrets_are_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret-token")
    monkeypatch.setenv("KEY", "s3cret-key")
    monkeypatch.setenv("END", "s3cret-end")
    options: dict[str, Any] = {"token": "${TOKEN}", "signature_key": "${KEY}", "secret_path": "${END}"}
    with (
        receiving(lambda request: (403, {}, b"you sent s3cret-token")) as receiver,
        pytest.raises(hr.JobFailedError) as failed,
    ):
        send(receiver.url, **options)
    [first, *_] = receiver.requests
    assert first.path == "/hook/s3cret-end"
    assert first.headers["authorization"] == "Bearer s3cret-token"
    digest = hmac.new(b"s3cret-key", first.raw, hashlib.sha256).hexdigest()
    assert first.headers["x-hub-signature-256"] == f"sha256={digest}"
    shown = (
        str(failed.value) + str(failed.value.__cause__) + repr(HttpSinkSettings.of({"url": receiver.url, **options}))
    )
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": "https://ann:secret@example.org/"}, "must not be in the address"),
        ({"url": "http://example.org/", "token": "x"}, "the address has no TLS"),
        ({"url": "ftp://example.org/"}, "it is not an address"),
        ({"url": "https://example.org/", "headers": {"Authorization": "x"}}, "use token"),
        ({"url": "https://example.org/", "headers": {"X": "a\nb"}}, "not printable"),
        ({"url": "https://example.org/", "template": "{}"}, "must occur in it exactly once"),
        ({"url": "https://example.org/", "template": "{$rows"}, "it is not JSON"),
        ({"url": "https://example.org/", "user": "ann"}, "give both user and password"),
        ({"url": "https://example.org/", "retry_statuses": [422]}, "also in dead_letter_statuses"),
        ({"url": "http://example.org/", "ssl_ca": "x.pem"}, "no TLS"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(hr.OptionError, match=reason):
        HttpSinkSettings.of(options, plugin="http").validate()


# ---------------------------------------------------------------------------------------------------------------- kills

PROGRAM = """
import sys
import headrace as hr
(hr.stream("test", "hooks").from_file("in.ndjson", format="json", schema={"n": "int64"})
   .to_http(sys.argv[1], request_rows=10).run("light", checkpoint="state", until="end", max_batch_records=50, show_progress=False))
"""


def run_and_kill(place: Path, receiver: Receiver, requests: int) -> None:
    """Run the job, hold the answer to its request of that number, and kill the process while it waits for the answer."""
    held, go_on = threading.Event(), threading.Event()
    number = itertools.count(1)

    def answer(request: Request) -> Reply:
        if next(number) == requests:
            held.set()
            go_on.wait()
        return OK

    receiver.answer = answer
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, receiver.url], cwd=place)
    eventually(lambda: held.is_set() or program.poll() is not None, "a request that waits")
    program.kill()
    go_on.set()
    assert program.wait() == -signal.SIGKILL


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_after_kills_keys_tell_a_receiver_what_it_has(tmp_path: Path, kills: int) -> None:
    (tmp_path / "in.ndjson").write_text("".join(f'{{"n": {n}}}\n' for n in range(60 * kills)))
    with receiving() as receiver:
        for _ in range(kills):
            run_and_kill(tmp_path, receiver, 3)
        receiver.answer = lambda request: OK
        subprocess.run([sys.executable, "-c", PROGRAM, receiver.url], cwd=tmp_path, check=True)
    assert {row["n"] for row in receiver.rows()} == set(range(60 * kills))
    kept = {request.headers["idempotency-key"]: request for request in receiver.stored}
    assert Counter(row["n"] for request in kept.values() for row in request.rows()) == Counter(range(60 * kills))
