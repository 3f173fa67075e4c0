"""Converts Avro's encoded values to the types of columns: numbers to dates and times, bytes to decimals. It converts
whole columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa
from headrace.flow.schema import type_name
from numpy.typing import NDArray

from headrace_avro.readers import list_of
from headrace_avro.schemas import AvroType

Mask = NDArray[np.bool_]

_DAY_MICROS = 86_400_000_000
#: 0001-01-01 and 9999-12-31 in days since 1970-01-01.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_INT_MAX = 2**31 - 1


class TypeMismatchError(Exception):
    """Values of an Avro type cannot be converted to a column of this type."""


class Conversion(ABC):
    """Makes a column from encoded values."""

    @abstractmethod
    def convert(self, values: pl.Series) -> tuple[pl.Series, Mask | None]:
        """Return the column, and which values are outside the range of its type (None: no value). NULL stays NULL."""


class _Same(Conversion):
    def convert(self, values: pl.Series) -> tuple[pl.Series, Mask | None]:
        return values, None


class _Integers(Conversion):
    """Converts integers: checks limits, multiplies or divides if needed, then casts to one or several types in turn."""

    def __init__(self, low: int, high: int, *types: pl.DataType, factor: int = 1, divisor: int = 1) -> None:
        self._low, self._high, self._factor, self._divisor = low, high, factor, divisor
        self._types = types

    def convert(self, values: pl.Series) -> tuple[pl.Series, Mask | None]:
        values = values.cast(pl.Int64)
        bad = None
        low, high = values.min(), values.max()
        if low is not None and (low < self._low or high > self._high):  # type: ignore[operator]
            outside = ~values.is_between(self._low, self._high).fill_null(True)
            bad = outside.to_numpy()
            values = values.set(outside, None)
        if self._factor != 1:
            values = values * self._factor
        if self._divisor != 1:
            values = values // self._divisor
        for each in self._types:
            values = values.cast(each)
        return values, bad


class _Cast(Conversion):
    def __init__(self, kind: pl.DataType) -> None:
        self._kind = kind

    def convert(self, values: pl.Series) -> tuple[pl.Series, Mask | None]:
        return values.cast(self._kind), None


class _Decimals(Conversion):
    """Converts big-endian numbers of any length to decimals of 128 bits."""

    def __init__(self, precision: int, scale: int, kind: pl.Decimal) -> None:
        self._limit = 10**precision
        self._precision = precision
        self._scale = scale
        self._kind = kind

    def convert(self, values: pl.Series) -> tuple[pl.Series, Mask | None]:
        numbers: list[int | None] = [
            None if value is None else int.from_bytes(value, "big", signed=True) for value in values.to_list()
        ]
        wrong = [number is not None and not -self._limit < number < self._limit for number in numbers]
        bad = np.array(wrong, dtype=np.bool_) if any(wrong) else None
        if bad is not None:
            numbers = [None if outside else number for number, outside in zip(numbers, wrong, strict=True)]
        halves = b"".join((number or 0).to_bytes(16, "little", signed=True) for number in numbers)
        valid = None
        if None in numbers:
            present = np.array([number is not None for number in numbers])
            valid = pa.py_buffer(np.packbits(present, bitorder="little"))
        kind = pa.decimal128(self._precision, self._scale)
        made = pl.from_arrow(pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(halves)]))
        assert isinstance(made, pl.Series)
        return made.cast(self._kind), bad


class _Uuids(Conversion):
    def convert(self, values: pl.Series) -> tuple[pl.Series, Mask | None]:
        digits = values.bin.encode("hex").alias("v").to_frame()
        parts = [pl.col("v").str.slice(begin, length) for begin, length in ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))]
        return digits.select(pl.concat_str(parts, separator="-"))["v"], None


class _Lists(Conversion):
    def __init__(self, inner: Conversion) -> None:
        self._inner = inner

    def convert(self, values: pl.Series) -> tuple[pl.Series, Mask | None]:
        lengths = values.list.len().fill_null(0).to_numpy()
        offsets = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        items, bad = self._inner.convert(values.filter(lengths > 0).explode())
        made = list_of(items, offsets)
        if values.null_count():
            made = _without(made, values.is_null())
        if bad is None:
            return made, None
        owners = np.repeat(np.arange(len(values)), lengths)
        return made, np.bincount(owners[bad], minlength=len(values)) > 0


class _Structs(Conversion):
    def __init__(self, fields: Mapping[str, Conversion]) -> None:
        self._fields = fields

    def convert(self, values: pl.Series) -> tuple[pl.Series, Mask | None]:
        made, bad = [], None
        for name, each in self._fields.items():
            field, wrong = each.convert(values.struct.field(name))
            made.append(field.alias(name))
            bad = wrong if bad is None else bad if wrong is None else bad | wrong
        struct = pl.DataFrame(made).to_struct()
        if values.null_count():
            struct = _without(struct, values.is_null())
        return struct, bad


def _without(values: pl.Series, nulls: pl.Series) -> pl.Series:
    """Return nested values with NULL in the rows of ``nulls``."""
    frame = pl.DataFrame({"values": values, "null": nulls})
    return frame.select(pl.when(~pl.col("null")).then(pl.col("values")))["values"]


def is_text_of(kind: AvroType, column: pl.DataType) -> bool:
    """Return whether a column holds values of the type as JSON texts."""
    inner = kind.nullable[1] if kind.nullable else kind
    return column == pl.String() and inner.kind in ("array", "map", "record", "union", "recursion")


def conversion(kind: AvroType, column: pl.DataType) -> Conversion:
    """Return the conversion to a column of this type. Raises TypeMismatchError if values could be lost or changed."""
    if kind.nullable is not None:
        return conversion(kind.nullable[1], column)
    if is_text_of(kind, column) or kind.kind == "null":
        return _Same() if kind.kind != "null" else _Cast(column)
    made = _of_logical(kind, column) if kind.logical is not None else None
    made = made or _of_kind(kind, column)
    if made is None:
        raise TypeMismatchError(f"Avro's {kind} cannot be converted to {type_name(column)}")
    return made


def _of_logical(kind: AvroType, column: pl.DataType) -> Conversion | None:
    logical = str(kind.logical)
    if logical == "decimal" and isinstance(column, pl.Decimal):
        whole = (column.precision or 38) - column.scale
        if column.scale >= kind.scale and whole >= kind.precision - kind.scale:
            return _Decimals(kind.precision, kind.scale, column)
    if logical == "uuid" and kind.kind == "fixed" and column == pl.String():
        return _Uuids()
    if logical == "date" and column == pl.Date():
        return _Integers(_FIRST_DAY, _LAST_DAY, pl.Int32(), pl.Date())
    unit = logical.rpartition("-")[2]
    factor, divisor = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}.get(unit, (0, 0))
    if logical.startswith("time-") and column == pl.Time():
        return _Integers(0, _DAY_MICROS // factor - 1, pl.Time(), factor=factor * 1000)
    if "timestamp" in logical and column == pl.Datetime("us", None if logical.startswith("local") else "UTC"):
        low, high = _FIRST_DAY * _DAY_MICROS, (_LAST_DAY + 1) * _DAY_MICROS - 1
        if divisor != 1:
            low, high = -(2**63), 2**63 - 1
        return _Integers(low // factor, high // factor, column, factor=factor, divisor=divisor)
    return None


def integer_bits(column: pl.DataType) -> int | None:
    """Return the bits of a type of integers; None for another type."""
    bits: dict[type[pl.DataType], int] = {pl.Int8: 8, pl.Int16: 16, pl.Int32: 32, pl.Int64: 64}
    return bits.get(type(column))


def _of_kind(kind: AvroType, column: pl.DataType) -> Conversion | None:
    """Return the conversion of a type without its logical type."""
    if kind.kind in ("int", "long") and column.is_signed_integer():
        bits = integer_bits(column)
        if bits is None:
            return None
        high = 2 ** (min(bits, 32 if kind.kind == "int" else 64) - 1) - 1
        return _Integers(-high - 1, high, column)
    if kind.kind == "float" and column == pl.Float64():
        return _Cast(column)
    same = {
        "boolean": pl.Boolean, "float": pl.Float32, "double": pl.Float64, "bytes": pl.Binary, "fixed": pl.Binary,
        "string": pl.String, "enum": pl.String,
    }  # fmt: skip
    if kind.kind in same and isinstance(column, same[kind.kind]):
        return _Same()
    if kind.kind == "array" and isinstance(column, pl.List):
        return _Lists(conversion(kind.inner, column.inner))  # type: ignore[arg-type]
    if kind.kind == "record" and isinstance(column, pl.Struct):
        fields = {}
        for each in column.fields:
            found = kind.field(each.name)
            if found is None:
                raise TypeMismatchError(f"Avro's {kind} has no field {each.name!r}")
            fields[each.name] = conversion(found.type, each.dtype)  # type: ignore[arg-type]
        return _Structs(fields) if fields else None
    return None
