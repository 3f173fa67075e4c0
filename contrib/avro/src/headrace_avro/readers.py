"""Readers of one Avro type from many bodies in one step. ``reader`` decides which types and resolutions they support."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from headrace_avro.bodies import BodyBytes, Positions
from headrace_avro.schemas import AvroType

#: If an array has more items, or items without bytes, the body is left to the reader of single records.
ITEMS_MAX = 10_000

#: A step through the items of arrays takes the same time for few bodies as for many. After this many steps for a few
#: bodies, these are also left to that reader.
_FEW = 100
_STEPS_FOR_FEW_MAX = 1_000


class NotColumnarError(Exception):
    """A type, or its resolution to the reader's schema, can only be read record by record."""


class Reader(ABC):
    """Reads values of one type. ``rows``: the body of each value. ``positions``: where the value begins in it."""

    @abstractmethod
    def read(self, body: BodyBytes, rows: Positions, positions: Positions) -> tuple[pl.Series, Positions]:
        """Return the values and the positions after them. Bodies with an error are marked as uncertain."""

    def skip(self, body: BodyBytes, rows: Positions, positions: Positions) -> Positions:
        """Return the positions behind the values."""
        return self.read(body, rows, positions)[1]


class _Null(Reader):
    def read(self, body: BodyBytes, rows: Positions, positions: Positions) -> tuple[pl.Series, Positions]:
        return pl.repeat(None, len(rows), dtype=pl.Null(), eager=True), positions


class _Numbers(Reader):
    """Reads booleans, integers and floats with ``take``; ``kind`` is the type in the reader's schema."""

    def __init__(self, take: Callable[..., tuple[NDArray[Any], Positions]], kind: pl.DataType | None = None) -> None:
        self._take = take
        self._kind = kind

    def read(self, body: BodyBytes, rows: Positions, positions: Positions) -> tuple[pl.Series, Positions]:
        values, after = self._take(body, rows, positions)
        series = pl.Series(values)
        return series if self._kind is None else series.cast(self._kind), after

    def skip(self, body: BodyBytes, rows: Positions, positions: Positions) -> Positions:
        return self._take(body, rows, positions)[1]


class _Slices(Reader):
    """Reads bytes and strings. ``text``: the reader's schema has a string, so bytes that are not UTF-8 are uncertain."""

    def __init__(self, *, text: bool) -> None:
        self._text = text

    def read(self, body: BodyBytes, rows: Positions, positions: Positions) -> tuple[pl.Series, Positions]:
        lengths, begins, after = body.lengths(rows, positions)
        made = body.slices(begins, lengths)
        return (_texts(made, body, rows) if self._text else made), after

    def skip(self, body: BodyBytes, rows: Positions, positions: Positions) -> Positions:
        return body.lengths(rows, positions)[2]


def _texts(made: pl.Series, body: BodyBytes, rows: Positions) -> pl.Series:
    try:
        return made.cast(pl.String)
    except pl.exceptions.ComputeError:
        pass  # at least one value is not UTF-8, so each is checked
    values = made.to_list()
    for at, value in enumerate(values):
        try:
            value.decode()
        except UnicodeDecodeError:
            body.uncertain[rows[at]] = True
            values[at] = b""
    return pl.Series(values, dtype=pl.Binary).cast(pl.String)


class _Fixed(Reader):
    def __init__(self, size: int) -> None:
        self._size = size

    def read(self, body: BodyBytes, rows: Positions, positions: Positions) -> tuple[pl.Series, Positions]:
        short = body.ends[rows] - positions < self._size
        begins = positions.copy()
        body.doubt(rows, short, begins)
        lengths = np.where(short, 0, self._size)
        return body.slices(begins, lengths), begins + lengths


class _Enum(Reader):
    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pl.Series(symbols, dtype=pl.String)

    def read(self, body: BodyBytes, rows: Positions, positions: Positions) -> tuple[pl.Series, Positions]:
        places, after = body.integers(rows, positions)
        wrong = (places < 0) | (places >= len(self._symbols))
        body.doubt(rows, wrong, after)
        return self._symbols.gather(np.where(wrong, 0, places)), after


class _OrNull(Reader):
    """Reads a union of null and another type. ``null`` is the index of null. ``refused``: the reader's schema does not
    allow null.
    """

    def __init__(self, null: int, other: Reader, *, refused: bool) -> None:
        self._null = null
        self._other = other
        self._refused = refused

    def read(self, body: BodyBytes, rows: Positions, positions: Positions) -> tuple[pl.Series, Positions]:
        present, after = self._branches(body, rows, positions)
        if len(present) == len(rows):
            return self._other.read(body, rows, after)
        values, after[present] = self._other.read(body, rows[present], after[present])
        places = np.full(len(rows), -1, dtype=np.int64)
        places[present] = np.arange(len(present))
        taken = pl.Series(places)
        return values.gather(taken.set(taken < 0, None)), after

    def skip(self, body: BodyBytes, rows: Positions, positions: Positions) -> Positions:
        present, after = self._branches(body, rows, positions)
        if len(present) == len(rows):
            return self._other.skip(body, rows, after)
        after[present] = self._other.skip(body, rows[present], after[present])
        return after

    def _branches(self, body: BodyBytes, rows: Positions, positions: Positions) -> tuple[Positions, Positions]:
        branches, after = body.integers(rows, positions)
        body.doubt(rows, (branches < 0) | (branches > 1), after)
        nulls = branches == self._null
        if self._refused:
            body.doubt(rows, nulls, after)
            return np.arange(len(rows)), after
        return np.flatnonzero(~nulls), after


class _Array(Reader):
    def __init__(self, items: Reader) -> None:
        self._items = items

    def read(self, body: BodyBytes, rows: Positions, positions: Positions) -> tuple[pl.Series, Positions]:
        pieces: list[pl.Series] = []
        owners: list[Positions] = []

        def take(at: Positions, begins: Positions) -> Positions:
            values, after = self._items.read(body, rows[at], begins)
            pieces.append(values)
            owners.append(at)
            return after

        after = self._walk(body, rows, positions, take)
        every = np.concatenate(owners) if owners else np.zeros(0, dtype=np.int64)
        if not pieces:  # the values have the type of the items
            pieces.append(self._items.read(body, rows[:0], positions[:0])[0])
        values = pl.concat(pieces).gather(np.argsort(every, kind="stable"))
        counts = np.bincount(every, minlength=len(rows))
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(counts, out=offsets[1:])
        return list_of(values, offsets), after

    def skip(self, body: BodyBytes, rows: Positions, positions: Positions) -> Positions:
        return self._walk(body, rows, positions, lambda at, begins: self._items.skip(body, rows[at], begins))

    def _walk(
        self,
        body: BodyBytes,
        rows: Positions,
        positions: Positions,
        take: Callable[[Positions, Positions], Positions],
    ) -> Positions:
        """Read the items of all arrays: first all first items, then all second items, until the longest array ends."""
        after = positions.copy()
        active, left, total = np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), np.int64)
        while len(active):
            begin = active[left[active] == 0]
            counts, after[begin] = body.integers(rows[begin], after[begin])
            sized = np.flatnonzero(counts < 0)  # a block with its size in bytes, which is not needed
            _, after[begin[sized]] = body.integers(rows[begin[sized]], after[begin[sized]])
            counts[sized] = -np.maximum(counts[sized], -(ITEMS_MAX + 1))
            total[begin] += np.minimum(counts, ITEMS_MAX + 1)
            body.doubt(rows, total > ITEMS_MAX, after)
            counts[body.uncertain[rows[begin]]] = 0
            left[begin] = counts
            active = active[(left[active] > 0) & ~body.uncertain[rows[active]]]
            if 0 < len(active) < _FEW:
                body.steps_for_few += 1
                if body.steps_for_few > _STEPS_FOR_FEW_MAX:
                    body.doubt(rows, left > 0, after)
                    break
            if len(active):
                after[active] = take(active, after[active])
                left[active] -= 1
        return after


class _Record(Reader):
    """Reads a record within a record, as a struct of the requested fields."""

    def __init__(self, steps: Sequence[tuple[str | None, Reader]], order: Sequence[str]) -> None:
        self._steps = steps
        self._order = order

    def read(self, body: BodyBytes, rows: Positions, positions: Positions) -> tuple[pl.Series, Positions]:
        found, after = read_fields(self._steps, body, rows, positions)
        return pl.DataFrame([found[name].alias(name) for name in self._order]).to_struct(), after

    def skip(self, body: BodyBytes, rows: Positions, positions: Positions) -> Positions:
        for _, each in self._steps:
            positions = each.skip(body, rows, positions)
        return positions


def read_fields(
    steps: Sequence[tuple[str | None, Reader]], body: BodyBytes, rows: Positions, positions: Positions
) -> tuple[dict[str, pl.Series], Positions]:
    """Return the fields of records by their names in the reader's schema, and the positions behind the records."""
    found: dict[str, pl.Series] = {}
    for name, each in steps:
        if name is None:
            positions = each.skip(body, rows, positions)
        else:
            found[name], positions = each.read(body, rows, positions)
    return found, positions


def list_of(values: pl.Series, offsets: NDArray[np.int64]) -> pl.Series:
    """Return a column of lists: list i has the values from offset i to offset i + 1."""
    made = pl.from_arrow(pa.LargeListArray.from_arrays(pa.array(offsets), values.to_arrow()))
    assert isinstance(made, pl.Series)
    return made


def reader(written: AvroType, wanted: AvroType | None) -> Reader:
    """Return the reader of values of a type; ``wanted`` is the type in the reader's schema; None: the values are only
    skipped.

    Raises NotColumnarError for types and resolutions that can only be read record by record.
    """
    if written.nullable is not None:
        null, inner = written.nullable
        if wanted is None:
            return _OrNull(null, reader(inner, None), refused=False)
        if wanted.nullable is not None:
            return _OrNull(null, reader(inner, wanted.nullable[1]), refused=False)
        return _OrNull(null, reader(inner, wanted), refused=True)
    if wanted is not None and wanted.nullable is not None:
        wanted = wanted.nullable[1]
    return _reader(written, written if wanted is None else wanted)


def _reader(written: AvroType, wanted: AvroType) -> Reader:
    pair = (written.kind, wanted.kind)
    if pair in _PROMOTIONS:
        return _PROMOTIONS[pair]
    if written.kind != wanted.kind or written.kind not in ("fixed", "enum", "array", "record"):
        raise NotColumnarError(f"{written} as {wanted}")
    if written.kind == "array":
        return _Array(reader(written.inner, wanted.inner))
    if written.name != wanted.name:
        raise NotColumnarError(f"{written} as {wanted}")
    if written.kind == "fixed":
        if written.size != wanted.size:
            raise NotColumnarError(f"{written} as {wanted}")
        return _Fixed(written.size)
    if written.kind == "enum":
        if not set(written.symbols) <= set(wanted.symbols):
            raise NotColumnarError(f"{written} as {wanted}")
        return _Enum(written.symbols)
    steps, missing = field_readers(written, wanted)
    if missing or not wanted.fields:
        raise NotColumnarError(f"{written} as {wanted}: fields with defaults")
    return _Record(steps, [each.name for each in wanted.fields])


def field_readers(written: AvroType, wanted: AvroType) -> tuple[list[tuple[str | None, Reader]], list[str]]:
    """Return the reader and the name of each field of a written record, and the requested fields that the record does
    not have.
    """
    left = {each.name: each for each in wanted.fields}
    steps: list[tuple[str | None, Reader]] = []
    for each in written.fields:
        found = left.pop(each.name, None)
        if found is None:
            found = next((other for other in left.values() if each.name in other.aliases), None)
            if found is not None:
                del left[found.name]
        steps.append((None if found is None else found.name, reader(each.type, None if found is None else found.type)))
    return steps, list(left)


_PROMOTIONS: dict[tuple[str, str], Reader] = {
    ("null", "null"): _Null(),
    ("boolean", "boolean"): _Numbers(BodyBytes.booleans),
    ("int", "int"): _Numbers(BodyBytes.integers),
    ("int", "long"): _Numbers(BodyBytes.integers),
    ("long", "long"): _Numbers(BodyBytes.integers),
    ("int", "float"): _Numbers(BodyBytes.integers, pl.Float32()),
    ("int", "double"): _Numbers(BodyBytes.integers, pl.Float64()),
    ("long", "float"): _Numbers(BodyBytes.integers, pl.Float32()),
    ("long", "double"): _Numbers(BodyBytes.integers, pl.Float64()),
    ("float", "float"): _Numbers(BodyBytes.floats),
    ("float", "double"): _Numbers(BodyBytes.floats, pl.Float64()),
    ("double", "double"): _Numbers(BodyBytes.doubles),
    ("bytes", "bytes"): _Slices(text=False),
    ("string", "string"): _Slices(text=True),
    ("string", "bytes"): _Slices(text=False),
    ("bytes", "string"): _Slices(text=True),
}
