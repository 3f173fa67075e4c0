"""CURRENT_WATERMARK, and INSERT INTO … PARTITION."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from pathlib import Path

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError

TABLE = """
CREATE TABLE t (a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '{}/t.ndjson', 'format' = 'json');
CREATE TABLE u (a INT, day STRING, n BIGINT) PARTITIONED BY (day, n) WITH ('connector' = 'blackhole');
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    rows = [{"a": a, "ts": f"2024-01-01 00:00:{second:02d}"} for a, second in [(1, 5), (2, 9), (3, 7), (4, 12)]]
    (tmp_path / "t.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return TABLE.format(tmp_path)


@pytest.mark.parametrize("size", [1, 100])
def test_each_row_sees_the_watermark_before_it(table: str, size: int) -> None:
    frame = hr.sql(table + "SELECT a, DATE_FORMAT(CURRENT_WATERMARK(ts), 'ss') AS w FROM t").collect(
        max_batch_records=size
    )
    assert frame.rows() == [(1, None), (2, "04"), (3, "08"), (4, "08")]


def test_late_rows_are_told_apart(table: str) -> None:
    text = table + "SELECT a FROM t AS x WHERE CURRENT_WATERMARK(x.ts) IS NULL OR x.ts > CURRENT_WATERMARK(x.ts)"
    assert hr.sql(text).collect()["a"].to_list() == [1, 2, 4]


def test_other_columns_have_no_watermark(table: str) -> None:
    for wrong in ("a", "CAST(ts AS DATE)", "ts, a"):
        with pytest.raises(ExpressionError, match="takes an event-time attribute"):
            hr.sql(table + f"SELECT CURRENT_WATERMARK({wrong}) FROM t")


@pytest.mark.parametrize(
    ("insert", "wanted"),
    [
        ("INSERT INTO u PARTITION (day = 'mon', n = 3) SELECT a FROM t", [(1, "mon", 3), (2, "mon", 3)]),
        ("INSERT INTO u PARTITION (n = '7') SELECT a, CAST(a AS STRING) FROM t", [(1, "1", 7), (2, "2", 7)]),
        ("INSERT INTO u PARTITION (n = 1 + 1) (day, a) SELECT 'x', a FROM t", [(1, "x", 2), (2, "x", 2)]),
    ],
)
def test_the_columns_of_a_partition_are_given_once(table: str, insert: str, wanted: list[tuple[object, ...]]) -> None:
    assert hr.sql(table + insert).collect().head(2).rows() == wanted


@pytest.mark.parametrize(
    ("insert", "message"),
    [
        ("INSERT INTO u PARTITION (a = 1) SELECT 'x', 1 FROM t", "is not partitioned by 'a'"),
        ("INSERT INTO u PARTITION (n = 1) (a, n) SELECT a, 1 FROM t", "'n' is given twice"),
        ("INSERT INTO u PARTITION (n = 'x') SELECT a, 'x' FROM t", "the partition n"),
        ("INSERT INTO u PARTITION (n) SELECT a, 'x', 1 FROM t", "expected = and the value"),
        ("INSERT INTO u PARTITION (n = 1) SELECT a FROM t", "gives 1 columns|gives 2 columns"),
        ("INSERT OVERWRITE u SELECT a, 'x', 1 FROM t", "connector 'blackhole' cannot remove what is there"),
        ("INSERT OVERWRITE u PARTITION (n = 1) SELECT a, 'x' FROM t", "has no directories of partitions"),
    ],
)
def test_mistakes_in_partitions(table: str, insert: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        hr.sql(table + insert)
