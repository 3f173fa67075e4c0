"""A plain batch query that runs in a thread, with what the handle of a job asks of a streaming query."""

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
        self._tag = f"headrace-{uuid.uuid4().hex}"
        self._work = work
        self._done = threading.Event()
        self._stopped = False
        self._error: Exception | None = None
        # Its Spark jobs get a tag of their own, by which they can be cancelled.
        thread = InheritableThread(target=self._run, name=f"headrace batch {name}", daemon=True)
        thread.start()

    @property
    def isActive(self) -> bool:
        """Whether it still runs; called as Spark's own queries call it."""
        return not self._done.is_set()

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait for the end, and return whether it has come. Raises what the work has raised, unless it was stopped."""
        if not self._done.wait(timeout):
            return False
        if self._error is not None and not self._stopped:
            raise self._error
        return True

    def stop(self) -> None:
        """Cancel the Spark jobs of the work. Rows that were written stay."""
        self._stopped = True
        self._context.cancelJobsWithTag(self._tag)

    def _run(self) -> None:
        try:
            self._context.addJobTag(self._tag)
            self._work()
        except Exception as error:  # Spark's or ours: awaitTermination raises it
            self._error = error
        finally:
            self._done.set()
