"""Decompression in pieces of bounded size, over any number of gzip members, zstd frames, bzip2 or xz streams."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from abc import ABC, abstractmethod
from typing import Any

#: What files of each kind begin with. bzip2: the mark of the first block, or that of the end, comes after the size of blocks, so that a
#: text that begins with "BZh1" is none.
_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bzip2": re.compile(rb"BZh[1-9](?:\x31\x41\x59\x26\x53\x59|\x17\x72\x45\x38\x50\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zip": re.compile(rb"PK(?:\x03\x04|\x05\x06)"),
}
#: How these begin, for files that do not have all of it yet, and the names that files of the kind have.
_BEGINNINGS = {
    "gzip": (b"\x1f\x8b", (".gz", ".gzip")),
    "zstd": (b"\x28\xb5\x2f\xfd", (".zst", ".zstd")),
    "bzip2": (b"BZh", (".bz2", ".bzip2")),
    "xz": (b"\xfd7zXZ\x00", (".xz",)),
    "zip": (b"PK", (".zip",)),
}
MAGIC_LENGTH = 10
#: A zstd block of four bytes can expand to 128 KiB, so input is fed in pieces so small that none expands to more than 16 MiB.
_ZSTD_FEED_BYTES = 512
#: Windows over 128 MiB are refused, as the zstd tool does.
_ZSTD_WINDOW_BYTES_MAX = 128 * 1024**2
#: ``xz -9`` needs 65 MiB to decompress.
_XZ_MEMORY_BYTES_MAX = 128 * 1024**2


def kind_of(head: bytes, path: str) -> str:
    """Return the compression of a file, or "none", by its first bytes, or by its name while it has too few of them."""
    for kind, magic in _MAGIC.items():
        if magic.match(head):
            return kind
    if len(head) < MAGIC_LENGTH:
        for kind, (beginning, suffixes) in _BEGINNINGS.items():
            if path.endswith(suffixes) and head[: len(beginning)] == beginning[: len(head)]:
                return kind
    return "none"


class Decompressor(ABC):
    """Decompresses a run of bytes given in pieces. Raises ValueError when they are not valid."""

    def __init__(self) -> None:
        self._current: Any = None
        self._input = b""

    @property
    def within_member(self) -> bool:
        """Whether the input so far ends before its gzip member, zstd frame, bzip2 or xz stream does."""
        return self._current is not None

    @property
    @abstractmethod
    def needs_input(self) -> bool:
        """Whether nothing more can come without more input."""

    @abstractmethod
    def decompress(self, raw: bytes, size: int) -> bytes:
        """Take more input; return about ``size`` bytes of output or fewer. Output that is held back comes next time."""


class _GzipDecompressor(Decompressor):
    def __init__(self) -> None:
        super().__init__()
        self._held_back = False

    @property
    def needs_input(self) -> bool:
        return not self._input and not self._held_back

    def decompress(self, raw: bytes, size: int) -> bytes:
        self._input += raw
        if self._current is None:
            if not self._held_back:
                # Some tools fill up members with zeros.
                self._input = self._input.lstrip(b"\x00")
            if not self._input:
                return b""
            self._current = zlib.decompressobj(wbits=31)
        try:
            out = bytes(self._current.decompress(self._input, size))
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if self._current.eof:
            self._input, self._current, self._held_back = self._current.unused_data, None, False
        else:
            self._input = self._current.unconsumed_tail
            # zlib can keep output inside when it has taken all input: a full piece means to ask again.
            self._held_back = len(out) >= size
        return out


class _ZstdDecompressor(Decompressor):
    def __init__(self) -> None:
        super().__init__()
        import zstandard

        self._error = zstandard.ZstdError
        self._context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)

    @property
    def needs_input(self) -> bool:
        return not self._input

    def decompress(self, raw: bytes, size: int) -> bytes:
        data = self._input + raw if self._input else raw
        at = 0
        pieces: list[bytes] = []
        produced = 0
        try:
            while at < len(data) and produced < size:
                if self._current is None:
                    self._current = self._context.decompressobj()
                feed = data[at : at + _ZSTD_FEED_BYTES]
                piece = self._current.decompress(feed)
                at += len(feed)
                if self._current.eof:
                    at -= len(self._current.unused_data)
                    self._current = None
                if piece:
                    pieces.append(piece)
                    produced += len(piece)
        except self._error as error:
            raise ValueError(str(error)) from error
        self._input = data[at:]
        return b"".join(pieces)


class _BlockDecompressor(Decompressor):
    """bzip2 and xz: their decompressors keep the input that they have not used, and take a bound of output."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    @property
    def needs_input(self) -> bool:
        return not self._input and (self._current is None or self._current.needs_input)

    def decompress(self, raw: bytes, size: int) -> bytes:
        data, self._input = self._input + raw, b""
        if self._current is None:
            if self._kind == "xz":
                data = data.lstrip(b"\x00")  # streams of xz may be padded
            if not data:
                return b""
            self._current = self._make()
        try:
            out = bytes(self._current.decompress(data, size))
        except (OSError, lzma.LZMAError) as error:  # bz2 raises OSError
            raise ValueError(str(error)) from error
        if self._current.eof:
            self._input, self._current = self._current.unused_data, None
        return out

    def _make(self) -> bz2.BZ2Decompressor | lzma.LZMADecompressor:
        if self._kind == "bzip2":
            return bz2.BZ2Decompressor()
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES_MAX)


def make_decompressor(kind: str) -> Decompressor:
    """Return a decompressor for "gzip", "zstd", "bzip2" or "xz"."""
    if kind == "gzip":
        return _GzipDecompressor()
    return _ZstdDecompressor() if kind == "zstd" else _BlockDecompressor(kind)
