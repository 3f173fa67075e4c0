"""Rows of a slot table in parts by ranges of their keys' hashes: written down, and put together again page by page."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import polars as pl
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.state_parts import part_numbers
from numpy.typing import NDArray

from headrace_stateful.keys.columns import Flags, Places

SLOT = "__hr_slot"
HASH = "__hr_hash"
_ORDER = "__hr_order"


class Divided:
    """Slots with the hashes of their keys, ordered by range: how a table is divided."""

    def __init__(self, slots: Places, hashes: NDArray[np.uint64], bits: int) -> None:
        numbers = part_numbers(hashes, bits)
        order = np.argsort(numbers.astype(np.uint16), kind="stable")
        self.slots, self.hashes = slots[order], hashes[order]
        self._ends = np.cumsum(np.bincount(numbers, minlength=1 << bits))

    def of(self, frame: pl.DataFrame) -> list[pl.DataFrame]:
        """Return rows in the order of ``slots`` as one frame per range."""
        begins = np.concatenate([[0], self._ends[:-1]])
        return [frame[begin:end] for begin, end in zip(begins.tolist(), self._ends.tolist(), strict=True)]


def pack_part(frames: Mapping[str, pl.DataFrame]) -> bytes:
    """Return the frames of one part as bytes: ``b""`` when none has a row."""
    filled = {name: _stream(frame) for name, frame in frames.items() if frame.height}
    return msgspec.msgpack.encode(filled) if filled else b""


def unpack_part(content: bytes) -> dict[str, pl.DataFrame]:
    """Return what ``pack_part`` was given. Raises CheckpointError."""
    try:
        stored = msgspec.msgpack.decode(content, type=dict[str, bytes])
        return {name: pl.read_ipc_stream(io.BytesIO(frame)) for name, frame in stored.items()}
    except (msgspec.DecodeError, OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise CheckpointError(f"a part of the state of an operator is damaged: {error}") from error


def joined(parts: Sequence[Mapping[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Return the frames of all parts of one version, put together by name."""
    names = {name for part in parts for name in part}
    return {name: pl.concat([part[name] for part in parts if name in part]) for name in names}


class ComingRows:
    """What is known of the rows of a table that is being restored, of pages that are not here yet."""

    def __init__(self, hashes: Callable[[pl.DataFrame], NDArray[np.uint64]]) -> None:
        self._hashes = hashes
        self._waiting: pl.DataFrame | None = None

    def take(self, contents: Sequence[tuple[int, bytes]], pages: Flags) -> pl.DataFrame:
        """Take parts, each with the place of its version, and return the rows of ``pages`` as the newest version has them.

        They have the columns ``SLOT``, ``HASH``, those of the key and the values. A slot may have belonged to several keys, one after
        the other, of different pages too: a version's row of a slot is valid only for the page of that key.
        """
        by_place: dict[int, list[dict[str, pl.DataFrame]]] = {}
        for place, content in contents:
            by_place.setdefault(place, []).append(unpack_part(content))
        frames = [] if self._waiting is None else [self._waiting]
        for place, parts in by_place.items():
            for name, frame in joined(parts).items():
                # In a version, slots are given back before they are given to others.
                order = 2 * place + (name == "set")
                if name == "set":
                    frame = frame.with_columns(pl.Series(HASH, self._hashes(frame)))
                frames.append(frame.with_columns(pl.lit(order, dtype=pl.Int64).alias(_ORDER)))
        if not frames:
            return pl.DataFrame()
        rows = frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal")
        here = pl.Series(pages[part_numbers(rows[HASH].to_numpy(), len(pages).bit_length() - 1)])
        waiting = rows.filter(~here)
        self._waiting = waiting if waiting.height else None
        rows = rows.filter(here)
        if rows[_ORDER].n_unique() > 1:
            rows = rows.sort(_ORDER, maintain_order=True).unique(SLOT, keep="last", maintain_order=True)
        return rows.filter(pl.col(_ORDER) % 2 == 1)


def _stream(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="uncompressed")
    return buffer.getvalue()
