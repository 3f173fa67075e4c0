"""A pipeline gives the rows that the same job in Python gives, on both backends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace_pipeline import pipeline
from pipeline_files import Write

ORDERS = [
    {"id": n, "customer": f"c{n % 7}", "amount": f"{n * 1.25:.2f}", "at": f"2026-01-01 00:00:{n % 60:02d}"}
    for n in range(200)
] + [{"id": "none"}]
LOG = [
    f'192.0.2.{n % 9} - - [10/Oct/2000:13:55:{n % 60:02d} -0700] "GET /p{n} HTTP/1.1" {200 + n % 4 * 100} {n} "-" "c"'
    for n in range(100)
] + ["no request"]
SCHEMA = {"id": "int64", "customer": "string", "amount": "decimal(10, 2)", "at": "timestamp"}
SOURCE = """
      orders:
        connector: file
        path: orders.ndjson
        format: json
        schema: {id: BIGINT, customer: STRING, amount: "DECIMAL(10, 2)", at: TIMESTAMP_LTZ(3)}
        metadata: {queue: queue, number: offset}
"""


def orders(begin: hr.Pipeline) -> hr.Stream:
    stream: hr.Stream = begin.from_file(
        "orders.ndjson", format="json", schema=SCHEMA, metadata={"queue": "queue", "number": "offset"}
    )
    return stream


def simple(begin: hr.Pipeline) -> hr.Job:
    chosen = orders(begin).where("amount > 10 AND customer LIKE 'c%'").with_columns(half="amount / 2", one="1")
    named = chosen.drop("queue").rename({"at": "time"})
    job: hr.Job = named.select("id", "upper(customer) AS who", "half", "time", "number").to_file(
        "out/rows", format="json"
    )
    return job


def scripted(begin: hr.Pipeline) -> hr.Job:
    text = "big = amount > 100; IF big THEN customer = 'x'; END; WHERE id > 5"
    job: hr.Job = (
        orders(begin).script(text).select(who="customer", big="big", id="id").to_file("out/rows", format="json")
    )
    return job


def log_lines(begin: hr.Pipeline) -> hr.Job:
    lines = begin.from_file("access.log", format="raw")
    found = lines.grok("^%{COMBINEDAPACHELOG}$", on="line", names="ecs").where('"http.response.status_code" >= 400')
    job: hr.Job = found.select('"url.original"', '"http.response.status_code"').to_file("out/rows", format="json")
    return job


def two_ways(begin: hr.Pipeline) -> hr.Job:
    read = orders(begin)
    small, large = read.where("amount < 50").select("id"), read.where("amount > 200").select("id")
    job: hr.Job = small.union(large).to_file("out/rows", format="json").also(large.to_file("out/large", format="csv"))
    return job


def enriched(begin: hr.Pipeline) -> hr.Job:
    customers = begin.from_file("customers.csv", format="csv", schema={"customer": "string", "team": "string"})
    found = orders(begin).lookup_join(customers.where("team <> 'none'"), on="customer", how="left")
    judged = found.rules([{"id": "large", "expression": "amount > 100", "severity": "high"}], output="tag")
    parts = judged.select("id", "team", "rule_ids", "amount").split(ours="team = 'one'", large="amount > 200")
    return hr.job(
        parts.ours.to_file("out/ours", format="json"), parts.large.to_file("out/large", format="json"),
        parts.rest.to_file("out/others", format="json"),
    )  # fmt: skip


def counted(begin: hr.Pipeline) -> hr.Job:
    read = orders(begin)
    window = read.key_by(who="upper(customer)").window(hr.sliding("40 s", "20 s", on="at"), late="1 min")
    running = read.where("id >= 0").key_by("customer").agg(n="count(*)", total="sum(amount)")
    return hr.job(
        window.agg(n="count(*)", most="max(amount)").to_file("out/windows", format="json"),
        running.to_file("out/running", format="changelog-json"),
    )


def nested(begin: hr.Pipeline) -> hr.Job:
    read = orders(begin).with_columns(payload="'{\"a\": ' || CAST(id AS STRING) || '}'").select("id", "payload")
    job: hr.Job = read.parse_format("json", on="payload", schema={"a": "int64"}).to_file("out/rows", format="json")
    return job


CASES: dict[str, tuple[Callable[[hr.Pipeline], hr.Job], str]] = {
    "simple": (simple, f"""
    name: same
    sources: {SOURCE}
    steps:
      - where: amount > 10 AND customer LIKE 'c%'
      - with_columns: {{half: amount / 2, one: 1}}
      - drop: queue
      - rename: {{at: time}}
      - select: [id, upper(customer) AS who, half, time, number]
    sinks:
      rows: {{connector: file, path: out/rows, format: json}}
    """),
    "scripted": (scripted, f"""
    name: same
    sources: {SOURCE}
    steps:
      - script: |
          big = amount > 100; IF big THEN customer = 'x'; END; WHERE id > 5
      - select: {{who: customer, big: big, id: id}}
    sinks:
      rows: {{connector: file, path: out/rows, format: json}}
    """),
    "log lines": (log_lines, """
    name: same
    sources:
      lines: {connector: file, path: access.log, format: raw}
    steps:
      - parse: {grok: "^%{COMBINEDAPACHELOG}$", on: line, names: ecs}
      - where: '"http.response.status_code" >= 400'
      - select: ['"url.original"', '"http.response.status_code"']
    sinks:
      rows: {connector: file, path: out/rows, format: json}
    """),
    "two ways": (two_ways, f"""
    name: same
    sources: {SOURCE}
    steps:
      - where: amount < 50
      - select: [id]
        as: small
      - from: orders
        where: amount > 200
      - select: [id]
        as: large
      - from: small
        union: [large]
    sinks:
      rows: {{connector: file, path: out/rows, format: json}}
      large: {{from: large, connector: file, path: out/large, format: csv}}
    """),
    "enriched": (enriched, f"""
    name: same
    sources: {SOURCE}
      customers: {{connector: file, path: customers.csv, format: csv, schema: {{customer: string, team: string}}}}
    steps:
      - from: customers
        where: team <> 'none'
        as: known
      - from: orders
        lookup: {{table: known, on: customer, how: left}}
      - rules: {{inline: [{{id: large, expression: amount > 100, severity: high}}], output: tag}}
      - select: [id, team, rule_ids, amount]
      - route:
          outputs:
            ours: team = 'one'
            large: amount > 200
          default: others
    sinks:
      ours: {{from: ours, connector: file, path: out/ours, format: json}}
      large: {{from: large, connector: file, path: out/large, format: json}}
      others: {{from: others, connector: file, path: out/others, format: json}}
    """),
    "counted": (counted, f"""
    name: same
    sources: {SOURCE}
    steps:
      - from: orders
        aggregate:
          by: {{who: upper(customer)}}
          window: {{sliding: 40 s, every: 20 s, on: at}}
          late: 1 min
          columns: {{n: count(*), most: max(amount)}}
        as: windows
      - from: orders
        where: id >= 0
      - aggregate: {{by: customer, columns: {{n: count(*), total: sum(amount)}}}}
    sinks:
      windows: {{from: windows, connector: file, path: out/windows, format: json}}
      running: {{connector: file, path: out/running, format: changelog-json}}
    """),
    "nested": (nested, f"""
    name: same
    sources: {SOURCE}
    steps:
      - with_columns:
          payload: |-
            '{{"a": ' || CAST(id AS STRING) || '}}'
      - select: [id, payload]
      - parse: {{format: json, on: payload, schema: {{a: int64}}}}
    sinks:
      rows: {{connector: file, path: out/rows, format: json}}
    """),
}  # fmt: skip


def rows_below(directory: Path) -> dict[str, list[str]]:
    """Return the lines of each output, sorted: lanes write side by side."""
    found: dict[str, list[str]] = {}
    for file in sorted(directory.rglob("part-*")):
        found.setdefault(str(file.parent.relative_to(directory)), []).extend(file.read_text().splitlines())
    return {name: sorted(lines) for name, lines in found.items()}


def run(job: hr.Job, directory: Path, backend: str) -> tuple[dict[str, list[str]], int]:
    report = job.run(backend)
    return rows_below(directory / "out"), report.dead_letters


#: The plan is the same for both backends: few cases show that Spark takes it.
RUNS = [(case, "light") for case in CASES] + [pytest.param("enriched", "spark", marks=pytest.mark.spark)]


@pytest.mark.parametrize(("case", "backend"), RUNS)
def test_same_rows(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, backend: str) -> None:
    in_python, text = CASES[case]
    made: list[Any] = []
    for way in ("python", "pipeline"):
        directory = tmp_path / way
        directory.mkdir()
        path = write(text)
        monkeypatch.chdir(directory)
        Path("orders.ndjson").write_text("".join(json.dumps(row) + "\n" for row in ORDERS))
        Path("customers.csv").write_text(
            "".join(f"c{n},{'one' if n < 3 else 'two' if n < 5 else 'none'}\n" for n in range(6))
        )
        Path("access.log").write_text("".join(f"{line}\n" for line in LOG))
        job = in_python(hr.stream("pipelines", "same")) if way == "python" else pipeline(path)
        made.append(run(job, directory, backend))
    assert made[0] == made[1]
    assert all(len(lines) >= 7 for lines in made[0][0].values())
    assert made[0][1] == 1
