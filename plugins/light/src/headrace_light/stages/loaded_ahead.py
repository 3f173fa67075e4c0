"""State of a job that another process still runs: loaded ahead, so that the next process has only the difference to load.

What a checkpoint consists of is known by the versions of each shard and their checksums. So a shard that was loaded ahead is used only
if its versions are the first ones of the checkpoint at the start; otherwise the state is loaded as usual.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from headrace.flow.messages import Queue
from headrace.interfaces.state_store import ReadableStateStore
from headrace.plan.graph import Plan
from headrace.runtime.shard import Shard

from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.stages.shard_storage import StoredVersions, checksum_of_version

logger = logging.getLogger(__name__)
Chain = Sequence[tuple[int, str]]


class LoadedAhead:
    """Shards with the state of a checkpoint of another process. Used by one thread at a time."""

    def __init__(self, plan: Plan, counts: Mapping[str, int], store: ReadableStateStore) -> None:
        self._plan = plan
        self._counts = counts
        self._store = store
        self._shards: dict[str, tuple[Shard, StoredVersions]] = {}

    def load(self, checkpoint: StoredCheckpoint) -> None:
        """Load the state of a checkpoint, or the changes since the last call. Does not raise: the start finds errors."""
        if checkpoint.states is None or dict(checkpoint.shards) != dict(self._counts):
            return
        for name, count in self._counts.items():
            for number in range(count):
                try:
                    self._load(name, number, checkpoint.states)
                except Exception as error:  # whatever an operator says to the state of another version of it
                    logger.debug("job %s: not loaded ahead: %s", self._plan.job_name, error)

    def take(self, queue: str, expected: Chain) -> tuple[Shard, StoredVersions] | None:
        """Return the loaded shard of a queue if its versions are the first of the expected ones, otherwise None. It is
        returned only once.
        """
        shard, stored = self._shards.pop(queue, (None, None))
        if shard is None or stored is None:
            return None
        if stored.chain != list(expected[: len(stored.chain)]):
            shard.close()
            return None
        return shard, stored

    def close(self) -> None:
        """Close what nobody has taken. May be called twice."""
        for shard, _ in self._shards.values():
            shard.close()
        self._shards.clear()

    def _load(self, shuffle: str, number: int, states: Mapping[str, Chain]) -> None:
        name = Queue(str(number), shuffle).id
        expected = list(states.get(name, ()))
        shard, stored = self.take(name, expected) or (Shard(self._plan, shuffle, number), StoredVersions())
        try:
            for version, checksum in expected[len(stored.chain) :]:
                found = self._store.stored(name, version)
                if found is None or checksum_of_version(found[0]) != checksum:
                    break  # a newer checkpoint has replaced it; versions before it are still useful if the newer one has them too
                content, whole = found
                shard.apply(content)
                stored.add(len(content), whole=whole)
                stored.note(version, checksum, whole=whole)
        except BaseException:
            shard.close()
            raise
        if stored.chain:
            self._shards[name] = shard, stored
        else:
            shard.close()
