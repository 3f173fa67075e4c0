"""Which shards this instance has: the groups divide the queues of the shuffles' topics among the instances."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial

from headrace.flow.messages import Queue
from headrace.foundation.clock import Clock
from headrace.runtime.patience import WaitFor

from headrace_light.groups import Assignments, Membership
from headrace_light.shared.outages import SharedOutages
from headrace_light.shared.restore import ShardRestore
from headrace_light.shared.shard_run import ShardRun
from headrace_light.shared.transport import Transport

logger = logging.getLogger(__name__)
_NO_WAIT = timedelta(0)


class ShardMembership:
    """This instance's membership in the groups of a job's shuffles, and its shards. Used by the engine's thread.

    ``make_checkpoint`` is called before shards are given up, ``discard`` with the queue of each shard that was given up.
    """

    def __init__(
        self,
        job: str,
        clock: Clock,
        transport: Transport,
        restore: ShardRestore,
        outages: SharedOutages,
        *,
        retry_seconds: float,
        make_checkpoint: Callable[[], None],
        discard: Callable[[Queue], None],
    ) -> None:
        self._job = job
        self._clock = clock
        self._transport = transport
        self._restore = restore
        self._outages = outages
        self._retry_seconds = retry_seconds
        self._make_checkpoint = make_checkpoint
        self._discard = discard
        self._groups: dict[str, Membership] = {}
        self._runs: dict[Queue, ShardRun] = {}
        #: Shards of this instance, with their shuffles, that must start again from their stored state.
        self._again: dict[Queue, str] = {}

    # ------------------------------------------------------------------------------------------ begin and end

    def open(self) -> None:
        """Load the queues of the groups. Raises RetriableError when a broker is not available: call it again then."""
        for name, source in self._transport.sources.items():
            if name not in self._groups:
                topic = self._transport.topic_of(name)
                self._groups[name] = Membership(topic, source, self._clock, self._retry_seconds)

    def join(self, wait_for: WaitFor) -> None:
        """Become a member of the groups: from then on ``poll`` gives this instance shards, and takes them."""
        for name, group in self._groups.items():
            topic = self._transport.topic_of(name)
            listener = Assignments(topic, partial(self.assigned, name), self.revoked)
            wait_for(f"the group of {topic}", partial(group.join, listener))

    def leave(self) -> None:
        """Leave the groups, so that others take over at once."""
        for group in self._groups.values():
            group.leave()

    def close(self) -> None:
        """Close the shards. May be called twice."""
        runs = list(self._runs.values())
        self._runs.clear()
        for run in runs:
            run.close()

    # ------------------------------------------------------------------------------------------------- groups

    def poll(self) -> None:
        """Let the groups give and take shards."""
        for group in self._groups.values():
            group.poll(_NO_WAIT)

    def wait(self, timeout: timedelta) -> None:
        """Wait for records of a shuffle, or for changes of its group."""
        next(iter(self._groups.values())).poll(timeout)

    def commit(self) -> None:
        """Commit to the groups up to which offset the state of each shard is stored."""
        for name, group in self._groups.items():
            done = {
                run.topic_queue: run.saved
                for run in self._runs.values()
                if run.saved is not None and run.shard.queue.source == name
            }
            if done:
                group.commit(done)

    def assigned(self, name: str, queues: Iterable[Queue]) -> None:
        """These shards of a shuffle are this instance's. Raises RetriableError when the broker or the store of one is away."""
        for queue in queues:
            if queue not in self._runs and queue not in self._again:
                self._runs[queue] = self._restore.begin(name, queue)

    def revoked(self, queues: Iterable[Queue], *, lost: bool) -> None:
        """These shards go to another instance, after a checkpoint unless they are lost already."""
        taken = list(queues)
        if not lost and any(queue in self._runs for queue in taken):
            self._make_checkpoint()
        for queue in taken:
            if queue in self._again:
                self._groups[self._again.pop(queue)].forget(queue)
            if queue not in self._runs:
                continue
            run = self._runs[queue]
            self._drop(run)
            self._groups[run.shard.queue.source].forget(queue)
            logger.info(
                "job %s: shard %s was given up at offset %d", self._job, run.shard.queue.id, run.position.offset
            )

    # ------------------------------------------------------------------------------------------------- shards

    @property
    def runs(self) -> list[ShardRun]:
        """The shards that this instance has now. From any thread."""
        return list(self._runs.values())

    def has(self, run: ShardRun) -> bool:
        """Whether a shard is still this instance's: a group may take it away, and give it again, while another one is polled."""
        return self._runs.get(run.topic_queue) is run

    def is_behind(self, run: ShardRun) -> bool:
        """Return whether somebody has stored the state of a shard as of a later offset than this instance has reached.

        Raises RetriableError.
        """
        committed = self._transport.sources[run.shard.queue.source].committed(run.topic_queue)
        return committed is not None and committed.offset > run.position.offset

    def begin_again(self, run: ShardRun) -> None:
        """Let a shard whose state is not certain any more begin again from its stored state: its results since then come again."""
        if self.has(run):
            self._drop(run)
            self._again[run.topic_queue] = run.shard.queue.source

    def begin_waiting(self) -> None:
        """Begin the shards that are to begin again. Shards that cannot begin now are tried the next time."""
        for queue, name in list(self._again.items()):
            run = self._outages.trying("restore a shard", partial(self._restore.begin, name, queue))
            if run is not None:
                del self._again[queue]
                self._runs[queue] = run

    def _drop(self, run: ShardRun) -> None:
        del self._runs[run.topic_queue]
        self._restore.forget(run.shard)
        self._discard(run.shard.queue)
        run.close()
