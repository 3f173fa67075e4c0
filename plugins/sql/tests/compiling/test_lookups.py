"""FOR SYSTEM_TIME AS OF a processing time: rows looked up in tables."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError, HeadraceError
from headrace.plan.graph import OperatorNode

TABLES = """
CREATE TABLE r (k STRING, v INT, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = '${DIR}/r.ndjson', 'format' = 'json');
CREATE TABLE d (k STRING, v INT, name STRING) WITH ('connector' = 'filesystem', 'path' = '${DIR}/d.ndjson', 'format' = 'json'{});
"""


def define(directory: Path, option: str = "") -> None:
    pl.DataFrame({"k": ["a", "b", None, "c"], "v": [1, 2, 3, 4]}).write_ndjson(directory / "r.ndjson")
    names = {"k": ["a", "a", "b", None], "v": [1, 9, 3, 3], "name": ["A1", "A9", "B3", "N"]}
    pl.DataFrame(names).write_ndjson(directory / "d.ndjson")
    hr.sql(TABLES.replace("{}", option), variables={"DIR": str(directory)})


def rows(text: str) -> list[tuple[Any, ...]]:
    return sorted(hr.sql(text).collect().rows(), key=repr)


def specs(text: str) -> list[Any]:
    return [node.spec for node in hr.sql(text).plan().of_kind(OperatorNode).values()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT r.k, d.k, name FROM r JOIN d FOR SYSTEM_TIME AS OF r.p AS d ON r.k = d.k",
            [("a", "a", "A1"), ("a", "a", "A9"), ("b", "b", "B3")],
        ),
        (
            "SELECT r.k, d.k, name FROM r LEFT JOIN d FOR SYSTEM_TIME AS OF r.p AS d ON r.k = d.k AND d.v < 9",
            [("a", "a", "A1"), ("b", "b", "B3"), ("c", None, None), (None, None, None)],
        ),
        ("SELECT name FROM r JOIN d FOR SYSTEM_TIME AS OF r.p AS d ON r.k = d.k AND r.v = d.v", [("A1",)]),
        ("SELECT name FROM r JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS d ON r.v + 2 = d.v", [("B3",), ("N",)]),
        # Not equalities alone.
        (
            "SELECT name, r.v FROM r JOIN d FOR SYSTEM_TIME AS OF r.p AS d ON r.k = d.k AND d.v > r.v",
            [("A9", 1), ("B3", 2)],
        ),
        (
            "SELECT r.v, x.name, y.name FROM r JOIN d FOR SYSTEM_TIME AS OF r.p AS x ON r.k = x.k "
            "LEFT JOIN d FOR SYSTEM_TIME AS OF r.p AS y ON r.v = y.v",
            [(1, "A1", "A1"), (1, "A9", "A1"), (2, "B3", None)],
        ),
    ],
)
def test_rows_are_looked_up(text: str, expected: list[tuple[Any, ...]], tmp_path: Path) -> None:
    define(tmp_path)
    assert rows(text) == sorted(expected, key=repr)


JOIN = "SELECT name FROM r JOIN d FOR SYSTEM_TIME AS OF r.p AS d ON r.k = d.k"


@pytest.mark.parametrize(
    ("option", "refresh"),
    [
        ("", None),
        (", 'lookup.cache.ttl' = '10 min'", timedelta(minutes=10)),
        (", 'cacheTTLMs' = '5000'", timedelta(seconds=5)),
    ],
)
def test_a_table_is_read_anew_as_its_options_say(option: str, refresh: timedelta | None, tmp_path: Path) -> None:
    define(tmp_path, option)
    (spec,) = [spec for spec in specs(JOIN) if spec.name == "lookup_join"]
    assert spec.refresh == refresh
    assert len(rows(JOIN)) == 3


def test_a_table_that_is_not_read_anew_says_so(tmp_path: Path) -> None:
    define(tmp_path, ", 'lookup.cache.ttl' = '10 min'")
    assert any("read once" in notice for notice in hr.sql(f"{JOIN} AND d.v > r.v").notices)
    define(tmp_path, ", 'lookup.cache.ttl' = 'soon'")
    with pytest.raises(ExpressionError, match="is not a length of time"):
        hr.sql(JOIN)


def test_only_plain_tables_are_looked_up(tmp_path: Path) -> None:
    define(tmp_path)
    hr.sql("CREATE VIEW counts AS SELECT k, COUNT(*) AS n FROM d GROUP BY k")
    with pytest.raises(ExpressionError, match="only a plain table can be looked up"):
        hr.sql("SELECT n FROM r JOIN counts FOR SYSTEM_TIME AS OF r.p AS c ON r.k = c.k")
    hr.sql("CREATE VIEW both_halves AS SELECT * FROM d WHERE v < 3 UNION ALL SELECT * FROM d WHERE v >= 3")
    assert len(rows("SELECT name FROM r JOIN both_halves FOR SYSTEM_TIME AS OF r.p AS b ON r.k = b.k")) == 3


def test_a_record_that_cannot_be_read_ends_the_job(tmp_path: Path) -> None:
    define(tmp_path)
    with (tmp_path / "d.ndjson").open("a") as file:
        file.write("{broken\n")
    with pytest.raises(HeadraceError):
        rows(JOIN)
