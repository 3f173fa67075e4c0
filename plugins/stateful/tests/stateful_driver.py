"""Drives a stateful operator as a shard does, and reads what it gives as a table."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import polars as pl
from headrace.flow.messages import (
    CHANGE,
    HEADER_COLUMNS,
    INDEX,
    OFFSET,
    WATERMARK,
    Batch,
    ChangeKind,
    Queue,
    SystemMessage,
)
from headrace.interfaces.frozen_state import FrozenState
from headrace.interfaces.mapped_memory import MappedMemory
from headrace.interfaces.operator import MappedOperator, RejectedRows, StatefulOperator

QUEUE = Queue("0", "key_by")
SIGNS = {ChangeKind.INSERT: 1, ChangeKind.UPDATE_AFTER: 1, ChangeKind.UPDATE_BEFORE: -1, ChangeKind.DELETE: -1}

Row = tuple[Any, ...]


def batch_of(
    rows: Sequence[Row],
    schema: dict[str, Any],
    *,
    output: str = "",
    kinds: Sequence[int] | None = None,
    watermarks: Sequence[int | None] | None = None,
    first: int = 0,
) -> Batch:
    """Return rows as a batch with header columns."""
    header: list[pl.Series] = [
        pl.Series(OFFSET, range(first, first + len(rows)), dtype=pl.Int64),
        pl.Series(INDEX, [0] * len(rows), dtype=pl.Int32),
    ]
    if kinds is not None:
        header.append(pl.Series(CHANGE, kinds, dtype=pl.Int8))
    if watermarks is not None:
        header.append(pl.Series(WATERMARK, watermarks, dtype=pl.Int64))
    user = pl.DataFrame(list(rows), schema=schema, orient="row")
    return Batch(QUEUE, pl.concat([pl.DataFrame(header), user], how="horizontal"), output)


@cache
def mapped_memory() -> MappedMemory:
    """Return memory in files for every array and frame, however small; ranges of it are used again."""
    return MappedMemory(tempfile.gettempdir(), 1, file_bytes=1 << 20)


@dataclass
class Run:
    """An operator, everything it gave, and a way to put another in its place that has only its stored state.

    Every second one keeps its state in mapped files, if it can: what comes out, and what is stored, must not tell.
    """

    make: Callable[[], StatefulOperator]
    rows: list[tuple[str, Row]] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    watermarks: list[int | None] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    stored: list[FrozenState] = field(default_factory=list)
    maps: bool = False

    def __post_init__(self) -> None:
        self.operator = self.make()

    def give(self, batch: Batch) -> None:
        self._take(self.operator.process(batch))

    def tell(self, message: SystemMessage) -> None:
        self._take(self.operator.on_system(message))

    def store(self, *, whole: bool = False) -> None:
        """Write the state down: a delta, or a snapshot that takes the place of everything before.

        The bytes are made at the restart: what the operator takes until then must not change them.
        """
        if whole:
            self.stored.clear()
        self.stored.append(self.operator.frozen(whole=whole))

    def restart(self) -> None:
        """Go on with a new operator from what is stored; the state must be stored right before."""
        self.operator = self.make()
        self.maps = not self.maps and isinstance(self.operator, MappedOperator)
        if isinstance(self.operator, MappedOperator) and self.maps:
            self.operator.use_mapped(mapped_memory())
        self.stored = [FrozenState.of(each.make()) for each in self.stored]
        for each in self.stored:
            if state := each.make():
                self.operator.apply(state)

    def _take(self, results: Any) -> None:
        if self.maps:
            mapped_memory().trim()
        for result in results:
            if isinstance(result, RejectedRows):
                self.rejected += result.reasons
            elif isinstance(result, Batch):
                frame = result.frame
                assert OFFSET not in frame.columns
                user = frame.drop(HEADER_COLUMNS, strict=False)
                self.rows += [(result.output, row) for row in user.rows()]
                self.kinds += frame[CHANGE].to_list() if CHANGE in frame.columns else [0] * frame.height
                if result.output == "":
                    marks = frame[WATERMARK].to_list() if WATERMARK in frame.columns else [None] * frame.height
                    self.watermarks += marks

    def table(self, output: str = "") -> Counter[Row]:
        """Return the rows that are there after all changes. Fails when something is taken back that is not there."""
        table: Counter[Row] = Counter()
        for (where, row), kind in zip(self.rows, self.kinds, strict=True):
            if where == output:
                table[plain(row)] += SIGNS[kind]
                assert table[plain(row)] >= 0, f"{row} is taken back but was not given"
        return +table

    def check_watermarks(self) -> None:
        """Watermarks never fall."""
        known = [-(2**63) if mark is None else mark for mark in self.watermarks]
        assert known == sorted(known), known


def plain(row: Row) -> Row:
    """Return a row whose equality is that of SQL's grouping (NaN equals NaN)."""
    return tuple("NaN" if isinstance(v, float) and v != v else v for v in row)
