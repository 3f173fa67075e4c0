"""Which of many queues a round looks at, so that queues without records do not take a core."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from headrace.foundation.clock import Clock

from headrace_light.queue_run import QueueRun

#: With fewer queues each round looks at all of them.
FEW_QUEUES = 512
#: Queues whose records came last are looked at in each round, and of the others at least so many.
_LATELY_MAX = 256
_IDLE_LOOKS_MIN = 128
#: The part of the time that looks at the other queues may take.
_IDLE_SHARE = 1 / 16
#: The clock is asked after so many looks.
_LOOKS_PER_CHECK = 32


class Turns:
    """The queues of an engine, by how soon each is looked at. Used by the engine's thread.

    A queue is *busy* until a look finds nothing, then *lately* busy until others were so more lately, then *idle*. A round
    looks at all that are busy or lately busy. The idle ones come in turn, as many as fit into a sixteenth of the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy: dict[QueueRun, None] = {}
        self._lately: OrderedDict[QueueRun, None] = OrderedDict()
        self._idle: OrderedDict[QueueRun, None] = OrderedDict()
        self._looked_seconds = clock.monotonic()

    def begin(self, run: QueueRun) -> None:
        """A queue is read from now on."""
        self._busy[run] = None

    def end(self, run: QueueRun) -> None:
        """A queue is not read any more."""
        for each in (self._busy, self._lately, self._idle):
            each.pop(run, None)

    def of_round(self) -> Iterator[QueueRun]:
        """Yield the queues that a round looks at. Between two of them, call ``looked`` for the first, if it was looked at."""
        idle, lately = len(self._idle), list(self._lately)
        yield from list(self._busy)
        yield from lately
        begun = self._clock.monotonic()
        share_seconds = (begun - self._looked_seconds) * _IDLE_SHARE
        for count in range(idle):  # those that have become idle in this round were looked at
            passed = count >= _IDLE_LOOKS_MIN and not count % _LOOKS_PER_CHECK
            if not self._idle or (passed and self._clock.monotonic() - begun >= share_seconds):
                break
            run = next(iter(self._idle))
            self._idle.move_to_end(run)
            yield run
        self._looked_seconds = self._clock.monotonic()

    def looked(self, run: QueueRun, *, came: bool) -> None:
        """Note whether a look at a queue found records."""
        if came and not run.at_latest:
            if run not in self._busy:
                self.end(run)
                self._busy[run] = None
        elif came or run in self._busy:
            self.end(run)
            self._lately[run] = None
            if len(self._lately) > _LATELY_MAX:
                self._idle[self._lately.popitem(last=False)[0]] = None
