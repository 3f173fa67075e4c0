"""The state of one queue that the sink stores beside the parts, and how a part and the queue's position change together.

A small state file per queue holds the position, and which part that position belongs to. Committing a part:

1. the rows are written to a hidden temporary file and synced;
2. under a lock on the state file the stored position is compared with the position that the writer expects;
3. the new position, the temporary file and the part's name are written to the state file: this is the commit;
4. the temporary file is renamed to the part's name.

Of rows of several partitions the temporary file is a list of the parts, which lie in a folder beside it, and step 4 renames each of them.

After a crash between 3 and 4, the next writer finds the temporary file and renames it. So finished parts may be moved away. The
state file has two slots with checksums, which are written in turn, so that a torn write leaves the other one. A slot names its
queue and its writer, and has a counter: a file that was exchanged with another one, or that has lost a slot, is refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

import msgspec
from headrace.flow.messages import Position
from headrace.foundation.clock import Clock
from headrace.foundation.durable_files import sync_directory, write_whole
from headrace.foundation.errors import JobError, RetriableError
from headrace.foundation.machine import boot_id

#: Stands for the part's name in the slot of a commit of several parts. What ends the name of the folder that holds them before.
SEVERAL = "/several"
FOLDER = ".parts"
_SLOT_BYTES = 2048
_FORMAT = 2
#: Slots of this format do not say whose they are.
_FORMAT_WITHOUT_KEY = 1
#: Slots of commits of several parts, which older versions must not finish.
_FORMAT_OF_SEVERAL = 3
_PROBE = "probe-"
_TEMPORARY = re.compile(r"([0-9a-f]{16})-\d+-[0-9a-f]+\.tmp$")
_LOCK_RETRY_SECONDS = 0.005
_MEND = frozenset(
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL)
)
_HINTS = {
    errno.EFBIG: "the process may not write files that large: lower batch_size, or raise the limit (ulimit -f)",
    errno.EROFS: "the file system is mounted read-only",
    errno.EACCES: "let the job's user write there",
    errno.EPERM: "let the job's user write there",
    errno.ENOSPC: "make room on the device",
    errno.EDQUOT: "raise the quota or make room",
    errno.ENOENT: "the directory is missing: is it mounted?",
}


def write_error(path: str, error: OSError) -> JobError | RetriableError:
    """Return the job's error for a failed system call on ``path``: a full device is retried, a missing permission is not."""
    kind = JobError if error.errno in _MEND else RetriableError
    hint = _HINTS.get(error.errno or 0)
    return kind(f"cannot write {path}: {error.strerror or error}", plugin="file", hint=hint)


class _Slot(msgspec.Struct, frozen=True):
    """One slot of a state file."""

    format: int
    sequence: int
    offset: int
    index: int
    #: The temporary file that holds the rows up to the position until it is renamed to ``part``.
    temporary: str
    part: str
    boot: str
    #: The queue and the writer whose position this is; empty in the format that did not have it.
    key: str = ""


class QueueState:
    """The state of one queue. Not thread-safe; other processes may use the same queue at the same time."""

    def __init__(
        self, directory: str, hidden: str, key: str, *, clock: Clock, lock_timeout: timedelta, fsync: bool
    ) -> None:
        self.key = key
        self._directory = directory
        self._temporary = os.path.join(hidden, "tmp")
        self._path = os.path.join(hidden, "state", key)
        self._clock = clock
        self._lock_seconds = lock_timeout.total_seconds()
        self._fsync = fsync

    # ------------------------------------------------------------------------------------------------ position

    def position(self, listed: Position | None) -> Position | None:
        """Return the stored position; ``listed`` is the position of the parts that exist, which is used after a crash of the machine.

        Finishes the commit of a killed writer, and removes its temporary files. Raises RetriableError or JobError.
        """
        with self._locked() as descriptor:
            slot = self._recover(descriptor)
            if self._fsync:  # a writer may have been killed between a commit and this
                sync_directory(self._directory)
            self._clean(slot)
            stored = None if slot is None else Position(slot.offset, slot.index)
            if listed is not None and (stored is None or listed > stored):
                self._store(descriptor, slot, listed, "", "")
                return listed
            return stored

    @property
    def is_known(self) -> bool:
        """Whether the state file alone tells the position: it is whole and was written since the machine started."""
        try:
            with open(self._path, "rb") as file:
                slots = _slots(file.read())
        except FileNotFoundError:
            return False
        except OSError as error:
            raise write_error(self._path, error) from error
        if not slots or None in slots:
            return False
        newest = max((slot for slot in slots if slot is not None), key=lambda slot: slot.sequence)
        return bool(newest.boot) and newest.boot == boot_id()

    # ------------------------------------------------------------------------------------------------ committing

    def commit(self, data: bytes, after: Position | None, last: Position, part: str) -> bool:
        """Store ``data`` as ``part`` together with the position ``last``, if the stored position is ``after``.

        Returns False, with nothing stored, when the stored position is another one. Raises RetriableError or JobError; then
        nothing is stored either, except when the error came after the commit; the next read of the position shows that.
        """
        temporary = os.path.join(self._temporary, f"{self.key}-{os.getpid()}-{os.urandom(6).hex()}.tmp")
        descriptor = -1
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            # The lock tells others that the writer is alive: they do not remove the file.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_whole(descriptor, data)
            if self._fsync:
                os.fsync(descriptor)
            return self._commit_file(descriptor, temporary, after, last, part)
        except OSError as error:
            raise write_error(temporary, error) from error
        finally:
            if descriptor >= 0:
                self._drop(temporary, descriptor)

    def commit_several(self, parts: Mapping[str, bytes], after: Position | None, last: Position) -> bool:
        """Store several parts, by their names below the directory, as ``commit`` stores one: all of them, or none.

        Their rows are in a folder beside the temporary file, which lists the parts. The commit renames that file.
        """
        temporary = os.path.join(self._temporary, f"{self.key}-{os.getpid()}-{os.urandom(6).hex()}.tmp")
        folder = temporary.removesuffix(".tmp") + FOLDER
        descriptor = -1
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.mkdir(folder)
            for place, (name, data) in enumerate(parts.items()):
                os.makedirs(os.path.dirname(os.path.join(self._directory, name)), exist_ok=True)
                self._write_file(os.path.join(folder, str(place)), data)
            if self._fsync:
                sync_directory(folder)
            write_whole(descriptor, msgspec.json.encode(list(parts)))
            if self._fsync:
                os.fsync(descriptor)
                sync_directory(self._temporary)
            return self._commit_file(descriptor, temporary, after, last, SEVERAL)
        except OSError as error:
            raise write_error(error.filename or temporary, error) from error
        finally:
            if descriptor >= 0:
                self._drop(temporary, descriptor)

    def _write_file(self, path: str, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            write_whole(descriptor, data)
            if self._fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _commit_file(self, descriptor: int, temporary: str, after: Position | None, last: Position, part: str) -> bool:
        with self._locked() as state:
            slot = self._recover(state)
            if (None if slot is None else Position(slot.offset, slot.index)) != after:
                return False
            written = os.fstat(descriptor)
            there = os.stat(temporary)
            if (there.st_dev, there.st_ino) != (written.st_dev, written.st_ino):
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            made = self._store(state, slot, last, os.path.basename(temporary), part)
            if part == SEVERAL:
                # Before a part has its name: after a crash of the machine that name must not be all that is known of the others.
                if self._fsync:
                    os.fsync(state)
                self._rename(made)  # if it fails, the next writer continues from it
                return True
            try:
                self._rename(made)
            except OSError:
                self._undo(state, made, slot)
                raise
        return True

    def _undo(self, state: int, made: _Slot, before: _Slot | None) -> None:
        """The part could not be put in its place: the commit has not happened."""
        if before is None:
            os.ftruncate(state, 0)
        else:
            self._store(state, made, Position(before.offset, before.index), "", "")

    def _drop(self, temporary: str, descriptor: int) -> None:
        """Remove the temporary file unless it was renamed or waits to be."""
        try:
            with open(self._path, "rb") as file:
                slot = _newest(file.read())
            if slot is None or slot.temporary != os.path.basename(temporary):
                shutil.rmtree(temporary.removesuffix(".tmp") + FOLDER, ignore_errors=True)
                os.unlink(temporary)
        except FileNotFoundError:
            pass  # renamed, or the folder was removed: in both cases nothing is left
        finally:
            os.close(descriptor)

    def _rename(self, slot: _Slot) -> None:
        if slot.part == SEVERAL:
            self._rename_several(os.path.join(self._temporary, slot.temporary))
            return
        os.rename(os.path.join(self._temporary, slot.temporary), os.path.join(self._directory, slot.part))
        if self._fsync:
            sync_directory(self._directory)

    def _rename_several(self, temporary: str) -> None:
        """Give parts their names: those that do not have it yet. The file that lists them goes last."""
        folder = temporary.removesuffix(".tmp") + FOLDER
        with open(temporary, "rb") as file:
            names = msgspec.json.decode(file.read(), type=list[str])
        targets = [os.path.join(self._directory, name) for name in names]
        for place, target in enumerate(targets):
            source = os.path.join(folder, str(place))
            if os.path.exists(source):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.rename(source, target)
        if self._fsync:
            for each in _folders_above(names):
                with contextlib.suppress(FileNotFoundError):  # whoever took the parts took the directory, too
                    sync_directory(os.path.join(self._directory, each))
        shutil.rmtree(folder, ignore_errors=True)
        os.unlink(temporary)

    # ------------------------------------------------------------------------------------------------ the state file

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the queue's lock; give the descriptor of its state file."""
        try:
            descriptor = self._open_locked()
        except OSError as error:
            raise write_error(self._path, error) from error
        try:
            yield descriptor
        except OSError as error:
            raise write_error(error.filename or self._path, error) from error
        finally:
            os.close(descriptor)

    def _open_locked(self) -> int:
        deadline = self._clock.monotonic() + self._lock_seconds
        never = threading.Event()
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held, there = os.fstat(descriptor), os.stat(self._path)
                if (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino):
                    return descriptor
            except (BlockingIOError, FileNotFoundError):
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            if self._clock.monotonic() >= deadline:
                raise RetriableError(f"another writer holds {self._path}", plugin="file")
            self._clock.wait(never, _LOCK_RETRY_SECONDS)

    def _recover(self, descriptor: int) -> _Slot | None:
        """Return the newest slot; finish its rename first if that is still open. Called under the lock."""
        content = os.pread(descriptor, 2 * _SLOT_BYTES, 0)
        slot = _newest(content)
        if slot is None:
            if content.strip(b"\0"):
                raise self._refused("is damaged")
            return None
        self._check(slot, content)
        if slot.temporary and os.path.exists(os.path.join(self._temporary, slot.temporary)):
            self._rename(slot)
        elif self._is_lost(slot):
            before = next(
                (each for each in _slots(content) if each is not None and each is not slot and each != slot), None
            )
            self._undo(descriptor, slot, before)
            return _newest(os.pread(descriptor, 2 * _SLOT_BYTES, 0))
        return slot

    def _is_lost(self, slot: _Slot) -> bool:
        """Whether a crash of the machine has kept the note of a commit and not its part: then the commit has not happened.

        A part that somebody has moved away looks the same, if it was the last one before the crash; its rows come again.
        """
        if not slot.temporary or slot.part == SEVERAL or slot.boot in ("", boot_id()):
            return False
        return not os.path.exists(os.path.join(self._directory, slot.part))

    def _check(self, slot: _Slot, content: bytes) -> None:
        """Raise JobError when the newest slot is not known to be this queue's newest position."""
        if slot.format not in (_FORMAT, _FORMAT_WITHOUT_KEY, _FORMAT_OF_SEVERAL):
            raise JobError(
                f"the state file {self._path} was written by another version of headrace-file (format {slot.format})",
                plugin="file",
                hint="use that version, or write to another directory",
            )
        if slot.format != _FORMAT_WITHOUT_KEY and slot.key != self.key:
            raise self._refused(f"contains the position of another queue or writer ({slot.key}): it was replaced")
        # The first commit writes one slot, each later one the other of both. A torn write leaves something of its slot.
        # One that is missing after a crash of the machine was not on the disk yet; then the names of the parts count too.
        if slot.sequence > 1 and len(_slots(content)) < 2 and slot.boot in ("", boot_id()):
            raise self._refused("is damaged: one of its two slots is missing")

    def _refused(self, what: str) -> JobError:
        return JobError(
            f"the state file {self._path} {what}",
            plugin="file",
            hint="restore the right file, or remove it: the position is then taken from the names of the queue's part files; if the last "
            "part files were moved away, their rows are written again",
        )

    def _store(self, descriptor: int, before: _Slot | None, last: Position, temporary: str, part: str) -> _Slot:
        sequence = 1 if before is None else before.sequence + 1
        slot = _Slot(
            _FORMAT_OF_SEVERAL if part == SEVERAL else _FORMAT,
            sequence,
            last.offset,
            last.index,
            temporary,
            part,
            boot_id(),
            self.key,
        )
        text = msgspec.json.encode(slot)
        record = b"%08x %s\n" % (zlib.crc32(text), text)
        if len(record) > _SLOT_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        data = record.ljust(_SLOT_BYTES, b"\0")
        written = os.pwrite(descriptor, data, _SLOT_BYTES * (sequence % 2))
        if written != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return slot

    def _clean(self, slot: _Slot | None) -> None:
        """Remove temporary files of this queue whose writers are dead. Called under the lock."""
        names = os.listdir(self._temporary)
        for name in names:
            if name.startswith(f"{self.key}-") and name.endswith(FOLDER):
                # The file beside it is made before it and goes after it: without one nobody needs it.
                if not os.path.exists(os.path.join(self._temporary, name.removesuffix(FOLDER) + ".tmp")):
                    shutil.rmtree(os.path.join(self._temporary, name), ignore_errors=True)
            elif name.startswith(f"{self.key}-") and (slot is None or name != slot.temporary):
                path = os.path.join(self._temporary, name)
                with contextlib.suppress(FileNotFoundError, BlockingIOError):
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(path.removesuffix(".tmp") + FOLDER, ignore_errors=True)
                        os.unlink(path)
                    finally:
                        os.close(descriptor)


def keys_of_temporaries(folder: str) -> set[str]:
    """Return the keys of the queues that have temporary files. Raises OSError."""
    return {found[1] for name in os.listdir(folder) if (found := _TEMPORARY.match(name))}


def _folders_above(names: Iterable[str]) -> list[str]:
    """Return the folders in which files, or the folders of files, may be new: the innermost first, "" last."""
    found = {""}
    for name in names:
        folder = os.path.dirname(name)
        while folder and folder not in found:
            found.add(folder)
            folder = os.path.dirname(folder)
    return sorted(found, key=len, reverse=True)


def check_writable(folder: str) -> None:
    """Make a file in ``folder`` and remove it, and those that killed processes have left. Raises OSError."""
    own = f"{_PROBE}{os.getpid()}-{os.urandom(4).hex()}"
    os.close(os.open(os.path.join(folder, own), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    for name in os.listdir(folder):
        if name.startswith(_PROBE):
            with contextlib.suppress(FileNotFoundError):  # another process checks at the same time
                os.unlink(os.path.join(folder, name))


def _slots(content: bytes) -> list[_Slot | None]:
    """Return the slots of a state file that were ever written; None for one that is torn."""
    slots: list[_Slot | None] = []
    for at in (0, _SLOT_BYTES):
        data = content[at : at + _SLOT_BYTES]
        if not data.strip(b"\0"):
            continue
        checksum, _, text = data.partition(b"\n")[0].partition(b" ")
        try:
            whole = int(checksum, 16) == zlib.crc32(text)
            slots.append(msgspec.json.decode(text, type=_Slot) if whole else None)
        except (ValueError, msgspec.DecodeError):
            slots.append(None)
    return slots


def _newest(content: bytes) -> _Slot | None:
    """Return the newest slot that is whole."""
    whole = [slot for slot in _slots(content) if slot is not None]
    return max(whole, key=lambda slot: slot.sequence, default=None)
