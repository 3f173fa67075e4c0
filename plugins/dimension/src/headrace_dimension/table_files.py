"""The directory in which the processes of a machine share a table. It has one file per version of the table; all processes
map the newest one.

A file is a sequence of Arrow IPC streams, one per array. They are not compressed, so mapping the file copies nothing: its
pages are in memory once for all processes. A version is written to a temporary file, which is renamed when it is complete.
Then older files are removed; a process that has mapped one can still read it. Each process that uses the directory holds a
shared lock on a file in it. The system releases the lock when the process ends, also after a crash. The next process that
loads a table removes directories without such a lock. Nothing here is pickled, and only directories of this user that
nobody else can write to are used.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from weakref import finalize

import pyarrow as pa
from headrace.foundation.errors import JobError

from headrace_dimension.columns import Parts

try:
    import fcntl
except ImportError:  # not a POSIX system: each process loads its own copy
    fcntl = None  # type: ignore[assignment]

_FACTS = b"headrace.table"
_USERS = "users.lock"
_LOADING = "loading.lock"
#: A directory that was just made may not have its lock yet.
_SWEPT_AFTER_SECONDS = 60.0


def can_share() -> bool:
    """Return whether this system has the locks that sharing needs."""
    return fcntl is not None


def base_directory() -> Path:
    """Return the directory of this user's tables, below the system's directory for temporary files."""
    return Path(tempfile.gettempdir()) / f"headrace-tables-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class TableFile:
    """One version of a table on disk, mapped into memory. ``made_at``: when it was written, in seconds since the epoch."""

    number: int
    made_at: float
    parts: Parts
    facts: Mapping[str, Any]


class TableFiles:
    """The directory of one table. ``token`` is its name, the same in all processes that use it."""

    def __init__(self, token: str, base: Path | None = None) -> None:
        self._base = base or base_directory()
        self.directory = self._base / token
        self._users: IO[bytes] | None = None
        #: Closes the file of the lock: when ``close`` is called, or with this object. Copies in other processes are just dropped.
        self._release: finalize[..., TableFiles] | None = None

    def newest(self) -> int:
        """Return the number of the newest version; 0 when there is none."""
        return max((number for number, _ in self._states()), default=0)

    def map(self, number: int) -> TableFile:
        """Map a version. Raises FileNotFoundError when it has been removed."""
        parts, facts = _mapped(self.directory / _file_name(number))
        return TableFile(number, float(facts["made_at"]), parts, facts)

    def publish(self, parts: Parts, facts: Mapping[str, Any], made_at: float) -> TableFile:
        """Write a version, map it and remove the older ones. Called inside ``loading``. Raises OSError if it cannot be written."""
        number = self.newest() + 1
        new = self.directory / f"{_file_name(number)}.new"
        try:
            with new.open("wb") as file:
                _write(file, parts, {**facts, "made_at": made_at})
            new.replace(self.directory / _file_name(number))
        finally:
            new.unlink(missing_ok=True)
        found = self.map(number)
        for older, path in self._states():
            if older < number:
                path.unlink(missing_ok=True)
        return found

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Hold the lock for loading the table. Waits while another process or thread holds it.

        Raises JobError when others can write to the base directory, OSError when the files of the locks cannot be opened.
        """
        self._join()
        with (self.directory / _LOADING).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def close(self) -> None:
        """Release this process's lock on the directory, which may then be removed."""
        if self._release is not None:
            self._release()
        self._users = None

    def _states(self) -> list[tuple[int, Path]]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return [(int(name[6:-6]), self.directory / name) for name in names if name[:6] + name[-6:] == "table-.arrow"]

    def _join(self) -> None:
        """Make the directory if it does not exist, and take the shared lock of its users."""
        if self._users is not None and _is_at(self._users, self.directory / _USERS):
            return
        self.close()
        _make_private(self._base)
        _sweep(self._base, besides=self.directory)
        while True:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            try:
                users = (self.directory / _USERS).open("ab")
            except FileNotFoundError:  # another process has just removed the directory
                continue
            fcntl.flock(users, fcntl.LOCK_SH)
            if _is_at(users, self.directory / _USERS):
                self._users = users
                self._release = finalize(self, users.close)
                return
            users.close()  # another process has just removed the directory


def remove_tables(directory: Path, process_id: int) -> None:
    """Remove a table's directory; does nothing in a fork of the process ``process_id``, which built the job.

    Called when the stream of the table is garbage-collected, or when that process ends.
    """
    if os.getpid() == process_id:
        shutil.rmtree(directory, ignore_errors=True)


def _file_name(number: int) -> str:
    return f"table-{number}.arrow"


def _make_private(base: Path) -> None:
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise JobError(
            f"{base} is accessible to other users: tables cannot be shared there",
            plugin="lookup_join",
            hint="remove it, or set TMPDIR to another directory",
        )


def _sweep(base: Path, besides: Path) -> None:
    """Remove the directories that no process uses any more, for example those of jobs that were killed."""
    for directory in base.iterdir():
        # A directory may vanish at any time, because other processes remove directories, too.
        with suppress(FileNotFoundError, NotADirectoryError):
            if directory == besides or time.time() - directory.stat().st_mtime < _SWEPT_AFTER_SECONDS:
                continue
            with (directory / _USERS).open("ab") as users:
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                shutil.rmtree(directory, ignore_errors=True)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether the path still names this open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _write(file: IO[bytes], parts: Parts, facts: Mapping[str, Any]) -> None:
    metadata: Mapping[bytes, bytes] | None = {_FACTS: json.dumps(facts).encode()}
    for name, array in parts.items():
        batch = pa.record_batch([array], schema=pa.schema([pa.field(name, array.type)], metadata=metadata))
        with pa.ipc.new_stream(file, batch.schema) as stream:
            stream.write_batch(batch)
        metadata = None


def _mapped(path: Path) -> tuple[Parts, Mapping[str, Any]]:
    parts: dict[str, pa.Array] = {}
    facts: Mapping[str, Any] = {}
    with pa.memory_map(str(path)) as source:
        size = source.size()
        while source.tell() < size:
            with pa.ipc.open_stream(source) as stream:
                metadata = stream.schema.metadata or {}
                if _FACTS in metadata:
                    facts = json.loads(metadata[_FACTS])
                parts[stream.schema.names[0]] = stream.read_next_batch().column(0)
                with suppress(StopIteration):  # read past the end mark of the stream
                    stream.read_next_batch()
    return parts, facts
