"""Operators whose state spills, driven as a backend drives them: versions, checkpoints, crashes, and a local store in a dict."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import polars as pl
import polars.selectors as cs
from headrace.flow.messages import Batch, SystemMessage
from headrace.interfaces.local_store import LocalStore, LocalTable
from headrace.interfaces.operator import SpillingOperator
from headrace.runtime.state_frames import unpack

from .stateful_driver import Run

ROUND = 2**64


class DictStore(LocalStore):
    """A local store that is here as long as the object is."""

    def __init__(self, directory: str = "", memory_bytes: int = 0) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.writes = 0

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        return [self.rows.get(key) for key in keys]

    def write(self, keys: Sequence[bytes], values: Sequence[bytes], removed: Sequence[bytes] = ()) -> None:
        self.writes += 1
        for key in removed:
            self.rows.pop(key, None)
        self.rows.update(zip(keys, values, strict=True))

    def scan(self, begin: bytes, end: bytes, rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        keys = sorted(self.rows)
        keys = keys[bisect_left(keys, begin) : bisect_left(keys, end)]
        for at in range(0, len(keys), rows):
            some = keys[at : at + rows]
            yield some, [self.rows[key] for key in some]

    def clear(self, begin: bytes, end: bytes) -> None:
        for key in [key for key in self.rows if begin <= key < end]:
            del self.rows[key]

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class SpillingRun:
    """An operator with little memory, what is stored of it, and what a crash leaves.

    ``checkpointed``: how many versions the last finished checkpoint has, and which input it has seen. ``given``: input since then.
    """

    make: Callable[[], Any]
    memory_bytes: int
    store: LocalStore = field(default_factory=DictStore)
    chain: list[tuple[int, bytes]] = field(default_factory=list)
    given: list[Batch | SystemMessage] = field(default_factory=list)
    version: int = 0
    #: (version, how far it was rolled before it).
    rolled: list[tuple[int, int]] = field(default_factory=list)
    reused: int = 0

    def __post_init__(self) -> None:
        self.begin()

    def _epochs(self) -> list[tuple[int, str]]:
        return [(number, f"{crc32(content):08x}") for number, content in self.chain]

    def begin(self, *, memory_bytes: int | None = None) -> None:
        """Begin with a new operator, from the last checkpoint and what the local store has."""
        self.memory_bytes = memory_bytes or self.memory_bytes
        self.run = Run(self.make)
        local = LocalTable(self.store, "table", memory_bytes=self.memory_bytes, rolls=True)
        operator = self.run.operator
        assert isinstance(operator, SpillingOperator)
        self.operator: SpillingOperator = operator
        operator.spill_to(local)
        self.rolled.clear()
        epochs = self._epochs()
        base = local.fits(operator.local_layout(), epochs)
        begin = 0
        if base is None:
            operator.begin_anew(operator.local_layout())
        else:
            self.reused += 1
            operator.go_on(epochs[-1])
            begin = epochs.index(base)
        for _, content in self.chain[begin:]:
            operator.apply(content)
        operator.restored(epochs[-1] if epochs else None)

    def give(self, batch: Batch) -> None:
        self.given.append(batch)
        self._process(batch)

    def tell(self, message: SystemMessage) -> None:
        self.given.append(message)
        self._process(message)

    def _process(self, one: Batch | SystemMessage) -> None:
        if isinstance(one, Batch):
            self.run.give(one)
        else:
            self.run.tell(one)

    def checkpoint(self, *, crash_before: bool = False) -> None:
        """Store what has changed; with ``crash_before`` the process ends before the checkpoint has it."""
        before = self.operator.rolled
        content = self.operator.delta()
        if crash_before:
            self.crash()
            return
        self.version += 1
        if content:
            self.chain.append((self.version, content))
            self.rolled.append((self.version, before))
            full = [place for place, (_, past) in enumerate(self.rolled) if self.operator.rolled - past >= ROUND]
            if full:
                del self.rolled[: full[-1]]
                self.chain = [each for each in self.chain if each[0] >= self.rolled[0][0]]
        self.given.clear()
        epochs = self._epochs()
        self.operator.settle(epochs[-1] if epochs else None)

    def crash(self) -> None:
        """End without a word, begin again, and process once more what came since the checkpoint."""
        given = list(self.given)
        done = self.run
        self.begin()
        for one in given:
            self._process(one)
        again = self.run
        # What came before the crash came already; the same rows must come again.
        tail = len(again.rows)
        assert repr(again.rows) == repr(done.rows[len(done.rows) - tail :])
        assert again.kinds == done.kinds[len(done.kinds) - tail :]
        self.run = done
        self.run.operator = self.operator

    def begin_again(self, *, memory_bytes: int) -> None:
        """Begin again from a checkpoint that was made right before, with other memory."""
        assert not self.given
        done = self.run
        self.begin(memory_bytes=memory_bytes)
        self.run = done
        self.run.operator = self.operator

    def plain(self) -> Any:
        """Return an operator without a limit that has what is stored."""
        operator = self.make()
        for _, content in self.chain:
            operator.apply(content)
        return operator


def contents(state: bytes) -> list[str]:
    """Return the rows of a snapshot without their slots as texts (NaN, -0.0), in an order of their own."""
    _, frames, _ = unpack(state)
    found: list[str] = []
    for name, frame in frames.items():
        if name.endswith("set"):
            slots = frame["__hr_slot"]
            assert slots.n_unique() == frame.height, "a slot belongs to one key"
            found += map(repr, frame.drop("__hr_slot").with_columns(cs.by_dtype(pl.Int128).cast(pl.String)).rows())
    return sorted(found)
