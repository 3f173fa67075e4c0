"""Rows as bytes, one after the other, and back: for local stores, which keep a value of bytes per key.

What has a fixed width is laid out by numpy for all rows at once: flags of NULL, then the columns, of texts their length. The bytes of
texts follow. The layout is known from the columns alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_stateful.keys.columns import Flags

_NULLS = "__hr_nulls"
_HEAD = "__hr_head"
_WORD = pl.lit(2**64, dtype=pl.Int128)


def unsuited(schema: Mapping[str, pl.DataType]) -> str | None:
    """Return the first column that cannot be laid out, with its type; None: all can."""
    for name, kind in schema.items():
        if not (_is_text(kind) or kind == pl.Int128 or _is_plain(kind)):
            return f"{name} ({kind})"
    return None


def _is_text(kind: pl.DataType) -> bool:
    return kind in (pl.String, pl.Binary, pl.Categorical, pl.Enum) or isinstance(kind, pl.Decimal)


def _is_plain(kind: pl.DataType) -> bool:
    return kind.is_integer() or kind.is_float() or kind.is_temporal() or kind == pl.Boolean


class RowBytes:
    """Lays out rows of these columns. ``head``: bytes in front of every row, which ``rows`` is given."""

    def __init__(self, schema: Mapping[str, pl.DataType], *, head: int = 0) -> None:
        self.schema = dict(schema)
        self._texts = [name for name, kind in self.schema.items() if _is_text(kind)]
        fields: list[Any] = [(_HEAD, f"V{head}")] if head else []
        fields.append((_NULLS, "u1", ((len(self.schema) + 7) // 8,)))
        for place, (name, kind) in enumerate(self.schema.items()):
            if name in self._texts:
                fields.append((_field(place), "<u4"))
            elif kind == pl.Int128:
                fields += [(_field(place), "<u8"), (_high(place), "<i8")]
            else:
                physical = pl.Series([], dtype=kind).to_physical().to_numpy().dtype
                fields.append((_field(place), physical.newbyteorder("<")))
        self._layout = np.dtype(fields)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row without those of its texts."""
        return self._layout.itemsize

    def rows(self, frame: pl.DataFrame, head: NDArray[Any] | None = None) -> list[bytes]:
        """Return each row as bytes."""
        made = np.zeros(frame.height, dtype=self._layout)
        if head is not None:
            made[_HEAD] = head
        texts: list[list[bytes]] = []
        for place, (name, kind) in enumerate(self.schema.items()):
            column = frame[name]
            if column.null_count():
                made[_NULLS][:, place // 8] |= (column.is_null().to_numpy() << (place % 8)).astype(np.uint8)
            if name in self._texts:
                binary = (column if kind == pl.Binary else column.cast(pl.String).cast(pl.Binary)).fill_null(b"")
                made[_field(place)] = binary.bin.size().to_numpy()
                texts.append(binary.to_list())
            elif kind == pl.Int128:
                low, high = _words(column)
                made[_field(place)], made[_high(place)] = low, high
            else:
                physical = column.to_physical()
                nothing = False if physical.dtype == pl.Boolean else 0
                made[_field(place)] = (physical.fill_null(nothing) if physical.null_count() else physical).to_numpy()
        packed: list[bytes] = made.view(f"V{self._layout.itemsize}").tolist()
        for each in texts:
            packed = list(map(bytes.__add__, packed, each))
        return packed

    def frame(self, rows: Sequence[bytes]) -> pl.DataFrame:
        """Return the columns of rows that ``rows`` made, without their heads."""
        together = np.frombuffer(b"".join(rows), dtype=np.uint8)
        width = self._layout.itemsize
        if self._texts:
            sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
            starts = np.cumsum(sizes) - sizes
            together = np.ascontiguousarray(together[starts[:, None] + np.arange(width)])
        fixed = together.reshape(-1).view(self._layout)
        whole = pl.Series(list(rows), dtype=pl.Binary) if self._texts else None
        at = np.full(len(rows), width, dtype=np.int64)
        columns = []
        for place, (name, kind) in enumerate(self.schema.items()):
            values = np.ascontiguousarray(fixed[_field(place)])
            if name in self._texts:
                assert whole is not None
                column = _texts(whole, at, values)
                at = at + values  # the one before may still be part of a frame
            elif kind == pl.Int128:
                column = _whole(values, np.ascontiguousarray(fixed[_high(place)]))
            else:
                physical = pl.Series([], dtype=kind).to_physical().dtype
                column = pl.Series(values).cast(physical)
            null: Flags = (fixed[_NULLS][:, place // 8] >> (place % 8)) & 1 == 1
            if null.any():
                column = column.to_frame("v").select(pl.when(pl.Series(~null)).then(pl.col("v"))).to_series()
            if name in self._texts and kind != pl.Binary:
                column = column.cast(pl.String)
            columns.append(column.cast(kind).alias(name))
        return pl.DataFrame(columns) if columns else pl.DataFrame(height=len(rows))


def _field(place: int) -> str:
    return f"c{place}"


def _high(place: int) -> str:
    return f"h{place}"


def _words(column: pl.Series) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the lower and the upper 64 bits of 128."""
    value = pl.col("v").fill_null(pl.lit(0, dtype=pl.Int128))
    high = value // _WORD
    parts = column.to_frame("v").select(low=(value - high * _WORD).cast(pl.UInt64), high=high.cast(pl.Int64))
    return parts["low"].to_numpy(), parts["high"].to_numpy()


def _whole(low: NDArray[Any], high: NDArray[Any]) -> pl.Series:
    words = pl.DataFrame({"low": low, "high": high})
    return words.select(v=pl.col("high").cast(pl.Int128) * _WORD + pl.col("low").cast(pl.Int128)).to_series()


def _texts(whole: pl.Series, at: NDArray[Any], sizes: NDArray[Any]) -> pl.Series:
    parts = pl.DataFrame({"b": whole, "at": at, "size": sizes})
    return parts.select(v=pl.col("b").bin.slice(pl.col("at"), pl.col("size"))).to_series()
