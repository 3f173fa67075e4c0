"""A slot table of which only the rows that are in use are in memory: the others are in a local store on disk.

Keys have a *place* here, which they lose when they leave memory, and a *number*, which is their slot in the stored state.
When there is no room for the rows of a batch, other rows leave, first those that have not been used for long (Corbató's clock, 1968).
A row that has changed since the last checkpoint stays in memory: the rows on disk are always those of a checkpoint (``LocalTable``).

Deltas have besides the changed rows a range of the hashes of keys, one behind the other (``rolled``). So after one round nothing before
it is needed, and no snapshot has to be made of what does not fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import compress

import numpy as np
import polars as pl
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.local_store import Epoch, LocalTable
from numpy.typing import NDArray

from headrace_stateful.keys.columns import Flags, Places, grown
from headrace_stateful.keys.number_stack import NumberStack
from headrace_stateful.keys.row_bytes import RowBytes
from headrace_stateful.keys.slots import SlotTable

ABOUT = "about"
_TOTAL, _END, _BELOW = "__hr_total", "__hr_end", "__hr_below"
_NUMBER = "__hr_number"
#: When something came for a key last.
TICK = "__hr_tick"
_KEY = "__hr_key_"
_ALL = 2**64
_NEVER = -(2**63)
#: Hash table, hash, flags and number of a row, in bytes.
_ROW_OVERHEAD = 64
_ROWS_MIN = 16
#: Rows that are looked at, read or written at a time.
_STEP = 16_384
#: So many rows a version has at least of all rows, where there are so many: else a round would take very many versions.
_ROLLED_SHARE, _ROLLED_MAX = 100, 100_000
#: Everything is written to the local store when versions with so many rows have come, or with so many times as many as are in memory:
#: a start reads no more than these.
_BEHIND_MAX = 1_000_000
_BEHIND_TIMES = 4
_COLD, _USED, _IN_USE = 0, 1, 2


class SpillingTable(SlotTable):
    """A ``SlotTable`` for the operators that ask for the keys of a batch once, and keep no slot longer than the batch."""

    def __init__(self, keys: Mapping[str, pl.DataType], values: Mapping[str, pl.DataType], local: LocalTable) -> None:
        super().__init__(keys, values)
        self._local = local
        floats = {_KEY + name: kind for name, kind in keys.items() if kind.is_float()}
        self._key_bytes = RowBytes(keys, head=len(local.row_prefix) + 8)
        self._row_bytes = RowBytes({_NUMBER: pl.Int64(), **values, **floats})
        self._float_keys = [name.removeprefix(_KEY) for name in floats]
        self._numbers: Places = np.zeros(0, dtype=np.int64)
        self._age: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        #: Rows of a delta whose checkpoint is not made yet; rows that the local store has otherwise; rows of which it has something.
        self._held: Flags = np.zeros(0, dtype=bool)
        self._unsaved: Flags = np.zeros(0, dtype=bool)
        self._stored: Flags = np.zeros(0, dtype=bool)
        self._free_numbers = NumberStack()
        self._next = 0
        self._total = 0
        self._in_use: list[Places] = []
        self._hand = 0
        self._gone_rows: list[pl.DataFrame] = []
        #: Rows to remove from the local store after the next checkpoint, and those to remove after the one that is being made.
        self._removed: set[bytes] = set()
        self._removed_before: set[bytes] = set()
        #: Whether the local store may have rows.
        self._spilled = False
        self._counted = True
        #: Rows of versions behind the one that the local store has completely.
        self._behind = 0
        self._roll_at = 0
        #: How much of the range of hashes deltas have had, in all: a round is 2 ** 64.
        self.rolled = 0
        #: Rows whose value in this column is less are forgotten: those in memory at once, others when they are seen.
        self._below: tuple[str, int] | None = None
        #: Whether there is no room before the next checkpoint.
        self._full = False
        #: Rows that have changed since the last delta.
        self._changed = 0
        #: What is still to be written until the local store has everything of a version; None: nothing is.
        self._saving: Places | None = None
        self._saving_epoch: Epoch | None = None
        self._saving_from = 0

    def __len__(self) -> int:
        return self._total

    @property
    def wants_checkpoint(self) -> bool:
        """Whether there is no room before the next checkpoint, or it would take long if it came later."""
        return self._full or self._changed >= self._local.changed_max

    # ------------------------------------------------------------------------------------------------ by the batch

    def find(self, keys: pl.DataFrame) -> Places:
        hashes = self.index.hashes(keys)
        slots = self.index.find_hashed(keys, hashes)
        self._use_only(slots)
        self._bring_in(keys, hashes, slots)
        return slots

    def find_or_insert(self, keys: pl.DataFrame) -> tuple[Places, Places]:
        self._save_some()
        hashes = self.index.hashes(keys)
        slots = self.index.find_hashed(keys, hashes)
        self._use_only(slots)
        self._bring_in(keys, hashes, slots)
        self._make_room(int(np.count_nonzero(slots < 0)))
        new_rows = self.index.insert_missing(keys, hashes, slots)
        if new_rows.size:
            self._reserve()
            new = slots[new_rows]
            self._numbers[new] = self._new_numbers(new.size)
            self._touched[new] = True
            for flags in (self._written, self._held, self._unsaved, self._stored):
                flags[new] = False
            self._use(new)
            self._total += new.size
            self._changed += new.size
        return slots, new_rows

    def put(self, slots: Places, values: pl.DataFrame) -> None:
        self._changed += int(np.count_nonzero(~self._touched[slots]))
        super().put(slots, values)

    def remove(self, slots: Places) -> None:
        if slots.size == 0:
            return
        known = slots[self._written[slots]]
        if known.size:
            number = pl.DataFrame({self.SLOT: self._numbers[known]})
            self._gone_rows.append(pl.concat([number, self.index.keys(known)], how="horizontal"))
        stored = slots[self._stored[slots]]
        if stored.size:
            self._removed.update(self._keys_of(stored))
        self._free_numbers.push(self._numbers[slots])
        self._total -= slots.size
        self._forget(slots)

    def slots_where_below(self, name: str, bound: int) -> Places:
        if self._spilled:
            self._below = name, max(bound, self._below[1] if self._below else _NEVER)
        return super().slots_where_below(name, bound)

    def _bring_in(self, keys: pl.DataFrame, hashes: NDArray[np.uint64], slots: Places) -> None:
        """Read the rows of keys without a slot that are on disk, and write their slots into ``slots``."""
        missing = np.flatnonzero(slots < 0)
        if missing.size == 0 or not self._spilled:
            return
        rows, which = self.index.different(keys, hashes, missing)
        wanted = self._encoded(keys[rows], hashes[rows])
        got = self._local.get(wanted)
        found: Flags = np.fromiter((value is not None for value in got), dtype=bool, count=len(got))
        if self._removed or self._removed_before:  # gone since the last checkpoint
            found &= ~self._are_removed(wanted)
        if not found.any():
            return
        frame = self._row_bytes.frame(list(compress(got, found)))  # type: ignore[arg-type]
        at = np.flatnonzero(found)
        if (old := self._expired(frame)).any():
            self._let_go(
                keys[rows[at[old]]], frame.filter(pl.Series(old)), list(compress(compress(wanted, found), old))
            )
            frame, at = frame.filter(pl.Series(~old)), at[~old]
        self._make_room(at.size)
        places = np.full(at.size, -1, dtype=np.int64)
        mine = keys[rows[at]].select(self.index.names)
        self.index.insert_missing(mine, hashes[rows[at]], places)
        self._take_in(places, mine, frame, stored=True)
        self._use(places)
        by_key = np.full(rows.size, -1, dtype=np.int64)
        by_key[at] = places
        slots[missing] = by_key[which]

    def _take_in(self, places: Places, keys: pl.DataFrame, rows: pl.DataFrame, *, stored: bool) -> None:
        """Put rows as they were stored at new places."""
        self._reserve()
        if self._float_keys:
            seen = [rows[_KEY + name].alias(name) for name in self._float_keys if _KEY + name in rows.columns]
            if seen:
                self.index.put_keys(places, keys.with_columns(seen))
        self._values.put(places, rows)
        self._numbers[places] = rows[_NUMBER].to_numpy()
        self._written[places], self._stored[places] = True, stored
        self._touched[places] = self._held[places] = self._unsaved[places] = False

    def _expired(self, rows: pl.DataFrame) -> Flags:
        if self._below is None:
            return np.zeros(rows.height, dtype=bool)
        name, bound = self._below
        expired: Flags = rows[name].to_numpy() < bound
        return expired

    def _let_go(self, keys: pl.DataFrame, rows: pl.DataFrame, encoded: list[bytes]) -> None:
        """Forget rows that are on disk alone."""
        number = rows.select(pl.col(_NUMBER).alias(self.SLOT))
        self._gone_rows.append(pl.concat([number, keys.select(self.index.names)], how="horizontal"))
        self._removed.update(encoded)
        self._free_numbers.push(rows[_NUMBER].to_numpy())
        self._total -= rows.height

    # ------------------------------------------------------------------------------------------------------- room

    def _use_only(self, slots: Places) -> None:
        """Rows of the previous batch may leave again; rows of this batch may not."""
        for before in self._in_use:
            self._age[before] = _USED
        self._in_use.clear()
        self._use(slots[slots >= 0])

    def _use(self, slots: Places) -> None:
        if slots.size:
            self._age[slots] = _IN_USE
            self._in_use.append(slots)

    def _capacity(self) -> int:
        """Return how many rows may be in memory."""
        row = _ROW_OVERHEAD + self._key_bytes.row_bytes + self._row_bytes.row_bytes
        count = len(self.index)
        if count:
            row += (self._values.long_bytes() + self.index.long_bytes()) // count
        return max(_ROWS_MIN, self._local.memory_bytes // row)

    def _make_room(self, more: int) -> None:
        """Let rows leave until there is room for so many more. Where that cannot be, a checkpoint is wanted."""
        if more == 0:
            return
        capacity = self._capacity()
        need = len(self.index) + more - capacity
        if need <= 0 or self._full:
            return
        # Not all at once where much has become too much: no batch is to wait for long.
        left = self._leave(min(max(need, min(_STEP, capacity // 16)), 2 * more + _STEP))
        self._full = left > 0 and len(self.index) + more > capacity

    def _leave(self, need: int) -> int:
        """Let so many rows leave; return how many cannot."""
        end, looked = self.index.end, 0
        while need > 0 and looked < 2 * end:
            window = np.arange(self._hand, min(self._hand + _STEP, end))
            self._hand = 0 if self._hand + _STEP >= end else self._hand + _STEP
            looked += window.size
            leaving = self.index.is_live(window) & (self._age[window] == _COLD)
            leaving &= ~(self._touched[window] | self._held[window])
            used = window[self._age[window] == _USED]
            self._age[used] = _COLD
            chosen = window[leaving][:need]
            self._spill(chosen)
            need -= chosen.size
        return need

    def _spill(self, places: Places) -> None:
        if places.size == 0:
            return
        unsaved = places[self._unsaved[places] | ~self._stored[places]]
        self._write(unsaved)
        self._forget(places)

    def _write(self, places: Places) -> None:
        for begin in range(0, places.size, _STEP):
            some = places[begin : begin + _STEP]
            self._local.write(self._keys_of(some), self._row_bytes.rows(self._rows_as_stored(some)))
            self._spilled = True
        self._unsaved[places], self._stored[places] = False, True

    def _forget(self, places: Places) -> None:
        self._written[places] = self._touched[places] = self._held[places] = False
        self._unsaved[places] = self._stored[places] = False
        self._age[places] = _COLD
        self.index.remove(places)
        self._values.drop(places)

    def _keys_of(self, places: Places) -> list[bytes]:
        return self._encoded(self.index.keys(places), self.index.hashes_of(places))

    def _encoded(self, keys: pl.DataFrame, hashes: NDArray[np.uint64]) -> list[bytes]:
        """Return keys as the local store has them: equal ones are equal bytes, in the order of their hashes."""
        prefix = self._local.row_prefix
        head = np.empty((len(hashes), len(prefix) + 8), dtype=np.uint8)
        head[:, : len(prefix)] = np.frombuffer(prefix, dtype=np.uint8)
        head[:, len(prefix) :] = hashes.astype(">u8").view(np.uint8).reshape(-1, 8)
        alike = [_one_form(pl.col(name)) for name in self._float_keys]
        frame = keys.with_columns(alike) if alike else keys
        return self._key_bytes.rows(frame, head.view(f"V{head.shape[1]}").reshape(-1))

    def _rows_as_stored(self, places: Places) -> pl.DataFrame:
        frame = self._values.take(places).with_columns(pl.Series(_NUMBER, self._numbers[places]))
        if not self._float_keys:
            return frame
        return frame.with_columns(self.index.keys(places)[name].alias(_KEY + name) for name in self._float_keys)

    def _on_disk(
        self, begin: int = 0, end: int | None = None
    ) -> Iterator[tuple[pl.DataFrame, pl.DataFrame, list[bytes]]]:
        """Yield keys, rows and encoded keys of rows that are only on disk, within a range of hashes."""
        if not self._spilled:
            return
        for encoded, packed in self._local.scan(begin, end, _STEP):
            keys, rows = self._key_bytes.frame(encoded), self._row_bytes.frame(packed)
            away: Flags = self.index.find(keys) < 0
            if self._removed or self._removed_before:
                away &= ~self._are_removed(encoded)
            if self._float_keys:
                keys = keys.with_columns(rows[_KEY + name].alias(name) for name in self._float_keys)
            if away.all():
                yield keys, rows, encoded
            elif away.any():
                here = pl.Series(away)
                yield keys.filter(here), rows.filter(here), list(compress(encoded, away))

    def _are_removed(self, keys: list[bytes]) -> Flags:
        one, other = self._removed, self._removed_before
        return np.fromiter((key in one or key in other for key in keys), dtype=bool, count=len(keys))

    def _new_numbers(self, count: int) -> Places:
        reused = self._free_numbers.pop(count)
        begin = self._next
        self._next += count - reused.size
        return np.concatenate([reused, np.arange(begin, self._next)])

    # ------------------------------------------------------------------------------------------------------ state

    def delta(self) -> dict[str, pl.DataFrame]:
        touched = np.flatnonzero(self._touched)
        made = [self._numbered(touched)]
        if self._local.rolls and (touched.size or self._gone_rows or self._local.must_roll):
            self._local.must_roll = False
            made += self._roll(touched.size)
        return self._frames(made, touched)

    def snapshot(self) -> dict[str, pl.DataFrame]:
        slots = self.index.slots()
        made = [self._numbered(slots)]
        for keys, rows, encoded in self._on_disk():
            if (old := self._expired(rows)).any():
                self._let_go(keys.filter(pl.Series(old)), rows.filter(pl.Series(old)), list(compress(encoded, old)))
                keys, rows = keys.filter(pl.Series(~old)), rows.filter(pl.Series(~old))
            made.append(self._as_set(keys, rows))
        self._gone_rows.clear()
        frames = self._frames(made, slots)
        return {"set": self._numbered(slots[:0]), **frames}

    def frozen(self, *, whole: bool) -> tuple[Callable[[], dict[str, pl.DataFrame]], int]:
        frames = self.snapshot() if whole else self.delta()
        return lambda: frames, sum(frame.height for frame in frames.values())

    def _frames(self, made: list[pl.DataFrame], written: Places) -> dict[str, pl.DataFrame]:
        self._written[written] = self._held[written] = self._unsaved[written] = True
        self._touched[:] = False
        self._changed = 0
        self._removed_before |= self._removed
        self._removed.clear()
        frames = {"set": pl.concat(made)}
        if self._gone_rows:
            frames["gone"] = pl.concat(self._gone_rows)
            self._gone_rows.clear()
        self._behind += frames["set"].height
        found = {name: frame for name, frame in frames.items() if frame.height}
        if found:
            below = _NEVER if self._below is None else self._below[1]
            about = {_TOTAL: [self._total], _END: [self._next], _BELOW: [below]}
            found[ABOUT] = pl.DataFrame(about, schema=dict.fromkeys(about, pl.Int64))
        return found

    def _roll(self, changed: int) -> list[pl.DataFrame]:
        """Return the rows of the next range of hashes, as many as have changed, that are not among these."""
        if self._total == 0:
            self.rolled += _ALL
            return []
        wanted = max(changed, min(self._total // _ROLLED_SHARE, _ROLLED_MAX), 1)
        begin, end = self._roll_at, self._roll_at + (_ALL * wanted) // max(self._total, wanted)
        last = None if end >= _ALL else end
        self._roll_at = 0 if last is None else end
        self.rolled += min(end, _ALL) - begin
        slots = self.index.slots()
        slots = slots[~self._touched[slots]]
        hashes = self.index.hashes_of(slots)
        inside = hashes >= np.uint64(begin)
        if last is not None:
            inside &= hashes < np.uint64(last)
        made = [self._numbered(slots[inside])]
        for keys, rows, encoded in self._on_disk(begin, last):
            if (old := self._expired(rows)).any():
                self._let_go(keys.filter(pl.Series(old)), rows.filter(pl.Series(old)), list(compress(encoded, old)))
                keys, rows = keys.filter(pl.Series(~old)), rows.filter(pl.Series(~old))
            made.append(self._as_set(keys, rows))
        return made

    def _numbered(self, places: Places) -> pl.DataFrame:
        number = pl.DataFrame({self.SLOT: self._numbers[places]})
        return pl.concat([number, self.index.keys(places), self._values.take(places)], how="horizontal")

    def _as_set(self, keys: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        number = rows.select(pl.col(_NUMBER).alias(self.SLOT))
        return pl.concat([number, keys, rows.select(list(self._values.schema))], how="horizontal")

    def settle(self, epoch: Epoch | None) -> None:
        """The checkpoint with the last delta or snapshot has been made."""
        self._local.settle(epoch)
        if self._removed_before:
            self._local.write([], [], list(self._removed_before))
            self._removed_before.clear()
        self._held[:] = False
        self._full = False
        if self._saving is not None and self._saving.size == 0:
            # What had changed after that version when it came to be written is in the versions behind it.
            self._local.has_all(self._saving_epoch)
            self._behind -= self._saving_from
            self._saving = None
        if self._saving is None and self._spilled and self._behind >= self._behind_max():
            self._saving, self._saving_epoch, self._saving_from = self._unsaved_rows(), epoch, self._behind

    def _behind_max(self) -> int:
        return min(_BEHIND_MAX, _BEHIND_TIMES * self._capacity())

    def _unsaved_rows(self) -> Places:
        slots = self.index.slots()
        return slots[(self._unsaved[slots] | ~self._stored[slots]) & ~(self._touched[slots] | self._held[slots])]

    def _save_some(self) -> None:
        """Write some of the rows that the local store has otherwise or not."""
        if self._saving is None or self._saving.size == 0:
            return
        places, self._saving = self._saving[:_STEP], self._saving[_STEP:]
        places = places[self.index.is_live(places) & ~(self._touched[places] | self._held[places])]
        self._write(places[self._unsaved[places] | ~self._stored[places]])

    # ---------------------------------------------------------------------------------------------------- restore

    def go_on(self, newest: Epoch) -> None:
        """What the local store has is of use: only the versions behind it are applied, up to this one."""
        self._local.go_on(newest)
        self._spilled = True

    def begin_anew(self, definition: str) -> None:
        """Called if the rows of the local store cannot be used."""
        self._local.begin(definition)

    def restored(self, epoch: Epoch | None) -> None:
        """All versions were applied; the last is this one."""
        if not self._counted:
            self._total = len(self.index) + sum(rows.height for _, rows, _ in self._on_disk())
            self._counted = True
        if not self._spilled:
            free = np.ones(self._next, dtype=bool)
            free[self._numbers[self.index.slots()]] = False
            self._free_numbers.replace(np.flatnonzero(free)[::-1].copy())
        self.settle(epoch)
        if self._spilled and self._local.base is None:
            self._write(self._unsaved_rows())
            self._local.has_all(epoch)
            self._behind = 0

    def apply(self, frames: Mapping[str, pl.DataFrame]) -> None:
        if "gone" in frames:
            self._apply_gone(frames["gone"])
        rows = frames.get("set", pl.DataFrame())
        for begin in range(0, rows.height, _STEP):
            self._apply_set(rows[begin : begin + _STEP])
        self._behind += rows.height
        if rows.height:
            self._next = max(self._next, int(rows[self.SLOT].max()) + 1)  # type: ignore[arg-type]
        self._counted = ABOUT in frames or not self._spilled
        if ABOUT in frames:
            about = frames[ABOUT].row(0, named=True)
            self._total, self._next = about[_TOTAL], max(self._next, about[_END])
            if about[_BELOW] > _NEVER:
                self._below = TICK, about[_BELOW]
        elif not self._spilled:
            self._total = len(self.index)

    def _apply_gone(self, gone: pl.DataFrame) -> None:
        keyed = set(self.index.names) <= set(gone.columns)
        if keyed:
            hashes = self.index.hashes(gone)
            places = self.index.find_hashed(gone, hashes)
            if self._spilled:
                self._local.write([], [], self._encoded(gone.select(self.index.names), hashes))
        else:
            slots = self.index.slots()
            order = np.argsort(self._numbers[slots])
            wanted, numbers = gone[self.SLOT].to_numpy(), self._numbers[slots][order]
            at = np.minimum(np.searchsorted(numbers, wanted), max(numbers.size - 1, 0))
            here = numbers[at] == wanted if numbers.size else np.zeros(wanted.size, dtype=bool)
            if self._spilled and not here.all():
                raise CheckpointError(
                    "the state was stored without state_memory, and does not fit in it: it does not contain the keys whose time to live "
                    "ends",
                    hint="start once with a larger state_memory, or without it, until the state has been stored again; or start from a "
                    "savepoint",
                )
            places = slots[order][at[here]] if numbers.size else slots
        self._forget(np.unique(places[places >= 0]))

    def _apply_set(self, rows: pl.DataFrame) -> None:
        keys = rows.select(self.index.names)
        hashes = self.index.hashes(keys)
        places = self.index.find_hashed(keys, hashes)
        self._use_only(places)
        self._full = False
        self._make_room(int(np.count_nonzero(places < 0)))
        self.index.insert_missing(keys, hashes, places)
        self._take_in(places, keys, rows.rename({self.SLOT: _NUMBER}), stored=self._spilled)
        self._unsaved[places] = True

    def _mark_written(self, slots: Places) -> None:
        raise AssertionError("rows are written down by numbers here")

    def _reserve(self) -> None:
        super()._reserve()
        end = len(self._written)
        self._numbers, self._age = grown(self._numbers, end), grown(self._age, end)
        self._held, self._unsaved = grown(self._held, end, False), grown(self._unsaved, end, False)
        self._stored = grown(self._stored, end, False)


def _one_form(value: pl.Expr) -> pl.Expr:
    """Return numbers such that equal ones have the same bits."""
    nothing = pl.when(value.is_nan()).then(float("nan"))
    return nothing.when(value == 0.0).then(0.0).otherwise(value).cast(pl.Float64).alias(value.meta.output_name())
