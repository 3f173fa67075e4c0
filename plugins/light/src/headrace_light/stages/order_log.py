"""The order log: in which order input was taken in since the last checkpoint.

The results of a shard depend on the order in which queues were read. After a crash the same ranges are read in the same order,
so that the same results come with the same offsets, and sinks drop those that they have. An entry is one line of JSON, written
before the entry is processed: a line that was cut off by a crash never had a result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from zlib import crc32

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.durable_files import write_whole
from headrace.foundation.errors import CheckpointError
from headrace.foundation.private_files import FILE_MODE

EntryKind = Literal["read", "added", "removed", "idle", "awake", "tick", "end"]
_KINDS = get_args(EntryKind)
_WITHOUT_QUEUE = ("tick", "end")


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of input. ``start`` and ``end``: the range that was read; ``time_us``: the time of the clock."""

    sequence: int
    time_us: int
    kind: EntryKind
    queue: Queue | None = None
    start: ReadPosition | None = None
    end: ReadPosition | None = None

    @property
    def of_queue(self) -> Queue:
        """The queue of an entry, if it is about a queue."""
        assert self.queue is not None, self.kind
        return self.queue

    @property
    def range(self) -> tuple[ReadPosition, ReadPosition]:
        """Where the range begins and ends that was read."""
        assert self.start is not None, self.kind
        assert self.end is not None, self.kind
        return self.start, self.end

    def to_line(self) -> bytes:
        """Return the entry as a line of JSON."""
        value: dict[str, Any] = {"sequence": self.sequence, "time_us": self.time_us, "kind": self.kind}
        if self.queue is not None:
            value |= {"source": self.queue.source, "queue": self.queue.name}
        if self.start is not None and self.end is not None:
            value |= {"start": self.start.to_json(), "end": self.end.to_json()}
        text = json.dumps(value, separators=(",", ":")).encode()
        return text + f" {crc32(text):08x}\n".encode()

    @classmethod
    def from_line(cls, line: bytes) -> Entry:
        """Read a line. Raises ValueError, KeyError or TypeError when it is none."""
        text, space, checksum = line.rpartition(b" ")
        if not line.endswith(b"}"):  # else an older version wrote it, without a checksum
            if not space or int(checksum, 16) != crc32(text):
                raise ValueError("its checksum does not match")
            line = text
        value = json.loads(line)
        kind = value["kind"]
        if kind not in _KINDS:
            raise ValueError(f"there is no kind {kind!r}")
        queue = None if kind in _WITHOUT_QUEUE else Queue(value["queue"], value["source"])
        start, end = (value["start"], value["end"]) if kind == "read" else (None, None)
        return cls(
            int(value["sequence"]),
            int(value["time_us"]),
            kind,
            queue,
            None if start is None else ReadPosition.from_json(start),
            None if end is None else ReadPosition.from_json(end),
        )


class OrderLog:
    """The entries since one checkpoint, in a file of a directory; without a directory nothing is kept.

    Written without waiting for the disk: it survives the end of the process, not of the machine. ``begin`` with
    ``durable=True`` makes every entry wait for the disk.
    """

    def __init__(self, directory: Path | None, *, durable: bool = False) -> None:
        self._directory = directory
        self._durable = durable
        self._file: int | None = None

    def entries(self, checkpoint_id: int, *, after: int | None = None) -> Iterator[Entry]:
        """Yield the entries since a checkpoint, whose last entry has the number ``after``.

        Raises CheckpointError when a line other than the last is damaged. Files of later checkpoints belong to
        checkpoints that were never completed: each continues where the file before it ends.
        """
        before: int | None = None
        for path in self._files(checkpoint_id):
            lines = path.read_bytes().split(b"\n")
            for number, line in enumerate(lines[:-1], start=1):  # the text after the last newline was cut off
                try:
                    entry = Entry.from_line(line)
                    # After the power failed, entries are numbered anew. Those between are in the checkpoint.
                    anew = after is not None and before is not None and before < after < entry.sequence
                    if before is not None and entry.sequence != before + 1 and not anew:
                        raise ValueError(f"entry {before + 1} is missing before entry {entry.sequence}")
                    before = entry.sequence
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise CheckpointError(
                        f"line {number} of {path} is damaged: {error}",
                        hint="restore the checkpoint directory from a backup, or start with a new one",
                    ) from error
                if after is None or entry.sequence > after:
                    yield entry

    def begin(self, checkpoint_id: int) -> None:
        """A checkpoint counts: log to its file from now on, or to the file of a newer one that is being stored; files
        of earlier ones are removed.
        """
        self.close()
        path = self._path(checkpoint_id)
        if path is None:
            return
        assert self._directory is not None
        kept = self._files(checkpoint_id)
        self._open(kept[-1] if kept else path)
        for other in self._directory.glob("order-*.log"):
            if other not in kept and other != path:
                other.unlink(missing_ok=True)

    def begin_next(self, checkpoint_id: int) -> None:
        """Log to the file of a checkpoint that is on its way; the file of the one before is kept, and is safe on the disk."""
        path = self._path(checkpoint_id)
        if path is None:
            return
        if self._file is not None:
            os.fdatasync(self._file)  # else a machine that fails could lose its end, but not what follows
        self.close()
        self._open(path)

    def _open(self, path: Path) -> None:
        self._drop_torn_line(path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    def _files(self, checkpoint_id: int) -> list[Path]:
        """Return the files of a checkpoint and of later ones, in their order."""
        if self._directory is None:
            return []
        found = {int(path.stem.removeprefix("order-")): path for path in self._directory.glob("order-*.log")}
        return [path for number, path in sorted(found.items()) if number >= checkpoint_id]

    def add(self, entry: Entry) -> None:
        """Write an entry. On return it survives the end of this process. Raises OSError; then nothing of it is written."""
        if self._file is not None:
            end = os.lseek(self._file, 0, os.SEEK_END)
            try:
                write_whole(self._file, entry.to_line())
                if self._durable:
                    os.fdatasync(self._file)
            except OSError:
                os.ftruncate(self._file, end)  # half a line would come before the next one
                raise

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _path(self, checkpoint_id: int) -> Path | None:
        return None if self._directory is None else self._directory / f"order-{checkpoint_id}.log"

    @staticmethod
    def _drop_torn_line(path: Path) -> None:
        if path.exists():
            content = path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(path, whole)
