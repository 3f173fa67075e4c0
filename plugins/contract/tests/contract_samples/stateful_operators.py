"""Healthy operators with state: the sum so far of each key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from headrace.flow.key_hashes import key_hashes
from headrace.flow.messages import Batch, EndOfInput, SystemMessage, Watermark
from headrace.flow.schema import Schema
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import PartedOperator, RejectedRows, StatefulOperator, StatefulSpec
from headrace.interfaces.state_parts import Restore, part_numbers
from numpy.typing import NDArray


class Sums(StatefulSpec):
    """Gives, for each row, its key and the sum so far; at the end of input each key's sum once more, by key."""

    keys = ("key",)

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

    def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
        sums = {key: value for state in states for key, value in json.loads(state).items()}
        own = share.holds(pl.DataFrame({"key": list(sums)}, schema={"key": pl.String}))
        return json.dumps({key: sums[key] for key, mine in zip(sums, own, strict=True) if mine}).encode()

    def state_rows(self) -> int:
        return len(self.sums)


class PartedSums(Sums):
    """The same, with quick start."""

    def open(self, schema: Schema | None) -> StatefulOperator:
        return PartedSumming()


class PartedSumming(Summing, PartedOperator):
    """The running operator; a part holds the sums of its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.restore: Restore | None = None
        #: (place of the version, key, sum) of keys whose pages are not here.
        self.waiting: list[tuple[int, str, int]] = []

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows | Watermark]:
        if self.restore is not None:
            self.restore.need(key_hashes(batch.frame, ["key"]))
        return super().process(batch)

    def on_system(self, message: SystemMessage) -> Iterable[Batch | RejectedRows | Watermark]:
        if self.restore is not None and isinstance(message, EndOfInput):
            self.restore.need_all()
        return super().on_system(message)

    def rows_to_store(self, *, whole: bool) -> int:
        return len(self.sums if whole else self.changed)

    def state_in_parts(self, bits: int, *, whole: bool) -> tuple[bytes, Sequence[bytes]]:
        keys = list(self.sums if whole else sorted(self.changed))
        self.changed = set()
        parts: list[dict[str, int]] = [{} for _ in range(1 << bits)]
        for key, place in zip(keys, part_numbers(hashes(keys), bits).tolist(), strict=True):
            parts[place][key] = self.sums[key]
        return b"", [json.dumps(part).encode() for part in parts]

    def apply_parts(self, common: bytes, parts: Sequence[bytes]) -> None:
        for part in parts:
            self.apply(part)

    def begin_restore(self, commons: Sequence[bytes], rows: int, restore: Restore) -> None:
        self.restore = restore

    def put_parts(self, contents: Sequence[tuple[int, bytes]], pages: NDArray[np.bool_]) -> None:
        self.waiting += [(place, *each) for place, content in contents for each in json.loads(content).items()]
        self.waiting.sort()
        bits = len(pages).bit_length() - 1
        here = pages[part_numbers(hashes([key for _, key, _ in self.waiting]), bits)]
        for known, (_, key, value) in zip(here, self.waiting, strict=True):
            if known:
                self.sums[key] = value
        self.waiting = [each for known, each in zip(here, self.waiting, strict=True) if not known]

    def end_restore(self) -> None:
        self.restore = None


def hashes(keys: Sequence[str]) -> NDArray[np.uint64]:
    """Return the hashes of keys."""
    return key_hashes(pl.DataFrame({"key": keys}, schema={"key": pl.String}), ["key"])
