"""Keyed state with a limit for its memory: what it needs of a job, and its local store on disk."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from headrace.foundation.errors import CheckpointError, OptionError
from headrace.foundation.private_files import make_private_directory
from headrace.interfaces.local_store import CHANGED_MAX, LocalStore
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.registry import default_registry
from headrace.plan.graph import OperatorNode, Plan, input_schema
from headrace.runtime.shard import Shard

logger = logging.getLogger(__name__)
_STORE = "rocksdb"
#: So much of the memory is for the local store: its caches, indexes and what it has not written yet.
_STORE_SHARE = 0.4


class StateMemory:
    """The memory of a job's keyed state, divided among the operators of all its shards, and the local store for the rest.

    ``limit_bytes``: for both together. Made before anything is opened; used by the thread that drives the shards.
    """

    def __init__(self, plan: Plan, limit_bytes: int) -> None:
        self._plan = plan
        self._limit_bytes = limit_bytes
        self._kind: type[LocalStore] = default_registry().find("local store", _STORE)
        self._operators = {name: _stateful(plan, name) for name in plan.shuffles}
        self._store: LocalStore | None = None
        self._directory: Path | None = None
        self._temporary = False
        self._tables = 1

    def open(self, directory: Path | None, shards: int) -> None:
        """Open the local store for so many shards of each shuffle: below the checkpoint, or else in a directory that goes with the process.

        Raises CheckpointError.
        """
        self._tables = max(1, shards * sum(self._operators.values()))
        if directory is None:
            self._directory, self._temporary = Path(tempfile.mkdtemp(prefix="headrace-state-")), True
        else:
            self._directory = directory / "local"
            make_private_directory(self._directory)
        memory_bytes = int(self._limit_bytes * _STORE_SHARE)
        try:
            self._store = self._kind(str(self._directory), memory_bytes)
        except CheckpointError as error:
            logger.warning("job %s: %s; it is made anew from the checkpoint", self._plan.job_name, error.message)
            shutil.rmtree(self._directory, ignore_errors=True)
            make_private_directory(self._directory)
            self._store = self._kind(str(self._directory), memory_bytes)

    def use(self, shard: Shard, *, rolls: bool) -> None:
        """Give a new shard its part. ``rolls``: see ``Shard.spill_to``."""
        assert self._store is not None, "open() was called"
        memory_bytes = int(self._limit_bytes * (1 - _STORE_SHARE)) // self._tables
        changed_max = max(1, CHANGED_MAX // self._tables)
        assert self._directory is not None
        about = self._directory.stat()
        place = f"{about.st_dev}/{about.st_ino}"
        shard.spill_to(self._store, place=place, memory_bytes=memory_bytes, rolls=rolls, changed_max=changed_max)

    def close(self) -> None:
        """Close the local store; remove it if nobody can continue with it. May be called twice."""
        if self._store is None:
            return
        damaged = self._store.damaged
        self._store.close()
        self._store = None
        if self._directory is not None and (self._temporary or damaged):
            shutil.rmtree(self._directory, ignore_errors=True)


def check_spills(plan: Plan) -> None:
    """Raise OptionError when a verb of the job has state that cannot leave memory."""
    for name, node in plan.nodes.items():
        if isinstance(node, OperatorNode) and isinstance(node.spec, StatefulSpec):
            reason = node.spec.stays_in_memory(input_schema(node.input))
            if reason is not None:
                raise OptionError(
                    f"the state of {name!r} cannot leave memory: {reason}",
                    job=plan.job_name,
                    option="state_memory",
                    hint="leave state_memory out, or make that verb a job of its own",
                )


def _stateful(plan: Plan, shuffle: str) -> int:
    nodes = plan.stage(plan.nodes[shuffle]).values()
    return sum(isinstance(node, OperatorNode) and isinstance(node.spec, StatefulSpec) for node in nodes)
