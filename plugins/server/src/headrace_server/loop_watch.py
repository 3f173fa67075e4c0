"""Finds loops of a server that hang, and logs where every thread is."""

from __future__ import annotations

import logging
import sys
import threading
import traceback

from headrace.foundation.clock import Clock

logger = logging.getLogger(__name__)
#: A round waits for the registry and for processes of jobs, a few seconds each. One that takes longer than this hangs.
STALLED_SECONDS = 120.0
_LOOK_SECONDS = 5.0


class LoopRounds:
    """When a loop has come round last. ``begin`` is called by the loop at the beginning of each round, ``end`` when it ends."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._begun: float | None = None

    def begin(self) -> None:
        """Note that a round begins."""
        self._begun = self._clock.monotonic()

    def end(self) -> None:
        """Note that the loop ends in order: from now on it is not missed."""
        self._begun = None

    @property
    def seconds(self) -> float:
        """Return how long the present round has taken; 0 if the loop does not run."""
        begun = self._begun
        return 0.0 if begun is None else self._clock.monotonic() - begun


class LoopWatch:
    """Watches loops. ``stalled`` is called by the health port, ``look`` by a thread of the server."""

    def __init__(self, clock: Clock, *loops: LoopRounds | None) -> None:
        self._clock = clock
        self._loops = [each for each in loops if each is not None]
        self._said: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="loop watch", daemon=True)

    def start(self) -> None:
        """Look again and again, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Called before the loops end."""
        self._stopping.set()
        self._thread.join()

    def stalled(self) -> dict[str, float]:
        """Return the loops that hang, with the seconds of their present round. It waits for nothing."""
        found = {each.name: each.seconds for each in self._loops}
        return {name: seconds for name, seconds in found.items() if seconds >= STALLED_SECONDS}

    def look(self) -> None:
        """Log each loop that hangs, once, with the stacks of all threads; and that it goes on."""
        stalled = self.stalled()
        for name in stalled.keys() - self._said:
            logger.error("the %s loop has been in one round for %.0f s:\n%s", name, stalled[name], stacks_of_threads())
        for name in self._said - stalled.keys():
            logger.warning("the %s loop goes on", name)
        self._said = set(stalled)

    def _keep_looking(self) -> None:
        while not self._clock.wait(self._stopping, _LOOK_SECONDS):
            self.look()


def stacks_of_threads() -> str:
    """Return the stack of each thread of this process as text: files, lines and functions, without values."""
    names = {each.ident: each.name for each in threading.enumerate()}
    found = []
    for ident, frame in sys._current_frames().items():
        stack = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
        lines = [f"  {each.filename}:{each.lineno} {each.name}" for each in reversed(stack)]
        found.append("\n".join([f"thread {names.get(ident, ident)}", *lines]))
    return "\n".join(found)
