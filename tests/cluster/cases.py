"""The jobs of the cluster tests: those of the conformance tests with more input, SQL, the demo, and from Kafka into MySQL."""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import headrace as hr

from demo.security_events import events
from tests.conformance.case import Case
from tests.conformance.run_cases import CASES as CONFORMANCE
from tests.conformance.stateful_inputs import clicks, orders
from tests.conformance.stateless_cases import people

_DEMO = Path(__file__).resolve().parents[2] / "demo" / "suspicious_commands.py"
_SQL = """
CREATE TABLE clicks (
  id BIGINT, `key` STRING, v DOUBLE, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{place}/in', 'format' = 'json');
CREATE TABLE counts (k STRING, starts TIMESTAMP_LTZ(3), n BIGINT, s DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '{place}/out/rows', 'format' = 'json');
INSERT INTO counts
SELECT `key`, window_start, COUNT(*), SUM(v) FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY `key`, window_start, window_end;
"""


def sql(directory: Path) -> hr.Job:
    """Count and sum per key and window, as SQL."""
    job: hr.Job = hr.sql(_SQL.format(place=directory), pipeline="cluster_sql")
    return job


def demo_case(count: int) -> Case:
    """Return the job of ``make demo`` over so many events and a few damaged lines."""
    lines = [json.dumps(event) for event in events(count)]
    lines += [line[: len(line) // 2] for line in lines[:5]]

    def build(directory: Path) -> hr.Job:
        with mock.patch.dict(os.environ, HEADRACE_DEMO=str(directory / "out")):
            job: hr.Job = runpy.run_path(str(_DEMO))["job"]
        return job

    return Case("demo", {"../out/events/events-0.ndjson": lines}, build)


def copy_case(kafka: Mapping[str, Any], mysql: Mapping[str, Any], table: str) -> Case:
    """Return a job that copies numbers from a topic of Kafka into a table of MySQL, each once: not idempotently."""

    def build(directory: Path) -> hr.Job:
        numbers = hr.stream("cluster", f"copy_{table}").from_kafka(**kafka, format="json", schema={"n": "int64"})
        written: hr.Job = numbers.where("n % 5 <> 0").to_mysql(**mysql, table=table, create_table=True)
        return written

    return Case(table, {}, build)


def _larger(name: str, files: dict[str, list[str]]) -> Case:
    case = next(case for case in CONFORMANCE if case.name == name)
    return Case(name, files, case.build)


def larger_cases(rows: int) -> list[Case]:
    """Return a window, a join, rules, a condition and SQL over about so many rows each."""
    events = {"clicks.ndjson": clicks(rows, 1)}
    named = {"a.ndjson": people(rows // 2), "b.ndjson": people(rows // 2, 10_000)}
    return [
        _larger("tumbling", events),
        _larger("join-within", {"clicks.ndjson": clicks(rows * 5 // 8, 2), "orders.ndjson": orders(rows * 3 // 8, 7)}),
        _larger("rules-of-several", named),
        _larger("where", named),
        Case("sql", events, sql),
    ]
