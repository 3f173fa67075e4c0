"""Keyed state with a limit for its memory: its requirements for a job, and its local store on disk."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headrace.foundation.errors import CheckpointError, OptionError
from headrace.foundation.private_files import make_private_directory
from headrace.interfaces.local_store import CHANGED_MAX, LocalStore
from headrace.interfaces.mapped_memory import MappedMemory
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.registry import default_registry
from headrace.plan.graph import OperatorNode, Plan, input_schema
from headrace.runtime.shard import Shard

logger = logging.getLogger(__name__)
_STORE = "rocksdb"
#: The share of the memory for the local store: its caches, indexes and unwritten rows.
_STORE_SHARE = 0.4


class StateMemory:
    """The memory of a job's keyed state, divided among the operators of all its shards, and where the rest is.

    ``limit_bytes``: for all together. Rows of operators that give them away one by one are in the local store, a database; what others
    keep is in mapped files. Made before anything is opened; used by the thread that drives the shards.
    """

    def __init__(self, plan: Plan, limit_bytes: int) -> None:
        self._plan = plan
        self._limit_bytes = limit_bytes
        self._operators = {name: _stateful(plan, name) for name in plan.shuffles}
        spills = [each for operators in self._operators.values() for each in operators.values()]
        self._kind: type[LocalStore] | None = default_registry().find("local store", _STORE) if any(spills) else None
        if not all(spills) and find_spec("pyarrow") is None:
            raise OptionError(
                "state in mapped files needs pyarrow, which is not installed",
                job=plan.job_name,
                option="state_memory",
                hint="pip install pyarrow",
            )
        self._store: LocalStore | None = None
        self._mapped: MappedMemory | None = None
        self._directory: Path | None = None
        self._temporary = False
        #: Of one operator of one shard, the part of the local store included.
        self._part_bytes = limit_bytes

    def open(
        self, directory: Path | None, shards: int, *, stored: Callable[[Callable[[], Any]], Any] | None = None
    ) -> None:
        """Make ready for so many shards of each shuffle: below the checkpoint, or else in a directory that goes with the process.

        ``stored``: see ``MappedMemory``. Raises CheckpointError.
        """
        operators = [spills for each in self._operators.values() for spills in each.values()]
        self._part_bytes = self._limit_bytes // max(1, shards * len(operators))
        if directory is None:
            self._directory, self._temporary = Path(tempfile.mkdtemp(prefix="headrace-state-")), True
        else:
            self._directory = directory / "local"
            make_private_directory(self._directory)
        mapped = len(operators) - sum(operators)
        if mapped:
            self._mapped = MappedMemory(self._directory, self._part_bytes * shards * mapped, stored=stored)
        if self._kind is not None:
            self._store = self._opened(
                self._kind, self._directory, int(_STORE_SHARE * self._part_bytes * shards * sum(operators))
            )

    def _opened(self, kind: type[LocalStore], directory: Path, memory_bytes: int) -> LocalStore:
        try:
            return kind(str(directory), memory_bytes)
        except CheckpointError as error:
            logger.warning("job %s: %s; it is rebuilt from the checkpoint", self._plan.job_name, error.message)
            shutil.rmtree(directory, ignore_errors=True)
            make_private_directory(directory)
            return kind(str(directory), memory_bytes)

    def use(self, shard: Shard, *, rolls: bool) -> None:
        """Give a new shard its part. ``rolls``: see ``Shard.spill_to``."""
        operators = self._operators[shard.queue.source]
        if mapped := [name for name, spills in operators.items() if not spills]:
            assert self._mapped is not None, "open() was called"
            shard.map_to(self._mapped, mapped)
        if len(mapped) == len(operators):
            return
        assert self._store is not None, "open() was called"
        assert self._directory is not None
        about = self._directory.stat()
        shard.spill_to(
            self._store,
            [name for name, spills in operators.items() if spills],
            place=f"{about.st_dev}/{about.st_ino}",
            memory_bytes=int(self._part_bytes * (1 - _STORE_SHARE)),
            rolls=rolls,
            changed_max=max(1, CHANGED_MAX * self._part_bytes // self._limit_bytes),
        )

    def trim(self) -> None:
        """Release resident memory of mapped files if it is too much. Called after each piece of work of a shard."""
        if self._mapped is not None:
            self._mapped.trim()

    def close(self) -> None:
        """Close the local store; remove it if nobody can continue with it. May be called twice."""
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
        store, self._store = self._store, None
        directory, self._directory = self._directory, None
        try:
            if store is not None:
                store.close()
        finally:
            if directory is not None and (self._temporary or (store is not None and store.damaged)):
                shutil.rmtree(directory, ignore_errors=True)


def check_spills(plan: Plan) -> None:
    """Raise OptionError when a verb of the job has state that cannot leave memory."""
    for name, node in plan.nodes.items():
        if isinstance(node, OperatorNode) and isinstance(node.spec, StatefulSpec):
            reason = None if node.spec.maps_state else node.spec.stays_in_memory(input_schema(node.input))
            if reason is not None:
                raise OptionError(
                    f"the state of {name!r} cannot leave memory: {reason}",
                    job=plan.job_name,
                    option="state_memory",
                    hint="leave state_memory out, or move that verb into its own job",
                )


def _stateful(plan: Plan, shuffle: str) -> Mapping[str, bool]:
    """Return the operators with state behind a shuffle: whether their rows leave memory one by one."""
    return {
        name: node.spec.stays_in_memory(input_schema(node.input)) is None
        for name, node in plan.stage(plan.nodes[shuffle]).items()
        if isinstance(node, OperatorNode) and isinstance(node.spec, StatefulSpec)
    }
