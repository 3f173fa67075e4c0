"""The operators of this package: the same rows whatever the batches, and whenever their state was taken and applied."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, Tick, Watermark
from headrace.flow.schema import Schema
from headrace.interfaces.operator import StatefulOperator, StatefulSpec
from headrace_sql.operators.first_rows import FirstRows
from headrace_sql.operators.match_operator import MatchRecognize, PatternPart
from headrace_sql.operators.over_aggregate import OverAggregate
from headrace_sql.operators.over_functions import OverCall
from headrace_sql.operators.rows_at_end import RowsAtEnd
from headrace_sql.operators.temporal_join import TemporalJoin
from headrace_sql.operators.window_top_n import WindowTopN
from headrace_stateful.keys.state_bytes import unpack

QUEUE = Queue("q")
DELAY_US = 2_000_000
SCHEMA = Schema({"k": pl.String(), "v": pl.Int64(), "ts": pl.Datetime("us")})
RIGHT = Schema({"k2": pl.String(), "rate": pl.Int64(), "ts2": pl.Datetime("us")})


def history(seed: int, *, sides: bool = False) -> list[tuple[str, dict[str, Any], int | None]]:
    """Return (side, row, watermark before it): out of order, some late, NULL keys, equal times."""
    rng = random.Random(seed)
    now = 0
    newest: int | None = None
    made: list[tuple[str, dict[str, Any], int | None]] = []
    for number in range(150):
        now += rng.choice([0, 1_000, 200_000, 900_000])
        time = max(0, now - rng.choice([0, 0, 0, 500_000, 1_500_000, 4_000_000]))
        key = rng.choice(["a", "b", "c", None])
        before = None if newest is None else newest - DELAY_US
        if sides and rng.random() < 0.4:
            made.append(("right", {"k2": key, "rate": number, "ts2": time}, before))
        else:
            made.append(("left" if sides else "", {"k": key, "v": rng.randrange(50), "ts": time}, before))
        newest = time if newest is None else max(newest, time)
    return made


def frame_of(rows: list[tuple[str, dict[str, Any], int | None]], schema: Schema) -> pl.DataFrame:
    times = [name for name in schema if name.startswith("ts")]
    plain = {name: pl.Int64() if name in times else kind for name, kind in schema.items()}
    frame = pl.DataFrame([row for _, row, _ in rows], schema=plain, orient="row")
    marks = pl.Series(WATERMARK, [mark for _, _, mark in rows], dtype=pl.Int64)
    return frame.with_columns([pl.col(name).cast(pl.Datetime("us")) for name in times]).with_columns(marks)


def driven(
    spec: StatefulSpec, rows: list[tuple[str, dict[str, Any], int | None]], cut: Callable[[], int], *, restores: bool
) -> list[Any]:
    """Return all rows that come out, in order."""
    operator = spec.open(SCHEMA)
    found: list[Any] = []
    stored: list[bytes] = []

    def take(results: Any) -> None:
        for batch in results:
            assert isinstance(batch, Batch)
            if batch.output == "":
                found.extend(batch.frame.select(pl.exclude(WATERMARK)).rows())

    place = 0
    while place < len(rows):
        size = cut()
        side = rows[place][0]
        piece: list[tuple[str, dict[str, Any], int | None]] = []
        while place < len(rows) and len(piece) < size and rows[place][0] == side:
            piece.append(rows[place])
            place += 1
        take(operator.process(Batch(QUEUE, frame_of(piece, RIGHT if side == "right" else SCHEMA), side)))
        newest = max(row["ts2" if "ts2" in row else "ts"] for _, row, _ in rows[:place])
        take(operator.on_system(Watermark(QUEUE, newest - DELAY_US)))
        if restores:
            stored.append(operator.delta())
            operator = _restored(spec, stored)
    take(operator.on_system(EndOfInput()))
    return found


def _restored(spec: StatefulSpec, stored: list[bytes]) -> StatefulOperator:
    fresh = spec.open(SCHEMA)
    for state in stored:
        if state:
            fresh.apply(state)
    return fresh


def over() -> StatefulSpec:
    calls = {
        "n": OverCall("COUNT", None, "ROWS", 3), "s": OverCall("SUM", "v", "ROWS", 3), "m": OverCall("MIN", "v", "RANGE", 1_000_000),
        "all": OverCall("SUM", "v", "ROWS", None), "before": OverCall("LAG", "v", "ROWS", 1),
    }  # fmt: skip
    return OverAggregate(("k",), "ts", calls)


def numbered() -> StatefulSpec:
    calls = {
        "number": OverCall("ROW_NUMBER", None, "RANGE", None), "rank": OverCall("RANK", None, "RANGE", None),
        "dense": OverCall("DENSE_RANK", None, "RANGE", None), "before": OverCall("LAG", "v", "RANGE", None, 2, default=-1),
        "different": OverCall("COUNT", "v", "RANGE", None, distinct=True), "deviation": OverCall("STDDEV_POP", "v", "ROWS", 3),
    }  # fmt: skip
    return OverAggregate(("k",), "ts", calls)


def temporal(how: str) -> StatefulSpec:
    return TemporalJoin(SCHEMA, RIGHT, (("k", "k2"),), ("ts", "ts2"), how)


def window_top_n() -> StatefulSpec:
    # Each moment is a window of its own.
    return WindowTopN(("ts", "k"), "ts", 2, (("v", True),), rank="place")


def first_by_time() -> StatefulSpec:
    return WindowTopN(("k", "ts"), "ts", 1, (), by_time=True)


def match() -> StatefulSpec:
    rises = (">", ("LAST", "B", "v", 0), ("LAST", "A", "v", 0))
    return MatchRecognize(
        keys=("k",), on="ts", order=(), pattern=(PatternPart("A", 1, 1), PatternPart("B", 1, None), PatternPart("C", 1, 1)),
        definitions={"B": rises, "C": ("<", ("LAST", "C", "v", 0), ("LAST", "A", "v", 0))},
        measures={"first": ("LAST", "A", "v", 0), "n": ("COUNT", "B", None, 0), "last": ("LAST", "C", "v", 0)},
        types={"first": pl.Int64(), "n": pl.Int64(), "last": pl.Int64()}, skip=("PAST LAST ROW", ""), within_us=None,
    )  # fmt: skip


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("spec", "sides"),
    [
        pytest.param(over(), False, id="over"),
        pytest.param(numbered(), False, id="numbered"),
        pytest.param(temporal("inner"), True, id="temporal-inner"),
        pytest.param(temporal("left"), True, id="temporal-left"),
        pytest.param(match(), False, id="match"),
        pytest.param(window_top_n(), False, id="window-top-n"),
        pytest.param(first_by_time(), False, id="first-by-time"),
        pytest.param(FirstRows(20, 5), False, id="first-rows"),
        pytest.param(RowsAtEnd((("k", True), ("v", False))), False, id="rows-at-end"),
    ],
)
def test_batches_and_restarts_change_nothing(spec: StatefulSpec, sides: bool, seed: int) -> None:
    rows = history(seed, sides=sides)
    row_by_row = driven(spec, rows, lambda: 1, restores=False)
    assert len(row_by_row) > 5
    rng = random.Random(seed)
    for cut in (lambda: 7, lambda: 1_000, lambda: rng.randrange(1, 60)):
        assert driven(spec, rows, cut, restores=False) == row_by_row
    assert driven(spec, rows, lambda: rng.randrange(1, 60), restores=True) == row_by_row


#: Key, millisecond and value of rows; the watermark is at the greatest time before each. With a frame of 10 ms, a key is forgotten 16 ms
#: behind its last row: "a" before 300, so that its row of 50 begins anew. When its row of 40 comes, that of 300 has just been given.
FORGOTTEN = [
    ("a", 100, 1),
    ("b", 200, 2),
    ("a", 300, 4),
    ("b", 300, 8),
    ("a", 50, 16),
    ("b", 310, 32),
    ("a", 40, 64),
    ("b", 320, 128),
]


@pytest.mark.parametrize("cuts", [[1] * 8, [8], [3, 5], [3, 1, 4], [2, 2, 2, 2], [4, 1, 1, 2], [5, 3]], ids=str)
def test_keys_of_over_are_forgotten_at_the_same_row_in_any_batches(cuts: list[int]) -> None:
    spec = OverAggregate(("k",), "ts", {"s": OverCall("SUM", "v", "RANGE", 10_000)})
    newest = [None, *(max(time for _, time, _ in FORGOTTEN[:place]) * 1_000 for place in range(1, len(FORGOTTEN)))]
    rows = [("", {"k": key, "v": value, "ts": time * 1_000}, mark)
            for (key, time, value), mark in zip(FORGOTTEN, newest, strict=True)]  # fmt: skip
    operator = spec.open(SCHEMA)
    given: list[Any] = []
    late: list[int] = []
    for size in cuts:
        for batch in operator.process(Batch(QUEUE, frame_of(rows[:size], SCHEMA))):
            assert isinstance(batch, Batch)
            late += batch.frame["v"].to_list() if batch.output == "late" else []
            given += batch.frame.select("v", "s").rows() if batch.output == "" else []
        rows = rows[size:]
        state = operator.snapshot()
        operator = spec.open(SCHEMA)
        operator.apply(state)
    for batch in operator.on_system(EndOfInput()):
        given += batch.frame.select("v", "s").rows()  # type: ignore[union-attr]
    assert late == [64]
    assert sorted(given) == [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 40), (128, 160)]


def test_the_clock_of_a_pattern_goes_on_behind_a_restart() -> None:
    """A row that comes before the first tick was taken at the time of before, not at the beginning of all time."""
    last = ("LAST", "A", "v", 0), ("LAST", "B", "v", 0)
    spec = MatchRecognize(
        keys=("k",), on=None, order=(), pattern=(PatternPart("A", 1, 1), PatternPart("B", 1, 1)),
        definitions={"A": (">", last[0], ("value", 0)), "B": (">", last[1], ("value", 0))},
        measures={"f": last[0]}, types={"f": pl.Int64()}, skip=("PAST LAST ROW", ""), within_us=10_000_000,
    )  # fmt: skip

    def taken(operator: StatefulOperator, value: int) -> list[Any]:
        frame = frame_of([("", {"k": "a", "v": value, "ts": 0}, None)], SCHEMA)
        return [row for batch in operator.process(Batch(QUEUE, frame)) for row in batch.frame.select("f").rows()]  # type: ignore[union-attr]

    before = spec.open(SCHEMA)
    list(before.on_system(Tick(100_000_000)))
    assert taken(before, 0) == []
    state = before.snapshot()
    after = spec.open(SCHEMA)
    after.apply(state)
    assert taken(after, 1) == []
    list(after.on_system(Tick(105_000_000)))
    assert taken(after, 2) == [(1,)]


@pytest.mark.parametrize("make", [over, lambda: temporal("left"), match], ids=["over", "temporal", "match"])
@pytest.mark.parametrize("whole", [True, False])
def test_what_is_frozen_is_not_changed_by_what_comes_after(make: Callable[[], StatefulSpec], whole: bool) -> None:
    """Another thread makes the bytes of a checkpoint while the operator takes rows."""
    sides = isinstance(make(), TemporalJoin)
    rows = history(7, sides=sides)
    operator, twin = make().open(SCHEMA), make().open(SCHEMA)
    for each in (operator, twin):
        _take_all(each, rows[:100])
    frozen = operator.frozen(whole=whole)
    _take_all(operator, rows[100:])
    assert frozen.write is not None, "the bytes were made at once"
    assert frozen.rows
    assert _content(frozen.make()) == _content(twin.snapshot() if whole else twin.delta())


def _content(state: bytes) -> Any:
    """Return what a state has; rows of frames in any order, as polars groups in any order."""
    kind, frames, values = unpack(state)
    return kind, {name: sorted(frame.rows(), key=repr) for name, frame in frames.items()}, values


def _take_all(operator: StatefulOperator, rows: list[tuple[str, dict[str, Any], int | None]]) -> None:
    for row in rows:
        list(operator.process(Batch(QUEUE, frame_of([row], RIGHT if row[0] == "right" else SCHEMA), row[0])))
        newest = row[1]["ts2" if "ts2" in row[1] else "ts"]
        list(operator.on_system(Watermark(QUEUE, newest - DELAY_US)))
