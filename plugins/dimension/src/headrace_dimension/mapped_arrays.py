"""Arrow arrays that are written piece by piece to files without names, and mapped as whole arrays when they are complete."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

#: Texts of more bytes than this have 64-bit ends.
TEXTS_MAX = 2**31 - 2**20
_TEXTS = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}

MakeFile = Callable[[], IO[bytes]]


class MappedArrays:
    """Arrays by name; each buffer is a file. All pieces of an array have one type, but texts may have 32-bit or 64-bit ends.

    ``append`` raises OSError when a file cannot be written.
    """

    def __init__(self, make_file: MakeFile) -> None:
        self._make_file = make_file
        self._arrays: dict[str, _Array] = {}

    def append(self, name: str, piece: pa.Array) -> None:
        """Write the next values of an array."""
        if name not in self._arrays:
            self._arrays[name] = _Array(self._make_file)
        self._arrays[name].append(piece)

    def mapped(self) -> Mapping[str, pa.Array]:
        """Map the arrays. They are gone with the last reference to them. Nothing may be appended after it."""
        return {name: array.mapped() for name, array in self._arrays.items()}

    def close(self) -> None:
        """Close files that were not mapped: something went wrong."""
        for array in self._arrays.values():
            array.close()


class _Array:
    """One array while it is written."""

    def __init__(self, make_file: MakeFile) -> None:
        self._make_file = make_file
        self._kind: pa.DataType | None = None
        self._dictionary: pa.Array | None = None
        self._rows = 0
        self._valid: _Bits | None = None
        self._data = _Bytes(make_file)
        self._bits: _Bits | None = None
        self._ends: _Bytes | None = None
        self._ends_type: type[np.signedinteger[Any]] = np.int32

    def append(self, piece: pa.Array) -> None:
        if isinstance(piece, pa.DictionaryArray):
            self._dictionary, piece = piece.dictionary, piece.indices
        kind = piece.type
        is_text = kind in _TEXTS or kind in _TEXTS.values()
        self._kind = self._kind or kind
        if kind != self._kind and not is_text:
            raise TypeError(f"a piece is {kind}, those before it are {self._kind}")
        self._append_valid(piece)
        if is_text:
            self._append_texts(piece)
        elif pa.types.is_boolean(kind):
            self._bits = self._bits or _Bits(self._data)
            self._bits.append(piece.fill_null(False).to_numpy(zero_copy_only=False))
        elif len(piece):
            width = kind.bit_width // 8
            self._data.append(
                memoryview(piece.buffers()[1])[piece.offset * width : (piece.offset + len(piece)) * width]
            )
        self._rows += len(piece)

    def mapped(self) -> pa.Array:
        assert self._kind is not None
        if self._bits is not None:
            self._bits.end()
        validity = None
        if self._valid is not None:
            self._valid.end()
            validity = self._valid.file.mapped()
        kind, buffers = self._kind, [validity, self._data.mapped()]
        if self._ends is not None:
            kind = next(pair for pair in _TEXTS.items() if kind in pair)[self._ends_type is np.int64]
            buffers.insert(1, self._ends.mapped())
        array = pa.Array.from_buffers(kind, self._rows, buffers)
        return array if self._dictionary is None else pa.DictionaryArray.from_arrays(array, self._dictionary)

    def close(self) -> None:
        """Close its files. May be called after ``mapped``."""
        for file in (self._data, self._ends, None if self._valid is None else self._valid.file):
            if file is not None:
                file.close()

    def _append_valid(self, piece: pa.Array) -> None:
        if self._valid is None and piece.null_count:
            self._valid = _Bits(_Bytes(self._make_file))
            self._valid.append(np.ones(self._rows, dtype=bool))
        if self._valid is not None:
            self._valid.append(pc.is_valid(piece).to_numpy(zero_copy_only=False))

    def _append_texts(self, piece: pa.Array) -> None:
        if self._ends is None:
            self._ends = _Bytes(self._make_file)
            self._ends.append(np.zeros(1, dtype=np.int32))
        if not len(piece):
            return
        _, ends, data = piece.buffers()
        wide = piece.type in _TEXTS.values()
        known = np.frombuffer(ends, dtype=np.int64 if wide else np.int32)[piece.offset : piece.offset + len(piece) + 1]
        begin, end = int(known[0]), int(known[-1])
        before = self._data.size
        if self._ends_type is np.int32 and before + end - begin > TEXTS_MAX:
            self._widen()
        assert self._ends is not None
        self._ends.append((known[1:].astype(np.int64) + (before - begin)).astype(self._ends_type))
        if end > begin:
            self._data.append(memoryview(data)[begin:end])

    def _widen(self) -> None:
        """Write the ends again, with 64 bits."""
        assert self._ends is not None
        narrow = np.frombuffer(self._ends.mapped(), dtype=np.int32)
        self._ends, self._ends_type = _Bytes(self._make_file), np.int64
        for begin in range(0, len(narrow), 1 << 20):
            self._ends.append(narrow[begin : begin + (1 << 20)].astype(np.int64))


class _Bytes:
    """The file of one buffer."""

    def __init__(self, make_file: MakeFile) -> None:
        self._file = make_file()
        self.size = 0

    def append(self, content: Any) -> None:
        self._file.write(content)
        self.size += memoryview(content).nbytes

    def mapped(self) -> pa.Buffer:
        """Map what was written, and close the file: the pages are there as long as the map is."""
        with self._file:
            self._file.flush()
            if not self.size:  # an empty file cannot be mapped
                return pa.py_buffer(b"")
            return pa.py_buffer(mmap.mmap(self._file.fileno(), self.size, access=mmap.ACCESS_READ))

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what it has in its buffer does not matter
            self._file.close()


class _Bits:
    """Bits, lowest first, in a file of bytes."""

    def __init__(self, file: _Bytes) -> None:
        self.file = file
        self._left: NDArray[np.bool_] = np.zeros(0, dtype=bool)

    def append(self, bits: NDArray[np.bool_]) -> None:
        bits = np.concatenate([self._left, bits])
        whole = len(bits) // 8 * 8
        self.file.append(np.packbits(bits[:whole], bitorder="little"))
        self._left = bits[whole:]

    def end(self) -> None:
        """Write the bits that do not fill a byte."""
        self.file.append(np.packbits(self._left, bitorder="little"))
        self._left = self._left[:0]
