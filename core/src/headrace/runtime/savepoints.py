"""Savepoints: the positions and the state of a job in a directory, from which any backend can start the job again.

    PATH/manifest.json               its content: positions, numbers, verbs, and the checksum of every other file
    PATH/state/<shuffle>/<n>.state   everything that shard n behind a shuffle remembers

It is written under another name and renamed when all of it is on the disk, so a directory with the final name is
complete. The files are JSON and MessagePack with Arrow inside; nothing in them is code. docs/savepoints.md describes
the format.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import headrace
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.durable_files import sync_directory, write_durably
from headrace.foundation.errors import CheckpointError
from headrace.foundation.faults import fault_point
from headrace.foundation.private_files import make_private_directory
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.state_definition import DefinedState, definitions_from_json, definitions_to_json
from headrace.plan.graph import OperatorNode, Plan

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
_KIND = "headrace savepoint"


@dataclass(frozen=True)
class Place:
    """The positions of a job at the moment of a savepoint."""

    #: Where each queue is to be read next; ``gone``: queues that were read and exist no more.
    positions: Mapping[Queue, ReadPosition]
    #: Number of the last entry of the keyed stages: sinks have all results of the entries up to it. None: there are none.
    sequence: int | None = None
    #: Shards per shuffle.
    shards: Mapping[str, int] = field(default_factory=dict)
    #: Queues that were not waited for.
    idle: Collection[Queue] = ()
    #: What the clock showed, microseconds since the Unix epoch.
    time_us: int = 0
    #: Whether the job has ended with the savepoint. Else it went on, and its sinks may be ahead of it.
    stopped: bool = False


class SavepointWriter:
    """Writes one savepoint. ``finish`` makes it visible. Without it, or if the process dies, there is no savepoint."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Begin. Raises CheckpointError when there is something under that name, or nothing can be written there."""
        self.path = Path(path).absolute()
        self._new = self.path.parent / f".{self.path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.new"
        self._files: dict[str, dict[str, Any]] = {}
        check_free(path)
        try:
            make_private_directory(self._new)
        except OSError as error:
            raise self._error(error) from error

    def add_state(self, shuffle: str, shard: int, state: bytes) -> None:
        """Write the state of a shard: its ``snapshot``. Raises CheckpointError."""
        self.add_file(f"state/{quote(shuffle, safe='')}/{shard}.state", state)
        fault_point("savepoint.after_state")

    def add_file(self, name: str, content: bytes) -> None:
        """Write a file of the backend's own, below a directory that is called like it. Raises CheckpointError."""
        self._write(name, content)
        self._files[name] = {"bytes": len(content), "blake2b": _digest(content)}

    def finish(self, plan: Plan, backend: str, place: Place) -> Path:
        """Write the manifest and give the directory its name. Returns the path. Raises CheckpointError."""
        manifest: dict[str, Any] = {
            "kind": _KIND,
            "format": FORMAT_VERSION,
            "id": uuid.uuid4().hex,
            "headrace": headrace.__version__,
            "job": plan.job_name,
            "backend": backend,
            "stopped": place.stopped,
            "time_us": place.time_us,
            "sequence": place.sequence,
            "sources": {
                source_id: {
                    "kind": type(node.source).__name__,
                    "queues": [
                        {"queue": queue.name, **position.to_json()}
                        for queue, position in sorted(place.positions.items())
                        if queue.source == source_id
                    ],
                }
                for source_id, node in plan.sources.items()
            },
            "idle": [[queue.source, queue.name] for queue in sorted(place.idle)],
            "shuffles": {
                name: {"shards": place.shards[name], "keys": [list(keys) for keys in node.keys]}
                for name, node in plan.shuffles.items()
            },
            "operators": operators_of(plan),
            "definitions": definitions_to_json(plan.state_definitions),
            "outputs": dict(plan.output_digests),
            "files": self._files,
        }
        manifest["checksum"] = _checksum(manifest)
        self._write(MANIFEST, json.dumps(manifest, indent=1).encode())
        fault_point("savepoint.before_end")
        try:
            for directory in (*(each for each in self._new.rglob("*") if each.is_dir()), self._new):
                sync_directory(directory)
            os.rename(self._new, self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise self._error(error) from error
        return self.path

    def abandon(self) -> None:
        """Remove the written files. Called if the savepoint could not be finished."""
        shutil.rmtree(self._new, ignore_errors=True)

    def _write(self, name: str, content: bytes) -> None:
        path = self._new / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, content)
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"the savepoint {str(self.path)!r} cannot be written: {error.strerror}",
            option="savepoint",
            hint="the job itself continues; free space on the disk, or choose another directory",
        )


@dataclass(frozen=True)
class StoredOperator:
    """An operator with state as a savepoint names it."""

    id: str
    shuffle: str
    verb: str
    keys: tuple[str, ...]
    description: str


@dataclass(frozen=True)
class Savepoint:
    """A savepoint that was read: its manifest is whole. Files are checked when they are read."""

    path: Path
    id: str
    job: str
    backend: str
    headrace: str
    place: Place
    #: The class of each source, by id: positions mean nothing to another.
    sources: Mapping[str, str]
    #: Per shuffle and side the key columns.
    keys: Mapping[str, tuple[tuple[str, ...], ...]]
    operators: Mapping[str, StoredOperator]
    #: What the states are of, by operator.
    definitions: Mapping[str, DefinedState]
    #: Per sink a digest of what made its rows.
    outputs: Mapping[str, str]
    files: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Savepoint:
        """Read the manifest. Raises CheckpointError when there is no savepoint, or it is damaged or of a newer version."""
        directory = Path(path)
        try:
            manifest: dict[str, Any] = json.loads((directory / MANIFEST).read_bytes())
        except FileNotFoundError as error:
            raise CheckpointError(f"{str(directory)!r} is not a savepoint: it has no {MANIFEST}") from error
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(directory, error) from error
        try:
            if manifest["kind"] != _KIND:
                raise CheckpointError(f"{str(directory)!r} is not a savepoint of headrace")
            version = int(manifest["format"])
            if version > FORMAT_VERSION:
                raise CheckpointError(
                    f"the savepoint {str(directory)!r} was written by a newer version of headrace (format {version}, "
                    f"headrace {manifest.get('headrace')})",
                    hint="start the job with that version",
                )
            checksum = manifest.pop("checksum")
            if checksum != _checksum(manifest):
                raise ValueError(f"its content does not have the checksum {checksum}")
            return cls._of(directory, manifest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(directory, error) from error

    @classmethod
    def _of(cls, path: Path, manifest: Mapping[str, Any]) -> Savepoint:
        positions = {
            Queue(each["queue"], source_id): ReadPosition.from_json(each)
            for source_id, source in manifest["sources"].items()
            for each in source["queues"]
        }
        place = Place(
            positions=positions,
            sequence=manifest["sequence"],
            shards={name: int(each["shards"]) for name, each in manifest["shuffles"].items()},
            idle=tuple(Queue(name, source) for source, name in manifest["idle"]),
            time_us=int(manifest["time_us"]),
            stopped=bool(manifest["stopped"]),
        )
        operators = {
            name: StoredOperator(name, each["shuffle"], each["verb"], tuple(each["keys"]), each["description"])
            for name, each in manifest["operators"].items()
        }
        return cls(
            path=path,
            id=str(manifest["id"]),
            job=str(manifest["job"]),
            backend=str(manifest["backend"]),
            headrace=str(manifest["headrace"]),
            place=place,
            sources={name: each["kind"] for name, each in manifest["sources"].items()},
            keys={name: tuple(map(tuple, each["keys"])) for name, each in manifest["shuffles"].items()},
            operators=operators,
            definitions=definitions_from_json(manifest["definitions"]),
            outputs=dict(manifest["outputs"]),
            files=manifest["files"],
        )

    def states(self, shuffle: str) -> Iterator[bytes]:
        """Yield the states of the shards behind a shuffle, in their order. Raises CheckpointError if a file is damaged."""
        for shard in range(self.place.shards[shuffle]):
            yield self.file(f"state/{quote(shuffle, safe='')}/{shard}.state")

    def file(self, name: str) -> bytes:
        """Return the content of a file. Raises CheckpointError if it is damaged or not there."""
        try:
            content = (self.path / name).read_bytes()
            about = self.files[name]
        except (OSError, KeyError) as error:
            raise _damaged(self.path, error) from error
        if len(content) != about["bytes"] or _digest(content) != about["blake2b"]:
            raise _damaged(self.path, f"{name} does not have its checksum")
        return content


def check_free(path: str | os.PathLike[str]) -> None:
    """Raise CheckpointError when no savepoint can be written under a path, as something is there or it is not a path of this machine."""
    if "://" in os.fspath(path):
        raise CheckpointError(
            f"a savepoint is a directory of this machine's file system, not {os.fspath(path)!r}", option="savepoint"
        )
    if os.path.lexists(path):
        raise CheckpointError(
            f"{os.fspath(path)!r} exists already",
            option="savepoint",
            hint="give each savepoint its own directory",
        )


def operators_of(plan: Plan) -> dict[str, Any]:
    """Return the definitions of a plan's operators with state, by their ids."""
    found = {}
    for shuffle, node in plan.shuffles.items():
        for name, each in plan.stage(node).items():
            if isinstance(each, OperatorNode) and isinstance(each.spec, StatefulSpec):
                keys: Sequence[str] = node.keys[0]
                found[name] = {
                    "shuffle": shuffle,
                    "verb": each.spec.name or each.label,
                    "keys": list(keys),
                    "description": each.spec.describe(),
                }
    return found


def _damaged(path: Path, error: object) -> CheckpointError:
    return CheckpointError(
        f"the savepoint {str(path)!r} is damaged: {error}", hint="take another one, or a copy of this one from a backup"
    )


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _checksum(manifest: Mapping[str, Any]) -> str:
    return _digest(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode())
