"""Decompression in pieces of bounded size, over any number of gzip members or zstd frames."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from typing import Any

MAGIC_LENGTH = 4
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
#: A zstd block of four bytes can stand for 128 KiB, so input is fed in pieces so small that none gives more than 16 MiB.
_ZSTD_FEED_BYTES = 512
#: Windows over 128 MiB are refused, as the zstd tool does.
_ZSTD_WINDOW_BYTES_MAX = 128 * 1024**2


def kind_of(head: bytes, path: str) -> str:
    """Return "gzip", "zstd" or "none" for a file by its first bytes, or by its name while it has too few of them."""
    if head.startswith(_GZIP_MAGIC):
        return "gzip"
    if head.startswith(_ZSTD_MAGIC):
        return "zstd"
    if len(head) < MAGIC_LENGTH and (_GZIP_MAGIC.startswith(head[:2]) or _ZSTD_MAGIC.startswith(head)):
        if path.endswith((".gz", ".gzip")):
            return "gzip"
        if path.endswith((".zst", ".zstd")):
            return "zstd"
    return "none"


class Decompressor(ABC):
    """Decompresses a run of bytes given in pieces. Raises ValueError when they are not valid."""

    def __init__(self) -> None:
        self._current: Any = None
        self._input = b""

    @property
    def within_member(self) -> bool:
        """Whether the input so far ends before its gzip member or zstd frame does."""
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


def make_decompressor(kind: str) -> Decompressor:
    """Return a decompressor for "gzip" or "zstd"."""
    return _GzipDecompressor() if kind == "gzip" else _ZstdDecompressor()
