"""Where a job's progress is kept on a local disk: one small file, replaced atomically."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError
from headrace.messages import Queue, ReadPosition

FORMAT_VERSION = 1
_FILE = "checkpoint.json"


@dataclass(frozen=True)
class StoredCheckpoint:
    """What a checkpoint says: where each queue is to be read next."""

    id: int = 0
    positions: Mapping[Queue, ReadPosition] = field(default_factory=dict)
    #: Number of the last entry of the keyed stages, and of their shards; None: the job has none.
    sequence: int | None = None
    shards: Mapping[str, int] = field(default_factory=dict)


class CheckpointDirectory:
    """A directory that belongs to one job and, at a time, to one process. ``None`` as path keeps nothing.

    The file is written beside the old one, flushed to disk and renamed over it: a crash leaves the old or the new
    checkpoint, never half of one.
    """

    def __init__(self, path: str | os.PathLike[str] | None, job: str) -> None:
        self._path = None if path is None else Path(path) / "light"
        self._job = job
        self._lock_file: int | None = None

    def open(self) -> StoredCheckpoint:
        """Take the directory for this process and return what it holds. Raises CheckpointError when that is not possible."""
        if self._path is None:
            return StoredCheckpoint()
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock_file = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise CheckpointError(
                f"checkpoint directory {str(self._path)!r} is in use by another running job",
                job=self._job,
                option="checkpoint",
                hint="stop the other process, or give this job a directory of its own",
            ) from error
        except OSError as error:
            self.close()
            raise CheckpointError(
                f"checkpoint directory {str(self._path)!r} cannot be used: {error.strerror}",
                job=self._job,
                option="checkpoint",
            ) from error
        return self._read(self._path / _FILE)

    @property
    def path(self) -> Path | None:
        """Where the files are; None: nothing is kept."""
        return self._path

    def save(self, checkpoint: StoredCheckpoint) -> None:
        """Replace the stored checkpoint. On return it survives a crash of the machine."""
        if self._path is None:
            return
        queues = [
            {"source": queue.source, "queue": queue.name, **position.to_json()}
            for queue, position in sorted(checkpoint.positions.items())
        ]
        value: dict[str, Any] = {"format": FORMAT_VERSION, "job": self._job, "id": checkpoint.id, "queues": queues}
        if checkpoint.sequence is not None:
            value |= {"sequence": checkpoint.sequence, "shards": dict(checkpoint.shards)}
        text = json.dumps(value, indent=1)
        temporary = self._path / (_FILE + ".new")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path / _FILE)
        directory = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        """Let others take the directory. May be called twice."""
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _read(self, file: Path) -> StoredCheckpoint:
        try:
            stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            if stored["format"] > FORMAT_VERSION:
                raise CheckpointError(
                    f"{file} was written by a newer version of headrace (format {stored['format']})",
                    job=self._job,
                    hint="run the job with that version, or with another checkpoint directory",
                )
            if stored["job"] != self._job:
                raise CheckpointError(
                    f"{file} belongs to the job {stored['job']!r}",
                    job=self._job,
                    option="checkpoint",
                    hint="give each job a checkpoint directory of its own",
                )
            positions = {
                Queue(entry["queue"], entry["source"]): ReadPosition.from_json(entry) for entry in stored["queues"]
            }
            shards = {name: int(count) for name, count in stored.get("shards", {}).items()}
            return StoredCheckpoint(int(stored["id"]), positions, stored.get("sequence"), shards)
        except FileNotFoundError:
            return StoredCheckpoint()
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{file} is damaged: {error}",
                job=self._job,
                hint="restore it from a backup, or remove it to begin anew (sinks drop what they stored before)",
            ) from error
