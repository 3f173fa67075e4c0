"""Messages of the plug-in pgoutput, gone through in the order of the log: transactions, and where the changes of one table lie.

Source: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html, version 1 of the protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from headrace.flow.messages import CHANGE, ChangeKind
from headrace.foundation.errors import DataError, HeadraceError, JobError
from numpy.typing import NDArray

from headrace_postgres.tables import TableColumn
from headrace_postgres.tuples import Flags, Places, texts_of, values_of, walk

Integers = NDArray[np.int64]

_BEGIN, _COMMIT, _RELATION, _TRUNCATE = ord("B"), ord("C"), ord("R"), ord("T")
_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_ROWS = {_INSERT, _UPDATE, _DELETE}
_NEW, _WHOLE = ord("N"), ord("O")
_BEGINS = struct.Struct("!QqI")
_COMMITS = struct.Struct("!BQQq")
_NUMBER = struct.Struct("!I")
_TYPE = struct.Struct("!Ii")


@dataclass(frozen=True, slots=True)
class Relation:
    """How the table is laid out in the messages that follow."""

    columns: tuple[str, ...]
    #: Numbers of the columns' types in the catalog.
    types: tuple[int, ...]
    #: Which old columns the log has: see ``Table.replica_identity``.
    identity: str
    #: The columns of the key that old rows have; all of them when old rows are whole.
    key: frozenset[str]
    #: Number of the table in the catalog.
    number: int
    #: Types' modifiers, such as the digits of a numeric; -1: none.
    modifiers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction in the scanned messages. ``end``: the LSN after its commit; 0 if it continues in the next
    messages.
    """

    commit: int
    number: int
    end: int


@dataclass(slots=True)
class Scanned:
    """What messages hold of the table. Places are places in the buffer."""

    transactions: list[Transaction] = field(default_factory=list)
    #: For each change: its letter, where its message begins, which transaction and which layout of ``relations`` it belongs to.
    kinds: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    layouts: list[int] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    #: The error that stopped the scan. Changes before it must be returned first.
    error: Exception | None = None


class Scanner:
    """Goes through messages in their order. ``on_relation`` and ``on_truncate`` raise if the stream cannot continue.

    ``number``: that of the table, by which it is known when it has another name.
    """

    def __init__(
        self, schema: str, table: str, number: int, on_relation: Callable[[Relation], None], on_truncate: Callable[[], None]
    ) -> None:  # fmt: skip
        self._place = (schema, table)
        self._of_table = _NUMBER.pack(number)
        self._on_relation = on_relation
        self._on_truncate = on_truncate
        self._number = b""
        self._relation: Relation | None = None
        #: The transaction that is open: (commit, number).
        self._open: tuple[int, int] | None = None

    def scan(self, buffer: bytearray, begins: Sequence[int]) -> Scanned:
        """Return the changes of the table in some messages."""
        found = Scanned()
        if self._open is not None:
            found.transactions.append(Transaction(*self._open, 0))
        if self._relation is not None:
            found.relations.append(self._relation)
        kinds, places, groups, layouts = found.kinds, found.begins, found.groups, found.layouts
        group, layout = len(found.transactions) - 1, len(found.relations) - 1
        try:
            for begin in begins:
                kind = buffer[begin]
                if kind in _ROWS:
                    if buffer[begin + 1 : begin + 5] == self._number:
                        kinds.append(kind)
                        places.append(begin)
                        groups.append(group)
                        layouts.append(layout)
                elif kind == _BEGIN:
                    commit, _, number = _BEGINS.unpack_from(buffer, begin + 1)
                    self._open = (commit, number)
                    found.transactions.append(Transaction(commit, number, 0))
                    group += 1
                elif kind == _COMMIT:
                    _, commit, end, _ = _COMMITS.unpack_from(buffer, begin + 1)
                    if self._open is None or self._open[0] != commit:
                        raise DataError(
                            f"a commit at {commit} does not belong to the transaction before it",
                            plugin="postgres_changes",
                        )
                    found.transactions[-1] = Transaction(*self._open, end)
                    self._open = None
                elif kind == _RELATION:
                    self._take_relation(bytes(buffer[begin:]), found)
                    layout = len(found.relations) - 1
                elif kind == _TRUNCATE:
                    count = _NUMBER.unpack_from(buffer, begin + 1)[0]
                    if self._number in [bytes(buffer[begin + 6 + 4 * n : begin + 10 + 4 * n]) for n in range(count)]:
                        self._on_truncate()
        except HeadraceError as error:  # the reader raises it after the changes before it
            found.error = error
        return found

    def _take_relation(self, message: bytes, found: Scanned) -> None:
        number = message[1:5]
        names, at = [], 5
        for _ in range(2):
            end = message.index(0, at)
            names.append(message[at:end].decode())
            at = end + 1
        if tuple(names) != self._place:
            if number == self._of_table:
                raise JobError(
                    f"the table {'.'.join(self._place)} was renamed to {'.'.join(names)}", plugin="postgres_changes", option="table",
                    hint="empty the target and start with a new checkpoint",
                )  # fmt: skip
            return
        identity, count = chr(message[at]), struct.unpack_from("!H", message, at + 1)[0]
        at += 3
        columns, types, modifiers, key = [], [], [], set()
        for _ in range(count):
            end = message.index(0, at + 1)
            columns.append(message[at + 1 : end].decode())
            if message[at] & 1:
                key.add(columns[-1])
            kind, modifier = _TYPE.unpack_from(message, end + 1)
            types.append(kind)
            modifiers.append(modifier)
            at = end + 9
        relation = Relation(
            tuple(columns), tuple(types), identity, frozenset(key), _NUMBER.unpack(number)[0], tuple(modifiers)
        )  # fmt: skip
        self._on_relation(relation)
        self._number, self._relation = number, relation
        found.relations.append(relation)


@dataclass(frozen=True, slots=True)
class Images:
    """Rows of changes in the order of the log, the old one of an update before the new one."""

    #: The wanted columns and ``CHANGE``.
    frame: pl.DataFrame
    #: The columns of the key as texts.
    keys: pl.DataFrame
    #: For each row: the number of its change among those that were scanned.
    changes: Integers


class Decoder:
    """Makes columns of changes.

    ``table``: as statements name it; ``wanted``: the columns that are given; ``key``: those that identify a row.
    """

    def __init__(
        self, table: str, wanted: Mapping[str, TableColumn], types: Mapping[str, pl.DataType], key: Sequence[str], *, full: bool
    ) -> None:  # fmt: skip
        self._table = table
        self._wanted = wanted
        self._types = types
        self._key = list(key)
        #: Whether old rows are whole.
        self._full = full

    def images(self, buffer: bytearray, found: Scanned) -> Images:
        """Return the rows of the scanned changes. The buffer has ``SPARE_BYTES`` after the last message."""
        array = np.frombuffer(buffer, dtype=np.uint8)
        layouts = np.array(found.layouts, dtype=np.int64)
        kinds, begins = np.array(found.kinds, dtype=np.int64), np.array(found.begins, dtype=np.int64)
        parts = []
        for layout in np.unique(layouts).tolist():
            some = np.flatnonzero(layouts == layout)
            parts.append(self._of_layout(buffer, array, found.relations[layout], some, kinds[some], begins[some]))
        if len(parts) == 1:
            return parts[0]
        # Layouts follow each other, so the parts do.
        return Images(
            pl.concat([part.frame for part in parts]), pl.concat([part.keys for part in parts]),
            np.concatenate([part.changes for part in parts]),
        )  # fmt: skip

    def _of_layout(
        self, buffer: bytearray, array: NDArray[np.uint8], relation: Relation, changes: Integers, kinds: Integers, begins: Integers
    ) -> Images:  # fmt: skip
        count = len(relation.columns)
        has_old = (array[begins + 5] != _NEW) & (kinds != _INSERT)
        if self._full and ((array[begins + 5] != _WHOLE) & (kinds != _INSERT)).any():
            raise DataError(
                "the log does not contain the old row of a change: a partition of the table has no REPLICA IDENTITY FULL",
                plugin="postgres_changes",
                hint="ALTER TABLE … REPLICA IDENTITY FULL for each partition, and start with a new checkpoint",
            )
        old, new = np.flatnonzero(has_old), np.flatnonzero(kinds != _DELETE)
        old_places, old_ends = walk(array, begins[old] + 8, count, marked=True)
        new_begins = begins + 8
        new_begins[old] = old_ends + 3
        new_places, _ = walk(array, new_begins[new], count, marked=True)
        # The rows of both, in the order of the changes.
        order = np.argsort(np.concatenate([old * 2, new * 2 + 1]), kind="stable")
        change_of = np.concatenate([old, new])[order]
        is_new = np.concatenate([np.zeros(len(old), dtype=bool), np.ones(len(new), dtype=bool)])[order]
        slots = {name: slot for slot, name in enumerate(relation.columns)}
        texts = {}
        for name in dict.fromkeys([*self._wanted, *self._key]):
            if name not in slots:
                continue
            slot = slots[name]
            filled = self._filled(name, new_places[slot], new, old_places[slot], old, len(kinds))
            texts[name] = texts_of(buffer, _joined(old_places[slot], filled, order), "postgres_changes")
        rows = len(order)
        frame = pl.DataFrame(
            [
                values_of(column, texts[name], "postgres_changes").cast(self._types[name])
                if name in texts
                else pl.repeat(None, rows, dtype=self._types[name], eager=True).alias(name)
                for name, column in self._wanted.items()
            ]
        )
        keys = pl.DataFrame([texts[name].alias(name) for name in self._key if name in texts])
        kind = self._kinds(kinds[change_of], has_old[change_of], is_new)
        return Images(frame.with_columns(pl.Series(CHANGE, kind)), keys, changes[change_of])

    def _kinds(self, kinds: Integers, has_old: Flags, is_new: Flags) -> NDArray[np.int8]:
        result = np.where(is_new, ChangeKind.INSERT, ChangeKind.DELETE)
        update = kinds == _UPDATE
        if self._full:
            result = np.where(update, np.where(is_new, ChangeKind.UPDATE_AFTER, ChangeKind.UPDATE_BEFORE), result)
        else:
            # An old row comes with an update only if its key was another one: then the row of that key is gone.
            result = np.where(update & is_new & ~has_old, ChangeKind.UPDATE_AFTER, result)
        return result.astype(np.int8)

    def _filled(self, name: str, places: Places, new: Integers, before: Places, old: Integers, count: int) -> Places:
        """Return the places of new values; those that an update left as they were are those of the old row.

        Raises DataError when the old row does not have them.
        """
        rows = np.flatnonzero(places.unchanged)
        if not len(rows) or name not in self._wanted:
            return places
        row_of_old = np.full(count, -1, dtype=np.int64)
        row_of_old[old] = np.arange(len(old))
        from_old = row_of_old[new[rows]]
        if not self._full or (from_old < 0).any() or before.unchanged[from_old].any():
            raise DataError(
                f"a row of {self._table} was changed, and the log does not contain its unchanged column {name!r}: large values are stored "
                "separately (TOAST) and are logged only when they change",
                plugin="postgres_changes",
                hint=f"ALTER TABLE {self._table} REPLICA IDENTITY FULL, and start with a new checkpoint; or leave the column out with "
                "columns=",
            )
        starts, lengths, missing = places.starts.copy(), places.lengths.copy(), places.missing.copy()
        starts[rows], lengths[rows] = before.starts[from_old], before.lengths[from_old]
        missing[rows] = before.missing[from_old]
        return Places(starts, lengths, missing, np.zeros_like(places.unchanged))


def _joined(old: Places, new: Places, order: Integers) -> Places:
    return Places(
        np.concatenate([old.starts, new.starts])[order], np.concatenate([old.lengths, new.lengths])[order],
        np.concatenate([old.missing, new.missing])[order], np.concatenate([old.unchanged, new.unchanged])[order],
    )  # fmt: skip
