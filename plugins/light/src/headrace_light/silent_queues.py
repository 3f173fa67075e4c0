"""Queues that event time does not wait for, because they were silent: looked at before records of others move it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.flow.messages import Queue
from headrace.foundation.clock import Clock

from headrace_light.queue_run import QueueRun
from headrace_light.stages.interface import Stages
from headrace_light.turns import FEW_QUEUES

#: Of a queue that was silent so many records are read at first. They wait for their turn, with those of all others.
LOOKED_RECORDS_MAX = 100
#: How many times as long as they took no further looks are made, for records of queues that were not silent themselves.
_REST_PER_LOOK = 16


class SilentQueues:
    """Used by the engine's thread. ``look`` returns whether a queue has records, which it keeps.

    What has come to several silent queues while nobody looked would be late otherwise, because one of them is read first.
    """

    def __init__(
        self,
        runs: Mapping[Queue, QueueRun],
        stages: Callable[[], Stages],
        clock: Clock,
        look: Callable[[QueueRun], bool],
    ) -> None:
        self._runs = runs
        self._stages = stages
        self._clock = clock
        self._look = look
        self._silent: dict[QueueRun, None] = {}
        self._looking = False
        self._next_look_seconds = float("-inf")

    def add(self, run: QueueRun) -> None:
        """A queue is not waited for."""
        self._silent[run] = None

    def discard(self, run: QueueRun) -> None:
        """A queue is not read any more."""
        self._silent.pop(run, None)

    def awake(self, run: QueueRun) -> None:
        """Records of a queue were processed: it is waited for."""
        run.heard_seconds, run.idle = self._clock.monotonic(), False
        self.discard(run)

    def look_before(self, run: QueueRun) -> None:
        """Let event time wait for the silent queues that have records now: it is moved by records of ``run`` next.

        They are looked at after these records were read, so that what came before them is found. For a queue that was silent itself that
        is always done, unless there are very many queues; for others as often as a small part of the time allows.
        """
        if not self._silent or self._looking or (len(self._silent) == 1 and run in self._silent):
            return
        begun = self._clock.monotonic()
        always = run in self._silent and len(self._silent) <= FEW_QUEUES
        if begun < self._next_look_seconds and not always:
            return
        self._looking = True  # a poll of a group may revoke queues, and with them the records that were read
        try:
            found = [each for each in list(self._silent) if each is not run and self._look(each)]
        finally:
            self._looking = False
        ended = self._clock.monotonic()
        self._next_look_seconds = ended + _REST_PER_LOOK * (ended - begun)
        for each in found:
            if self._runs.get(each.queue) is each and each in self._silent:
                self._stages().wait_again(each.queue)
                self.awake(each)
