"""Registered frames as sources: what ``register("t", frame)`` gives a query to read."""

from __future__ import annotations

import io
import os
from collections.abc import Collection
from typing import Any, ClassVar

import polars as pl
from headrace.flow.messages import Queue, ReadPosition
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import LATEST, Reader, Source, StartPosition

from headrace_sql.operators.range_reader import RangeReader

_QUEUE = "rows"


class FrameSource(Source):
    """A polars frame as a bounded source with one queue. The frame travels with the job, as Arrow IPC."""

    Settings: ClassVar[type[Settings]] = Settings

    def __init__(self, settings: object = None, *, data: bytes = b"") -> None:
        self._data = data
        self._frame: pl.DataFrame | None = None

    @classmethod
    def of(cls, frame: Any) -> FrameSource:
        """Return the source of a polars or pandas frame. Raises OptionError for anything else."""
        buffer = io.BytesIO()
        polars_frame(frame).write_ipc(buffer)
        return cls(data=buffer.getvalue())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_frame": None}

    @property
    def frame(self) -> pl.DataFrame:
        if self._frame is None:
            self._frame = pl.read_ipc(io.BytesIO(self._data))
        return self._frame

    bounded = True

    def schema(self) -> Schema | None:
        return Schema(dict(self.frame.schema))

    def queues(self) -> Collection[Queue]:
        return [Queue(_QUEUE)]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        first = start.offset if isinstance(start, ReadPosition) else self.frame.height if start is LATEST else 0
        return RangeReader(lambda begin, end: self.frame.slice(begin, end - begin), first, self.frame.height)


def polars_frame(frame: Any) -> pl.DataFrame:
    """Return rows as a polars frame whose times are in microseconds.

    ``frame``: a polars frame, also a lazy one, a pandas frame, an Arrow table, a relation of DuckDB, or the path of a Parquet file.
    """
    frame = _as_polars(frame)
    times = [
        pl.col(name).cast(pl.Datetime("us", kind.time_zone))
        for name, kind in frame.schema.items()
        if isinstance(kind, pl.Datetime) and kind.time_unit != "us"
    ]
    made: pl.DataFrame = frame.with_columns(times) if times else frame
    return made


def _as_polars(frame: Any) -> pl.DataFrame:
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, str | os.PathLike) and os.fspath(frame).endswith(".parquet"):
        return pl.read_parquet(os.fspath(frame))
    maker = type(frame).__module__.partition(".")[0]
    if maker in ("duckdb", "_duckdb"):
        made: pl.DataFrame = frame.pl()
        return made
    if maker == "pandas":
        return pl.from_pandas(frame)
    if hasattr(frame, "__arrow_c_stream__"):
        return pl.DataFrame(frame)
    raise OptionError(
        f"{type(frame).__name__} is not a frame", option="frame",
        hint="a polars or pandas DataFrame, an Arrow table, a relation of DuckDB, or the path of a Parquet file",
    )  # fmt: skip
