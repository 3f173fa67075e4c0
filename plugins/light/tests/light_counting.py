"""A small operator with state for tests of backends: how often each key has come."""

from __future__ import annotations

import json
from collections.abc import Iterable

import polars as pl
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, SystemMessage, Watermark
from headrace.flow.schema import Schema
from headrace.interfaces.operator import StatefulOperator, StatefulSpec


class Count(StatefulSpec):
    """Gives each key that came in an entry with its count so far; at the end of input those since the last, with −1."""

    name = "count"

    def __init__(self, key: str) -> None:
        self.key = key

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        assert schema is not None
        return Schema({self.key: schema[self.key], "count": pl.Int64(), "watermark": pl.Int64()})

    def open(self, schema: Schema | None) -> StatefulOperator:
        return Counting(self.key)


class Counting(StatefulOperator):
    def __init__(self, key: str) -> None:
        self._key = key
        self._counts: dict[str, int] = {}
        self._changed: set[str] = set()
        #: Keys that came since the last end of input.
        self._open: set[str] = set()
        self._watermark: int | None = None

    def process(self, batch: Batch) -> Iterable[Batch]:
        made = []
        before = batch.frame[WATERMARK].to_list() if WATERMARK in batch.frame.columns else [None] * len(batch)
        for key, watermark in zip(batch.frame[self._key].to_list(), before, strict=True):
            self._counts[key] = self._counts.get(key, 0) + 1
            self._changed.add(key)
            self._open.add(key)
            made.append((key, self._counts[key], watermark))
        yield self._batch(batch, made)

    def on_system(self, message: SystemMessage) -> Iterable[Batch]:
        if isinstance(message, Watermark):
            self._watermark = message.time_us
        if isinstance(message, EndOfInput):
            ends = [(key, -1, self._watermark) for key in sorted(self._open)]
            self._changed |= self._open
            self._open = set()
            from headrace.flow.messages import Queue

            yield self._batch(Batch(Queue("end"), pl.DataFrame()), ends)

    def _batch(self, batch: Batch, rows: list[tuple[str, int, int | None]]) -> Batch:
        schema = {self._key: pl.String, "count": pl.Int64, "watermark": pl.Int64}
        return batch.with_frame(pl.DataFrame(rows, schema=schema, orient="row"))

    def delta(self) -> bytes:
        changed, self._changed = self._changed, set()
        return self._stored(changed) if changed else b""

    def snapshot(self) -> bytes:
        self._changed.clear()
        return self._stored(self._counts)

    def _stored(self, keys: Iterable[str]) -> bytes:
        return json.dumps({key: [self._counts[key], key in self._open] for key in sorted(keys)}).encode()

    def apply(self, state: bytes) -> None:
        for key, (count, is_open) in json.loads(state).items():
            self._counts[key] = count
            (self._open.add if is_open else self._open.discard)(key)

    def state_rows(self) -> int:
        return len(self._counts)
