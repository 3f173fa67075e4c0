"""Texts over small files: the same table in one run, row by row, after a stop between the files, and on Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
import pytest

from tests.effort import often_or_slow

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A text, what its table ``t`` holds, and the rows of its table ``o`` in the end."""

    #: The columns of ``t`` and of ``o``, as CREATE TABLE has them.
    given: str
    made: str
    query: str
    rows: Sequence[Row]
    wanted: Sequence[tuple[Any, ...]]
    #: Statements before the query.
    before: str = ""


def _sales(*rows: tuple[int, str, int]) -> list[Row]:
    return [{"id": number, "shop": shop, "price": price} for number, shop, price in rows]


SALES = _sales((1, "north", 30), (2, "north", 10), (3, "south", 7), (4, "north", 20), (5, "south", 7), (6, "north", 10))

CASES = {
    "over in the order of a price": Case(
        "id INT, shop STRING, price INT", "id INT, total BIGINT, place BIGINT",
        "SELECT id, SUM(price) OVER w, RANK() OVER w FROM t WINDOW w AS (PARTITION BY shop ORDER BY price)",
        SALES, [(1, 70, 4), (2, 20, 1), (3, 14, 1), (4, 40, 3), (5, 14, 1), (6, 20, 1)],
    ),
    "over results that change": Case(
        "id INT, shop STRING, price INT", "shop STRING, n BIGINT, others BIGINT",
        "SELECT shop, n, SUM(n) OVER (ORDER BY n DESC ROWS UNBOUNDED PRECEDING) FROM (SELECT shop, COUNT(*) AS n FROM t GROUP BY shop)",
        SALES, [("north", 4, 4), ("south", 2, 6)],
    ),
    "every row numbered": Case(
        "id INT, shop STRING, price INT", "id INT, rn BIGINT, next_id INT",
        "SELECT id, ROW_NUMBER() OVER (ORDER BY price DESC, id), LEAD(id) OVER (ORDER BY price DESC, id) FROM t WHERE price > 7",
        SALES, [(1, 1, 4), (2, 3, 6), (4, 2, 2), (6, 4, None)],
    ),
    "the share of the whole": Case(
        "id INT, shop STRING, price INT", "id INT, whole BIGINT",
        "SELECT id, SUM(price) OVER (PARTITION BY shop) FROM t",
        SALES, [(1, 70), (2, 70), (3, 14), (4, 70), (5, 14), (6, 70)],
    ),
    "the best two with equals": Case(
        "id INT, shop STRING, price INT", "id INT, place BIGINT",
        "SELECT id, place FROM (SELECT id, DENSE_RANK() OVER (PARTITION BY shop ORDER BY price) AS place FROM t) WHERE place = 1",
        SALES, [(2, 1), (3, 1), (5, 1), (6, 1)],
    ),
    "windows of several orders": Case(
        "id INT, shop STRING, price INT", "id INT, a BIGINT, b BIGINT, c BIGINT",
        "SELECT id, SUM(price) OVER (PARTITION BY shop ORDER BY id), RANK() OVER (ORDER BY price), COUNT(*) OVER () FROM t",
        SALES, [(1, 30, 6, 6), (2, 40, 3, 6), (3, 7, 1, 6), (4, 60, 5, 6), (5, 14, 1, 6), (6, 70, 3, 6)],
    ),
    "windows of several partitions in the order of time": Case(
        "id INT, shop STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '9' SECOND", "id INT, a BIGINT, b BIGINT, c INT",
        "SELECT id, COUNT(*) OVER (PARTITION BY shop ORDER BY ts), SUM(id) OVER (ORDER BY ts ROWS 1 PRECEDING), "
        "LAG(id) OVER (PARTITION BY shop ORDER BY ts) FROM t",
        [{"id": number, "shop": shop, "ts": f"2024-01-01 00:00:0{second}"} for number, shop, second in
         ((1, "a", 3), (2, "b", 1), (3, "a", 2), (4, "b", 5), (5, "a", 9), (6, "b", 7))],
        [(2, 1, 2, None), (3, 1, 5, None), (1, 2, 4, 3), (4, 2, 5, 2), (6, 3, 10, 4), (5, 3, 11, 1)],
    ),
    "the first of each by arrival": Case(
        "id INT, shop STRING, p AS PROCTIME()", "id INT, shop STRING",
        "SELECT id, shop FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY shop ORDER BY p) AS rn FROM t) WHERE rn <= 2",
        [{"id": number, "shop": shop} for number, shop in ((1, "a"), (2, "b"), (3, "a"), (4, "a"), (5, "b"), (6, "b"))],
        [(1, "a"), (2, "b"), (3, "a"), (5, "b")],
    ),
    "matches in the order of arrival": Case(
        "id INT, shop STRING, p AS PROCTIME()", "shop STRING, first_id INT, last_id INT",
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY shop ORDER BY p MEASURES A.id AS first_id, B.id AS last_id "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B AS B.id > A.id + 1)",
        [{"id": number, "shop": shop} for number, shop in ((1, "a"), (2, "b"), (3, "a"), (4, "a"), (5, "b"), (6, "b"))],
        [("a", 1, 3), ("b", 2, 5)],
    ),
    "matches of groups and alternatives": Case(
        "id INT, shop STRING, p AS PROCTIME()", "first_id INT, last_id INT, n BIGINT",
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY p MEASURES FIRST(A.id) AS first_id, LAST(id) AS last_id, COUNT(B.id) AS n "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN ((A (B | C)){2}) DEFINE A AS shop = 'a', B AS shop = 'b', C AS shop = 'c')",
        [{"id": number, "shop": shop} for number, shop in enumerate("acabaabac")],
        [(0, 3, 1), (5, 8, 1)],
    ),
    "changes told as rows": Case(
        "id INT, shop STRING, price INT", "deleted STRING, shop STRING, most INT",
        "SELECT deleted, shop, most FROM TO_CHANGELOG(input => TABLE best, op => DESCRIPTOR(deleted), "
        "op_mapping => MAP['INSERT, UPDATE_AFTER', 'no', 'DELETE', 'yes'])",
        _sales((1, "north", 30), (2, "south", 9)), [("no", "north", 30), ("no", "south", 9)],
        "CREATE VIEW best AS SELECT shop, MAX(price) AS most FROM t GROUP BY shop;",
    ),
    "rows taken as changes": Case(
        "op STRING, id INT, price INT", "n BIGINT, total BIGINT",
        "SELECT COUNT(*), SUM(price) FROM FROM_CHANGELOG(TABLE t, DESCRIPTOR(op), MAP['c, r', 'INSERT', 'b', 'UPDATE_BEFORE', "
        "'a', 'UPDATE_AFTER', 'd', 'DELETE']) AS prices WHERE prices.price > 1",
        [{"op": op, "id": number, "price": price} for op, number, price in (
            ("c", 1, 10), ("r", 2, 20), ("b", 1, 10), ("a", 1, 11), ("d", 2, 20), ("c", 3, 5), ("c", 4, 1))],
        [(2, 16)],
    ),
}  # fmt: skip


def table_of(
    case: Case, place: Path, parts: Sequence[Sequence[Row]], backend: str, **options: Any
) -> list[tuple[Any, ...]]:
    """Return the rows of ``o`` after runs over the parts, each in a file that comes before its run."""
    (place / "in").mkdir()
    text = f"""
        CREATE TABLE t ({case.given}) WITH ('connector' = 'filesystem', 'path' = '{place}/in', 'format' = 'json');
        CREATE TABLE o ({case.made}) WITH ('connector' = 'file', 'path' = '{place}/out', 'format' = 'json', 'changes' = 'column');
        {case.before}
        INSERT INTO o {case.query};
    """
    for number, rows in enumerate(parts):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (place / "in" / f"{number}.ndjson").write_text(lines, encoding="utf-8")
        job = hr.sql(text)
        report = job.run(backend, checkpoint=str(place / "checkpoint"), show_progress=False, **options)
        assert not report.dead_letters
    found: list[tuple[Any, ...]] = []
    for line in _lines(place / "out"):
        row = json.loads(line)
        kind = row.pop("change", "insert")
        values = tuple(row.values())
        if kind in ("insert", "update_after"):
            found.append(values)
        else:
            found.remove(values)
    return sorted(found, key=repr)


def _lines(place: Path) -> list[str]:
    files = sorted(place.glob("part-*"))
    return [line for each in files for line in each.read_text(encoding="utf-8").splitlines()]


#: In every run one of each kind of operator; the others on Spark in the slow runs.
OFTEN_ON_SPARK = [
    "over results that change", "windows of several partitions in the order of time", "matches in the order of arrival",
    "rows taken as changes",
]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_run(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert table_of(case, tmp_path, [case.rows], "light") == sorted(case.wanted, key=repr)


@pytest.mark.parametrize("name", CASES)
def test_row_by_row_on_two_shards_with_a_stop(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    half = len(case.rows) // 2
    parts = [case.rows[:half], case.rows[half:]]
    found = table_of(case, tmp_path, parts, "light", max_batch_records=1, shards=2)
    assert found == sorted(case.wanted, key=repr)


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", often_or_slow(list(CASES), OFTEN_ON_SPARK))
def test_spark_with_a_stop(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    half = len(case.rows) // 2
    found = table_of(case, tmp_path, [case.rows[:half], case.rows[half:]], "spark", master="local[2]")
    assert found == sorted(case.wanted, key=repr)
