"""A healthy operator with state: the sum so far of each key."""

from __future__ import annotations

import json
from collections.abc import Iterable

import polars as pl
from headrace.messages import Batch, EndOfInput, SystemMessage
from headrace.operator import RejectedRows, StatefulOperator, StatefulSpec, Watermark
from headrace.schema import Schema


class Sums(StatefulSpec):
    """Gives, for each row, its key and the sum so far; at the end of input each key's sum once more, by key."""

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return Schema({"key": pl.String(), "sum": pl.Int64()})

    def open(self, schema: Schema | None) -> StatefulOperator:
        return Summing()


class Summing(StatefulOperator):
    """The running operator."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}
        self.changed: set[str] = set()

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows | Watermark]:
        self.last = batch
        rows = []
        for key, value in batch.frame.select("key", "value").iter_rows():
            self.sums[key] = self.sums.get(key, 0) + (value or 0)
            self.changed.add(key)
            rows.append((key, self.sums[key]))
        yield self.made(batch, rows)

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows | Watermark]:
        if isinstance(message, EndOfInput) and hasattr(self, "last"):
            yield self.made(self.last, [(key, self.sums[key]) for key in sorted(self.sums)])

    def made(self, batch: Batch, rows: list[tuple[str, int]]) -> Batch:
        """Return result rows."""
        return batch.with_frame(pl.DataFrame(rows, schema={"key": pl.String, "sum": pl.Int64}, orient="row"))

    def delta(self) -> bytes:
        changed, self.changed = self.changed, set()
        return json.dumps({key: self.sums[key] for key in sorted(changed)}).encode() if changed else b""

    def snapshot(self) -> bytes:
        self.changed = set()
        return json.dumps(self.sums).encode()

    def apply(self, state: bytes) -> None:
        self.sums.update(json.loads(state))

    def state_rows(self) -> int:
        return len(self.sums)
