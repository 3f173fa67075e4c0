"""Windows over the changes of a table, on both backends."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace_sql import SqlSession

_TEXT = """CREATE TABLE t (id INT, k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '30' SECOND,
    PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'filesystem', 'path' = '{}/changes.ndjson', 'format' = 'changelog-json');
"""
QUERIES = {
    "tumble": """SELECT k, window_start, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m
      FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end""",
    "hop": """SELECT window_end, COUNT(*) AS n, SUM(v) AS s
      FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)) GROUP BY window_start, window_end""",
    "session": """SELECT k, SESSION_START(ts, INTERVAL '2' SECOND), COUNT(DISTINCT v) AS d
      FROM t GROUP BY k, SESSION(ts, INTERVAL '2' SECOND)""",
}


def give(place: Path, count: int = 300) -> list[dict[str, Any]]:
    """Write the changes of a table; return what is left of it. Nothing is late, so windows hold what is left."""
    chance = random.Random(3)
    table: dict[int, dict[str, Any]] = {}
    with (place / "changes.ndjson").open("w", encoding="utf-8") as file:
        for number in range(count):
            row: dict[str, Any] = {"id": chance.randrange(40), "k": chance.choice("ab"), "v": chance.randrange(9)}
            row["ts"] = f"2024-01-01 00:{number // 60:02d}:{max(0, number % 60 - chance.randrange(3)):02d}"
            old = table.pop(row["id"], None)
            if old is not None and old["ts"][14:16] != row["ts"][14:16]:
                table[row["id"]] = old  # its window may be closed
                continue
            is_gone = old is not None and chance.random() < 0.3
            changes = [("+I", row)] if old is None else [("-D", old)] if is_gone else [("-U", old), ("+U", row)]
            if not is_gone:
                table[row["id"]] = row
            file.writelines(json.dumps({"data": each, "op": kind}) + "\n" for kind, each in changes)
    return list(table.values())


def rows_of(place: Path, query: str, **options: Any) -> list[tuple[Any, ...]]:
    job = hr.sql(_TEXT.format(place) + QUERIES[query], session=SqlSession())
    return sorted(job.collect(**options).rows(), key=repr)


@pytest.mark.parametrize("query", QUERIES)
def test_batches_change_nothing(query: str, tmp_path: Path) -> None:
    give(tmp_path)
    found = rows_of(tmp_path, query)
    assert found
    assert rows_of(tmp_path, query, max_batch_records=17) == found


def test_windows_hold_what_is_left(tmp_path: Path) -> None:
    left = give(tmp_path, 25)
    sums: dict[tuple[str, str], list[int]] = {}
    for row in left:
        sums.setdefault((row["k"], row["ts"][:18] + "0"), []).append(row["v"])
    wanted = sorted((k, start, len(each), sum(each), max(each)) for (k, start), each in sums.items())
    assert [(k, str(start), n, s, m) for k, start, n, s, m in rows_of(tmp_path, "tumble")] == wanted


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("query", QUERIES)
def test_spark_gives_the_same(query: str, tmp_path: Path) -> None:
    give(tmp_path)
    assert rows_of(tmp_path, query, backend="spark", master="local[2]") == rows_of(tmp_path, query)
