"""The files of a zip archive as one text."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import IO

from headrace_file.streams import CompressedStream, OpenFile

_TAIL_BYTES = 64
#: Others can give much output at once for little input, without a bound.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: What zipfile raises for content that is not as the archive's directory says.
_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


class ZipStream(CompressedStream):
    """The files of a zip archive, one after the other, in the order of the archive's directory.

    The directory comes last: an archive that does not have it yet has no bytes, and counts as cut. A file that ends without newline
    gets one when another comes after it, so that no line is made of two files. The checksum of each file is compared when its
    end is reached, as for the other kinds.
    """

    def __init__(self, file: OpenFile) -> None:
        super().__init__(file, "zip")

    def _begin_decompression(self) -> None:
        self._archive: zipfile.ZipFile | None = None
        self._members: list[zipfile.ZipInfo] = []
        self._member: IO[bytes] | None = None
        self._ends_line = True
        self._count = 0

    @property
    def is_cut(self) -> bool:
        return self._archive is None and not self.at_start

    @property
    def holds_several_files(self) -> bool:
        return self._count > 1

    def has_more(self, position: int) -> bool:
        return self._position > position or self._member is not None or bool(self._members)

    def _produce(self, size: int) -> bytes:
        try:
            return self._next_piece(size) if self._archive is not None or self._open_archive() else b""
        except _ERRORS as error:
            raise self._damaged(error) from error

    def _open_archive(self) -> bool:
        """Read the directory of the archive; return False while there is none."""
        size = self.file.stat().st_size
        if size == self._raw_position:
            return False
        self._raw_position = size
        self._raw_tail = self.file.pread(max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
        view = _View(self)
        if not zipfile.is_zipfile(view):
            return False
        self._archive = zipfile.ZipFile(view)
        self._members = [info for info in self._archive.infolist() if not info.is_dir()]
        self._count = len(self._members)
        for info in self._members:
            if info.compress_type not in _METHODS:
                raise ValueError(
                    f"{info.filename} in it is compressed by method {info.compress_type}, which is not read"
                )
        self._members.reverse()
        return True

    def _next_piece(self, size: int) -> bytes:
        assert self._archive is not None
        while True:
            if self._member is None:
                if not self._members:
                    return b""
                if not self._ends_line:
                    self._ends_line = True
                    return b"\n"
                self._member = self._archive.open(self._members[-1])
            piece = self._member.read(size)
            if piece:
                self._ends_line = piece.endswith(b"\n")
                return piece
            self._members.pop()
            self._member = None


class _View(io.RawIOBase):
    """The archive's bytes for zipfile, which moves about in them; the stream's file may be closed and opened in between."""

    def __init__(self, stream: CompressedStream) -> None:
        super().__init__()
        self._stream = stream
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        if begin is None:
            begin = self._stream.file.stat().st_size
        if begin + offset < 0:
            # It is an OSError, which zipfile expects when it looks for the directory, and a ValueError, as of other damage.
            raise io.UnsupportedOperation("a place before the beginning of the file")
        self._at = begin + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            size = max(0, self._stream.file.stat().st_size - self._at)
        data = self._stream.file.pread(self._at, size)
        self._at += len(data)
        return data
