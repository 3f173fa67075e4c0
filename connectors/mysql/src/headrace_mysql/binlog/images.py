"""Where the values of rows lie in events of the binary log, for many rows at once.

An event holds images of rows, one after the other; an image is a bitmap of NULLs and the values that are not NULL. Where an
image begins is known only when the one before it was gone through. But events are independent: so here the first images of all
events are gone through together, column by column, then the second ones, and so on. This takes a few operations of numpy
for each column and each place of an image in its event, instead of some for each value.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classbinary__log_1_1Rows__event.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from headrace.foundation.errors import DataError
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Extent:
    """How many bytes a value takes: ``width`` bytes, or as many as ``prefix`` bytes before it say."""

    width: int = 0
    prefix: int = 0


@dataclass(frozen=True, slots=True)
class Places:
    """Where the values of one column begin, how long they are, and which are NULL: one entry for each image."""

    starts: Integers
    lengths: Integers
    missing: Flags


@dataclass(frozen=True, slots=True)
class Images:
    """Images in the order of the log: which event each is of, its number in it, and where the values of the wanted columns lie."""

    events: Integers
    numbers: Integers
    columns: Sequence[Places]


def images_of(
    data: NDArray[np.uint8], begins: Integers, ends: Integers, extents: Sequence[Extent], wanted: Sequence[int]
) -> Images:
    """Return the images of events whose rows lie at ``begins`` … ``ends`` of the data. ``wanted``: numbers of columns.

    The data has some spare bytes after the last event. Raises DataError when an event does not end with an image.
    """
    count = len(extents)
    bitmap = np.arange((count + 7) // 8)
    active, at, number = np.flatnonzero(begins < ends), begins[begins < ends], 0
    of_events: list[Integers] = []
    of_numbers: list[Integers] = []
    found: list[list[tuple[Integers, Integers, Flags]]] = [[] for _ in wanted]
    slots = {column: slot for slot, column in enumerate(wanted)}
    while len(active):
        nulls = np.unpackbits(data[at[:, None] + bitmap], axis=1, count=count, bitorder="little").view(np.bool_)
        has_null = [bool(any_null) for any_null in np.any(nulls, axis=0)]
        place = at + len(bitmap)
        for column, extent in enumerate(extents):
            missing = nulls[:, column]
            begin, length = _extended(data, place, extent)
            if has_null[column]:
                length = np.where(missing, 0, length)
                begin = np.where(missing, place, begin)
            slot = slots.get(column)
            if slot is not None:
                found[slot].append((begin, length, missing))
            place = begin + length
        of_events.append(active)
        of_numbers.append(np.full(len(active), number, dtype=np.int64))
        number += 1
        left = ends[active] - place
        if (left < 0).any():
            raise DataError("an event of the binary log does not end with a row", plugin="mysql")
        active, at = active[left > 0], place[left > 0]
    return _ordered(of_events, of_numbers, found)


def _extended(data: NDArray[np.uint8], place: Integers, extent: Extent) -> tuple[Integers, Integers]:
    if not extent.prefix:
        return place, np.full(len(place), extent.width, dtype=np.int64)
    length = data[place].astype(np.int64)
    for byte in range(1, extent.prefix):
        length |= data[place + byte].astype(np.int64) << 8 * byte
    return place + extent.prefix, length


def _ordered(
    events: list[Integers], numbers: list[Integers], found: list[list[tuple[Integers, Integers, Flags]]]
) -> Images:
    if not events:
        nothing = np.empty(0, dtype=np.int64)
        return Images(nothing, nothing, [Places(nothing, nothing, nothing.astype(np.bool_)) for _ in found])
    event, number = np.concatenate(events), np.concatenate(numbers)
    order = None if len(events) == 1 else np.lexsort((number, event))
    columns = []
    for parts in found:
        starts, lengths, missing = (np.concatenate([part[place] for part in parts]) for place in range(3))
        columns.append(
            Places(starts, lengths, missing) if order is None else Places(starts[order], lengths[order], missing[order])
        )
    return Images(event, number, columns) if order is None else Images(event[order], number[order], columns)
