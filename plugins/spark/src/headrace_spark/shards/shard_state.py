"""How a shard's state is stored: a delta per micro-batch, and now and then a snapshot, as files in the job's checkpoint.

A file is written before its micro-batch is completed, and read by none but a later one: what a micro-batch that failed
has left is overwritten when it is run again. Its name has the number of the run that wrote it, so that a run which was taken
for dead overwrites nothing (see ``ownership``). Its first bytes are a token, by which a process that has kept the shard
knows whether its copy is the one in the file; then it lacks only later changes. A snapshot has the token of
the delta beside it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from headrace.foundation.checksums import sealed, sealed_parts, unsealed
from headrace.foundation.errors import CheckpointError
from headrace.runtime.shard import Shard

from headrace_spark.checkpoints.ownership import Spans
from headrace_spark.checkpoints.state_files import StateFiles
from headrace_spark.shards.topology import Address

#: Deltas are followed by a snapshot when there are so many, or when they are larger than a snapshot would be now.
_DELTAS_MAX = 200
_DELTA_BYTES_MIN = 1024**2
_TOKEN_BYTES = 16
_NAME = re.compile(r"^(\d+)(?:\.(\d+))?\.(delta|snapshot)$")


@dataclass(frozen=True)
class StateVersion:
    """The version of the state that a copy of a shard has: the one after micro-batch ``batch_id``; None: there is none yet."""

    batch_id: int | None = None
    token: bytes = b""
    #: The last snapshot before, and the deltas since.
    snapshot_id: int = 0
    snapshot_bytes: int = 0
    deltas: int = 0
    delta_bytes: int = 0
    #: How many rows the last snapshot has; 0: it is not known.
    snapshot_rows: int = 0

    def after_delta(self, batch_id: int, token: bytes, size: int) -> StateVersion:
        """Return the version after one more delta."""
        since = (self.snapshot_id, self.snapshot_bytes, self.deltas + 1, self.delta_bytes + size, self.snapshot_rows)
        return StateVersion(batch_id, token, *since)

    def needs_snapshot(self, rows: Callable[[], int]) -> bool:
        """Return whether a restart would read less from a snapshot than from the deltas. ``rows`` returns the present number of rows.

        Where state only grows, as that of a join without bound, deltas never hold more than a snapshot would.
        """
        if self.deltas > _DELTAS_MAX:
            return True
        if self.delta_bytes <= max(self.snapshot_bytes, _DELTA_BYTES_MIN):
            return False
        grown = rows() / self.snapshot_rows if self.snapshot_rows else 1.0
        return self.delta_bytes > self.snapshot_bytes * grown


class StateChain:
    """The files of one shard."""

    def __init__(
        self,
        files: StateFiles,
        address: Address,
        checkpoint: str | None = None,
        *,
        has_beginning: bool = False,
        spans: Spans | None = None,
    ) -> None:
        """``checkpoint``: the id of the checkpoint, None where an older version began it; ``has_beginning``: it began at a savepoint.

        ``spans``: which run's files count, by micro-batch; None: there is only one run.
        """
        self._spans = spans or Spans()
        self._files = files
        self._checkpoint = checkpoint
        self._has_beginning = has_beginning
        self._address = address
        self._directory = f"{quote(address.shuffle, safe='')}/{address.shard}"

    def leads_on_from(self, at: StateVersion, batch_id: int) -> bool:
        """Return whether micro-batch ``batch_id`` follows on the state of a copy at ``at``, perhaps by way of others."""
        return at.batch_id is not None and at.batch_id < batch_id and self._token(at.batch_id) == at.token

    def after(self, at: StateVersion, batch_id: int) -> Iterator[tuple[bytes, StateVersion]]:
        """Yield the stored changes that a copy at ``at`` needs to become the state before ``batch_id``, each with its version.

        Raises CheckpointError when a file is missing.
        """
        first = 0 if at.batch_id is None else at.batch_id + 1
        if at.batch_id is None:
            for number in self._snapshots(batch_id):
                path = self._path(number, "snapshot")
                content = self._files.read(path)
                if content is not None and content[:_TOKEN_BYTES] == self._token(number):
                    at = StateVersion(number, content[:_TOKEN_BYTES], number, len(content))
                    first = number + 1
                    yield self._state_in(content, path), at
                    break
            else:
                begun = self._files.read(self._beginning)
                if begun is not None:
                    yield self._opened(begun, self._beginning), at
                elif self._has_beginning:
                    raise CheckpointError(
                        f"state file {self._beginning} is missing; it contains the savepoint's state of shard {self._address}",
                        hint="restore a copy of the checkpoint, or start from the beginning",
                    )
        for number in range(first, batch_id):
            content, path = self._delta(number)
            if content is None:
                raise CheckpointError(
                    f"the state of shard {self._address} after micro-batch {number} is missing",
                    hint="files were removed from the checkpoint directory: restore a copy of it, or start from the beginning",
                )
            state = self._state_in(content, path)
            at = at.after_delta(number, content[:_TOKEN_BYTES], len(content))
            yield state, at

    def begin(self, state: bytes) -> None:
        """Store the whole state that the shard has before the first micro-batch."""
        content = state if self._checkpoint is None else sealed(state, self._place(self._beginning))
        self._files.write(self._beginning, content)

    def begin_at(self, batch_id: int, state: bytes) -> None:
        """Store a whole state as the one after a micro-batch before which there is nothing."""
        token = uuid.uuid4().bytes
        self._files.write(self._path(batch_id, "snapshot"), *self._sealed(batch_id, "snapshot", token, state))
        # Nobody lacks only this change, so it needs no content.
        self._files.write(self._path(batch_id, "delta"), *self._sealed(batch_id, "delta", token, b"-"))

    def save(self, shard: Shard, at: StateVersion, batch_id: int) -> StateVersion:
        """Store what micro-batch ``batch_id`` has changed in a shard that was at ``at``; return where it is now."""
        token = uuid.uuid4().bytes
        # A state of a checkpoint with an id has one checksum, that of its file.
        seal = self._checkpoint is None
        delta = self._sealed(batch_id, "delta", token, shard.delta(seal=seal))
        now = at.after_delta(batch_id, token, _length(delta))
        if now.needs_snapshot(shard.state_rows):
            snapshot = self._sealed(batch_id, "snapshot", token, shard.snapshot(seal=seal))
            self._files.write(self._path(batch_id, "snapshot"), *snapshot)
            self._files.write(self._path(batch_id, "delta"), *delta)
            self._remove_before(now.snapshot_id)
            return StateVersion(batch_id, token, batch_id, _length(snapshot), snapshot_rows=shard.state_rows())
        self._files.write(self._path(batch_id, "delta"), *delta)
        return now

    def _token(self, batch_id: int) -> bytes | None:
        return self._delta(batch_id, _TOKEN_BYTES)[0]

    def _delta(self, batch_id: int, length: int | None = None) -> tuple[bytes | None, str]:
        """Return the delta of a completed micro-batch, and its path."""
        for run in self._spans.runs(batch_id):
            path = self._path(batch_id, "delta", run)
            content = self._files.read(path, length)
            if content is not None:
                return content, path
        return None, self._path(batch_id, "delta")

    def _sealed(self, number: int, kind: str, token: bytes, state: bytes) -> Sequence[bytes]:
        """Return a file's content with a checksum that is right under its name, in this checkpoint, only; in parts."""
        return sealed_parts(state, self._place(self._path(number, kind)), head=token)

    def _place(self, path: str) -> bytes:
        return (path if self._checkpoint is None else f"{self._checkpoint}/{path}").encode()

    def _opened(self, content: bytes, path: str) -> bytes:
        if (
            self._checkpoint is None and path == self._beginning
        ):  # an older version wrote it, with the state's own checksum alone
            return content
        what = f"state file {path} of the checkpoint"
        return unsealed(content, what, self._place(path), required=self._checkpoint is not None)

    def _state_in(self, content: bytes, path: str) -> bytes:
        """Return the state that a file holds. Raises CheckpointError when it is damaged or empty."""
        found = self._opened(content, path)
        if len(found) <= _TOKEN_BYTES:
            raise CheckpointError(
                f"state file {path} of the checkpoint is empty",
                hint="restore a copy of the checkpoint, or start from the beginning",
            )
        return found[_TOKEN_BYTES:]

    def _snapshots(self, before: int) -> list[int]:
        """Return which micro-batches before one have a snapshot, the last first."""
        found = [_NAME.match(name) for name in self._files.names(self._directory)]
        snapshots = [
            (int(match[1]), int(match[2] or 0)) for match in found if match is not None and match[3] == "snapshot"
        ]
        numbers = [number for number, run in snapshots if run == next(self._spans.runs(number), None)]
        return sorted((number for number in numbers if number < before), reverse=True)

    def _remove_before(self, batch_id: int) -> None:
        """Remove files older than the second newest snapshot: the micro-batch of the newest may have to run again."""
        if batch_id > 0:
            self._files.remove(self._beginning)
        for name in self._files.names(self._directory):
            match = _NAME.match(name)
            if match is not None and int(match[1]) < batch_id:
                self._files.remove(f"{self._directory}/{name}")

    @property
    def _beginning(self) -> str:
        return f"{self._directory}/beginning.snapshot"

    def _path(self, batch_id: int, kind: str, run: int | None = None) -> str:
        """Return the path of a run's file; without ``run``: of the run that owns the micro-batch."""
        run = next(self._spans.runs(batch_id), 0) if run is None else run
        return f"{self._directory}/{batch_id:012}{f'.{run}' if run else ''}.{kind}"

    def is_followed(self, batch_id: int) -> bool:
        """Return whether the state after the next micro-batch is stored."""
        return self._files.exists(self._path(batch_id + 1, "delta"))

    def newest(self) -> int | None:
        """Return the last micro-batch whose state is stored, None when there is none."""
        found = [_NAME.match(name) for name in self._files.names(self._directory)]
        return max((int(match[1]) for match in found if match is not None), default=None)


class NoState(StateChain):
    """Stands for the files of a shard that lives for one piece of work only: in a plain batch query."""

    def __init__(self) -> None:
        """Nothing is stored, so no place is needed."""

    def leads_on_from(self, at: StateVersion, batch_id: int) -> bool:
        return False

    def after(self, at: StateVersion, batch_id: int) -> Iterator[tuple[bytes, StateVersion]]:
        return iter(())

    def save(self, shard: Shard, at: StateVersion, batch_id: int) -> StateVersion:
        return at

    def is_followed(self, batch_id: int) -> bool:
        return False

    def newest(self) -> int | None:
        return None


def _length(parts: Sequence[bytes]) -> int:
    return sum(map(len, parts))
