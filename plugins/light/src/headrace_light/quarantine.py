"""What the engine does with queues that cannot be read as they are: it sets them aside, reports them, and tries them again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from headrace.flow.dead_letters import of_queue
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import BrokenQueueError, JobError
from headrace.interfaces.backend import JobStatus, QueueStatus, RunOptions
from headrace.plan.graph import Plan
from headrace.runtime.broken_queues import BrokenQueues
from headrace.runtime.lane import DEAD_LETTERS, Delivery

from headrace_light.queue_run import QueueRun


class Quarantine(BrokenQueues):
    """The queues that one engine has set aside. Used by its thread; ``with_broken`` by any.

    ``deliver`` takes the dead letter about a queue, if the job has a sink for dead letters.
    """

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        clock: Clock,
        retry_seconds: float,
        deliver: Callable[[list[Delivery]], None],
    ) -> None:
        super().__init__(plan.job_name, clock, retry_seconds)
        self._stops = options.broken_queues == "stop"
        self._tells_dead_letters = plan.dead_letters_id is not None
        self._deliver = deliver
        #: Queues without a reader for which the keyed stages do not wait.
        self._told_idle: set[Queue] = set()

    def take(self, queue: Queue, error: BrokenQueueError, position: ReadPosition | None) -> None:
        """Set a queue aside. Raises the error itself where such queues are to stop the job."""
        offset = None if position is None else position.offset
        if self._stops:
            error.job, error.queue = error.job or self._job, error.queue or queue.id
            error.offset = offset if error.offset is None else error.offset
            raise error
        if self.set_aside(queue, error, offset) and self._tells_dead_letters:
            self._deliver([Delivery(DEAD_LETTERS, of_queue(queue, queue.source, offset or 0, error))])

    def due(self, queues: Iterable[Queue]) -> list[Queue]:
        """Return those of the queues that are whole, or to be tried again."""
        return [queue for queue in queues if self.is_due(queue)]

    def vanished(self, source: str, found: Collection[Queue], read: Collection[Queue]) -> None:
        """Forget queues of a source that could never be opened and exist no more."""
        for queue in [each for each in self.reasons() if each.source == source]:
            if queue not in found and queue not in read:
                self.forget(queue)

    def not_waited_for(self, read: Collection[Queue]) -> Iterator[Queue]:
        """Yield, once each, the queues that cannot be opened and that windows are not to be held back for any more."""
        for queue in [each for each in self.reasons() if each not in read and each not in self._told_idle]:
            if self.is_given_up(queue):
                self._told_idle.add(queue)
                yield queue

    def forget(self, queue: Queue) -> None:
        super().forget(queue)
        self._told_idle.discard(queue)

    def mended(self, queue: Queue) -> bool:
        self._told_idle.discard(queue)
        return super().mended(queue)

    def check_start(self, runs: Collection[QueueRun]) -> None:
        """Raise JobError when a job would begin with nothing but queues that cannot be opened."""
        error = self.first_error()
        if error is not None and not runs:
            raise JobError(error.message, plugin=error.plugin, queue=error.queue, hint=error.hint) from error

    def check_end(self, status: JobStatus) -> None:
        """Raise the error of the first queue when a bounded run could read nothing from any of its queues."""
        error = self.first_error()
        if error is not None and status.only_broken_queues:
            raise error

    def with_broken(self, queues: Iterable[QueueStatus]) -> tuple[QueueStatus, ...]:
        """Return the queues with the reasons why they were set aside; those that could never be opened come last."""
        reasons = {queue.id: (offset, reason) for queue, (offset, reason) in self.reasons().items()}
        listed = list(queues)
        made = [replace(each, broken=reasons[each.queue][1] if each.queue in reasons else None) for each in listed]
        known = {each.queue for each in listed}
        made += [QueueStatus(key, at or 0, broken=why) for key, (at, why) in reasons.items() if key not in known]
        return tuple(made)
