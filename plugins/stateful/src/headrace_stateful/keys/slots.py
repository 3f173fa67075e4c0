"""From key to slot: a vectorised hash table, and a table of keys and values that records its changes.

Open addressing with linear probing (Knuth, The Art of Computer Programming, vol. 3, 6.4) over the 64-bit hashes of
``headrace.flow.key_hashes``; whole batches probe at once, and keys of equal hash are compared. At most half of the table
is in use, so that few rounds are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import polars as pl
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.key_hashing import key_hashes
from headrace.interfaces.mapped_memory import MappedMemory
from headrace.interfaces.state_parts import Restore
from numpy.typing import NDArray

from headrace_stateful.keys.columns import Flags, Places, SlotColumns, equal_rows, grown, grown_in_place
from headrace_stateful.keys.frozen_rows import FrozenRows
from headrace_stateful.keys.number_stack import NumberStack
from headrace_stateful.keys.slot_parts import HASH, SLOT, ComingRows, Divided, joined, pack_part, unpack_part

# What the table has in a place: a slot plus one. So a table of zeros is empty, and needs no memory before it is used.
_EMPTY = 0
_REMOVED = -1
_NO_SLOT = -1
_LEAST_PLACES = 1024
#: A table of so many places is filled from the one before little by little, with at least so many of its places at a time.
_MOVED_FROM = 1 << 20
_MOVED_PLACES = 1 << 16
#: Where three quarters are used, the next table is given memory: so many places for each new key, and it is twice as large.
_GIVEN_PER_KEY = 20
_PAGE_PLACES = 512
#: Of so many rows or more bytes may be made by another thread.
_FROZEN_FROM = 20_000
_ROW = "__hr_row"
_NOTHING = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64))


class KeySlots:
    """Gives each key a small number, its slot. NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. Slots of removed keys are
    used again.
    """

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self.names = tuple(schema)
        self._keys = SlotColumns(schema)
        self._table: Places = np.zeros(_LEAST_PLACES, dtype=np.int64)
        #: The smaller table before, while its slots are moved: those before ``_moved`` are in both. New keys are entered in the larger one.
        self._before: Places | None = None
        self._moved = 0
        #: The next larger table, while it is given memory: up to ``_given``.
        self._coming: Places | None = None
        self._given = 0
        self._hashes: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._live: Flags = np.zeros(0, dtype=bool)
        self._free = NumberStack()
        #: One more than the greatest slot that was ever given.
        self.end = 0
        self._count = 0
        self._removed = 0
        self._memory: MappedMemory | None = None

    def use_mapped(self, memory: MappedMemory) -> None:
        """Keep keys, hashes and the table in mapped files from now on; called before there is a key."""
        self._memory = memory
        self._keys.use_mapped(memory)

    def __len__(self) -> int:
        return self._count

    def find(self, keys: pl.DataFrame) -> Places:
        """Return the slot of each row's key, -1 where it has none."""
        return self.find_hashed(keys, key_hashes(keys, self.names))

    def find_or_insert(self, keys: pl.DataFrame) -> tuple[Places, Places]:
        """Return the slot of each row's key, and the rows that were the first of a new key, in order."""
        hashes = key_hashes(keys, self.names)
        slots = self.find_hashed(keys, hashes)
        return slots, self.insert_missing(keys, hashes, slots)

    def insert_missing(self, keys: pl.DataFrame, hashes: NDArray[np.uint64], slots: Places) -> Places:
        """Give the keys of rows without a slot one, which is written into ``slots``; return the first row of each of them, in order."""
        missing = np.flatnonzero(slots < 0)
        if missing.size == 0:
            return missing
        self._make_room(missing.size)
        new_rows, which = self.different(keys, hashes, missing)
        new_slots = self._new_slots(new_rows.size)
        slots[missing] = new_slots[which]
        self._hashes[new_slots] = hashes[new_rows]
        self._live[new_slots] = True
        self._enter(new_slots)
        self._keys.put(new_slots, keys[new_rows].select(self.names))
        self._count += new_rows.size
        return new_rows

    def put_keys(self, slots: Places, keys: pl.DataFrame) -> None:
        """Replace keys in slots by equal keys that look different, as 0.0 and -0.0."""
        self._keys.put(slots, keys)

    def long_bytes(self) -> int:
        """Return how many bytes the keys of no fixed width take."""
        return self._keys.long_bytes()

    def place(self, slots: Places, keys: pl.DataFrame) -> None:
        """Give new keys these slots: when state is restored. The slots must be free, the keys new and different."""
        if slots.size == 0:
            return
        self.place_hashed(slots, keys, self.hashes(keys))
        self.know_free_slots()

    def place_hashed(self, slots: Places, keys: pl.DataFrame, hashes: NDArray[np.uint64]) -> None:
        """Do what ``place`` does, except that free slots between these are not known before ``know_free_slots``."""
        self._make_room(slots.size)
        self._reserve(int(slots.max()) + 1)
        self._hashes[slots] = hashes
        self._live[slots] = True
        self._keys.put(slots, keys)
        self._count += slots.size
        self.end = max(self.end, int(slots.max()) + 1)
        self._enter(slots)

    def expect(self, end: int, count: int) -> None:
        """Give no slot below ``end`` to a new key, as stored keys have them; about ``count`` keys are going to be placed."""
        self._make_room(count)
        self._reserve(end)
        self.end = max(self.end, end)

    def know_free_slots(self) -> None:
        """All stored keys have been placed: slots between them may be given to new keys."""
        self._free.replace(np.flatnonzero(~self._live[: self.end])[::-1].copy())

    def remove(self, slots: Places) -> None:
        """Forget the keys in these slots, each given once."""
        if slots.size == 0:
            return
        for table in self._tables():
            active, places = slots, self._home(self._hashes[slots], table)
            while active.size:
                found = table[places]
                here = found == active + 1
                table[places[here]] = _REMOVED
                going_on = ~here & (found != _EMPTY)
                active, places = active[going_on], self._next(places[going_on], table)
        self._live[slots] = False
        self._keys.drop(slots)
        self._free.push(slots)
        self._count -= slots.size
        self._removed += slots.size

    def keys(self, slots: Places) -> pl.DataFrame:
        """Return the keys in slots, as they were first seen."""
        return self._keys.take(slots)

    def hashes(self, keys: pl.DataFrame) -> NDArray[np.uint64]:
        """Return the hash of each row's key."""
        return key_hashes(keys, self.names)

    def hashes_of(self, slots: Places) -> NDArray[np.uint64]:
        """Return the hashes of the keys in slots."""
        return self._hashes[slots]

    @property
    def live(self) -> Flags:
        """Which slots are in use, by slot. It is the table's own: not to be changed."""
        return self._live

    def slots(self) -> Places:
        """Return the slots in use, ascending."""
        return np.flatnonzero(self._live[: self.end])

    def is_live(self, slots: Places) -> Flags:
        """Return which slots are in use."""
        return self._live[slots]

    # ------------------------------------------------------------------------------------------------- the table

    @staticmethod
    def _home(hashes: NDArray[np.uint64], table: Places) -> Places:
        return (hashes & np.uint64(len(table) - 1)).astype(np.int64)

    @staticmethod
    def _next(places: Places, table: Places) -> Places:
        return (places + 1) & (len(table) - 1)

    def _tables(self) -> tuple[Places, ...]:
        return (self._table,) if self._before is None else (self._table, self._before)

    def find_hashed(self, keys: pl.DataFrame, hashes: NDArray[np.uint64]) -> Places:
        """Return the slot of each row's key, -1 where it has none; ``hashes`` are those of the keys."""
        slots = np.full(len(hashes), -1, dtype=np.int64)
        if self._count == 0:
            return slots
        if self._before is not None:
            self._move(_MOVED_PLACES)
        rows = np.arange(len(hashes))
        for table in self._tables():
            self._find_in(table, keys, hashes, rows, slots)
            rows = np.flatnonzero(slots < 0) if self._before is not None else rows[:0]
        return slots

    def _find_in(
        self, table: Places, keys: pl.DataFrame, hashes: NDArray[np.uint64], rows: Places, slots: Places
    ) -> None:  # fmt: skip
        """Write the slots of the keys in these rows that are in a table into ``slots``."""
        places = self._home(hashes[rows], table)
        while rows.size:
            found, places = self._alike(table, hashes[rows], places)
            hit = found >= 0
            if not hit.all():
                rows, places, found = rows[hit], places[hit], found[hit]
            same = self._keys.equal(found, keys if rows.size == keys.height else keys[rows])
            slots[rows[same]] = found[same]
            # What is left has a hash that another key has too.
            rows, places = rows[~same], self._next(places[~same], table)

    def _alike(self, table: Places, hashes: NDArray[np.uint64], places: Places) -> tuple[Places, Places]:
        """Probe from ``places`` on: return the first slot with the same hash (-1: there is none) and its place."""
        found = table[places] - 1
        going_on = np.flatnonzero((found != _NO_SLOT) & ((self._hashes[found] != hashes) | (found < _NO_SLOT)))
        while going_on.size:
            here = self._next(places[going_on], table)
            slots = table[here] - 1
            places[going_on] = here
            found[going_on] = slots
            other = (slots != _NO_SLOT) & ((self._hashes[slots] != hashes[going_on]) | (slots < _NO_SLOT))
            going_on = going_on[other]
        return found, places

    def different(self, keys: pl.DataFrame, hashes: NDArray[np.uint64], rows: Places) -> tuple[Places, Places]:
        """Return the first row of each different key among rows, ascending, and for each of the rows which of these keys it has."""
        _, first, which = np.unique(hashes[rows], return_index=True, return_inverse=True)
        if first.size < rows.size and not equal_rows(keys[rows[first[which]]], keys[rows], self.names).all():
            # Two keys have the same hash: they are distinguished by their values.
            named = keys[rows].select(self.names).with_row_index(_ROW)
            owners = named.select(pl.col(_ROW).first().over(self.names)).to_series().to_numpy()
            _, first, which = np.unique(owners, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(order.size, dtype=np.int64)
        rank[order] = np.arange(order.size)
        return rows[first[order]], rank[which]

    def _enter(self, slots: Places) -> None:
        """Write slots, whose keys are known to differ, into the table."""
        places = self._home(self._hashes[slots], self._table)
        active = slots
        while active.size:
            free = self._table[places] == _EMPTY
            self._table[places[free]] = active[free] + 1
            done = self._table[places] == active + 1
            active, places = active[~done], self._next(places[~done], self._table)

    def _make_room(self, more: int) -> None:
        if self._before is not None:
            self._move(8 * more)
        wanted = 2 * (self._count + more)
        if wanted + 2 * self._removed <= len(self._table):
            if self._memory is None and self._before is None and wanted > len(self._table) * 3 // 4 >= _MOVED_FROM:
                self._give_memory(_GIVEN_PER_KEY * more)
            return
        if self._before is not None:
            self._move(len(self._before))
        size = len(self._table)
        while size < wanted + wanted // 2:
            size *= 2
        self._before, self._moved = self._table, 0
        coming, self._coming, self._given = self._coming, None, 0
        if coming is not None and len(coming) == size:
            self._table = coming
        else:
            self._table = grown(np.zeros(0, dtype=np.int64), size, _EMPTY, self._memory)
        self._removed = 0
        if len(self._before) < _MOVED_FROM or more > len(self._before) // 8:
            self._move(len(self._before))

    def _give_memory(self, places: int) -> None:
        """Let the system give the next table some of its memory, before keys are entered in all of its pages at once."""
        if self._coming is None:
            self._coming = np.zeros(2 * len(self._table), dtype=np.int64)
        self._coming[self._given : self._given + places : _PAGE_PLACES] = _EMPTY
        self._given += places

    def _move(self, places: int) -> None:
        """Enter the slots in the next places of the table before; forget it when all are entered."""
        assert self._before is not None
        while places > 0 and self._moved < len(self._before):
            found = self._before[self._moved : self._moved + _MOVED_PLACES]
            self._enter(found[found > _EMPTY] - 1)
            self._moved += _MOVED_PLACES
            places -= _MOVED_PLACES
        if self._moved >= len(self._before):
            self._before = None

    def _new_slots(self, count: int) -> Places:
        reused = self._free.pop(count)
        fresh = count - reused.size
        made = np.concatenate([reused, np.arange(self.end, self.end + fresh)])
        self.end += fresh
        self._reserve(self.end)
        return made

    def _reserve(self, size: int) -> None:
        self._hashes = grown_in_place(self._hashes, size, memory=self._memory)
        self._live = grown_in_place(self._live, size, False, self._memory)
        self._keys.reserve(size)


class SlotTable:
    """Keys with values: what most operators remember. It knows which slots have changed since it was last written down.

    Values of a new key are whatever was in the slot before: put them at once.
    """

    SLOT = SLOT

    def __init__(self, keys: Mapping[str, pl.DataType], values: Mapping[str, pl.DataType]) -> None:
        self.key_types, self.value_types = dict(keys), dict(values)
        self.index = KeySlots(keys)
        self._values = SlotColumns(values)
        self._touched: Flags = np.zeros(0, dtype=bool)
        #: Slots that were removed and whose key was there when the state was last written, with the hashes of the keys.
        self._gone: list[tuple[Places, NDArray[np.uint64]]] = []
        self._written: Flags = np.zeros(0, dtype=bool)
        self._restore: Restore | None = None
        #: While it is restored: rows with a value below this one in a column are forgotten as soon as they come.
        self._forgotten: tuple[str, int] | None = None
        self._coming = ComingRows(self.index.hashes)
        self._memory: MappedMemory | None = None
        self._frozen: FrozenRows | None = None

    def use_mapped(self, memory: MappedMemory) -> None:
        """Keep keys and values in mapped files from now on; called before there are any."""
        self._memory = memory
        self.index.use_mapped(memory)
        self._values.use_mapped(memory)

    def __len__(self) -> int:
        return len(self.index)

    def find(self, keys: pl.DataFrame) -> Places:
        """Return the slot of each row's key, -1 where it has none."""
        self._need(keys)
        return self.index.find(keys)

    def find_or_insert(self, keys: pl.DataFrame) -> tuple[Places, Places]:
        """Return the slot of each row's key, and the rows that were the first of a new key, in order."""
        self._need(keys)
        with self._changing(_NOTHING[0]):
            slots, new_rows = self.index.find_or_insert(keys)
            if new_rows.size:
                self._reserve()
                self._touched[slots[new_rows]] = True
        return slots, new_rows

    def take(self, slots: Places) -> pl.DataFrame:
        """Return the values in slots, in that order."""
        return self._values.take(slots)

    def put(self, slots: Places, values: pl.DataFrame) -> None:
        """Set the values in slots, each given at most once."""
        if slots.size:
            with self._changing(slots):
                self._values.put(slots, values)
                self._touched[slots] = True

    def slots_where_below(self, name: str, bound: int) -> Places:
        """Return the slots in use whose value in a column of whole numbers, never NULL, is less than ``bound``."""
        self.need_all()
        return self._with_less(self.index.slots(), name, bound)

    def slots_to_forget(self, name: str, bound: int) -> Places:
        """Do what ``slots_where_below`` does, for rows that are removed then. Rows that are not restored yet are removed when they are."""
        if self._restore is None:
            return self.slots_where_below(name, bound)
        self._forgotten = name, bound
        return self._with_less(self.index.slots(), name, bound)

    def _with_less(self, slots: Places, name: str, bound: int) -> Places:
        return slots[self._values.numbers(name)[slots] < bound]

    def keys(self, slots: Places) -> pl.DataFrame:
        """Return the keys in slots."""
        return self.index.keys(slots)

    def remove(self, slots: Places) -> None:
        """Forget the keys in these slots, each given once."""
        if slots.size:
            with self._changing(slots):
                written = slots[self._written[slots]]
                self._gone.append((written, self.index.hashes_of(written)))
                self._written[slots] = False
                self._touched[slots] = False
                self.index.remove(slots)
                self._values.drop(slots)

    # ------------------------------------------------------------------------------------------------------ state

    def delta(self) -> dict[str, pl.DataFrame]:
        """Return the rows that were touched ("set") and the slots that were removed ("gone") since the last call."""
        gone, _ = self._gone_slots()
        touched = np.flatnonzero(self._touched)
        made = {"set": self._rows(touched), "gone": pl.DataFrame({self.SLOT: gone})}
        self._mark_written(touched)
        return {name: frame for name, frame in made.items() if frame.height}

    def snapshot(self) -> dict[str, pl.DataFrame]:
        """Return all rows, as a delta to an empty table."""
        self.need_all()
        slots = self.index.slots()
        self._mark_written(slots)
        return {"set": self._rows(slots)}

    def frozen(self, *, whole: bool) -> tuple[Callable[[], dict[str, pl.DataFrame]], int]:
        """Return what makes the frames of ``snapshot`` or ``delta`` of now, perhaps in another thread, and their number of rows.

        Rows are not copied now: each is taken out before it changes (``FrozenRows``).
        """
        if whole:
            self.need_all()
        count = len(self) if whole else int(np.count_nonzero(self._touched))
        if count < _FROZEN_FROM:
            frames = self.snapshot() if whole else self.delta()
            return lambda: frames, sum(each.height for each in frames.values())
        end, gone = self.index.end, _NOTHING[0] if whole else self._gone_slots()[0]
        wanted = (self.index.live if whole else self._touched)[:end].copy()
        self._written[:end] |= wanted
        self._touched[:] = False
        self._gone.clear()
        self.drop_frozen()  # if its frames were not requested
        frozen = self._frozen = FrozenRows(wanted, self._rows)

        def make() -> dict[str, pl.DataFrame]:
            made = {"set": pl.concat(list(frozen.frames()), rechunk=False)}
            return made | ({"gone": pl.DataFrame({self.SLOT: gone})} if gone.size else {})

        return make, count + gone.size

    def drop_frozen(self) -> None:
        """Nobody will request the frames that were frozen last any more: rows need not be copied before they change."""
        frozen, self._frozen = self._frozen, None
        if frozen is not None:
            frozen.drop()

    @contextmanager
    def _changing(self, slots: Places) -> Iterator[None]:
        """Rows in these slots, each given once, are going to change: frozen ones are copied out first."""
        frozen = self._frozen
        if frozen is None:
            yield
            return
        with frozen.lock:
            frozen.keep(slots)
            yield
            if frozen.ended:
                self._frozen = None

    def apply(self, frames: Mapping[str, pl.DataFrame]) -> None:
        """Take what ``delta`` or ``snapshot`` gave."""
        if "gone" in frames:
            gone = frames["gone"][self.SLOT].to_numpy()
            # Deltas may begin behind the row itself: with what is on disk too, each has a part of all rows besides (``SpillingTable``).
            gone = gone[gone < self.index.end]
            gone = gone[self.index.is_live(gone)]
            with self._changing(gone):
                self.index.remove(gone)
                self._values.drop(gone)
            self._written[gone] = False
        rows = frames.get("set")
        if rows is not None and rows.height:
            slots = rows[self.SLOT].to_numpy().copy()
            known = slots < self.index.end
            known[known] = self.index.is_live(slots[known])
            with self._changing(slots):
                self.index.place(slots[~known], rows.filter(pl.Series(~known)))
                self._reserve()
                self._values.put(slots, rows)
            self._mark_written(slots)

    # ------------------------------------------------------------------------------------------ state in parts

    def rows_to_store(self, *, whole: bool) -> int:
        """Return how many rows ``parts`` would give."""
        if whole:
            return len(self)
        return int(np.count_nonzero(self._touched)) + sum(slots.size for slots, _ in self._gone)

    def parts(self, bits: int, *, whole: bool) -> list[bytes]:
        """Return what ``snapshot`` (``whole``) or ``delta`` does, in 2 ** bits parts by the keys' hashes."""
        if whole:
            self.need_all()
        slots = self.index.slots() if whole else np.flatnonzero(self._touched)
        rows = Divided(slots, self.index.hashes_of(slots), bits)
        gone = Divided(*(_NOTHING if whole else self._gone_slots()), bits)
        set_frames = rows.of(self._rows(rows.slots))
        gone_frames = gone.of(pl.DataFrame({self.SLOT: gone.slots, HASH: gone.hashes}))
        self._mark_written(slots)
        return [pack_part({"set": one, "gone": other}) for one, other in zip(set_frames, gone_frames, strict=True)]

    def apply_parts(self, parts: Sequence[bytes]) -> None:
        """Take all of a version that ``parts`` gave."""
        self.apply(joined([unpack_part(part) for part in parts if part]))

    def begin_restore(self, end: int, count: int, restore: Restore) -> None:
        """Wait for about ``count`` stored keys with slots below ``end``."""
        self._restore = restore
        self.index.expect(end, count)
        self._reserve()

    def put_parts(self, contents: Sequence[tuple[int, bytes]], pages: Flags) -> None:
        """Take parts, each with the place of its version: all rows of these pages are here after that."""
        rows = self._coming.take(contents, pages)
        if rows.height == 0:
            return
        slots = rows[self.SLOT].to_numpy()
        if int(slots.max()) >= self.index.end or self.index.is_live(slots).any():
            raise CheckpointError(
                "the stored state of an operator assigns one slot to two keys", hint="go back to an older checkpoint"
            )
        with self._changing(_NOTHING[0]):
            self.index.place_hashed(slots, rows, rows[HASH].to_numpy())
            self._values.put(slots, rows)
        self._written[slots] = True
        if self._forgotten is not None:
            self.remove(self._with_less(slots, *self._forgotten))

    def end_restore(self) -> None:
        """All rows are here."""
        self._restore = self._forgotten = None
        self.index.know_free_slots()

    def need_all(self) -> None:
        """Wait until all rows are here."""
        if self._restore is not None:
            self._restore.need_all()

    def need_slot(self, slot: int) -> None:
        """Wait until the row of a slot is here that some key has: for all rows, as nobody knows whose slot it is."""
        if self._restore is not None and not self.index.is_live(np.array([slot]))[0]:
            self._restore.need_all()

    def _need(self, keys: pl.DataFrame) -> None:
        if self._restore is not None:
            self._restore.need(self.index.hashes(keys))

    def _gone_slots(self) -> tuple[Places, NDArray[np.uint64]]:
        if not self._gone:
            return _NOTHING
        return np.concatenate([slots for slots, _ in self._gone]), np.concatenate([each for _, each in self._gone])

    def _rows(self, slots: Places) -> pl.DataFrame:
        return pl.concat(
            [pl.DataFrame({self.SLOT: slots}), self.index.keys(slots), self._values.take(slots)], how="horizontal"
        )

    def _mark_written(self, slots: Places) -> None:
        self._written[slots] = True
        self._touched[:] = False
        self._gone.clear()

    def _reserve(self) -> None:
        end = self.index.end
        self._values.reserve(end)
        self._touched = grown_in_place(self._touched, end, False, self._memory)
        self._written = grown_in_place(self._written, end, False, self._memory)
