"""The jobs of the cluster tests: those of the conformance tests with more input, so that they run for long enough to be disturbed."""

from __future__ import annotations

from pathlib import Path

import headrace as hr

from tests.conformance.case import Case
from tests.conformance.run_cases import CASES as CONFORMANCE
from tests.conformance.stateful_inputs import clicks, orders
from tests.conformance.stateless_cases import people

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
    return hr.sql(_SQL.format(place=directory), pipeline="cluster_sql")


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
