"""The compiled kernel as a decoder: its buffers become columns of polars. ``library.py`` loads it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from headrace.flow.messages import Bodies
    from numpy.typing import NDArray


class KernelError(Exception):
    """The kernel could not decode a batch. Its decoder cannot be used any more."""


@dataclass(frozen=True, slots=True)
class _Column:
    """How a column is put together: looked up once, as asking Arrow's types for what they are takes time in each batch."""

    arrow_type: pa.DataType
    buffers: int
    children: tuple[_Column, ...] = ()

    @classmethod
    def of(cls, arrow_type: pa.DataType) -> _Column:
        if pa.types.is_struct(arrow_type):
            return cls(arrow_type, 1, tuple(cls.of(field.type) for field in arrow_type))
        if pa.types.is_large_list(arrow_type):
            return cls(arrow_type, 2, (cls.of(arrow_type.value_type),))
        return cls(arrow_type, 3 if pa.types.is_string_view(arrow_type) else 2)


class _Buffer:
    """Owns a buffer of the kernel, for as long as a column uses it."""

    def __init__(self, kernel: ctypes.CDLL, handle: int) -> None:
        self._free, self._handle = kernel.headrace_turbo_buffer_free, handle

    def __del__(self) -> None:
        self._free(self._handle)


class KernelDecoder:
    """Decodes bodies to columns of the given Arrow types, as ``description`` says (see ``kernel/src/description.rs``).

    Used by one thread at a time. It cannot be copied or sent to another process.
    """

    def __init__(self, kernel: ctypes.CDLL, description: bytes, types: Mapping[str, pa.DataType]) -> None:
        """``types`` by the names of the columns. Raises KernelError for a description that the kernel does not understand."""
        self._kernel = kernel
        self._columns = [_Column.of(each) for each in types.values()]
        self._schema = pa.schema(list(types.items()))
        self._handle: int | None = kernel.headrace_turbo_decoder(description, len(description))
        if self._handle is None:
            raise KernelError("the compiled kernel cannot read the description of the columns")

    def __del__(self) -> None:
        if self._handle is not None:
            self._kernel.headrace_turbo_decoder_free(self._handle)

    def decode(self, bodies: Bodies, max_body_bytes: int) -> tuple[pl.DataFrame, NDArray[np.int64]]:
        """Return a frame with a value of each column for each body, and the rows that are doubtful: NULLs stand for them.

        Raises KernelError.
        """
        buffer: NDArray[np.uint8] = np.frombuffer(bodies.buffer, dtype=np.uint8)
        starts = np.ascontiguousarray(bodies.starts, dtype=np.int64)
        ends = np.ascontiguousarray(bodies.ends, dtype=np.int64)
        batch = self._kernel.headrace_turbo_decode(
            self._handle,
            buffer.ctypes.data,
            len(buffer),
            starts.ctypes.data,
            ends.ctypes.data,
            len(starts),
            max_body_bytes,
        )
        if batch is None:
            raise KernelError("the batch could not be decoded")
        try:
            told = (ctypes.c_uint64 * 4)()
            self._kernel.headrace_turbo_batch(batch, told)
            numbers = iter(_copied(told[1], told[0]).tolist())
            arrays = [self._column(batch, numbers, each) for each in self._columns]
            made = pl.from_arrow(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            assert isinstance(made, pl.DataFrame)
            return made, _copied(told[3], told[2])
        finally:
            self._kernel.headrace_turbo_batch_free(batch)

    def _column(self, batch: int, numbers: Any, column: _Column) -> pa.Array:
        count, nulls, *places = (next(numbers) for _ in range(5))
        buffers = [None if place < 0 else self._take(batch, place) for place in places]
        children = [self._column(batch, numbers, each) for each in column.children]
        return pa.Array.from_buffers(
            column.arrow_type, count, buffers[: column.buffers], null_count=nulls, children=children
        )

    def _take(self, batch: int, place: int) -> pa.Buffer:
        told = (ctypes.c_uint64 * 2)()
        handle = self._kernel.headrace_turbo_take(batch, place, told)
        if handle is None:
            raise KernelError("a buffer was taken twice")
        owner = _Buffer(self._kernel, handle)
        return pa.foreign_buffer(told[0], told[1], owner) if told[1] else pa.py_buffer(b"")


def _copied(address: int, count: int) -> NDArray[np.int64]:
    if not count:
        return np.zeros(0, dtype=np.int64)
    found: NDArray[np.int64] = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_int64)), (count,))
    return found.copy()
