"""Memory in files: long-lived state of operators lies in mapped files on the local disk, and only resident pages count
as memory.

The files have no name and disappear with the process, also if it is killed. The state store has the durable copy.
"""

from __future__ import annotations

import io
import mmap
import os
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

T = TypeVar("T")
_PAGE_BYTES = mmap.PAGESIZE
#: The size of a file. The file needs no disk space before it is used. Large files keep the number of open files small.
_FILE_BYTES = 1 << 30
#: Arrays smaller than this stay in normal memory: only whole pages can leave memory.
_LEAST_BYTES = 1 << 16
#: How much is released at a time; and the smallest part of the limit that stays resident then.
_STEP_BYTES, _LEFT = 1 << 24, 0.75


class MappedMemory:
    """Gives out arrays and frames in mapped files, and releases their resident pages if these are too many.

    A backend makes it; one thread uses it, except for ``trim``. ``bytes_max``: about how many bytes of the files may be resident after
    ``trim``. ``stored`` repeats an action until the disk accepts it, or raises an error that ends the job.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        bytes_max: int,
        *,
        stored: Callable[[Callable[[], T]], T] | None = None,
        file_bytes: int = _FILE_BYTES,
    ) -> None:
        self._directory = Path(directory)
        self._bytes_max = bytes_max
        self._stored: Callable[[Callable[[], Any]], Any] = stored or _once
        self._file_bytes = file_bytes
        self._least_bytes = min(_LEAST_BYTES, max(1, bytes_max // 64))
        self._files: list[_File] = []
        #: Ranges that were given back, by whichever thread dropped the last reference. The next allocation takes them
        #: into account.
        self._dropped: deque[tuple[_File, int, int]] = deque()
        #: Resident memory of other files, mostly those of libraries; measured again when all arrays were released.
        self._others = _resident_of_files()
        self._at = (0, 0)
        self._trimming = threading.Lock()
        #: Bytes in use, resident or not.
        self.size_bytes = 0

    def array(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return an array with the same values in a file. A small array is returned itself."""
        if values.nbytes < self._least_bytes:
            return values
        made = self._room(values.nbytes).view(values.dtype)
        made[:] = values
        return made

    def grown(self, values: NDArray[Any], count: int, fill: Any = 0) -> NDArray[Any]:
        """Return a larger array that begins with these values; the others are ``fill``."""
        import numpy as np

        size = count * values.dtype.itemsize
        if size < self._least_bytes:
            made: NDArray[Any] = np.empty(count, dtype=values.dtype)
        else:
            made = self._room(size).view(values.dtype)
        made[: len(values)] = values
        made[len(values) :] = fill
        return made

    def frame(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a frame with the same rows in a file. A small frame, or one with a type that Arrow files do not have,
        is returned itself.
        """
        import polars as pl
        import pyarrow as pa

        if frame.estimated_size() < self._least_bytes:
            return frame
        buffer = io.BytesIO()
        try:
            frame.write_ipc(buffer, compression="uncompressed", compat_level=pl.CompatLevel.newest())
            room = self._room(buffer.tell())
            room[:] = memoryview(buffer.getbuffer())
            made = pl.from_arrow(pa.ipc.open_file(pa.py_buffer(room)).read_all(), rechunk=False)
        except (pa.ArrowException, pl.exceptions.PolarsError):
            return frame
        assert isinstance(made, pl.DataFrame)
        return made if made.schema == frame.schema else frame

    def trim(self) -> None:
        """Release resident pages if they are too many. Pages that are used again come from the system's cache, or from
        the disk.

        May be called by any thread.
        """
        if self._files and self._trimming.acquire(blocking=False):
            try:
                self._trim()
            finally:
                self._trimming.release()

    def _trim(self) -> None:
        resident = _resident_of_files() - self._others
        if resident <= self._bytes_max:
            return
        wanted, let_go = int(self._bytes_max * _LEFT), 0
        while resident > wanted and let_go < sum(file.end for file in self._files):
            let_go += self._let_go()
            resident = _resident_of_files() - self._others
        if resident > wanted:
            self._others = _resident_of_files()

    def _let_go(self) -> int:
        number, begin = self._at
        file = self._files[number % len(self._files)]
        size = max(0, min(_STEP_BYTES, file.end - begin))
        if size:
            file.memory.madvise(mmap.MADV_DONTNEED, begin, size)
        begin += size
        self._at = ((number + 1) % len(self._files), 0) if begin >= file.end else (number, begin)
        return max(size, 1)

    def _room(self, size: int) -> NDArray[np.uint8]:
        """Return this number of bytes, with any content. They are given back when the last array or frame in them is
        dropped.
        """
        import numpy as np

        while self._dropped:
            file, begin, count = self._dropped.popleft()
            self._stored(lambda file=file, begin=begin, count=count: file.give_back(begin, count))  # type: ignore[misc]
            self.size_bytes -= count
        pages = -(-size // _PAGE_BYTES) * _PAGE_BYTES
        file, begin = self._stored(lambda: self._taken(pages))
        self.size_bytes += pages
        made = np.frombuffer(file.memory, dtype=np.uint8, count=size, offset=begin)
        # Views, Arrow buffers and frames that are made from it keep this array alive.
        weakref.finalize(made, self._dropped.append, (file, begin, pages)).atexit = False
        return made

    def _taken(self, size: int) -> tuple[_File, int]:
        for file in self._files:
            begin = file.take(size)
            if begin is not None:
                return file, begin
        file = _File(self._directory, max(self._file_bytes, size))
        begin = file.take(size)
        assert begin is not None, "the file is as large"
        self._files.append(file)
        return file, begin

    def close(self) -> None:
        """Release the files. Each is deleted when no array or frame uses it any more. May be called twice."""
        self._files.clear()
        self._dropped.clear()
        self._at = (0, 0)


class _File:
    """A file without a name that is mapped as a whole, and its free ranges."""

    def __init__(self, directory: Path, size: int) -> None:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.ftruncate(file.fileno(), size)
            self.memory = mmap.mmap(file.fileno(), size)
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        #: Ordered by their beginnings; two ranges never touch.
        self._free: dict[int, int] = {0: size}
        #: No range after this place was ever used.
        self.end = 0

    def take(self, size: int) -> int | None:
        """Return the place of this number of bytes, for which disk space is reserved; None: the file has no room.
        Raises OSError.
        """
        found = next((begin for begin, count in sorted(self._free.items()) if count >= size), None)
        if found is None:
            return None
        # Without this a full disk would end the process when the memory is written.
        os.posix_fallocate(self._descriptor, found, size)
        count = self._free.pop(found)
        if count > size:
            self._free[found + size] = count - size
        self.end = max(self.end, found + size)
        return found

    def give_back(self, begin: int, size: int) -> None:
        """Mark a range as free, and release its disk space if the file system can do that."""
        try:
            self.memory.madvise(getattr(mmap, "MADV_REMOVE", mmap.MADV_DONTNEED), begin, size)
        except OSError:
            self.memory.madvise(mmap.MADV_DONTNEED, begin, size)
        if (behind := self._free.pop(begin + size, None)) is not None:
            size += behind
        before = next((at for at, count in self._free.items() if at + count == begin), None)
        if before is not None:
            size += self._free.pop(before)
            begin = before
        self._free[begin] = size


def _resident_of_files() -> int:
    """Return how much of mapped files is resident in this process; 0 where the system does not tell it (other than
    Linux).
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[2]) * _PAGE_BYTES
    except OSError:
        return 0


def _once(action: Callable[[], T]) -> T:
    return action()
