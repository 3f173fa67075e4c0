"""The rows of a result by column, from the packets that the server sent.

PyMySQL makes a tuple of Python objects of each row, which takes six microseconds and Python's lock. Here the packets of a page
are kept unchanged, the positions of all values are found column by column, and texts and numbers become columns at once; only
other types go through PyMySQL's converters. The text protocol of MySQL: a packet is three bytes of length, one that counts, and
the payload; a row's payload holds the values as texts, each after its length (251: NULL; 252, 253, 254: the length is in
the next two, three or eight bytes).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pymysql
from headrace.foundation.errors import DataError
from numpy.typing import NDArray
from pymysql.constants import CR
from pymysql.protocol import MysqlPacket

from headrace_mysql.types import series_of

Integers = NDArray[np.int64]

_CHUNK_BYTES = 1 << 18
#: A payload of this length continues in the next packet.
_LENGTH_MAX = 0xFFFFFF
_HEADER = struct.Struct("<I")
#: Texts up to this length lie within the 16 bytes of an Arrow view.
_INLINE = 12
#: Views hold 32-bit places.
_BUFFER_BYTES_MAX = 2**31 - 2**20


class RowPackets:
    """All rows of a result. Made from an unbuffered cursor that has executed its statement; takes its rows from it.

    Raises the driver's errors when the connection is lost or the server reports an error amid the rows.
    """

    def __init__(self, cursor: Any) -> None:
        self._begins: list[int] = []
        self._buffer = bytearray()
        result, connection = cursor._result, cursor.connection
        self._converters: Sequence[tuple[str | None, Any]] = result.converters
        try:
            last = self._take(connection)
        except OSError as error:
            _give_up(result, connection)
            raise pymysql.OperationalError(
                CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({error})"
            ) from error
        except BaseException:
            _give_up(result, connection)
            raise
        result.unbuffered_active = False
        if last.is_error_packet():
            last.raise_for_error()
        result._check_packet_is_eof(last)
        result.connection = None
        self._bytes: NDArray[np.uint8] = np.frombuffer(self._buffer, dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._begins)

    def columns(self, types: Mapping[str, pl.DataType], key: pl.DataType) -> tuple[pl.Series, list[pl.Series]]:
        """Return the first column in the type ``key``, and the others with the names and types given."""
        places = np.array(self._begins, dtype=np.int64)
        made = []
        wanted = [("", key), *types.items()]
        for (name, kind), (encoding, converter) in zip(wanted, self._converters, strict=True):
            starts, lengths, missing = self._values(places)
            made.append(self._series(name, kind, starts, lengths, missing, encoding, converter))
            places = starts + lengths
        return made[0], made[1:]

    def _take(self, connection: Any) -> MysqlPacket:
        """Take packets up to the one after the last row, and return that one."""
        buffer, begins = self._buffer, self._begins
        read, header = connection._rfile.read1, _HEADER.unpack_from
        place = 0
        while True:
            whole = len(buffer)
            while place + 4 <= whole:
                length = header(buffer, place)[0] & _LENGTH_MAX
                end = place + 4 + length
                if end > whole:
                    break
                first = buffer[place + 4]
                if first >= 0xFE and (first == 0xFF or length < 9):
                    # Spare bytes, so that twelve bytes can be read from any position.
                    payload = bytes(buffer[place + 4 : end])
                    del buffer[place:]
                    buffer += bytes(_INLINE)
                    return MysqlPacket(payload, connection.encoding)
                if length == _LENGTH_MAX:
                    joined = self._joined(place, read)
                    if joined is None:
                        raise OSError("the server closed the connection")
                    end, whole = joined, len(buffer)
                begins.append(place + 4)
                place = end
            chunk = read(_CHUNK_BYTES)
            if not chunk:
                raise OSError("the server closed the connection")
            buffer += chunk

    def _joined(self, place: int, read: Any) -> int | None:
        """Join the packets of a long row, after the first was read; return the end of its payload."""
        buffer = self._buffer
        end = place + 4 + _LENGTH_MAX
        while True:
            while len(buffer) < end + 4 or len(buffer) < end + 4 + (_HEADER.unpack_from(buffer, end)[0] & _LENGTH_MAX):
                chunk = read(_CHUNK_BYTES)
                if not chunk:
                    return None
                buffer += chunk
            length: int = _HEADER.unpack_from(buffer, end)[0] & _LENGTH_MAX
            del buffer[end : end + 4]
            end += length
            if length < _LENGTH_MAX:
                return end

    def _values(self, places: Integers) -> tuple[Integers, Integers, NDArray[np.bool_]]:
        """Return where the values at these positions begin, how long they are, and which are NULL."""
        lengths = self._bytes[places].astype(np.int64)
        starts = places + 1
        missing = lengths == 251
        if (lengths > 251).any():
            for sign, width in ((252, 2), (253, 3), (254, 8)):
                rows = np.flatnonzero(lengths == sign)
                lengths[rows] = sum(
                    self._bytes[starts[rows] + place].astype(np.int64) << 8 * place for place in range(width)
                )
                starts[rows] += width
        lengths[missing] = 0
        return starts, lengths, missing

    def _series(
        self,
        name: str,
        kind: pl.DataType,
        starts: Integers,
        lengths: Integers,
        missing: NDArray[np.bool_],
        encoding: str | None,
        converter: Any,
    ) -> pl.Series:
        if len(self._buffer) <= _BUFFER_BYTES_MAX and encoding is not None:
            if converter is None and isinstance(kind, pl.String):
                return self._texts(name, starts, lengths, missing)
            if (converter is int and kind.is_integer()) or (converter is float and kind.is_float()):
                found = self._texts(name, starts, lengths, missing)
                return found.cast(pl.Float64).cast(kind) if kind.is_float() else found.cast(kind)
            if converter is int and isinstance(kind, pl.Boolean):
                return self._texts(name, starts, lengths, missing).cast(pl.Int64) != 0
        values = []
        for start, length, absent in zip(starts.tolist(), lengths.tolist(), missing.tolist(), strict=True):
            value: Any = bytes(self._buffer[start : start + length])
            if encoding is not None:
                value = value.decode(encoding)
            values.append(None if absent else value if converter is None else converter(value))
        return series_of(name, kind, values)

    def _texts(self, name: str, starts: Integers, lengths: Integers, missing: NDArray[np.bool_]) -> pl.Series:
        """Return texts. Raises DataError where the server did not send UTF-8."""
        views = np.zeros((len(starts), 4), dtype=np.int32)
        views[:, 0] = lengths
        inline = self._bytes[starts[:, None] + np.arange(_INLINE)]
        inline[np.arange(_INLINE) >= lengths[:, None]] = 0
        views[:, 1:] = inline.view(np.int32)
        long = np.flatnonzero(lengths > _INLINE)
        views[long, 2] = 0
        views[long, 3] = starts[long]
        present = pa.array(~missing).buffers()[1] if missing.any() else None
        buffers = [present, pa.py_buffer(views), pa.py_buffer(self._buffer)]
        array = pa.Array.from_buffers(pa.string_view(), len(starts), buffers)
        if not self._buffer.isascii():
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise DataError(f"column {name!r} holds bytes that are not UTF-8: {error}", plugin="mysql") from error
        # A copy: otherwise any text would keep the whole page in memory.
        return pl.Series(name, array.cast(pa.large_string()), dtype=pl.String)


def _give_up(result: Any, connection: Any) -> None:
    """Leave a connection whose rows were not read to their end; nothing may be read from it any more."""
    result.unbuffered_active = False
    connection._force_close()
