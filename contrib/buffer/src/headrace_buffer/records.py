"""Records, and the blocks in which a segment stores them.

A block is a header and a payload, each with a checksum:

    header   mark, count, bytes of bodies, of keys and of headers, first offset, latest time, checksum of payload, of
    header payload  times (int64 each) | ends of bodies (uint32 each) | bodies, each with a newline | keys | headers

Checksums of headers begin with the log's random id. A sender does not know this id, so it cannot send a body that is
taken for a block.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import msgspec
import numpy as np
from headrace.flow.messages import Bodies
from headrace.foundation.errors import DataError
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Headers = Mapping[str, bytes]

MARK = b"\xc1HRB"
_HEADER = struct.Struct("<4sIIIIqqI")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
#: Bytes of a record in addition to its body: a time, an end, and a newline.
RECORD_BYTES = 13
_NO_KEY = -1
_header_tables = msgspec.msgpack.Decoder(list[dict[str, bytes]])


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The header of a block."""

    count: int
    bodies_bytes: int
    keys_bytes: int
    headers_bytes: int
    first: int
    time_max: int
    payload_checksum: int

    @property
    def size(self) -> int:
        """Bytes of the whole block."""
        return HEADER_BYTES + 12 * self.count + self.bodies_bytes + self.keys_bytes + self.headers_bytes


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive records of a log: record i has the offset ``first + i``.

    ``times`` are microseconds since the Unix epoch. ``keys`` and ``headers`` are None when no record has one.
    """

    first: int
    times: Integers
    bodies: Bodies
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.times)

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.first + len(self.times)


class Piece:
    """The records of one append, in the form in which a block stores them."""

    __slots__ = ("area", "count", "ends", "header_index", "header_table", "keys", "size", "times")

    def __init__(
        self,
        bodies: Bodies,
        times: Integers,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
    ) -> None:
        self.count = len(bodies)
        self.times = times
        self.area, self.ends = _area_of(bodies)
        self.keys = keys
        self.header_table: list[Headers] = []
        self.header_index: NDArray[np.uint32] | None = None
        if headers is not None:
            self._take_headers([headers] * self.count if isinstance(headers, Mapping) else headers)
        for name, given in (("times", times), ("keys", keys), ("headers", self.header_index)):
            if given is not None and len(given) != self.count:
                raise ValueError(f"{self.count} bodies have {len(given)} {name}: give exactly one for each body")
        extra = sum(4 + len(key or b"") for key in keys) if keys is not None else 0
        if self.header_index is not None:
            packed = sum(
                6 + sum(10 + len(name) * 4 + len(value) for name, value in h.items()) for h in self.header_table
            )
            extra += 4 * self.count + packed
        #: The maximum size in a segment.
        self.size = HEADER_BYTES + 12 * self.count + len(self.area) + extra + 8

    def _take_headers(self, headers: Sequence[Headers]) -> None:
        """Store equal headers once: all records of a sender have the same headers."""
        known: dict[int, int] = {}
        index = np.zeros(len(headers), dtype=np.uint32)
        for row, each in enumerate(headers):
            at = known.get(id(each))
            if at is None:
                at = known[id(each)] = len(self.header_table)
                self.header_table.append(each)
            index[row] = at
        self.header_index = index


def _area_of(bodies: Bodies) -> tuple[bytes, NDArray[np.uint32]]:
    """Return the bodies, each with a newline, and where each of them ends."""
    if not len(bodies):
        return b"", np.zeros(0, dtype=np.uint32)
    separated = bodies.newline_separated
    ends = bodies.ends - bodies.starts[0] if separated else np.cumsum(bodies.ends - bodies.starts + 1) - 1
    if ends[-1] >= 2**32 - 1:
        raise DataError(f"one append has {int(ends[-1])} bytes; a block holds less than 4 GiB")
    return bodies.joined() + b"\n", ends.astype(np.uint32)


def encode_block(pieces: Sequence[Piece], first: int, salt: int) -> bytes:
    """Return a block of the records of all pieces, the first of which has the offset ``first``."""
    count = sum(piece.count for piece in pieces)
    times = np.concatenate([piece.times for piece in pieces]).astype("<i8", copy=False)
    ends = np.zeros(count, dtype="<u4")
    row = begin = 0
    for piece in pieces:
        ends[row : row + piece.count] = piece.ends
        ends[row : row + piece.count] += np.uint32(begin)
        row, begin = row + piece.count, begin + len(piece.area)
    keys, headers = _encoded_keys(pieces), _encoded_headers(pieces)
    payload = b"".join([times.tobytes(), ends.tobytes(), *(piece.area for piece in pieces), keys, headers])
    head = _HEADER.pack(MARK, count, begin, len(keys), len(headers), first, int(times.max()), crc32(payload))
    return b"".join([head, _CHECKSUM.pack(crc32(head, salt)), payload])


def _encoded_keys(pieces: Sequence[Piece]) -> bytes:
    if all(piece.keys is None for piece in pieces):
        return b""
    keys = [key for piece in pieces for key in (piece.keys if piece.keys is not None else [None] * piece.count)]
    lengths = np.array([_NO_KEY if key is None else len(key) for key in keys], dtype="<i4")
    return lengths.tobytes() + b"".join(key for key in keys if key is not None)


def _encoded_headers(pieces: Sequence[Piece]) -> bytes:
    if all(piece.header_index is None for piece in pieces):
        return b""
    table: list[Headers] = [{}]
    parts = []
    for piece in pieces:
        if piece.header_index is None:
            parts.append(np.zeros(piece.count, dtype="<u4"))
        else:
            parts.append(piece.header_index + np.uint32(len(table)))
            table += piece.header_table
    index = np.concatenate(parts).astype("<u4", copy=False)
    return index.tobytes() + msgspec.msgpack.encode(table)


def read_header(data: bytes | memoryview, place: int, salt: int) -> BlockHeader | None:
    """Return the header at this place, or None if there is no complete header."""
    if place + HEADER_BYTES > len(data):
        return None
    head = bytes(data[place : place + _HEADER.size])
    [checksum] = _CHECKSUM.unpack_from(data, place + _HEADER.size)
    if head[:4] != MARK or crc32(head, salt) != checksum:
        return None
    return BlockHeader(*_HEADER.unpack(head)[1:])


def decode_payload(header: BlockHeader, payload: memoryview, *, with_headers: bool = True) -> Records | None:
    """Return the records of a block, or None if its checksum does not match."""
    if len(payload) != header.size - HEADER_BYTES or crc32(payload) != header.payload_checksum:
        return None
    count = header.count
    times = np.frombuffer(payload, dtype="<i8", count=count)
    ends = np.frombuffer(payload, dtype="<u4", count=count, offset=8 * count).astype(np.int64)
    starts = np.zeros(count, dtype=np.int64)
    starts[1:] = ends[:-1] + 1
    at = 12 * count
    area = bytes(payload[at : at + header.bodies_bytes])
    at += header.bodies_bytes
    keys = _decoded_keys(payload[at : at + header.keys_bytes], count)
    at += header.keys_bytes
    headers = _decoded_headers(payload[at : at + header.headers_bytes], count) if with_headers else None
    return Records(header.first, times, Bodies(area, starts, ends, newline_separated=True), keys, headers)


def _decoded_keys(section: memoryview, count: int) -> Sequence[bytes | None] | None:
    if not section:
        return None
    lengths = np.frombuffer(section, dtype="<i4", count=count)
    ends = 4 * count + np.cumsum(np.maximum(lengths, 0))
    data = bytes(section)
    return [
        None if length == _NO_KEY else data[end - length : end]
        for length, end in zip(lengths.tolist(), ends.tolist(), strict=True)
    ]


def _decoded_headers(section: memoryview, count: int) -> Sequence[Headers] | None:
    if not section:
        return None
    index = np.frombuffer(section, dtype="<u4", count=count)
    table = _header_tables.decode(section[4 * count :])
    return [table[at] for at in index.tolist()]


def joined(parts: Sequence[Records]) -> Records:
    """Return consecutive records as one."""
    if len(parts) == 1:
        return parts[0]
    begin, starts, ends = 0, [], []
    for part in parts:
        starts.append(part.bodies.starts + begin)
        ends.append(part.bodies.ends + begin)
        begin += len(part.bodies.buffer)
    bodies = Bodies(
        b"".join(part.bodies.buffer for part in parts),
        np.concatenate(starts),
        np.concatenate(ends),
        newline_separated=True,
    )
    keys: Sequence[bytes | None] | None = None
    if any(part.keys is not None for part in parts):
        keys = [key for part in parts for key in (part.keys if part.keys is not None else [None] * len(part))]
    headers: Sequence[Headers] | None = None
    if any(part.headers is not None for part in parts):
        headers = [each for part in parts for each in (part.headers if part.headers is not None else [{}] * len(part))]
    return Records(parts[0].first, np.concatenate([part.times for part in parts]), bodies, keys, headers)


def sliced(records: Records, begin: int, end: int) -> Records:
    """Return records ``begin`` to ``end`` (numbers from 0), over the same buffer."""
    if begin == 0 and end >= len(records):
        return records
    bodies = records.bodies
    return Records(
        records.first + begin,
        records.times[begin:end],
        Bodies(bodies.buffer, bodies.starts[begin:end], bodies.ends[begin:end], newline_separated=True),
        None if records.keys is None else records.keys[begin:end],
        None if records.headers is None else records.headers[begin:end],
    )
