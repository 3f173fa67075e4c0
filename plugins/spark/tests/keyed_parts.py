"""Stateful operators for tests of keyed stages: small, plain Python, and obviously right.

A module that workers import.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable

import headrace as hr
import polars as pl
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, SystemMessage, Tick, Watermark
from headrace.flow.schema import Schema
from headrace.interfaces.operator import RejectedRows, StatefulOperator, StatefulSpec
from headrace.jobs.keyed import shuffled
from headrace_stateful.keys.watermark import WatermarkSpec
from spark_parts import CountingSource, LineSink

WINDOW_SECONDS = 100
SCHEMA = {"n": "int64", "queue": "string"}


def stream_of(source: CountingSource, keys: int = 5) -> hr.Stream:
    return hr.stream("test", "keyed").from_(source, format="json", schema=SCHEMA).with_columns(k=f"n % {keys}")


def windows_of(counts: dict[str, int], keys: int = 5, begin: int = 0) -> Counter[tuple[int, int]]:
    return Counter((n % keys, n // WINDOW_SECONDS) for count in counts.values() for n in range(begin, count))


def found(sink: LineSink) -> Counter[tuple[int, int]]:
    rows = [(row["k"], row["w"], row["n"]) for row in sink.rows()]
    assert len({row[:2] for row in rows}) == len(rows), "a window came twice"
    return Counter({(k, w): n for k, w, n in rows})


def timed(stream: hr.Stream, *, idle_timeout: str | None = None) -> hr.Stream:
    """Return the stream with ``ts``, which is ``n`` in seconds, and a watermark on it."""
    with_time = stream.with_columns(ts=pl.from_epoch(pl.col("n"), time_unit="s").cast(pl.Datetime("us")))
    return with_time.apply(WatermarkSpec("ts", idle_timeout=idle_timeout))


def windowed(stream: hr.Stream, key: str = "k", seconds: int = WINDOW_SECONDS) -> hr.Stream:
    """Return counts and sums of ``n`` per key and window of event time: k, w (its number), n (the count), total."""
    return shuffled(stream, (key,)).apply(WindowCount(key, seconds))


class WindowCount(StatefulSpec):
    """Counts rows per key and window of ``ts``; gives a window when the watermark has passed its end."""

    name = "window_count"

    def __init__(self, key: str, seconds: int) -> None:
        self.key = key
        self.seconds = seconds

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        assert schema is not None
        return Schema({self.key: schema[self.key], "w": pl.Int64(), "n": pl.Int64(), "ts": pl.Datetime("us")})

    def open(self, schema: Schema | None) -> StatefulOperator:
        return _WindowCount(self)


class _WindowCount(StatefulOperator):
    def __init__(self, spec: WindowCount) -> None:
        self._spec = spec
        self._counts: dict[tuple[object, int], int] = {}
        self._changed: set[tuple[object, int]] = set()
        self._late = 0

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows | Watermark]:
        size = self._spec.seconds * 1_000_000
        frame = batch.frame
        marks = frame[WATERMARK].to_list() if WATERMARK in frame.columns else [None] * frame.height
        times = frame["ts"].cast(pl.Int64).to_list()
        for key, time_us, mark in zip(frame[self._spec.key].to_list(), times, marks, strict=True):
            if mark is not None:
                yield from self._fire(batch, mark)
            window = time_us // size
            if mark is not None and mark >= (window + 1) * size:
                self._late += 1
                continue
            self._counts[key, window] = self._counts.get((key, window), 0) + 1
            self._changed.add((key, window))

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        nothing = Batch(hr.Queue(""), pl.DataFrame())
        if isinstance(message, Watermark):
            return self._fire(nothing, message.time_us)
        if isinstance(message, EndOfInput):
            return self._fire(nothing, 2**62)
        return ()

    def _fire(self, batch: Batch, mark: int) -> list[Batch]:
        size = self._spec.seconds * 1_000_000
        due = sorted((w, k) for k, w in self._counts if mark >= (w + 1) * size)
        if not due:
            return []
        self._changed.update((k, w) for w, k in due)
        counts = [self._counts.pop((k, w)) for w, k in due]
        ends = [(w + 1) * size - 1 for w, _ in due]
        frame = pl.DataFrame(
            {self._spec.key: [k for _, k in due], "w": [w for w, _ in due], "n": counts, WATERMARK: ends}
        ).with_columns(ts=pl.col(WATERMARK).cast(pl.Datetime("us")))
        return [batch.with_frame(frame)]

    def delta(self) -> bytes:
        content = self._content(self._changed)
        self._changed.clear()
        return content

    def snapshot(self) -> bytes:
        self._changed.clear()
        return self._content(self._counts)

    def _content(self, keys: Iterable[tuple[object, int]]) -> bytes:
        rows = [(k, w, self._counts.get((k, w))) for k, w in keys]
        if not rows:
            return b""
        buffer = io.BytesIO()
        pl.DataFrame(rows, schema=["k", "w", "n"], orient="row").write_ipc(buffer)
        return buffer.getvalue()

    def apply(self, state: bytes) -> None:
        for key, window, count in pl.read_ipc(io.BytesIO(state)).rows():
            if count is None:
                self._counts.pop((key, window), None)
            else:
                self._counts[key, window] = count

    def state_rows(self) -> int:
        return len(self._counts)

    def late_rows(self) -> int:
        return self._late


class Pairs(StatefulSpec):
    """Joins two sides by ``k``: for each row of one side and each of the other with its key, gives k and n = left + right."""

    name = "pairs"

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return Schema({"k": pl.Int64(), "n": pl.Int64()})

    def open(self, schema: Schema | None) -> StatefulOperator:
        return _Pairs()


class _Pairs(StatefulOperator):
    def __init__(self) -> None:
        self._rows: list[tuple[str, int, int]] = []
        self._new = 0

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows | Watermark]:
        made = []
        for k, n in batch.frame.select("k", "n").rows():
            made += [(k, n + other) for side, key, other in self._rows if key == k and side != batch.output]
            self._rows.append((batch.output, k, n))
            self._new += 1
        if made:
            yield batch.with_frame(pl.DataFrame(made, schema={"k": pl.Int64, "n": pl.Int64}, orient="row"))

    def delta(self) -> bytes:
        rows, self._new = self._rows[len(self._rows) - self._new :], 0
        return _ipc(rows)

    def snapshot(self) -> bytes:
        self._new = 0
        return _ipc(self._rows)

    def apply(self, state: bytes) -> None:
        self._rows += [(str(side), int(k), int(n)) for side, k, n in pl.read_ipc(io.BytesIO(state)).rows()]

    def state_rows(self) -> int:
        return len(self._rows)


def _ipc(rows: list[tuple[str, int, int]]) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(rows, schema={"side": pl.String, "k": pl.Int64, "n": pl.Int64}, orient="row").write_ipc(buffer)
    return buffer.getvalue()


class Clocked(StatefulSpec):
    """Counts rows, and gives the count with the first tick of each second of the clock that follows one."""

    name = "clocked"
    tick_seconds = 1.0

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return Schema({"n": pl.Int64()})

    def open(self, schema: Schema | None) -> StatefulOperator:
        return _Clocked()


class _Clocked(StatefulOperator):
    def __init__(self) -> None:
        self._count = 0

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows | Watermark]:
        self._count += len(batch)
        return ()

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows]:
        if isinstance(message, Tick) and self._count:
            count, self._count = self._count, 0
            yield Batch(hr.Queue(""), pl.DataFrame({"n": [count]}))

    def delta(self) -> bytes:
        return self._count.to_bytes(8, "big")

    snapshot = delta

    def apply(self, state: bytes) -> None:
        self._count = int.from_bytes(state, "big")

    def state_rows(self) -> int:
        return int(self._count > 0)
