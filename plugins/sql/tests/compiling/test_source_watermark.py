"""SOURCE_WATERMARK(): event time by the times that a source gives its records."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

import headrace as hr
import numpy as np
import polars as pl
import pytest
from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace.interfaces.hookspecs import hookimpl
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.source import Reader, Source, StartPosition
from headrace_sql.operators.range_reader import RangeReader

_SECOND_US = 1_000_000
#: (id, seconds of the column, seconds by the source)
ROWS = [(1, 1, 1), (2, 900, 2), (3, 12, 12), (4, 3, 13), (5, 21, 25), (6, 2, 26)]


class TimedSettings(Settings, frozen=True, kw_only=True):
    """Options of the source."""

    time_delay: Annotated[timedelta | None, option("how far times may fall")] = None


class TimedReader(RangeReader):
    """Gives each record a time."""

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        made = super().poll(max_records, timeout)
        if made is None or made.frame is None:
            return made
        times = np.array([ROWS[n][2] * _SECOND_US for n in made.offsets], dtype=np.int64)
        return RawBatch(made.offsets, made.next_position, frame=made.frame, times=times)


class TimedSource(Source):
    """Gives the rows above."""

    Settings: ClassVar[type[Settings]] = TimedSettings
    bounded = True

    def __init__(self, settings: TimedSettings) -> None:
        self.settings = settings
        self.time_delay = settings.time_delay

    def schema(self) -> Schema:
        return Schema.of({"id": "int64", "ts": "timestamp_ntz"})

    def queues(self) -> Collection[Queue]:
        return [Queue("all")]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        times = pl.Series([ts * _SECOND_US for _, ts, _ in ROWS]).cast(pl.Datetime("us"))
        frame = pl.DataFrame({"id": [each[0] for each in ROWS], "ts": times})
        first = start.offset if isinstance(start, ReadPosition) else 0
        return TimedReader(lambda begin, end: frame.slice(begin, end - begin), first, frame.height)


class _Plugin:
    @hookimpl
    def headrace_sources(self) -> Mapping[str, Any]:
        return {"timed": TimedSource}


@pytest.fixture(autouse=True)
def offered() -> None:
    if not default_registry().has("source", "timed"):
        default_registry().register(_Plugin(), "timed_rows")


def table(options: str) -> str:
    return f"""CREATE TABLE t (id BIGINT, ts TIMESTAMP(6), WATERMARK FOR ts AS SOURCE_WATERMARK())
      WITH ('connector' = 'timed'{options});"""


@pytest.mark.parametrize("size", [1, 2, 100])
def test_windows_close_by_the_times_of_the_source(size: int) -> None:
    query = """SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))
      GROUP BY window_start, window_end"""
    frame = hr.sql(table(", 'time-delay' = '0 s'") + query).collect(max_batch_records=size)
    counts = {start.minute * 60 + start.second: n for start, n in frame.rows()}
    # Row 2 is of a far future, and closes nothing; rows 4 and 6 come when the source has passed their window.
    assert counts == {0: 1, 10: 1, 20: 1, 900: 1}
    frame = hr.sql(table(", 'time-delay' = '5 s'") + query).collect(max_batch_records=size)
    assert {start.minute * 60 + start.second: n for start, n in frame.rows()} == {0: 2, 10: 1, 20: 1, 900: 1}


@pytest.mark.parametrize("size", [1, 100])
def test_the_watermark_can_be_seen(size: int) -> None:
    text = table(", 'time-delay' = '2 s'") + "SELECT id, CURRENT_WATERMARK(ts) AS w FROM t"
    rows = hr.sql(text).collect(max_batch_records=size).rows()
    seconds = [(w - datetime(1970, 1, 1)).total_seconds() for _, w in sorted(rows) if w is not None]
    assert seconds == pytest.approx([-1, 0, 10, 11, 23], abs=0.002)


def test_a_source_that_vouches_for_nothing_is_refused_with_the_way_out() -> None:
    with pytest.raises(ExpressionError, match="'timed' tells no watermark of its own") as caught:
        hr.sql(table("") + "SELECT * FROM t").plan()
    assert "'time-delay' = '5 s'" in str(caught.value)
    other = "CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()) WITH ('connector' = 'datagen');"
    with pytest.raises(ExpressionError, match="'datagen' tells no watermark of its own") as caught:
        hr.sql(other + "SELECT * FROM t").plan()
    assert "write ts - INTERVAL" in str(caught.value)


def test_a_table_can_be_described() -> None:
    assert hr.sql(table("") + "DESCRIBE t").collect().height == 2
