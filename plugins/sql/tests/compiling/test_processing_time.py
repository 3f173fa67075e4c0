"""PROCTIME(): joins and frames go by the clock and forget by it; what cannot is refused with a reason."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Batch, Queue, Tick
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace.interfaces.operator import StatefulOperator, StatefulSpec
from headrace.plan.graph import OperatorNode
from headrace_stateful.joins.join import Join

QUEUE = Queue("0", "key_by")
SECOND = 1_000_000
FROM = "SELECT a.k, a.v, b.v AS w FROM t a {} JOIN u b ON a.k = b.k AND {}"


@pytest.fixture(autouse=True)
def tables(tmp_path: Path) -> None:
    path = tmp_path / "t.ndjson"
    path.write_text(
        "".join(json.dumps({"k": k, "v": v, "ts": "2024-01-01 00:00:00"}) + "\n" for k, v in [("a", 1), ("b", 2)])
    )
    columns = "(k STRING, v INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)"
    options = f"WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json')"
    hr.sql(f"CREATE TABLE t {columns} {options}; CREATE TABLE u {columns} {options}")


def spec_of(text: str, name: str) -> StatefulSpec:
    nodes = hr.sql(text).plan().of_kind(OperatorNode).values()
    [found] = [node.spec for node in nodes if node.spec.name == name]
    assert isinstance(found, StatefulSpec)
    return found


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        ("b.p BETWEEN a.p - INTERVAL '5' SECOND AND a.p + INTERVAL '10' SECOND", (-5, 10)),
        ("a.p BETWEEN b.p - INTERVAL '5' SECOND AND b.p", (0, 5)),
        ("b.p >= a.p AND b.p <= a.p + INTERVAL '1' MINUTE", (0, 60)),
        ("b.p + INTERVAL '2' SECOND >= a.p AND a.p + INTERVAL '3' SECOND >= b.p", (-2, 3)),
        ("a.p = b.p", (0, 0)),
        ("b.p BETWEEN a.p AND a.p + INTERVAL '10' SECOND AND a.v < b.v", (0, 10)),
    ],
)
@pytest.mark.parametrize("how", ["", "LEFT", "RIGHT", "FULL"])
def test_a_bound_in_processing_time_is_a_join_by_the_clock(condition: str, bounds: tuple[int, int], how: str) -> None:
    join = spec_of(FROM.format(how, condition), "join")
    assert isinstance(join, Join)
    assert join.within_us == (bounds[0] * SECOND, bounds[1] * SECOND)
    assert join.times is None
    assert join.tick_seconds == 1


def test_the_condition_may_stand_in_where() -> None:
    join = spec_of(
        "SELECT a.v, b.v AS w FROM t a, u b WHERE a.k = b.k AND a.p BETWEEN b.p - INTERVAL '5' SECOND AND b.p", "join"
    )
    assert isinstance(join, Join)
    assert join.within_us == (0, 5 * SECOND)
    assert join.times is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FROM.format("", "a.p > b.p"), "within a range with both bounds"),
        (FROM.format("", "a.p > b.ts"), "within a range with both bounds"),
        (FROM.format("", "a.p BETWEEN b.ts - INTERVAL '5' SECOND AND b.ts"), "within a range with both bounds"),
        (FROM.format("", "PROCTIME() > b.ts"), "within a range with both bounds"),
        (FROM.format("", "CAST(a.p AS TIMESTAMP(3)) > b.ts"), "within a range with both bounds"),
        ("SELECT a.v FROM t a JOIN u b ON a.k = b.k WHERE a.p > b.ts", "within a range with both bounds"),
        ("SELECT v FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.p > t.p)", "by processing time"),
        (
            "SELECT v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY p ORDER BY v) AS rn FROM t) WHERE rn <= 2",
            "partition by processing time",
        ),
        ("SELECT k, SUM(v) OVER (PARTITION BY p ORDER BY ts) FROM t", "partition by processing time"),
        ("SELECT v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p, v) AS rn FROM t) WHERE rn <= 2", "by their arrival"),
        ("SELECT v FROM t ORDER BY p, v", "by their arrival"),
        ("SELECT v FROM t ORDER BY p DESC", "time attribute"),
        ("SELECT v FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '1' DAY))", "can only be aggregated"),
        (
            "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY p, v MEASURES A.v AS x PATTERN (A) DEFINE A AS A.v > 0)",
            "by their arrival",
        ),
        (
            "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY p MEASURES MATCH_ROWTIME() AS x PATTERN (A) DEFINE A AS A.v > 0)",
            "needs rows in event time",
        ),
        ("SELECT * FROM t MATCH_RECOGNIZE (ORDER BY v MEASURES A.v AS x PATTERN (A) DEFINE A AS A.v > 0)", "not a time attribute"),
        (
            "SELECT SUM(v) FROM (SELECT a.v, a.ts FROM t a JOIN u b ON a.k = b.k AND a.p BETWEEN b.p AND b.p + INTERVAL '5' SECOND) "
            "GROUP BY TUMBLE(ts, INTERVAL '1' DAY)",
            "not a time attribute",
        ),
    ],
)  # fmt: skip
def test_what_cannot_go_by_the_clock_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason):
        hr.sql(text).plan()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p) AS rn FROM t) WHERE rn = 1", [("a", 1), ("b", 2)]),
        ("SELECT k, v FROM t ORDER BY p DESC LIMIT 1", [("b", 2)]),
        ("SELECT v, rn FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY p) AS rn FROM t) WHERE rn <= 2", [(1, 1), (2, 2)]),
        ("SELECT v, rn FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY p DESC) AS rn FROM t) WHERE rn <= 2", [(1, 2), (2, 1)]),
        ("SELECT x, y FROM t MATCH_RECOGNIZE (ORDER BY p MEASURES A.v AS x, B.v AS y PATTERN (A B) DEFINE B AS B.v > A.v)", [(1, 2)]),
        ("SELECT x, m IS NULL FROM t MATCH_RECOGNIZE (ORDER BY p MEASURES A.v AS x, MATCH_PROCTIME() AS m PATTERN (A) DEFINE A AS A.v > 1)",
         [(2, False)]),
        ("SELECT k, v FROM t ORDER BY p", [("a", 1), ("b", 2)]),  # the order ordered by their arrival
        ("SELECT a.k, b.v FROM t a JOIN u FOR SYSTEM_TIME AS OF a.p AS b ON a.k = b.k", [("a", 1), ("b", 2)]),
        ("SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY p) AS s FROM t", [("a", 1), ("b", 2)]),
        (FROM.format("", "a.p BETWEEN b.p - INTERVAL '1' HOUR AND b.p + INTERVAL '1' HOUR"), [("a", 1, 1), ("b", 2, 2)]),
        (
            "SELECT k, SUM(v) FROM (SELECT a.k, a.v, a.p FROM t a JOIN u b ON a.k = b.k AND a.p BETWEEN b.p - INTERVAL '1' HOUR AND "
            "b.p + INTERVAL '1' HOUR) GROUP BY k, TUMBLE(p, INTERVAL '1' DAY)",
            [("a", 1), ("b", 2)],
        ),
    ],
)  # fmt: skip
def test_what_goes_by_the_clock(text: str, rows: list[tuple[Any, ...]]) -> None:
    assert sorted(hr.sql(text).collect().rows()) == rows


def entry(operator: StatefulOperator, second: float, *rows: tuple[str, int]) -> list[int]:
    """Give an operator an entry at a time of the clock; return the results of its rows."""
    list(operator.on_system(Tick(int(second * SECOND))))
    if not rows:
        return []
    header = {OFFSET: [int(second)] * len(rows), INDEX: list(range(len(rows)))}
    user = pl.DataFrame(list(rows), schema={"k": pl.String(), "__over_input_0": pl.Int32()}, orient="row")
    frame = pl.concat([pl.DataFrame(header, schema_overrides={INDEX: pl.Int32}), user], how="horizontal")
    results = [each for each in operator.process(Batch(QUEUE, frame)) if isinstance(each, Batch)]
    return [value for each in results for value in each.frame["__over_result_0"].to_list()]


def sums_over(frame: str) -> StatefulOperator:
    text = f"SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY p {frame}) AS s FROM t"
    spec = spec_of(text, "over_aggregate")
    return spec.open(Schema({"k": pl.String(), "__over_input_0": pl.Int32()}))


def test_a_range_of_processing_time_reaches_back_by_the_clock() -> None:
    operator = sums_over("RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW")
    assert entry(operator, 100, ("a", 1), ("b", 10)) == [1, 10]
    assert entry(operator, 105, ("a", 2)) == [3]
    stored = operator.snapshot()
    assert entry(operator, 110, ("a", 4)) == [7]
    assert entry(operator, 110.5, ("a", 8)) == [14]
    assert entry(operator, 200, ("a", 16), ("a", 32)) == [48, 48], "rows that come together have one time"
    again = sums_over("RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW")
    again.apply(stored)
    assert entry(again, 115, ("a", 4)) == [6]


def test_rows_that_no_range_reaches_are_forgotten_while_nothing_comes() -> None:
    operator = sums_over("RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW")
    entry(operator, 100, ("a", 1), ("b", 10))
    entry(operator, 110)
    assert operator.state_rows() == 2
    operator.delta()
    entry(operator, 111)
    assert operator.state_rows() == 0
    assert operator.delta() != b"", "what was forgotten is not to come back"
    spec = spec_of(
        "SELECT SUM(v) OVER (ORDER BY p RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) FROM t",
        "over_aggregate",
    )
    assert spec.tick_seconds == 60


@pytest.mark.parametrize(
    "frame", ["", "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "ROWS BETWEEN 5 PRECEDING AND CURRENT ROW"]
)
def test_other_frames_of_processing_time_go_row_by_row(frame: str) -> None:
    operator = sums_over(frame)
    assert entry(operator, 100, ("a", 1), ("a", 2)) == [1, 3]
    assert entry(operator, 10_000, ("a", 4)) == [7]
    assert spec_of(f"SELECT SUM(v) OVER (ORDER BY p {frame}) FROM t", "over_aggregate").tick_seconds is None


def test_the_first_rows_by_arrival_stay_and_need_no_sink_that_takes_changes() -> None:
    text = "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p {}) AS rn FROM t) WHERE rn <= 2"
    assert hr.sql(text.format("")).script.relations()["result"].stream.changes is None
    assert hr.sql(text.format("DESC")).script.relations()["result"].stream.changes is not None


def test_a_match_by_the_clock_ends_within_its_time() -> None:
    text = (
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY p MEASURES COUNT(A.v) AS n, LAST(B.v) AS last "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) WITHIN INTERVAL '10' SECOND DEFINE A AS A.v < 5, B AS B.v >= 5)"
    )
    spec = spec_of(text, "match_recognize")
    assert spec.tick_seconds is not None
    schema = Schema({"k": pl.String(), "v": pl.Int32()})

    def matches(operator: StatefulOperator, second: float, *rows: tuple[str, int]) -> list[tuple[Any, ...]]:
        found = [*operator.on_system(Tick(int(second * SECOND)))]
        if rows:
            frame = pl.DataFrame(list(rows), schema=dict(schema), orient="row")
            found += operator.process(Batch(QUEUE, frame))
        return [row for batch in found if isinstance(batch, Batch) for row in batch.frame.rows()]

    operator = spec.open(schema)
    assert matches(operator, 100, ("a", 1), ("a", 2)) == []
    stored = operator.snapshot()
    assert matches(operator, 105, ("b", 1), ("a", 7)) == [("a", 2, 7)]
    assert operator.state_rows() == 1
    assert matches(operator, 116) == []
    assert operator.state_rows() == 0, "the match of b took too long"
    again = spec.open(schema)
    again.apply(stored)
    assert matches(again, 111, ("a", 7)) == [], "the clock has gone on while the job stood still"
