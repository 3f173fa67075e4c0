"""Queries over registered frames and small tables: one case per feature, with the rows worked out by hand."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError, JobError

BEGIN = datetime.datetime(2024, 1, 1)
SECONDS = (0, 1, 5, 6, 12, 20)


@pytest.fixture
def tables(tmp_path: Path) -> None:
    """Table ``t`` (k, v, d, arr, ts, p) with event time, ``u`` (k, name)."""
    keys = ("a", "b", "a", None, "b", "a")
    times = [BEGIN + datetime.timedelta(seconds=second) for second in SECONDS]
    rows = {"k": keys, "v": [1, 2, 3, 4, 5, 6], "d": [1.5, 2.5, None, 4.0, 5.0, 6.0], "arr": [[1, 2]] * 6}
    pl.DataFrame({**rows, "ts": [str(time) for time in times]}).write_ndjson(tmp_path / "t.ndjson")
    hr.sql(
        "CREATE TABLE t (k STRING, v INT, d DOUBLE, arr ARRAY<INT>, ts TIMESTAMP(3), p AS PROCTIME(), "
        "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path / 't.ndjson'}', 'format' = 'json')"
    )
    hr.register("u", pl.DataFrame({"k": ["a", "b", "c"], "name": ["A", "B", "C"]}))


def rows(text: str) -> list[tuple[Any, ...]]:
    return sorted(hr.sql(text).collect().rows(), key=repr)


def at(second: int) -> datetime.datetime:
    return BEGIN + datetime.timedelta(seconds=second)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT k, COUNT(*), AVG(v) FROM t GROUP BY k HAVING COUNT(*) > 1", [("a", 3, 3), ("b", 2, 3)]),
        ("SELECT DISTINCT k FROM t", [("a",), ("b",), (None,)]),
        ("SELECT k, v FROM t ORDER BY v DESC LIMIT 2", [("a", 6), ("b", 5)]),
        (
            "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM t) WHERE rn = 1",
            [("a", 6), ("b", 5), (None, 4)],
        ),
        ("SELECT t.k, name FROM t LEFT JOIN u ON t.k = u.k WHERE v > 3", [("a", "A"), ("b", "B"), (None, None)]),
        ("SELECT u.k FROM t RIGHT JOIN u ON t.k = u.k WHERE t.k IS NULL", [("c",)]),
        ("SELECT v FROM t WHERE k NOT IN (SELECT k FROM u WHERE name = 'A')", [(2,), (5,)]),
        ("SELECT v FROM t WHERE v NOT IN (SELECT CAST(NULL AS INT) FROM u)", []),
        ("SELECT name FROM u WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.k = u.k)", [("C",)]),
        ("SELECT k FROM t INTERSECT SELECT k FROM u", [("a",), ("b",)]),
        ("SELECT k FROM u EXCEPT SELECT k FROM t", [("c",)]),
        ("SELECT k, a FROM t CROSS JOIN UNNEST(arr) AS x(a) WHERE v = 1", [("a", 1), ("a", 2)]),
        ("WITH w AS (SELECT k, SUM(v) AS s FROM t GROUP BY k) SELECT MAX(s), COUNT(*) FROM w", [(10, 3)]),
        (
            "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
            "GROUP BY window_start, window_end",
            [(at(0), 4), (at(10), 1), (at(20), 1)],
        ),
        (
            "SELECT window_end, v FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) WHERE v = 5",
            [(at(15), 5), (at(20), 5)],
        ),
        (
            "SELECT window_end, v FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) "
            "WHERE v IN (1, 4)",
            [(at(5), 1), (at(10), 1), (at(10), 4)],
        ),
        (
            "SELECT v, SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW) FROM t",
            [(1, 1), (2, 2), (3, 4), (4, 4), (5, 5), (6, 6)],
        ),
        (
            "SELECT v, COUNT(*) OVER w, LAG(v) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY ts "
            "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
            [(1, 1, None), (2, 1, None), (3, 2, 1), (4, 1, None), (5, 2, 2), (6, 2, 3)],
        ),
        (
            "SELECT SESSION_START(ts, INTERVAL '4' SECOND), SESSION_END(ts, INTERVAL '4' SECOND), COUNT(*) FROM t "
            "GROUP BY SESSION(ts, INTERVAL '4' SECOND)",
            [(at(0), at(10), 4), (at(12), at(16), 1), (at(20), at(24), 1)],  # 1 + 4 touches 5
        ),
        (
            "SELECT t.v, name FROM t JOIN u FOR SYSTEM_TIME AS OF t.p AS u ON t.k = u.k WHERE v < 3",
            [(1, "A"), (2, "B")],
        ),
        (
            "SELECT k, COUNT(*), GROUPING(k) FROM t GROUP BY CUBE (k)",
            [("a", 3, 0), ("b", 2, 0), (None, 1, 0), (None, 6, 1)],
        ),
        ("SELECT x, k FROM t, LATERAL TABLE(STRING_SPLIT('p-q', '-')) AS s(x) WHERE v = 1", [("p", "a"), ("q", "a")]),
        (
            "SELECT f, l FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES A.v AS f, LAST(B.v) AS l AFTER MATCH SKIP PAST LAST ROW "
            "PATTERN (A B{2}) DEFINE B AS B.v > A.v)",
            [(1, 3), (4, 6)],
        ),
    ],
)
def test_a_query_gives_these_rows(text: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(text) == sorted(expected, key=repr)


@pytest.mark.usefixtures("tables")
def test_changes_can_be_seen() -> None:
    frame = hr.sql("SELECT k, COUNT(*) AS n FROM t WHERE k = 'a' GROUP BY k").collect(changes=True)
    assert frame["op"].to_list()[0] == "+I"
    assert frame.filter(pl.col("op").is_in(["+I", "+U"]))["n"].to_list()[-1] == 3


@pytest.mark.usefixtures("tables")
def test_several_inserts_read_their_source_once() -> None:
    job = hr.sql(
        "CREATE TABLE a (k STRING) WITH ('connector' = 'blackhole'); CREATE TABLE b (v INT) WITH ('connector' = 'blackhole');"
        "INSERT INTO a SELECT k FROM t; INSERT INTO b (v) SELECT v FROM t WHERE v > 1;"
    )
    plan = job.plan()
    assert list(plan.sources) == ["t"]
    assert {"a", "b"} <= set(plan.sinks)
    assert {name: frame.height for name, frame in job.collect().items()} == {"a": 6, "b": 5}


@pytest.mark.usefixtures("tables")
def test_views_go_on_in_python_and_streams_in_sql() -> None:
    hr.sql("CREATE VIEW big AS SELECT k, v FROM t WHERE v > 3")
    stream = hr.table("big").where("k = 'a'")
    hr.register("mine", stream)
    assert rows("SELECT v + 1 FROM mine") == [(7,)]


def test_functions_by_class_name_by_path_and_as_objects() -> None:
    class Twice:
        def eval(self, x: int) -> int:
            return 2 * x

    hr.register("one", pl.DataFrame({"x": [4], "s": ["a b"]}))
    text = "CREATE FUNCTION twice AS 'my.Twice'; SELECT twice(x) FROM one"
    assert hr.sql(text, functions={"my.Twice": Twice()}).collect().rows() == [(8,)]
    assert hr.sql(
        "SELECT thrice(x) FROM one", functions=[hr.udf(returns="int64", name="thrice")(lambda x: 3 * x)]
    ).collect().rows() == [(12,)]
    by_path = "CREATE FUNCTION quoted AS 'urllib.parse:quote'; SELECT quoted(s) FROM one"
    with pytest.raises(hr.JobError, match="quoted"):  # it does not say what it returns
        hr.sql(by_path)


def test_datagen_makes_the_same_rows_again() -> None:
    text = (
        "CREATE TABLE g (id BIGINT, x DOUBLE, ts TIMESTAMP(3)) WITH ('connector' = 'datagen', 'number-of-rows' = '50', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '100'); SELECT * FROM g"
    )
    first, second = hr.sql(text).collect(), hr.sql(text).collect()
    assert first.equals(second)
    assert first["id"].to_list() == list(range(1, 51))


@pytest.mark.usefixtures("tables")
def test_long_chain_of_unions_is_one_union() -> None:
    query = " UNION ALL ".join(["SELECT name FROM u"] * 1000)
    assert rows(query) == sorted([("A",), ("B",), ("C",)] * 1000)
    mixed = "SELECT k FROM u UNION ALL SELECT 1 FROM u UNION ALL SELECT k FROM u"
    with pytest.raises(JobError, match="types that cannot be combined"):
        hr.sql(mixed)
    assert len(rows("SELECT k FROM u UNION ALL SELECT k FROM u UNION SELECT k FROM u UNION ALL SELECT k FROM u")) == 6


@pytest.mark.usefixtures("tables")
def test_queries_within_each_other() -> None:
    query = "SELECT name FROM (" * 400 + "SELECT name FROM u" + ")" * 400
    with pytest.raises(ExpressionError, match="nested too deeply"):
        hr.sql(query)
