"""The endpoint for Prometheus: its text, who may read it, and jobs that use it."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import headrace as hr
import pytest
from headrace.foundation.errors import JobError, MissingPluginError, OptionError
from headrace.interfaces import metrics as m
from headrace.interfaces.metrics import Family, Metric, Series, Snapshot
from headrace.testing import MemorySink, MemorySource
from headrace_metrics.prometheus import PrometheusExporter, prometheus_text
from prometheus_client.parser import text_string_to_metric_families

TOKEN = "a-token-of-enough-characters"


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what prometheus_client's own parser reads."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(text: str, name: str) -> float:
    found = [value for (each, _), value in samples(text).items() if each == name]
    assert found, f"no {name}"
    return sum(found)


def fetch(port: int, path: str = "/metrics", host: str | None = None, token: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if host is not None:
        request.add_header("Host", host)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def numbers(records: int = 1_000) -> MemorySource:
    bodies = [b'{"value": %d}' % number for number in range(records)]
    return MemorySource({"q0": [*bodies[::2], b"no json"], "q1": bodies[1::2]})


def job_of(source: MemorySource, sink: MemorySink) -> hr.Job:
    stream = hr.stream("team", "numbers").from_(source, format="json", schema={"value": "int64"})
    return stream.where("value % 4 = 0").to(sink)


def test_the_endpoint_gives_the_figures_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exporter, sink = PrometheusExporter(port=0), MemorySink()
    report = job_of(numbers(), sink).run("light", metrics=exporter)
    try:
        status, text = fetch(exporter.port)
    finally:
        exporter.close()
    assert status == 200
    assert report.records_read == total(text, "headrace_source_records_total") == 1_001
    assert sum(report.rows_written.values()) == total(text, "headrace_sink_rows_total") == len(sink.rows) == 250
    assert report.dead_letters == total(text, "headrace_dead_letters_total") == 1
    common = {"job_name": "team.numbers", "backend": "light"}
    found = samples(text)
    letters = {**common, "node": "memory", "error": "DecodeError"}
    assert found["headrace_dead_letters_total", tuple(sorted(letters.items()))] == 1
    state = {**common, "state": "finished"}
    assert found["headrace_job_state", tuple(sorted(state.items()))] == 1
    rows = {
        (name, dict(labels)["node"]): value
        for (name, labels), value in found.items()
        if name.startswith("headrace_node_")
    }
    assert rows["headrace_node_input_rows_total", "where"] == 1_000
    assert rows["headrace_node_output_rows_total", "where"] == 250
    assert (
        total(text, "headrace_source_io_bytes_total") == sum(len(b) for q in numbers().bodies.values() for b in q) + 999
    )


def test_an_endpoint_of_a_url_ends_with_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exporter = PrometheusExporter(port=0)
    exporter.open()
    port = exporter.port
    with pytest.raises(JobError, match=rf"no metrics endpoint at 127\.0\.0\.1:{port}"):
        job_of(numbers(), MemorySink()).run("light", metrics=f"prometheus://127.0.0.1:{port}")
    exporter.close()
    source, sink = numbers(), MemorySink()
    with job_of(source, sink).start("light", metrics=f"prometheus://127.0.0.1:{port}"):
        assert fetch(port)[0] == 200
    with pytest.raises(urllib.error.URLError):
        fetch(port)


def test_who_may_read() -> None:
    exporter = PrometheusExporter(port=0)
    exporter.open()
    try:
        assert fetch(exporter.port)[0] == 200
        assert fetch(exporter.port, host=f"localhost:{exporter.port}")[0] == 200
        assert fetch(exporter.port, host="[::1]")[0] == 200
        assert fetch(exporter.port, host="evil.example")[0] == 403
        assert fetch(exporter.port, "/other")[0] == 404
    finally:
        exporter.close()
    guarded = PrometheusExporter("0.0.0.0", 0, token=TOKEN)
    guarded.open()
    try:
        assert fetch(guarded.port)[0] == 401
        assert fetch(guarded.port, token=TOKEN + "x")[0] == 401
        assert fetch(guarded.port, token=TOKEN, host="host.example")[0] == 200
    finally:
        guarded.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("prometheus://0.0.0.0:9464", "reached from other machines, so a token is required"),
        ("prometheus://127.0.0.1:9464/figures", "unusable path"),
        ("prometheus://127.0.0.1:9464?tokenfile=x", "no option 'tokenfile'.*token_file"),
        ("prometheus://127.0.0.1:port", "unusable URL"),
        ("prometheus://", "names no host"),
        ("prometheus://127.0.0.1:0?token_file=/nowhere", "cannot be read: FileNotFoundError"),
    ],
)
def test_a_wrong_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"(?s){message}"):
        job_of(numbers(), MemorySink()).run("light", metrics=url)


def test_a_secret_in_a_url_is_refused_and_not_quoted() -> None:
    with pytest.raises(OptionError) as caught:
        job_of(numbers(), MemorySink()).run("light", metrics=f"prometheus://me:{TOKEN}@127.0.0.1:0")
    assert TOKEN not in str(caught.value)


def test_a_wrong_value_says_what_is_possible() -> None:
    with pytest.raises(OptionError, match="must be a URL or an exporter"):
        job_of(numbers(), MemorySink()).run("light", metrics=9464)
    with pytest.raises(MissingPluginError, match="prometheus"):
        job_of(numbers(), MemorySink()).run("light", metrics="promtheus://127.0.0.1:0")


def test_a_short_token_is_refused() -> None:
    with pytest.raises(OptionError, match="fewer than 16"):
        PrometheusExporter(token="short")


def test_label_values_are_escaped_and_histograms_are_cumulative() -> None:
    queue = 'a"b\\c\nd'
    families = (
        Family(m.SOURCE_RECORDS, (Series(("kafka", queue), 7.0),)),
        Family(m.CHECKPOINT_DURATION, (Series((), 2.5, (1, 0, 2, *[0] * 13)),)),
        Family(Metric("own.thing", "gauge", "By", "One of a plug-in.", ("node",)), (Series(("x",), 1.5),)),
    )
    text = prometheus_text([Snapshot("a.b", "light", families), Snapshot("c.d", "light", families[:1])])
    found = samples(text)
    assert (
        found[
            "headrace_source_records_total",
            tuple(sorted({"job_name": "c.d", "backend": "light", "source": "kafka", "queue": queue}.items())),
        ]
        == 7
    )
    buckets = {dict(labels)["le"]: value for (name, labels), value in found.items() if name.endswith("_bucket")}
    assert (buckets["0.001"], buckets["0.005"], buckets["+Inf"]) == (1, 3, 3)
    assert total(text, "headrace_own_thing_bytes") == 1.5


def test_a_snapshot_survives_its_way_from_a_runner() -> None:
    snapshot = Snapshot("a.b", "light", (Family(m.SINK_DURATION, (Series(("to",), 0.5, (1, *[0] * 15)),)),))
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
