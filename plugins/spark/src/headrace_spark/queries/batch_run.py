"""A batch query that runs in a thread and has the methods of a streaming query that the handle of a job calls."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

from pyspark import InheritableThread
from pyspark.sql import SparkSession


class BatchRun:
    """Runs ``work``, which starts Spark jobs, until it is done or stopped."""

    def __init__(self, session: SparkSession, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self._context = session.sparkContext
        self._group = f"headrace-{uuid.uuid4().hex}"
        self._work = work
        self._done = threading.Event()
        self._stopped = False
        self._error: Exception | None = None
        # Its Spark jobs have their own group, by which they can be cancelled and counted.
        thread = InheritableThread(target=self._run, name=f"headrace batch {name}", daemon=True)
        thread.start()

    @property
    def isActive(self) -> bool:
        """Whether it still runs; called as Spark's own queries call it."""
        return not self._done.is_set()

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether the query has ended. Raises the error of the work, unless it was stopped."""
        if not self._done.wait(timeout):
            return False
        if self._error is not None and not self._stopped:
            raise self._error
        return True

    def stop(self) -> None:
        """Cancel the Spark jobs of the work. Rows that were written stay."""
        self._stopped = True
        self._context.cancelJobGroup(self._group)

    def tasks(self) -> tuple[int, int]:
        """Return how many tasks are done, and of how many that are known so far."""
        tracker = self._context.statusTracker()
        done = total = 0
        for job_id in tracker.getJobIdsForGroup(self._group):
            job = tracker.getJobInfo(job_id)
            for stage_id in [] if job is None else job.stageIds:
                stage = tracker.getStageInfo(stage_id)
                if stage is not None:
                    done, total = done + stage.numCompletedTasks, total + stage.numTasks
        return done, total

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, self.name)
            self._work()
        except Exception as error:  # Spark's or ours: awaitTermination raises it
            self._error = error
        finally:
            self._done.set()
