"""``to_prometheus_remote_write``: into a real Prometheus, and against answers that it seldom gives."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
import urllib3
from headrace.testing import MemorySink, MemorySource
from headrace_otlp.remote_write_messages import WriteRequest
from headrace_otlp.snappy import unsnappy

from tests.eventually import eventually

sys.path.insert(0, str(Path(__file__).parents[2] / "http" / "tests"))
from receiver import OK, Receiver, Reply, Request, receiving

SCHEMA = {
    "time": "timestamp",
    "value": "float64",
    "host": "string",
    "code": "int64",
    "labels": "json",
    "stale": "boolean",
}
BEGIN_MS = 1_767_225_600_000


def sample(number: int, value: float | None = 1.0, **more: Any) -> dict[str, Any]:
    return {"time": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z", "value": value, "host": "h", **more}


def sent(url: str, rows: Sequence[Mapping[str, Any]], **options: Any) -> list[str]:
    """Write rows by a job; return the reasons of its dead letters."""
    letters = MemorySink()
    bodies = [json.dumps(row).encode() for row in rows]
    stream = hr.stream("test", "samples").from_(MemorySource({"q": bodies}), format="json", schema=SCHEMA)
    stream = stream.dead_letters(lambda bad: bad.to(letters))
    job = stream.to_prometheus_remote_write(url, **{"metric": "errors_total", "retry_timeout": "20 s", **options})
    job.run("light", show_progress=False)
    return [row["reason"] for row in letters.rows]


def series(receiver: Receiver) -> list[tuple[dict[str, str], list[tuple[int, float]]]]:
    found = []
    for request in receiver.stored:
        for each in WriteRequest.FromString(unsnappy(request.raw, 10**8)).timeseries:
            labels = [(label.name, label.value) for label in each.labels]
            assert labels == sorted(labels), "remote write wants labels in order"
            found.append((dict(labels), [(one.timestamp, one.value) for one in each.samples]))
    return found


def test_rows_of_one_series_are_together_and_in_order() -> None:
    rows = [sample(2), sample(1, 2.5), sample(3, host="other", code=200, labels={"zone": "a", "n": 1, "none": None})]
    with receiving() as receiver:
        assert sent(receiver.url, rows) == []
        [request] = receiver.stored
        assert series(receiver) == [
            ({"__name__": "errors_total", "host": "h"}, [(BEGIN_MS + 1000, 2.5), (BEGIN_MS + 2000, 1.0)]),
            (
                {"__name__": "errors_total", "code": "200", "host": "other", "n": "1", "zone": "a"},
                [(BEGIN_MS + 3000, 1.0)],
            ),
        ]
    assert request.headers["content-encoding"] == "snappy"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert request.headers["x-prometheus-remote-write-version"] == "0.1.0"


def test_errors_of_the_server_are_tried_again_and_samples_that_it_refuses_are_dead_letters() -> None:
    answers = iter([(503, {}, b""), (429, {"Retry-After": "0"}, b""), (500, {}, b"")])

    def answer(request: Request) -> Reply:
        found = WriteRequest.FromString(unsnappy(request.raw, 10**8))
        if any(one.value == 13 for each in found.timeseries for one in each.samples):
            return (400, {}, b"out of order sample")
        return next(answers, OK)

    with receiving(answer) as receiver:
        reasons = sent(receiver.url, [sample(n, float(n)) for n in range(20)])
        values = sorted(value for _, samples in series(receiver) for _, value in samples)
    assert values == [float(n) for n in range(20) if n != 13]
    [reason] = reasons
    assert "out of order sample" in reason


def test_rows_that_are_no_samples() -> None:
    rows = [sample(0), sample(1, None), sample(2, None, stale=True), {**sample(3), "time": None},
            sample(4, labels={"no label": "x"}), sample(5, labels={"x": [1]}), sample(6, labels=[])]  # fmt: skip
    with receiving() as receiver:
        reasons = sent(receiver.url, rows)
        times = [time for _, samples in series(receiver) for time, _ in samples]
    assert times == [BEGIN_MS, BEGIN_MS + 2000]
    assert [next(part for part in PARTS if part in reason) for reason in reasons] == PARTS


PARTS = ["'value' is NULL", "'time' is NULL", "not a name of a label", "is not a text", "not a JSON object"]


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ({"time": "string", "value": "int64"}, {"metric": "m"}, "no column 'time' of type timestamp"),
        ({"time": "timestamp"}, {"metric": "m"}, "no column 'value' with numbers"),
        ({"time": "timestamp", "value": "int64"}, {}, "must be given exactly once"),
        ({"time": "timestamp", "value": "int64", "name": "string"}, {"metric": "m"}, "must be given exactly once"),
        ({"time": "timestamp", "value": "int64"}, {"metric": "a b"}, "is not a name of a metric"),
        ({"time": "timestamp", "value": "int64", "x": "float64"}, {"metric": "m"}, "cannot be a label"),
        ({"time": "timestamp", "value": "int64", "x.y": "string"}, {"metric": "m"}, "cannot be a label"),
    ],
)
def test_wrong_columns(columns: dict[str, str], options: dict[str, str], problem: str) -> None:
    stream = hr.stream("test", "samples").from_(MemorySource({"q": []}), format="json", schema=columns)
    with pytest.raises(hr.OptionError, match=problem):
        stream.to_prometheus_remote_write("http://127.0.0.1:1/", **options)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """A real Prometheus that takes remote write, with an empty store."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    (tmp_path / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n")
    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.enable-remote-write-receiver",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with (tmp_path / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        with urllib3.PoolManager(retries=False) as pool:

            def ready() -> bool:
                assert server.poll() is None, (tmp_path / "prometheus.log").read_text()[-2000:]
                try:
                    return bool(pool.request("GET", f"http://127.0.0.1:{port}/-/ready").status == 200)
                except urllib3.exceptions.HTTPError:
                    return False

            eventually(ready, "prometheus is ready")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def asked(prometheus: str, query: str) -> list[Any]:
    with urllib3.PoolManager() as pool:
        found = pool.request(
            "GET", f"{prometheus}/api/v1/query", fields={"query": query, "time": "2026-01-01T01:00:00Z"}
        )
    return list(found.json()["data"]["result"])


def test_a_real_prometheus(prometheus: str) -> None:
    url = f"{prometheus}/api/v1/write"
    rows = [sample(n, float(n), host=f"h{n % 3}", labels={"zone": "é"}) for n in range(600)]
    assert sent(url, rows, request_rows=100) == []
    found = {one["metric"]["host"]: one for one in asked(prometheus, "errors_total[1h]")}
    assert sorted(found) == ["h0", "h1", "h2"]
    for number in range(3):
        each = found[f"h{number}"]
        assert each["metric"] == {"__name__": "errors_total", "host": f"h{number}", "zone": "é"}
        wanted = [[BEGIN_MS / 1000 + n, str(n)] for n in range(number, 600, 3)]
        assert [[float(at), value] for at, value in each["values"]] == wanted
    # The same once more: the newest sample of each series is known, older ones come too late for it.
    reasons = sent(url, rows[-3:])
    assert reasons == []
    reasons = sent(
        url,
        [sample(10, 5.0, host="h0", labels={"zone": "é"}), sample(700, 7.0, host="h0", labels={"zone": "é"})],
        request_rows=1,
    )
    assert len(reasons) == 1
    assert "out of order" in reasons[0]
    [last] = asked(prometheus, 'errors_total{host="h0"}[1h]')
    assert last["values"][-1] == [BEGIN_MS / 1000 + 700, "7"]
    assert sent(url, [sample(800, None, host="h0", labels={"zone": "é"}, stale=True)]) == []
    assert asked(prometheus, 'errors_total{host="h0"} @ 1767226399') != []
    assert asked(prometheus, 'errors_total{host="h0"} @ 1767226401') == [], "the series has ended"
