"""Windows as the DSL makes them: what goes in, what is refused, time zones, processing time, odd keys, reduce."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import cloudpickle
import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import CHANGE, INDEX, OFFSET, WATERMARK, Batch, EndOfInput, Tick, Watermark
from headrace.flow.schema import Schema
from headrace.foundation.errors import CheckpointError, JobError, PlanError
from headrace.interfaces.operator import Changes, RejectedRows
from headrace.interfaces.windows import Emit, Window, emit, session, sliding, tumbling
from headrace.testing import MemorySink, MemorySource
from headrace_stateful.keys.state_bytes import pack
from headrace_stateful.windows.window_aggregate import WindowAggregate
from headrace_stateful.windows.window_reduce import WindowReduce

from plugins.stateful.tests.stateful_driver import QUEUE, Run, batch_of

SCHEMA = Schema.of({"k": "string", "ts": "timestamp", "v": "int64"})
START = datetime(2024, 2, 28, 23, 59, tzinfo=ZoneInfo("UTC"))
COUNT = {"n": "count(*)"}


def us(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def run_of(
    window: Window, rows: list[tuple[Any, ...]], schema: Schema = SCHEMA, aggregates: dict[str, str] | None = None, **options: Any
) -> Run:  # fmt: skip
    spec = cloudpickle.loads(cloudpickle.dumps(WindowAggregate(("k",), window, aggregates or COUNT, **options)))
    run = Run(lambda: spec.open(schema))
    run.give(batch_of(rows, dict(schema), watermarks=[None] * len(rows)))
    run.tell(EndOfInput())
    return run


def test_leap_day_and_negative_epoch() -> None:
    rows = [("a", START + timedelta(hours=hours), 1) for hours in (0, 1, 25, 49)]
    rows += [("a", datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), 1), ("a", datetime(1, 1, 1, tzinfo=UTC), 1)]
    run = run_of(tumbling("1 d", on="ts"), rows)
    days = [(row[1].date().isoformat(), row[2].date().isoformat(), row[3]) for _, row in run.rows]
    assert days == [
        ("0001-01-01", "0001-01-02", 1), ("1969-12-31", "1970-01-01", 1), ("2024-02-28", "2024-02-29", 1),
        ("2024-02-29", "2024-03-01", 1), ("2024-03-01", "2024-03-02", 1), ("2024-03-02", "2024-03-03", 1),
    ]  # fmt: skip


def test_windows_are_lengths_of_time_across_a_change_of_clocks() -> None:
    """Berlin, 31 March 2024: 2:00 is followed by 3:00."""
    zone = ZoneInfo("Europe/Berlin")
    schema = Schema({**SCHEMA, "ts": pl.Datetime("us", "Europe/Berlin")})
    times = [datetime(2024, 3, 31, 0, 30, tzinfo=UTC), datetime(2024, 3, 31, 1, 30, tzinfo=UTC)]
    run = run_of(tumbling("2 h", on="ts"), [("a", time.astimezone(zone), 1) for time in times], schema)
    ((_, row),) = run.rows
    assert row[3] == 2
    assert row[1] == datetime(2024, 3, 31, 1, tzinfo=zone)
    assert row[2] == datetime(2024, 3, 31, 4, tzinfo=zone)
    assert row[2].astimezone(UTC) - row[1].astimezone(UTC) == timedelta(hours=2)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_without_zone_and_of_other_units(unit: Any) -> None:
    schema = Schema({**SCHEMA, "ts": pl.Datetime(unit)})
    run = run_of(tumbling("1 min", on="ts"), [("a", START.replace(tzinfo=None), 1)], schema)
    assert run.rows == [("", ("a", datetime(2024, 2, 28, 23, 59), datetime(2024, 2, 29, 0, 0), 1))]


def test_rows_without_time_are_rejected() -> None:
    run = run_of(tumbling("1 min", on="ts"), [("a", None, 1), ("a", START, 1)])
    assert run.rejected == ["no time in column 'ts': the row belongs to no window"]
    assert [row[3] for _, row in run.rows] == [1]


@pytest.mark.parametrize("window", [tumbling("1 min", on="ts"), session("1 min", on="ts")], ids=str)
def test_rows_and_results_that_fail_are_rejected(window: Window) -> None:
    rows = [("a", START, 0), ("a", START, 1), ("b", START, -1), ("b", START, 1)]
    run = run_of(window, rows, aggregates={"s": "sum(10 / v)", "q": "count(*) / (sum(v) * 1)"})
    assert [row[0] for _, row in run.rows] == ["a"]
    assert len(run.rejected) == 2
    assert all("division by zero" in reason for reason in run.rejected)


@pytest.mark.parametrize("window", [tumbling("1 min", on="ts"), session("1 min", on="ts")], ids=str)
def test_keys_that_are_nan_null_empty_and_huge(window: Window) -> None:
    schema = Schema({"k": pl.Float64(), "t": pl.String(), "ts": SCHEMA["ts"]})
    spec = WindowAggregate(("k", "t"), window, COUNT)
    run = Run(lambda: spec.open(schema))
    huge = "x" * 1_000_000
    rows = [
        (key, text, START)
        for key, text in [
            (math.nan, None),
            (None, ""),
            (0.0, huge),
            (-0.0, huge),
            (-math.nan, None),
            (None, ""),
            (None, None),
        ]
    ]
    run.give(batch_of(rows, dict(schema), watermarks=[None] * len(rows)))
    run.store()
    run.restart()
    run.give(batch_of(rows, dict(schema), watermarks=[None] * len(rows)))
    run.tell(EndOfInput())
    counts = sorted(
        (repr(row[0] + 0.0 if row[0] is not None else None), len(row[1] or ""), row[4]) for _, row in run.rows
    )
    assert counts == [("0.0", 1_000_000, 4), ("None", 0, 2), ("None", 0, 4), ("nan", 0, 4)]


@pytest.mark.parametrize("window", [tumbling("1 min", on="ts"), session("1 min", on="ts")], ids=str)
@pytest.mark.parametrize("emitted", [emit(before="0 s"), emit(before="10 s"), emit(until="1 min")], ids=str)
def test_odd_keys_in_changelogs(window: Window, emitted: Emit) -> None:
    schema = Schema({"k": pl.Float64(), "ts": SCHEMA["ts"]})
    spec = WindowAggregate(("k",), window, COUNT, emit=emitted)
    run = Run(lambda: spec.open(schema))
    for _ in range(2):
        rows = [(key, START) for key in (math.nan, None, 0.0, -0.0, -math.nan)]
        run.give(batch_of(rows, dict(schema), watermarks=[None] * len(rows)))
        run.store()
        run.restart()
    run.tell(EndOfInput())
    found = {repr(row[0] + 0.0 if isinstance(row[0], float) else row[0]): row[3:] for row in run.table()}
    assert found == {"'NaN'": (4, "final"), "None": (2, "final"), "0.0": (4, "final")}


@pytest.mark.parametrize("window", [tumbling("1 min", on="ts"), session("1 min", on="ts")], ids=str)
def test_results_that_fail_take_nothing_back_twice(window: Window) -> None:
    spec = WindowAggregate(("k",), window, {"q": "10 / sum(v)"}, emit=emit(before="0 s"))
    run = Run(lambda: spec.open(SCHEMA))
    rows = [("a", START, 1), ("a", START, -1), ("a", START, 2)]
    run.give(batch_of(rows, dict(SCHEMA), watermarks=[None] * 3))
    run.tell(EndOfInput())
    assert [row[3:] for row in run.table()] == [(5, "final")]
    assert len(run.rejected) == 1


@pytest.mark.parametrize("window", [tumbling("1 min", on="ts"), session("1 min", on="ts")], ids=str)
def test_without_keys(window: Window) -> None:
    spec = WindowAggregate((), window, COUNT)
    run = Run(lambda: spec.open(SCHEMA))
    for _ in range(3):
        run.give(batch_of([("a", START, 1), ("b", START, 2)], dict(SCHEMA), watermarks=[None, None]))
        run.store()
        run.restart()
    run.tell(Watermark(QUEUE, us(START + timedelta(minutes=1))))
    assert [row[2] for _, row in run.rows] == [6]


@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_processing_time_goes_by_ticks(kind: str) -> None:
    window = tumbling("10 us") if kind == "tumbling" else session("10 us")
    spec = WindowAggregate(("k",), window, COUNT)
    run = Run(lambda: spec.open(SCHEMA))
    for tick in (1, 8, 12):
        run.tell(Tick(tick))
        run.give(batch_of([("a", None, 1)], dict(SCHEMA)))
        run.store()
        run.restart()
    run.tell(Tick(22))
    found = [(us(row[1]), us(row[2]), row[3]) for _, row in run.rows]
    assert found == ([(0, 10, 2), (10, 20, 1)] if kind == "tumbling" else [(1, 22, 3)])


def test_end_of_input_makes_older_rows_late() -> None:
    run = run_of(tumbling("1 min", on="ts"), [("a", START, 1)])
    run.store()
    run.restart()
    run.give(batch_of([("a", START, 2)], dict(SCHEMA), watermarks=[None]))
    assert [(where, row[0]) for where, row in run.rows] == [("", "a"), ("late", "a")]
    assert run.operator.late_rows() == 1


def test_late_rows_keep_their_columns_and_watermark() -> None:
    spec = WindowAggregate(("k",), tumbling("1 min", on="ts"), COUNT)
    operator = spec.open(SCHEMA)
    mark = us(START + timedelta(minutes=5))
    (given,) = operator.process(batch_of([("a", START, 1)], dict(SCHEMA), watermarks=[mark]))
    assert isinstance(given, Batch)
    assert given.output == "late"
    assert given.frame.columns == [WATERMARK, "k", "ts", "v"]


def test_changes() -> None:
    plain = WindowAggregate(("k",), tumbling("1 min", on="ts"), COUNT)
    assert plain.changes(None) is None
    assert list(plain.output_schema(SCHEMA) or ()) == ["k", "window_start", "window_end", "n"]
    early = WindowAggregate(("k",), tumbling("1 min", on="ts"), COUNT, emit=emit(before="10 s"))
    assert early.changes(None) == Changes(("k", "window_start", "window_end"))
    assert list(early.output_schema(SCHEMA) or ())[-1] == "window_result"
    assert plain.changes(Changes(None)) is None
    with pytest.raises(PlanError, match="each result once"):
        early.changes(Changes(None))


def test_required_columns() -> None:
    spec = WindowAggregate(("k",), tumbling("1 min", on="ts"), {"s": "sum(v)"})
    schema = Schema({**SCHEMA, "other": pl.String()})
    assert spec.required_columns({"s"}, schema) == {"k", "ts", "v"}
    assert spec.required_columns({"s", "other"}, schema) == {"k", "ts", "v", "other"}
    assert spec.required_columns(None, schema) is None


@pytest.mark.parametrize(
    ("keys", "window", "aggregates", "message"),
    [
        (("kk",), tumbling("1 min", on="ts"), COUNT, "did you mean 'k'"),
        (("k",), tumbling("1 min", on="tz"), COUNT, "unknown column 'tz'"),
        (("k",), tumbling("1 min", on="v"), COUNT, "not a time"),
        (("k",), tumbling("1 min", on="ts"), {"k": "count(*)"}, "two columns of the result are called 'k'"),
        (("k",), tumbling("1 min", on="ts"), {"n": "sum(k)"}, "needs numbers"),
    ],
)
def test_mistakes_are_found_when_the_job_is_built(
    keys: tuple[str, ...], window: Window, aggregates: dict[str, str], message: str
) -> None:
    with pytest.raises(JobError, match=message):
        WindowAggregate(keys, window, aggregates).output_schema(SCHEMA)


@pytest.mark.parametrize("window", [tumbling("1 min", on="ts"), session("1 min", on="ts")], ids=str)
def test_state_of_another_kind_is_refused(window: Window) -> None:
    operator = WindowAggregate(("k",), window, COUNT).open(SCHEMA)
    with pytest.raises(CheckpointError, match="damaged"):
        operator.apply(b"nonsense")
    with pytest.raises(CheckpointError, match="unknown kind"):
        operator.apply(pack("other", {}, {}))


@pytest.mark.parametrize("window", [tumbling("1 min", on="ts"), session("1 min", on="ts")], ids=str)
def test_state_is_let_go_of(window: Window) -> None:
    operator = WindowAggregate(("k",), window, COUNT).open(SCHEMA)
    assert operator.delta() == b""
    for minute in range(10):
        time = START + timedelta(minutes=3 * minute)
        rows = [(f"k{number}", time, 1) for number in range(100)]
        list(operator.process(batch_of(rows, dict(SCHEMA), watermarks=[us(time) - 1] * 100)))
        list(operator.on_system(Watermark(QUEUE, us(time))))
        assert operator.state_rows() == 100
        assert operator.delta() != b""
        assert operator.delta() == b""
    list(operator.on_system(Watermark(QUEUE, us(START + timedelta(days=1)))))
    assert operator.state_rows() == 0


def longest(value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    if row["v"] == 13:
        raise ValueError("unlucky")
    return {"v": value["v"] * 10 + row["v"], "ts": row["ts"], "k": "ignored"}


@pytest.mark.parametrize("window", [tumbling("1 h", on="ts"), session("1 h", on="ts")], ids=str)
def test_reduce(window: Window) -> None:
    spec = cloudpickle.loads(cloudpickle.dumps(WindowReduce(("k",), window, longest)))
    assert list(spec.output_schema(SCHEMA)) == ["k", "window_start", "window_end", "ts", "v"]
    run = Run(lambda: spec.open(SCHEMA))
    for number in (1, 2, 13, 3):
        time = datetime(2024, 1, 1, 0, number, tzinfo=ZoneInfo("UTC"))
        run.give(batch_of([("a", time, number), ("b", time, 0)], dict(SCHEMA), watermarks=[None, None]))
        run.store()
        run.restart()
    run.tell(EndOfInput())
    assert [(row[0], row[3].minute, row[4]) for _, row in run.rows] == [("a", 3, 123), ("b", 3, 0)]
    assert run.rejected == ["ValueError: unlucky"]


def test_reduce_of_some_columns_with_early_results() -> None:
    spec = WindowReduce(
        ("k",), sliding("2 us", "1 us", on="ts"), lambda a, b: {"v": a["v"] + b["v"]}, schema={"v": "int64"},
        emit=Emit(before_us=0),
    )  # fmt: skip
    run = Run(lambda: spec.open(SCHEMA))
    time = datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    run.give(batch_of([("a", time, 1), ("a", time, 2)], dict(SCHEMA), watermarks=[None, None]))
    run.tell(EndOfInput())
    assert {row[3:] for row in run.table()} == {(3, "final")}
    assert len(run.table()) == 2
    with pytest.raises(PlanError, match="convert the column"):
        WindowReduce(("k",), tumbling("1 s", on="ts"), longest, schema={"v": "string"}).output_schema(SCHEMA)


def test_batches_of_many_rows_and_of_one_give_the_same() -> None:
    """Enough rows that state is merged, taken out and put in again many times."""
    count = 20_000
    frame = pl.DataFrame({"i": range(count)}).select(
        pl.col("i").cast(pl.Int64).alias(OFFSET), pl.lit(0, dtype=pl.Int32).alias(INDEX),
        (pl.col("i") * 1000 - 20_000).alias(WATERMARK),
        (pl.lit("k") + (pl.col("i") * 7919 % 613).cast(pl.String)).alias("k"),
        (pl.col("i") * 1000 + pl.col("i") * 7 % 19_000).cast(pl.Datetime("us", "UTC")).alias("ts"),
        pl.col("i").alias("v"),
    )  # fmt: skip
    for window in (tumbling("300 ms", on="ts"), session("400 ms", on="ts"), sliding("300 ms", "100 ms", on="ts")):
        spec = WindowAggregate(("k",), window, {"n": "count(*)", "a": "avg(v)", "x": "sum(v * 0.1e0)"})
        tables = []
        for size in (23, 1000, count):
            if size == 23 and window.kind == "sliding":
                continue
            operator = spec.open(SCHEMA)
            given: list[pl.DataFrame] = []
            results: list[Batch | RejectedRows] = []
            for begin in range(0, count, size):
                part = frame[begin : begin + size]
                results += operator.process(Batch(QUEUE, part))  # type: ignore[arg-type]
                results += operator.on_system(Watermark(QUEUE, int(part[WATERMARK][-1]) + 1000))  # type: ignore[arg-type]
            results += operator.on_system(EndOfInput())  # type: ignore[arg-type]
            for result in results:
                assert isinstance(result, Batch)
                assert result.output == ""
                assert CHANGE not in result.frame.columns
                given.append(result.frame)
            tables.append(pl.concat(given).sort("window_end", "window_start", "k"))
        for table in tables[1:]:
            assert table.equals(tables[0])
        assert tables[0]["n"].sum() == count * (3 if window.kind == "sliding" else 1)


@pytest.mark.parametrize(("options", "fields"), [({}, {"queue"}), ({"max_future": "1 min"}, {"queue", "time"})])
def test_sources_give_the_records_times_where_the_watermark_looks_at_them(
    options: dict[str, Any], fields: set[str]
) -> None:
    source = MemorySource({"q": []})
    stream = hr.stream("test", "times").from_(
        source, format="json", schema={"at": "timestamp"}, metadata={"from": "queue"}
    )
    stream.watermark("at", **options).to(MemorySink()).plan()
    assert source.header_fields == fields


@pytest.mark.parametrize("branch", ["early", "rest"])
def test_windows_of_a_branch_have_its_rows(branch: str) -> None:
    """The watermark gave its rows to the output of the verb before it, so that they vanished."""
    bodies = [b'{"k": "a", "v": %d, "ts": "2026-01-01 00:00:%02d"}' % (n, n) for n in range(20)]
    source, sink = MemorySource({"q": bodies}), MemorySink()
    rows = hr.stream("test", "branches").from_(
        source, format="json", schema={"k": "string", "v": "int64", "ts": "timestamp"}
    )
    of_branch = rows.split(early="v < 7")[branch].key_by("k").window(tumbling("1 min", on="ts"))
    of_branch.agg(n="count(*)").to(sink).run("light")
    assert [row["n"] for row in sink.rows] == [7 if branch == "early" else 13]
