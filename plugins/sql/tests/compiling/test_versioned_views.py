"""Temporal joins with a versioned view (ROW_NUMBER() … = 1), where PyFlink gives other rows: docs/sql.md says which, and why ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import headrace as hr
import pytest

Row = tuple[int, str | None, str]
_JOIN = """
CREATE TABLE t (id INT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND)
WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json');
CREATE VIEW versions AS SELECT id, k, ts FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM t) WHERE rn = 1;
SELECT l.id, r.id AS version FROM t AS l {how} JOIN versions FOR SYSTEM_TIME AS OF l.ts AS r ON l.k = r.k
"""


def joined(
    directory: Path, rows: Sequence[Row], how: str, *, delay: int = 5, **options: int
) -> list[tuple[int, int | None]]:
    path = directory / "t.ndjson"
    path.write_text("".join(json.dumps({"id": i, "k": k, "ts": f"2024-05-06 10:00:{at}"}) + "\n" for i, k, at in rows))
    made = hr.sql(_JOIN.format(path=path, how=how, delay=delay)).collect(**options)
    return sorted(made.rows())


@pytest.mark.parametrize("size", [1, 100])
def test_a_version_that_comes_behind_a_newer_one_is_a_version(tmp_path: Path, size: int) -> None:
    # In Flink row 3 has the version 1: the deduplication of the view has dropped 3, as 2 is newer.
    rows: list[Row] = [(1, "a", "01.000"), (2, "a", "10.000"), (3, "a", "09.000"), (4, "a", "30.000")]
    assert joined(tmp_path, rows, "", max_batch_records=size) == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize(("how", "without"), [("", []), ("LEFT", [(2, None)])])
def test_null_joins_nothing(tmp_path: Path, how: str, without: list[tuple[int, int | None]]) -> None:
    # In Flink row 2 has the version 2.
    rows: list[Row] = [(1, "a", "01.000"), (2, None, "02.000"), (3, "a", "30.000")]
    assert joined(tmp_path, rows, how) == sorted([(1, 1), (3, 3), *without])


@pytest.mark.parametrize("size", [1, 2])
def test_the_last_row_is_given_though_it_came_behind_the_watermark(tmp_path: Path, size: int) -> None:
    """The watermark does not move any more behind it. Its version is forgotten, as all are that the watermark has left behind."""
    rows: list[Row] = [(1, "a", "01.000"), (2, "a", "30.000"), (3, "a", "05.000")]
    assert joined(tmp_path, rows, "LEFT", delay=0, max_batch_records=size) == [(1, 1), (2, 2), (3, None)]
