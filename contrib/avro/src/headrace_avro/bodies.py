"""Reads values from many bodies with numpy: integers, floats and slices of bytes of all bodies in one step."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Positions = NDArray[np.int64]
#: Zeros after the last body, so that a read beyond its end is possible. The result of such a read is not used.
_PADDING = 32
#: The maximum size of all bodies together: the resulting columns count places in 32 bits.
BYTES_MAX = 2**30
_INLINE_BYTES = 12
_CONTINUES = np.uint64(0x8080808080808080)
_LOW_BYTES_4 = np.array([(1 << (8 * min(length, 4))) - 1 for length in range(_INLINE_BYTES + 1)], dtype=np.uint64)
_NEXT_BYTES_8 = np.array([(1 << (8 * max(length - 4, 0))) - 1 for length in range(_INLINE_BYTES + 1)], dtype=np.uint64)


class BodyBytes:
    """The bytes of some bodies, and which of the bodies cannot be read with certainty (``uncertain``)."""

    def __init__(self, buffer: bytes, starts: Positions, ends: Positions) -> None:
        low = int(starts.min()) if len(starts) else 0
        high = int(ends.max()) if len(ends) else 0
        if high - low > max(BYTES_MAX, 4 * int((ends - starts).sum())):  # these bodies are a part of a larger buffer
            pieces = [buffer[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            ends = np.cumsum(ends - starts)
            starts = ends - np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
            buffer, low, high = b"".join(pieces), 0, int(ends[-1]) if len(ends) else 0
        self._whole = b"".join((memoryview(buffer)[low:high], bytes(_PADDING)))
        size = len(self._whole)
        self._bytes = np.frombuffer(self._whole, dtype=np.uint8)
        # Overlapping views: the word at every byte.
        self._words = np.ndarray((size - 7,), "<u8", self._whole, strides=(1,))
        self._doubles = np.ndarray((size - 7,), "<f8", self._whole, strides=(1,))
        self._floats = np.ndarray((size - 3,), "<f4", self._whole, strides=(1,))
        self._nowhere = high - low
        self.starts = starts - low
        self.ends = ends - low
        self.uncertain = np.zeros(len(starts), dtype=np.bool_)
        #: How many steps through the items of arrays were for only a few bodies.
        self.steps_for_few = 0

    def doubt(self, rows: Positions, mask: NDArray[np.bool_], positions: Positions) -> None:
        """Mark the rows of ``mask`` as uncertain. Further reads of these rows go to a place without data."""
        if mask.any():
            self.uncertain[rows[mask]] = True
            positions[mask] = self._nowhere

    def advance(self, rows: Positions, positions: Positions) -> Positions:
        """Return the positions. Rows whose position is after the end of the body become uncertain."""
        self.doubt(rows, positions > self.ends[rows], positions)
        return positions

    def integers(self, rows: Positions, positions: Positions) -> tuple[NDArray[np.int64], Positions]:
        """Return integers of variable length (zig-zag), and the positions behind them."""
        first = self._bytes[positions]
        if not len(first) or first.max() < 0x80:
            return ((first >> 1) ^ -(first & 1).astype(np.int8)).astype(np.int8).astype(np.int64), self.advance(
                rows, positions + 1
            )
        words = self._words[positions]
        ends = ~words & _CONTINUES
        last = ends & (~ends + np.uint64(1))
        below = last - np.uint64(1)  # all ones if the word has no last byte
        bits = words & below & np.uint64(0x7F7F7F7F7F7F7F7F)
        bits = (bits & np.uint64(0x007F007F007F007F)) | ((bits & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
        bits = (bits & np.uint64(0x00003FFF00003FFF)) | ((bits & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
        bits = (bits & np.uint64(0x000000000FFFFFFF)) | ((bits & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
        # 64 bits below mean a word without a last byte, which counts as 8 here.
        after = positions + ((np.bitwise_count(below).astype(np.int64) + 1) >> 3)
        longer = np.flatnonzero(ends == 0)
        if len(longer):
            self._longer(rows, positions, longer, bits, after)
        values = (bits >> np.uint64(1)).view(np.int64) ^ -(bits & np.uint64(1)).view(np.int64)
        return values, self.advance(rows, after)

    def _longer(
        self,
        rows: Positions,
        positions: Positions,
        longer: Positions,
        bits: NDArray[np.uint64],
        after: Positions,
    ) -> None:
        """Complete integers of 9 and 10 bytes. Rows with longer integers, or with more than 64 bits, become uncertain."""
        at = positions[longer] + 8
        ninth, tenth = self._bytes[at].astype(np.uint64), self._bytes[at + 1].astype(np.uint64)
        ten = ninth >= 0x80
        bits[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        bits[longer[ten]] |= tenth[ten] << np.uint64(63)
        after[longer] = at + 1 + ten
        wrong = np.zeros(len(rows), dtype=np.bool_)
        wrong[longer[ten & (tenth > 1)]] = True
        self.doubt(rows, wrong, after)

    def skip_integers(self, rows: Positions, positions: Positions) -> Positions:
        """Return the positions behind integers of variable length."""
        return self.integers(rows, positions)[1]

    def booleans(self, rows: Positions, positions: Positions) -> tuple[NDArray[np.bool_], Positions]:
        """Return booleans, and the positions behind them."""
        values = self._bytes[positions]
        after = positions + 1
        self.doubt(rows, values > 1, after)
        return values == 1, self.advance(rows, after)

    def doubles(self, rows: Positions, positions: Positions) -> tuple[NDArray[np.float64], Positions]:
        """Return doubles, and the positions behind them."""
        return self._doubles[positions], self.advance(rows, positions + 8)

    def floats(self, rows: Positions, positions: Positions) -> tuple[NDArray[np.float32], Positions]:
        """Return floats, and the positions behind them."""
        return self._floats[positions], self.advance(rows, positions + 4)

    def lengths(self, rows: Positions, positions: Positions) -> tuple[NDArray[np.int64], Positions, Positions]:
        """Return the lengths of byte strings, and where the bytes begin and end. All bytes are within their body."""
        lengths, begins = self.integers(rows, positions)
        wrong = (lengths < 0) | (lengths > self.ends[rows] - begins)
        if wrong.any():
            lengths = np.where(wrong, 0, lengths)
            self.doubt(rows, wrong, begins)
        return lengths, begins, begins + lengths

    def slices(self, begins: Positions, lengths: NDArray[np.int64]) -> pl.Series:
        """Return slices as a column of bytes. They are not copied."""
        words = self._words[begins]
        inline = np.minimum(lengths, _INLINE_BYTES)
        views = np.empty((len(begins), 2), dtype=np.uint64)
        views[:, 0] = lengths.view(np.uint64) | ((words & _LOW_BYTES_4[inline]) << np.uint64(32))
        views[:, 1] = np.where(
            lengths <= _INLINE_BYTES,
            self._words[begins + 4] & _NEXT_BYTES_8[inline],
            begins.view(np.uint64) << np.uint64(32),
        )
        array = pa.Array.from_buffers(
            pa.binary_view(), len(begins), [None, pa.py_buffer(views), pa.py_buffer(self._whole)]
        )
        made = pl.from_arrow(array)
        assert isinstance(made, pl.Series)
        return made
