"""Problems in the processes of a run that end by themselves: the processes note them, and the driver program logs each of them once.

Processes on other machines than the driver's have nowhere to note it: there Spark's own log tells.
"""

from __future__ import annotations

import contextlib
import logging

from headrace_spark.transit.run_directory import RunDirectory

logger = logging.getLogger(__name__)
AWAY, BACK, AGAIN, FENCED = "away", "back", "again", "fenced"
KINDS = frozenset({AWAY, BACK, AGAIN, FENCED})


class TroubleNotes:
    """Notes such problems for the driver. Used in the planning process and in workers, by any thread."""

    def __init__(self, run_directory: str | None) -> None:
        """``run_directory``: None in a query of the user's, where Spark's own log tells."""
        self._run = RunDirectory.at(run_directory)
        self._away: set[str] = set()

    def away(self, what: str, text: str) -> None:
        """Note that the server of a source or queue, by its name, is not available. Only the first time until it is back."""
        if what not in self._away:
            self._away.add(what)
            self._add(AWAY, what=what, text=text)

    def back(self, what: str) -> None:
        """Note that it answers, if it was noted as unavailable."""
        if what in self._away:
            self._away.discard(what)
            self._add(BACK, what=what)

    def begun(self, stage: str, batch_id: int, attempt: int) -> None:
        """Note that a task of a stage begins, if it does so again (``attempt`` from 0)."""
        if attempt > 0:
            self._add(AGAIN, stage=stage, batch_id=batch_id, attempt=attempt)

    def fenced(self, batch_id: int, text: str) -> None:
        """Note that a task stored nothing because another one has replaced it."""
        self._add(FENCED, batch_id=batch_id, text=text)

    def _add(self, kind: str, **values: object) -> None:
        with contextlib.suppress(FileNotFoundError):  # another machine than the driver's, or the run is over
            self._run.add_event(kind, **values)


class Troubles:
    """Logs the noted events at the level WARNING. Used by the driver's thread that follows a query."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._away: set[str] = set()
        self._again: tuple[int, set[str]] = (-1, set())
        #: The micro-batch in which a task was refused last.
        self._refused_in: object = None

    def take(self, kind: str, **event: object) -> None:
        """Log an event of one of ``KINDS``, unless it was logged before."""
        if kind == AGAIN:
            self._run_again(**event)  # type: ignore[arg-type]  # as ``begun`` noted it
            return
        if kind == FENCED:
            if event["batch_id"] != self._refused_in:
                self._refused_in = event["batch_id"]
                logger.warning("job %s: a task was rejected: %s", self._job, event["text"])
            return
        what = str(event["what"])
        if kind == AWAY and what not in self._away:
            self._away.add(what)
            logger.warning("job %s: %s is not available, trying again: %s", self._job, what, event["text"])
        elif kind == BACK and what in self._away:
            self._away.discard(what)
            logger.warning("job %s: %s is available again", self._job, what)

    def _run_again(self, stage: str, batch_id: int, attempt: int) -> None:
        if self._again[0] != batch_id:
            self._again = (batch_id, set())
        if stage not in self._again[1]:
            self._again[1].add(stage)
            logger.warning(
                "job %s: micro-batch %d: the %s is run again (attempt %d), because a worker process was killed, failed or was slow",
                self._job, batch_id, stage, attempt + 1,
            )  # fmt: skip
