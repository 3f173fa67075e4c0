"""The directory that holds a job's checkpoint on a local disk: one small file, replaced atomically."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.checksums import checksum_of
from headrace.foundation.directories import make_directories
from headrace.foundation.durable_files import replace_durably
from headrace.foundation.errors import CheckpointError
from headrace.foundation.private_files import FILE_MODE, make_private_directory
from headrace.foundation.storage_faults import storage_error
from headrace.interfaces.state_definition import DefinedState, definitions_from_json, definitions_to_json

#: Format 2 has a checksum; files of format 1 are read without a check.
FORMAT_VERSION = 2
_KEYS_OF_FORMAT_1 = frozenset(
    {"format", "job", "id", "queues", "sequence", "shards", "definitions", "outputs", "savepoint"}
)
_FILE = "checkpoint.json"


@dataclass(frozen=True)
class StoredCheckpoint:
    """The content of a checkpoint: the next position of each queue."""

    id: int = 0
    positions: Mapping[Queue, ReadPosition] = field(default_factory=dict)
    #: Number of the last entry of the keyed stages, and of their shards; None: the job has none.
    sequence: int | None = None
    shards: Mapping[str, int] = field(default_factory=dict)
    #: The definitions of the keyed stages' state, by operator; None: an older version of headrace has not stored them.
    definitions: Mapping[str, DefinedState] | None = None
    #: Digests of the definition of each output; None: an older version of headrace has not stored them.
    outputs: Mapping[str, str] | None = None
    #: Id of the savepoint at which the job began, if it did.
    savepoint: str | None = None
    #: Per shard the versions of its state that the checkpoint needs, each with its checksum; None: not known.
    states: Mapping[str, Sequence[tuple[int, str]]] | None = None
    #: In which start of the machine it was stored (``foundation.machine.boot_id``); None: not known.
    boot: str | None = None


def job_of(path: str | os.PathLike[str]) -> str | None:
    """Return the job to which a checkpoint belongs; None if there is no checkpoint. Raises CheckpointError if it is damaged."""
    file = Path(path) / "light" / _FILE
    try:
        return str(json.loads(file.read_bytes())["job"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}", hint="restore it from a backup") from error


def _check(stored: dict[str, Any]) -> None:
    """Raise ValueError when the content is not the one that was written."""
    if stored["format"] == 1:
        if not set(stored) <= _KEYS_OF_FORMAT_1:
            raise ValueError(f"unknown parts {sorted(set(stored) - _KEYS_OF_FORMAT_1)}")
    elif stored["format"] != FORMAT_VERSION or stored["checksum"] != checksum_of(stored):
        raise ValueError("its checksum does not match")


def _order(item: tuple[Queue, ReadPosition]) -> tuple[str, str]:
    return item[0].name, item[0].source


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
        """Lock the directory for this process and return its content. Raises CheckpointError when that is not possible."""
        if self._path is None:
            return StoredCheckpoint()
        try:
            if self._path.parent.exists():
                make_directories(self._path.parent)  # the name of the directory must be durable, too
            else:
                make_private_directory(self._path.parent)  # dead letters are kept there too
            make_private_directory(self._path)
            self._lock_file = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
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
                hint=storage_error(error, self._path).hint,
            ) from error
        try:
            return self._read(self._path / _FILE)
        except BaseException:
            self.close()  # the file may be restored and the job started again in the same process
            raise

    def look(self) -> StoredCheckpoint:
        """Return the content without a lock, for a process beside the one that has it. Raises CheckpointError when it cannot be used."""
        return StoredCheckpoint() if self._path is None else self._read(self._path / _FILE)

    @property
    def path(self) -> Path | None:
        """The path of the directory; None if nothing is stored."""
        return self._path

    @property
    def has_begun(self) -> bool:
        """Whether input was read before the first checkpoint. It is processed again from the order log."""
        return self._path is not None and any(log.stat().st_size for log in self._path.glob("order-*.log"))

    def save(self, checkpoint: StoredCheckpoint) -> None:
        """Replace the stored checkpoint. On return it survives a crash of the machine."""
        if self._path is None:
            return
        queues = [
            {"source": queue.source, "queue": queue.name, **position.to_json()}
            for queue, position in sorted(checkpoint.positions.items(), key=_order)
        ]
        value: dict[str, Any] = {"format": FORMAT_VERSION, "job": self._job, "id": checkpoint.id, "queues": queues}
        if checkpoint.sequence is not None:
            value |= {"sequence": checkpoint.sequence, "shards": dict(checkpoint.shards)}
        if checkpoint.outputs is not None:
            value["outputs"] = dict(checkpoint.outputs)
        if checkpoint.definitions:
            value["definitions"] = definitions_to_json(checkpoint.definitions)
        if checkpoint.savepoint is not None:
            value["savepoint"] = checkpoint.savepoint
        if checkpoint.states is not None:
            value["states"] = {name: [list(each) for each in chain] for name, chain in checkpoint.states.items()}
        if checkpoint.boot:
            value["boot"] = checkpoint.boot
        value["checksum"] = checksum_of(value)
        # Not indented: only then the fast encoder of json is used, and there may be very many queues.
        text = json.dumps(value)
        replace_durably(self._path / _FILE, text.encode())

    def close(self) -> None:
        """Unlock the directory, so that other processes can use it. May be called twice."""
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
            _check(stored)
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
            definitions = definitions_from_json(stored["definitions"]) if "definitions" in stored else None
            outputs = {str(name): str(digest) for name, digest in stored.get("outputs", {}).items()}
            savepoint = stored.get("savepoint")
            states = None
            if "states" in stored:
                states = {name: [(int(v), str(c)) for v, c in chain] for name, chain in stored["states"].items()}
            return StoredCheckpoint(
                int(stored["id"]), positions, stored.get("sequence"), shards, definitions, outputs, savepoint, states,
                stored.get("boot"),
            )  # fmt: skip
        except FileNotFoundError:
            # The order log of a checkpoint is created with the checkpoint: only the first log has no checkpoint before it.
            logs = [path.name for path in file.parent.glob("order-*.log") if path.name != "order-0.log"]
            if logs:
                raise CheckpointError(
                    f"{file} is missing, but there is {logs[0]}, which belongs to it",
                    job=self._job,
                    hint="restore it from a backup, or start from the beginning with another checkpoint directory",
                ) from None
            return StoredCheckpoint()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(
                f"{file} is damaged: {error}",
                job=self._job,
                hint="restore it from a backup, or start from the beginning with another checkpoint directory",
            ) from error
