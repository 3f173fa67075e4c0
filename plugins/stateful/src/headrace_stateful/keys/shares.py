"""What operators have in common when their state is divided by key among another number of shards.

Each takes the rows of its keys out of the snapshots of all shards before. What is numbered per shard (slots, the order of
arrival) is numbered again: rows of one shard after those of the previous one, so that the order within a key stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.key_shares import KeyShare
from numpy.typing import NDArray

from headrace_stateful.keys.columns import Flags, Places
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.slots import SlotTable
from headrace_stateful.keys.state_bytes import unpack

NEVER = -(2**63)
State = tuple[dict[str, pl.DataFrame], dict[str, Any]]


def snapshots(states: Sequence[bytes]) -> list[State]:
    """Return the frames and values of snapshots. Raises CheckpointError when one is none."""
    found = []
    for state in states:
        kind, frames, values = unpack(state)
        if kind != "snapshot":
            raise CheckpointError(f"only a snapshot of state can be divided among shards, not a {kind}, not a snapshot")
        found.append((frames, values))
    return found


def rows_of(frame: pl.DataFrame, mask: Flags) -> pl.DataFrame:
    """Return the rows that a mask flags."""
    return frame if mask.all() else frame.filter(pl.Series(mask))


def joined(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return frames of the same columns behind one another."""
    return frames[0] if len(frames) == 1 else pl.concat(frames)


def together(parts: Sequence[Mapping[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Return the frames of several states, put together by name; those without rows are left out."""
    names = dict.fromkeys(name for part in parts for name in part)
    found = {name: [part[name] for part in parts if name in part and part[name].height] for name in names}
    return {name: joined(frames) for name, frames in found.items() if frames}


class Renumbering:
    """Gives numbers of several shards new ones, without gaps: first those of the first shard, then those of the next."""

    def __init__(self) -> None:
        self.next = 0

    def of(self, numbers: Places) -> NewNumbers:
        """Return the new numbers of the next shard's, each given once: in the order in which they are given."""
        begin, self.next = self.next, self.next + len(numbers)
        return NewNumbers(numbers, begin)


class NewNumbers:
    """What the numbers of one shard have become."""

    def __init__(self, numbers: Places, begin: int) -> None:
        self._new: Places = np.full(int(numbers.max()) + 1 if len(numbers) else 0, -1, dtype=np.int64)
        self._new[numbers] = np.arange(begin, begin + len(numbers))

    def to(self, numbers: Places) -> Places:
        """Return the new numbers; -1 for those that are not of the share."""
        known = numbers < len(self._new)
        found: Places = np.full(len(numbers), -1, dtype=np.int64)
        found[known] = self._new[numbers[known]]
        return found


def numbers(frame: pl.DataFrame, name: str) -> NDArray[np.int64]:
    """Return a column of whole numbers."""
    return frame[name].to_numpy()


def renumbered(frame: pl.DataFrame, name: str, new: Places) -> pl.DataFrame:
    """Return rows with other numbers in a column."""
    return frame.with_columns(pl.Series(name, new, dtype=pl.Int64))


def table_share(tables: Sequence[Mapping[str, pl.DataFrame]], share: KeyShare) -> tuple[pl.DataFrame, list[NewNumbers]]:
    """Return the rows of a share of slot tables, what ``SlotTable.snapshot`` calls "set", and the new slots of each table."""
    slots, rows, new = Renumbering(), [], []
    for table in tables:
        own = rows_of(table["set"], share.holds(table["set"]))
        new.append(slots.of(numbers(own, SlotTable.SLOT)))
        rows.append(renumbered(own, SlotTable.SLOT, new[-1].to(numbers(own, SlotTable.SLOT))))
    return joined(rows), new


def log_share(logs: Sequence[pl.DataFrame], masks: Sequence[Flags]) -> pl.DataFrame:
    """Return the flagged rows of row logs, what ``RowLog.snapshot`` calls "added"."""
    order, rows = Renumbering(), []
    for log, mask in zip(logs, masks, strict=True):
        own = rows_of(log, mask)
        old = numbers(own, RowLog.NUMBER)
        rows.append(renumbered(own, RowLog.NUMBER, order.of(old).to(old)))
    return joined(rows)


def in_new_order(rows: pl.DataFrame, name: str, order: Renumbering) -> pl.DataFrame:
    """Return rows of the next shard with their order of arrival counted again. They need not be sorted by it."""
    old = numbers(rows, name)
    return renumbered(rows, name, order.of(np.sort(old)).to(old))


class Reached:
    """The time that shards have reached. It is the same in all, except after the end of an input, when each shard has closed its windows.

    Then the greatest counts, as it would with one shard. That is exact as long as no shard waits for something before it.
    """

    def __init__(self) -> None:
        self._shards: list[tuple[int, pl.Series, bool]] = []

    def add(self, reached_us: int, *waiting_us: pl.Series, at_any_time: bool = False) -> None:
        """Take the time of a shard, and the times for which it waits. ``at_any_time``: it may have to give something at any."""
        times = [each.cast(pl.Int64).rename("") for each in waiting_us]
        self._shards.append((reached_us, pl.concat([pl.Series("", [], dtype=pl.Int64), *times]), at_any_time))

    def time_us(self) -> int:
        """Return the time of all shards. Raises CheckpointError when one waits for something before it."""
        greatest = max((reached for reached, _, _ in self._shards), default=NEVER)
        for reached, waiting, at_any_time in self._shards:
            if reached < greatest and (at_any_time or waiting.is_between(reached, greatest, closed="right").any()):
                raise CheckpointError(
                    "the watermarks of the shards differ because the input ended, and one shard still waits for earlier results: their "
                    "state cannot be divided now",
                    hint="continue with the previous number of shards until newer rows have been processed, and take the savepoint then",
                )
        return greatest
