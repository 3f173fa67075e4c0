"""``from_avro``: the rows of Avro's object container files, as they are when the job starts."""

from __future__ import annotations

import bz2
import contextlib
import io
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import fastavro
import numpy as np
import polars as pl
import pyarrow as pa
from headrace.flow.messages import Bodies
from headrace.foundation.errors import OptionError
from headrace_dimension.columnar_files import ColumnarFile, ColumnarFileSource

from headrace_avro.column_types import columns_of
from headrace_avro.decoder import RecordDecoder
from headrace_avro.record_ends import record_ends
from headrace_avro.schemas import AvroType, parse_schema, rendered

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_LONG_BYTES = 10
#: A block with more bytes is treated as damaged.
_BLOCK_BYTES_MAX = 1 << 30
#: Blocks are read together up to so many rows and packed bytes; a larger one by itself.
_GROUP_ROWS = 10_000
_GROUP_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of a file: its rows, its place and its size in bytes."""

    rows: int
    begin: int
    size: int


class AvroFileSource(ColumnarFileSource):
    """Reads object container files, block by block. Each file is read by the schema in the file."""

    plugin = "avro"
    ending = ".avro"

    @staticmethod
    def open_file(path: str) -> ColumnarFile:
        return _ContainerFile(path)


class _ContainerFile(ColumnarFile):
    def __init__(self, path: str) -> None:
        self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 - closed by close()
        #: The columns that were read last, and their decoder.
        self._decoder: tuple[tuple[str, ...], RecordDecoder] | None = None
        try:
            self._read_header()
            self._groups = _grouped(self._scan())
        except BaseException:
            self._file.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        return pl.DataFrame(schema=dict(self._columns)).to_arrow().schema

    @property
    def group_rows(self) -> Sequence[int]:
        return [sum(block.rows for block in group) for group in self._groups]

    def read(self, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        blocks = self._groups[group]
        if self._decoder is None or self._decoder[0] != tuple(columns):
            wanted = {name: self._columns[name] for name in columns}
            decoder = RecordDecoder(self._record, self._record, wanted, _BLOCK_BYTES_MAX)
            self._decoder = tuple(columns), decoder
        try:
            batches = self._decoded(blocks)
        except pa.ArrowInvalid:
            if len(blocks) == 1:
                raise
            # Blocks before a damaged one are whole.
            for block in blocks:
                yield from self._decoded([block])
        else:
            yield from batches

    def _decoded(self, blocks: Sequence[_Block]) -> list[pa.RecordBatch]:
        """Return the rows of blocks, which are decoded together: a block may have only some hundred."""
        assert self._decoder is not None
        contents, starts, place = [], [np.zeros(1, dtype=np.int64)], 0
        for block in blocks:
            self._file.seek(block.begin)
            content = self._unpacked(self._file.read(block.size))
            starts.append(self._starts(content, block.rows)[1:] + place)
            contents.append(content)
            place += len(content)
        bounds = np.concatenate(starts)
        decoded = self._decoder[1].decode(Bodies(b"".join(contents), bounds[:-1], bounds[1:]))
        if decoded.bad:
            raise pa.ArrowInvalid(f"record {decoded.bad[0].row} of a block: {decoded.bad[0].reason}")
        found: list[pa.RecordBatch] = decoded.frame.to_arrow().combine_chunks().to_batches()
        return found

    def close(self) -> None:
        self._file.close()

    def _read_header(self) -> None:
        if self._file.read(len(_MAGIC)) != _MAGIC:
            raise pa.ArrowInvalid("it does not begin as an object container file")
        metadata: dict[str, bytes] = {}
        while count := self._long():
            if count < 0:
                count = -count
                self._long()  # the size of this part in bytes
            for _ in range(count):
                name = self._bytes().decode()
                metadata[name] = self._bytes()
        self._sync = self._exactly(_SYNC_BYTES)
        codec = metadata.get("avro.codec", b"null").decode()
        unpacked = _CODECS.get(codec)
        if unpacked is None:
            raise pa.ArrowInvalid(f"its codec {codec!r} is not one of {', '.join(_CODECS)}")
        self._unpacked = unpacked
        text = metadata.get("avro.schema", b"").decode()
        try:
            self._record: AvroType = parse_schema(text, plugin="avro", option="schema")
        except OptionError as error:
            raise pa.ArrowInvalid(f"its schema: {error.message}") from error
        self._columns: Mapping[str, pl.DataType] = columns_of(self._record)
        self._ends = record_ends(self._record)
        self._written = fastavro.parse_schema(rendered(self._record, logical=False))
        self._nothing = fastavro.parse_schema({"type": "record", "name": self._record.name, "fields": []})

    def _scan(self) -> Iterator[_Block]:
        """Yield the blocks that have rows."""
        while first := self._file.read(1):
            rows, size = self._long(first), self._long()
            begin = self._file.tell()
            if rows < 0 or not 0 <= size <= _BLOCK_BYTES_MAX:
                raise pa.ArrowInvalid(f"there is no block at byte {begin}")
            self._file.seek(size, io.SEEK_CUR)
            if self._file.read(_SYNC_BYTES) != self._sync:
                raise pa.ArrowInvalid(f"the block at byte {begin} is cut or damaged")
            if rows:
                yield _Block(rows, begin, size)

    def _starts(self, content: bytes, rows: int) -> NDArray[np.int64]:
        """Return where each record of a block begins, and where the last one ends."""
        if self._ends is not None:
            # Whatever is wrong, fastavro says where.
            with contextlib.suppress(IndexError, ValueError):
                return np.array(self._ends(content, rows), dtype=np.int64)
        stream = io.BytesIO(content)
        starts = np.zeros(rows + 1, dtype=np.int64)
        skip, written, nothing = fastavro.schemaless_reader, self._written, self._nothing
        try:
            for row in range(1, rows + 1):
                skip(stream, written, nothing)
                starts[row] = stream.tell()
        except Exception as error:  # fastavro has no error class for damaged data
            raise pa.ArrowInvalid(f"record {row - 1} of a block: {error or type(error).__name__}") from error
        if starts[-1] != len(content):
            raise pa.ArrowInvalid("there is something behind the last record of a block")
        return starts

    def _long(self, first: bytes = b"") -> int:
        value, read = 0, 0
        while True:
            byte = (first or self._exactly(1))[0]
            first = b""
            value |= (byte & 0x7F) << (7 * read)
            read += 1
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            if read == _LONG_BYTES:
                raise pa.ArrowInvalid("a number is too long")

    def _bytes(self) -> bytes:
        size = self._long()
        if not 0 <= size <= _BLOCK_BYTES_MAX:
            raise pa.ArrowInvalid("its header is damaged")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = self._file.read(size)
        if len(found) < size:
            raise pa.ArrowInvalid("it is cut")
        return found


def _grouped(blocks: Iterable[_Block]) -> list[list[_Block]]:
    """Return blocks in groups that are read together."""
    groups: list[list[_Block]] = []
    rows, size = 0, 0
    for block in blocks:
        if not groups or rows + block.rows > _GROUP_ROWS or size + block.size > _GROUP_BYTES:
            groups.append([])
            rows, size = 0, 0
        groups[-1].append(block)
        rows, size = rows + block.rows, size + block.size
    return groups


def _told(unpack: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def unpacked(block: bytes) -> bytes:
        try:
            return unpack(block)
        except (zlib.error, lzma.LZMAError, ValueError, EOFError, OSError, IndexError) as error:
            raise pa.ArrowInvalid(f"a block cannot be unpacked: {error}") from error

    return unpacked


def _snappy(block: bytes) -> bytes:
    """Unpack a block, which is followed by the checksum of its content."""
    packed, checksum = block[:-4], block[-4:]
    size, shift = 0, 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > _BLOCK_BYTES_MAX:
        raise ValueError("its size is wrong")
    content = bytes(pa.decompress(packed, decompressed_size=size, codec="snappy", asbytes=True)) if size else b""
    if zlib.crc32(content).to_bytes(4, "big") != checksum:
        raise ValueError("its checksum is wrong")
    return content


def _zstandard(block: bytes) -> bytes:
    found: Any = pa.CompressedInputStream(pa.BufferReader(block), "zstd").read()
    return bytes(found)


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda block: block,
    "deflate": _told(lambda block: zlib.decompress(block, -15)),
    "snappy": _told(_snappy),
    "zstandard": _told(_zstandard),
    "bzip2": _told(bz2.decompress),
    "xz": _told(lzma.decompress),
}
