"""Figures are the same on both backends, and equal to the report; what dashboards and alerts name is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import headrace as hr
import pytest
from headrace.interfaces import metrics as m
from headrace.interfaces.backend import JobReport
from headrace.interfaces.metrics import Metric, Snapshot
from headrace.runtime.job_meter import metric_definitions
from headrace_metrics import PrometheusExporter
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
RULES = {"even": "v % 2 = 0", "third": "v % 3 = 0", "never": "v < 0"}
RECORDS, BAD, LATE = 3_000, 7, 5


@dataclass(frozen=True)
class Ended:
    report: JobReport
    snapshot: Snapshot
    text: str


def write_input(directory: Path) -> None:
    """Two files with an event time that grows, some bad records, and some that come too late."""
    directory.mkdir()
    for part in range(2):
        lines = [
            json.dumps({"k": f"k{v % 5}", "v": v, "ts": f"2026-05-06 {10 + v // 600:02d}:{v // 10 % 60:02d}:00"})
            for v in range(part, RECORDS, 2)
        ]
        lines += ["no json"] * (BAD if part else 0)
        lines += [json.dumps({"k": "late", "v": 1, "ts": "2020-01-01 00:00:00"})] * (LATE if part else 0)
        (directory / f"{part}.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(backend: str, directory: Path, **options: int) -> Ended:
    write_input(directory / "in")
    schema = {"k": "string", "v": "int64", "ts": "timestamp"}
    stream = hr.stream("figures", "all").from_file(f"{directory}/in/*.ndjson", format="json", schema=schema)
    matched = stream.rules(RULES, output="tag").select("k", "v", "ts")
    job = matched.where("v % 10 = 0").to_file(directory / "tens", format="json", name="tens")
    counted = matched.key_by("k").window(hr.tumbling("1 hour", on="ts")).agg(n="count(*)")
    job = job.also(counted.to_file(directory / "windows", format="json", name="windows"))
    bad = stream.dead_letters().to_file(directory / "bad", format="json", name="bad")
    exporter = PrometheusExporter(port=0)
    try:
        handle = job.also(bad).start(
            backend, until="end", metrics=exporter, checkpoint=directory / "state", show_progress=False, **options
        )
        report = handle.wait()
        return Ended(report, handle.metrics(), exporter.text())
    finally:
        exporter.close()


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run("light", tmp_path_factory.mktemp("light"))


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run("light", tmp_path_factory.mktemp("workers"), workers=2)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run("spark", tmp_path_factory.mktemp("spark"))


def by_labels(ended: Ended, metric: Metric) -> dict[tuple[str, ...], float]:
    return {
        each.labels: each.value
        for family in ended.snapshot.families
        if family.metric.name == metric.name
        for each in family.series
    }


@pytest.fixture(params=["light", "workers", pytest.param("spark", marks=pytest.mark.spark)])
def ended(request: pytest.FixtureRequest) -> Ended:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Ended)
    return found


def test_the_last_figures_equal_the_report(ended: Ended) -> None:
    report, snapshot = ended.report, ended.snapshot
    assert report.records_read == RECORDS + BAD + LATE
    assert snapshot.value(m.SOURCE_RECORDS) == report.records_read
    assert by_labels(ended, m.SINK_ROWS) == {(name,): rows for name, rows in report.rows_written.items()}
    assert report.rows_written["tens"] == RECORDS // 10
    assert snapshot.value(m.DEAD_LETTERS) == report.dead_letters == BAD
    assert by_labels(ended, m.DEAD_LETTERS) == {
        (each.origin, each.error): each.count for each in report.dead_letter_reasons
    }
    assert snapshot.value(m.LATE_ROWS) == report.late_rows == LATE
    assert snapshot.value(m.QUEUE_LAG) == 0
    assert by_labels(ended, m.JOB_STATE)[("finished",)] == 1


def test_what_workers_and_threads_count_adds_up(ended: Ended) -> None:
    files = sum(each.value for each in next(f for f in ended.snapshot.families if f.metric == m.SOURCE_IO).series)
    assert files > 50 * RECORDS
    rows_in, rows_out = by_labels(ended, m.NODE_INPUT_ROWS), by_labels(ended, m.NODE_OUTPUT_ROWS)
    assert rows_in[("file",)] == ended.report.records_read
    assert rows_out[("file",)] == rows_in[("rules",)] == rows_out[("rules",)] == RECORDS + LATE
    assert rows_out[("where",)] == RECORDS // 10
    hits = {rule: value for (_, rule), value in _hits(ended).items()}
    assert hits == {"even": RECORDS / 2, "third": RECORDS / 3}
    sizes = by_labels(ended, m.SINK_IO)
    assert set(sizes) == {("tens",), ("windows",), ("bad",)}
    assert by_labels(ended, m.NODE_DURATION)[("rules",)] > 0
    assert ended.snapshot.value(m.CHECKPOINT_TIME) > 1.7e9
    assert ended.snapshot.value(m.STATE_SIZE) > 0


def _hits(ended: Ended) -> dict[tuple[str, ...], float]:
    return by_labels(ended, metric_definitions()["rule.hits"])


@pytest.mark.spark
def test_both_backends_count_the_same_in_front_of_the_shuffle(light: Ended, spark: Ended) -> None:
    for metric in (m.NODE_INPUT_ROWS, m.NODE_OUTPUT_ROWS):
        one, other = by_labels(light, metric), by_labels(spark, metric)
        for node in ("file", "rules", "select", "where"):
            assert one[(node,)] == other[(node,)], (metric.name, node)
    for metric in (m.SOURCE_IO, m.SINK_ROWS, m.DEAD_LETTERS, metric_definitions()["rule.hits"]):
        assert by_labels(light, metric) == by_labels(spark, metric), metric.name


# ------------------------------------------------------------------------------------------- names in files and pages


def known_names() -> set[str]:
    """Return each name that a scrape can give."""
    names = set()
    for each in [*m.METRICS.values(), *metric_definitions().values()]:
        suffixes = ("_bucket", "_sum", "_count") if each.kind == "histogram" else ("",)
        names |= {each.prometheus_name + suffix for suffix in suffixes}
    return names


#: What only some jobs have: records with a time, several starts, servers that were away, a budget of memory.
RARE = {
    m.RECORD_LATENCY, m.QUEUE_TIME, m.RESTARTS, m.SINK_RETRIES, m.SOURCE_RETRIES, m.MEMORY_USED, m.MEMORY_PART,
    m.SOURCE_RENEWALS,
}  # fmt: skip


def test_a_job_gives_every_figure_that_is_declared(light: Ended) -> None:
    given = {sample.name for family in text_string_to_metric_families(light.text) for sample in family.samples}
    rare = {name for name in known_names() for metric in RARE if name.startswith(metric.prometheus_name)}
    assert given <= known_names()
    assert known_names() - rare == given - rare


@pytest.mark.parametrize(
    "path", ["deploy/grafana/headrace-jobs.json", "deploy/prometheus/headrace-alerts.yaml", "docs/metrics.md"]
)
def test_every_name_in_a_file_is_one_that_jobs_give(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    named = {name for name in re.findall(r"\bheadrace_[a-z_]+", text) if name != "headrace_metrics"}
    assert len(named) > 8
    known = known_names() | ({each.prometheus_name for each in m.METRICS.values()} if path.endswith(".md") else set())
    assert named - known == set()


def test_the_dashboard_shows_every_family() -> None:
    text = (ROOT / "deploy/grafana/headrace-jobs.json").read_text(encoding="utf-8")
    left = {each.name for each in m.METRICS.values() if each.prometheus_name not in text}
    # Sums of the others in bytes, and what another figure is made of.
    assert left == {"node.input.rows", "node.input.size", "node.output.size", "checkpoint.io", "queue.record.timestamp",
                    "job.uptime"}  # fmt: skip
    panels = json.loads(text)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10


def test_the_page_has_a_line_for_every_figure() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    for each in [*m.METRICS.values(), *metric_definitions().values()]:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        line = f"| `{each.prometheus_name}` | `{each.full_name}` | {each.kind} | {labels} | {each.help} |"
        assert line in page.splitlines()


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    first, second, third = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.ndjson").write_text('{"id": "a", "amount": 200}\n', encoding="utf-8")
    names: dict[str, object] = {}
    exec(first.replace(":9464", ":0"), names)
    exec(second.replace("port=9464", "port=0"), names)
    assert (
        "configure(" in third
    )  # it would change the logging of the tests; core/tests/foundation/test_logs.py calls it


# ---------------------------------------------------------------------------------------------- the real Prometheus


@pytest.mark.servers
@pytest.mark.parametrize(
    "arguments",
    [("check", "rules", "headrace-alerts.yaml"), ("test", "rules", "headrace-alerts-test.yaml")],
    ids=["check", "test"],
)
def test_prometheus_takes_the_alerts(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([_promtool(), *arguments], cwd=ROOT / "deploy" / "prometheus", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.servers
def test_prometheus_reads_the_text(light: Ended) -> None:
    done = subprocess.run([_promtool(), "check", "metrics"], input=light.text, capture_output=True, text=True)
    assert "error" not in done.stderr.lower(), done.stderr
    # 3: it can be read, but a name is not to its taste.
    assert done.returncode in (0, 3), done.stderr


def _promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool: apt-get install prometheus")
    return found
