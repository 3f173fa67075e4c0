"""State as it was at one moment: a checkpoint stores it while the operator continues."""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.foundation.checksums import trailer

if TYPE_CHECKING:
    import polars as pl

#: States with at least this number of rows are assembled outside of Python's memory.
LARGE_ROWS_MIN = 100_000
_READ_BYTES_MAX = 1 << 30
#: MessagePack: binary data whose length has four bytes.
_BINARY = b"\xc6"
_BINARY_BYTES_MAX = 2**32 - 1


class StateContent:
    """The bytes of a state, while they are assembled. Used by one thread.

    ``large``: the bytes are in a file without a name, in memory, because the system can copy them there while other
    threads run. With a Python buffer, a copy would hold the interpreter's lock: a quarter of a second for 400 MB.
    """

    def __init__(self, *, large: bool) -> None:
        self._file: io.BytesIO | io.FileIO = io.BytesIO()
        if large and hasattr(os, "memfd_create"):
            self._file = io.FileIO(os.memfd_create("headrace-state", os.MFD_CLOEXEC), "w+")

    def write(self, content: bytes) -> None:
        """Append bytes."""
        rest = memoryview(content)
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    @contextmanager
    def binary(self) -> Iterator[None]:
        """Append the bytes that are written inside as binary data of MessagePack. Raises OverflowError for 4 GB or
        more.
        """
        self.write(_BINARY + bytes(4))
        begin = self._file.tell()
        yield
        end = self._file.tell()
        if end - begin > _BINARY_BYTES_MAX:
            raise OverflowError(f"a part of a state has {end - begin} bytes, more than can be stored: use more shards")
        self._file.seek(begin - 4)
        self.write((end - begin).to_bytes(4, "big"))
        self._file.seek(end)

    def frame(self, frame: pl.DataFrame) -> None:
        """Append a frame as Arrow IPC, as binary data of MessagePack."""
        with self.binary():
            if isinstance(self._file, io.FileIO):
                frame.write_ipc(self._file, compression="uncompressed")
            else:
                made = io.BytesIO()
                frame.write_ipc(made, compression="uncompressed")
                self._file.write(made.getbuffer())

    def end(self, *, seal: bool = False) -> bytes:
        """Return the bytes, with a checksum after them if ``seal`` is true. Nothing can be appended any more."""
        with self._file as file:
            if isinstance(file, io.BytesIO):
                if seal:
                    file.write(trailer(file.getbuffer()))
                return file.getvalue()
            if seal:
                with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as content:
                    made = trailer(content)
                self.write(made)
            size = file.tell()
            parts = [os.pread(file.fileno(), _READ_BYTES_MAX, at) for at in range(0, size, _READ_BYTES_MAX)]
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _nothing() -> None:
    """Nothing is kept for a state whose bytes nobody needs."""


@dataclass(frozen=True, slots=True)
class FrozenState:
    """Makes the bytes of a snapshot or delta later. ``make`` is called once, perhaps by another thread while the
    operator takes rows.

    ``rows``: about how many rows the state has. ``write``: a function that appends the same bytes to a content; if it
    is given, it is called in place of ``make``. ``drop``: called in place of both if nobody needs the bytes.
    """

    make: Callable[[], bytes]
    rows: int
    write: Callable[[StateContent], None] | None = None
    drop: Callable[[], None] = _nothing

    @classmethod
    def of(cls, content: bytes) -> FrozenState:
        """Return a state whose bytes exist already."""
        return cls(lambda: content, len(content) // 32)

    @classmethod
    def written(
        cls, write: Callable[[StateContent], None], rows: int, drop: Callable[[], None] = _nothing
    ) -> FrozenState:
        """Return a state whose bytes ``write`` appends to a content. ``drop`` is called in its place if nobody needs them."""

        def make() -> bytes:
            content = StateContent(large=rows >= LARGE_ROWS_MIN)
            write(content)
            return content.end()

        return cls(make, rows, write, drop)

    def put(self, content: StateContent) -> None:
        """Append the bytes to a content. Called at most once, and not after ``make``."""
        if self.write is None:
            content.write(self.make())
        else:
            self.write(content)
