"""JSON bodies to frames by the kernel. Bodies that it is not certain of are decoded by headrace's own decoder, which defines what is right.

So rows, and the reasons of bad records, are the same with and without this package.
"""

from __future__ import annotations

import ctypes
import enum
import logging
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
from headrace.interfaces.codec import BadBody, Decoded, Decoder, DecoderRequest

from headrace_turbo.kernel import KernelDecoder, KernelError

if TYPE_CHECKING:
    from headrace.flow.messages import Bodies
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

#: Makes the column of what the kernel gave, and says which rows are doubtful (None: not one).
Finish = Callable[[pl.Series], "tuple[pl.Series, NDArray[np.bool_] | None]"]

_UNITS_PER_SECOND: Mapping[str, int] = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_INTEGER_BITS: Mapping[type[pl.DataType], int] = {pl.Int8: 8, pl.Int16: 16, pl.Int32: 32, pl.Int64: 64}
#: Columns of these types, and moments, are given as they are wanted.
_AS_THEY_COME = (pl.Int64, pl.Float64, pl.Boolean, pl.String, pl.Date)
#: When so great a part of a batch is doubtful, the next batches are given to the plain decoder at once.
_DOUBTFUL_MAX = 0.5
_BATCHES_PLAIN = 16


class _Kind(enum.IntEnum):
    """Kinds of columns, as ``kernel/src/description.rs`` numbers them."""

    INTEGERS = 0
    FLOATS = 1
    BOOLEANS = 2
    TEXTS = 3
    MOMENTS = 4
    DATES = 5
    NUMBER_TEXTS = 6
    JSON_TEXTS = 7
    STRUCT = 8
    LIST = 9


class NotForKernel(Exception):
    """The kernel has no column of this type."""


def decoder_of(kernel: ctypes.CDLL, request: DecoderRequest) -> Decoder | None:
    """Return a decoder that uses the kernel, or None: a column is of a type that the kernel does not have."""
    try:
        columns = {name: _KernelColumn.of(name, data_type, request) for name, data_type in request.columns.items()}
    except NotForKernel:
        return None
    description = _fields_description({name: column.description for name, column in columns.items()})
    decoder = KernelDecoder(kernel, description, {name: each.arrow_type for name, each in columns.items()})
    return KernelJsonDecoder(decoder, columns, request)


class KernelJsonDecoder(Decoder):
    """Decodes by the kernel, and what that leaves by the plain decoder."""

    def __init__(self, kernel: KernelDecoder, columns: Mapping[str, _KernelColumn], request: DecoderRequest) -> None:
        self._kernel: KernelDecoder | None = kernel
        self._columns = columns
        self._plain = request.plain
        self._max_body_bytes = request.settings.max_body_bytes
        self._plain_batches = 0
        self._nothing: pl.DataFrame | None = None

    def decode(self, bodies: Bodies) -> Decoded:
        """Decode all bodies; see ``Decoder``."""
        if not len(bodies):  # a scan before parsing has left out all of a batch
            if self._nothing is None:
                self._nothing = self._plain.decode(bodies).frame
            return Decoded(self._nothing)
        if self._plain_batches:
            self._plain_batches -= 1
        elif self._kernel is not None:
            try:
                return self._by_kernel(self._kernel, bodies)
            except KernelError as error:
                logger.warning(
                    "headrace-turbo has failed for this queue, so headrace's own decoder is used instead: %s", error
                )
                self._kernel = None
        return self._plain.decode(bodies)

    def _by_kernel(self, kernel: KernelDecoder, bodies: Bodies) -> Decoded:
        values, doubtful = kernel.decode(bodies, self._max_body_bytes)
        frame, bad = self._finished(values, len(bodies))
        if bad is not None:
            doubtful = np.union1d(doubtful, np.flatnonzero(bad))
        if not len(doubtful):
            return Decoded(frame)
        if len(doubtful) > _DOUBTFUL_MAX * len(bodies):
            self._plain_batches = _BATCHES_PLAIN
        return self._with_plain(frame, doubtful, bodies)

    def _finished(self, frame: pl.DataFrame, count: int) -> tuple[pl.DataFrame, NDArray[np.bool_] | None]:
        if not self._columns:
            return pl.DataFrame(height=count), None
        doubtful: NDArray[np.bool_] | None = None
        for place, (name, column) in enumerate(self._columns.items()):
            if column.finish is None:
                continue
            made, doubtful_here = column.finish(frame.to_series(place))
            frame.replace_column(place, made.alias(name))
            if doubtful_here is not None:
                doubtful = doubtful_here if doubtful is None else doubtful | doubtful_here
        return frame, doubtful

    def _with_plain(self, frame: pl.DataFrame, doubtful: NDArray[np.int64], bodies: Bodies) -> Decoded:
        """Put what the plain decoder makes of the doubtful bodies between the rows of the others."""
        certain = np.delete(np.arange(len(bodies)), doubtful)
        decoded = self._plain.decode(bodies.take(doubtful))
        plain_rows = doubtful if decoded.rows is None else doubtful[decoded.rows]
        rows = np.concatenate([certain, plain_rows])
        order = np.argsort(rows, kind="stable")
        frame = pl.concat([frame[certain], decoded.frame])[order] if frame.width else pl.DataFrame(height=len(rows))
        bad = [BadBody(int(doubtful[each.row]), each.reason) for each in decoded.bad]
        return Decoded(frame, rows[order] if bad else None, bad)


class _KernelColumn:
    """A column: how it is described to the kernel, the Arrow type of what that gives, and what remains to be done (None: nothing)."""

    def __init__(self, description: bytes, arrow_type: pa.DataType, finish: Finish | None) -> None:
        self.description = description
        self.arrow_type = arrow_type
        self.finish = finish

    @classmethod
    def of(cls, name: str, data_type: pl.DataType, request: DecoderRequest) -> _KernelColumn:
        """Return the column of a type. Raises NotForKernel."""
        if name in request.json_columns:
            return cls(_numbers(_Kind.JSON_TEXTS), pa.string_view(), None)
        if isinstance(data_type, pl.Decimal):
            return cls(_numbers(_Kind.NUMBER_TEXTS), pa.string_view(), lambda texts: _decimals(texts, data_type))
        if data_type == pl.Float32:
            return cls(_numbers(_Kind.FLOATS), pa.float64(), _floats_of_32_bits)
        description, arrow_type = _described(data_type, request)
        if data_type in _AS_THEY_COME or isinstance(data_type, pl.Datetime):
            return cls(description, arrow_type, None)
        return cls(description, arrow_type, lambda values: (values.cast(data_type), None))


def _decimals(texts: pl.Series, data_type: pl.Decimal) -> tuple[pl.Series, NDArray[np.bool_] | None]:
    """Read plain decimal numbers that fit. Other texts are doubtful."""
    fraction = rf"(\.[0-9]{{1,{data_type.scale}}})?" if data_type.scale else ""
    plain = texts.str.contains(f"^-?[0-9]+{fraction}$")
    values = texts.cast(data_type, strict=False)
    doubtful = (values.is_null() & texts.is_not_null()) | ~plain.fill_null(True)
    return values, doubtful.to_numpy() if doubtful.any() else None


def _floats_of_32_bits(values: pl.Series) -> tuple[pl.Series, NDArray[np.bool_] | None]:
    """Round to float32. What is beyond its range is doubtful."""
    rounded = values.cast(pl.Float32)
    doubtful = ~rounded.is_finite().fill_null(True)
    return rounded, doubtful.to_numpy() if doubtful.any() else None


def _described(data_type: pl.DataType, request: DecoderRequest) -> tuple[bytes, pa.DataType]:
    """Return the description and the Arrow type of a column whose values need no more than a cast. Raises NotForKernel."""
    bits = _INTEGER_BITS.get(type(data_type))
    if bits is not None:
        return _numbers(_Kind.INTEGERS, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1), pa.int64()
    if data_type == pl.Float64:
        return _numbers(_Kind.FLOATS), pa.float64()
    if data_type == pl.Boolean:
        return _numbers(_Kind.BOOLEANS), pa.bool_()
    if data_type == pl.String:
        return _numbers(_Kind.TEXTS), pa.string_view()
    if isinstance(data_type, pl.Datetime) and data_type.time_unit == "us" and request.settings.timestamp_format is None:
        units = _UNITS_PER_SECOND[request.settings.timestamp_unit]
        return _numbers(_Kind.MOMENTS, int(data_type.time_zone is not None), units), pa.timestamp(
            "us", data_type.time_zone
        )
    if data_type == pl.Date:
        return _numbers(_Kind.DATES), pa.date32()
    if isinstance(data_type, pl.Struct) and data_type.fields:
        fields = {field.name: _described(_plain_type(field.dtype), request) for field in data_type.fields}
        arrow_type = pa.struct([pa.field(name, inner) for name, (_, inner) in fields.items()])
        return _numbers(_Kind.STRUCT) + _fields_description(
            {name: each for name, (each, _) in fields.items()}
        ), arrow_type
    if isinstance(data_type, pl.List):
        description, inner = _described(_plain_type(data_type.inner), request)
        return _numbers(_Kind.LIST) + description, pa.large_list(inner)
    raise NotForKernel(str(data_type))


def _plain_type(data_type: Any) -> pl.DataType:
    assert isinstance(data_type, pl.DataType)
    return data_type


def _fields_description(fields: Mapping[str, bytes]) -> bytes:
    return _numbers(len(fields)) + b"".join(_field_description(fields))


def _field_description(fields: Mapping[str, bytes]) -> Iterator[bytes]:
    for name, description in fields.items():
        key = name.encode()
        yield _numbers(len(key)) + key + description


def _numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)
