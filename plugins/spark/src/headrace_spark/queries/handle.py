"""The handle of a job on Spark: follows its query in a thread, and stops it between two batches."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace.flow.messages import Queue
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import BrokenQueueError, CheckpointError, HeadraceError, JobError, JobFailedError
from headrace.interfaces.backend import JobHandle, JobReport, JobState, JobStatus, RunOptions
from headrace.interfaces.metrics import CHECKPOINT_DURATION, CHECKPOINT_TIME, RESTARTS, STATE_SIZE
from headrace.interfaces.registry import default_registry
from headrace.plan.graph import Plan
from headrace.plan.outputs import tell_completed
from headrace.runtime.broken_queues import tell_mended, tell_set_aside
from headrace.runtime.patience import Patience
from headrace.runtime.progress import ProgressLine
from headrace.runtime.savepoints import check_free
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql.streaming.query import StreamingQuery

from headrace_spark.checkpoints.checkpoint import SparkCheckpoint
from headrace_spark.checkpoints.ownership import COMPLETED
from headrace_spark.processes.reasons import hint_for, reason_in
from headrace_spark.queries.figures import Figures
from headrace_spark.queries.query import StartedQuery
from headrace_spark.queries.query_progress import JobProgress, on_progress, progress
from headrace_spark.queries.savepoints import take_savepoint
from headrace_spark.queries.storage import StorageFullError, check_room, is_storage_full, storage_full
from headrace_spark.transit.failures import original_error
from headrace_spark.transit.troubles import KINDS, Troubles

logger = logging.getLogger(__name__)
_FOLLOW_SECONDS = 0.2
_STOP_LOOK_SECONDS = 0.02
#: How often a query is started again without a micro-batch that is completed in between.
_RESTARTS_MAX = 3
_ROOM_PAUSE_SECONDS_FIRST = 0.2
_ROOM_PAUSE_SECONDS_MAX = 5.0
#: How often a run looks whether it still owns its checkpoint, if the process that plans micro-batches cannot.
_OWNED_LOOK_SECONDS = 2.0
#: Spark's condition when another query has planned or completed the same micro-batch.
_SAME_MICRO_BATCH = "CONCURRENT_STREAM_LOG_UPDATE"
#: What Spark says when a Python process on the driver's machine has not answered in ten seconds. Tasks are run again by Spark itself.
_NO_PROCESS = "Python worker failed to connect back"
_NO_PROCESS_REASON = (
    "a Python process of Spark did not start within ten seconds, as on a machine that has too much to do"
)
#: What Java says when the process at the other end of a connection has gone. EOFException has no text, so Spark gives no reason.
_LOST_CONNECTION = re.compile(
    r"terminated with exception: *(null)? *SQLSTATE|EOFException|Broken pipe|Connection reset"
)
_PLANNER_END_SECONDS_MAX = 10.0
#: What Spark says when it has lost the executor of a stage whose rows were passed on in part (it does not know that they would be the
#: same again), and when the executors of one task were lost as often as a task may fail.
_EXECUTORS_LOST = ("A shuffle map stage with indeterminate output was failed and retried", "ExecutorLostFailure")
#: What Spark says when a task has failed as often as it may. Spark then ends the planning process too.
_TASK_FAILED = "Job aborted due to stage failure"


@dataclass
class _End:
    """How a job ended."""

    state: JobState
    seconds: float
    error: Exception | None = None


class SparkHandle(JobHandle):
    """A job that runs as a streaming query."""

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        start: Callable[[SparkCheckpoint | None], StartedQuery],
        clock: Clock | None = None,
    ) -> None:
        self._job = plan.job_name
        self._plan = plan
        self._saving = threading.Lock()
        self._clock = clock or SystemClock()
        self._begun = self._clock.monotonic()
        self._figures = Figures(plan)
        self._troubles = Troubles(plan.job_name)
        self._lock = threading.Lock()
        self._stop_asked = False
        self._end: _End | None = None
        self._ended = threading.Event()
        self._hooks = default_registry().load_all()
        self._progress = ProgressLine(enabled=options.show_progress, clock=self._clock)
        self._progress.show(self.status)
        self._start = start
        self._start_timeout = options.start_timeout
        #: The checkpoint from which the query can be started again; None: it cannot.
        self._checkpoint = options.checkpoint
        self._restarts = 0
        #: The size of the stored state of each shard.
        self._state_bytes: dict[str, int] = {}
        #: Since when the checkpoint cannot be written; None: it can.
        self._full_since: float | None = None
        self._told: list[Callable[[JobProgress], object]] = []
        self._started = self._first_start()
        self._batch_seconds = self._clock.monotonic()
        self._retry_seconds = self._started.payload.retry_seconds
        self._owned_at = self._batch_seconds
        self._hooks.headrace_job_started(job=self._job, backend="spark")
        threading.Thread(target=self._follow, name=f"headrace {self._job}", daemon=True).start()

    def _first_start(self) -> StartedQuery:
        """Start the query, again where a busy machine has not started a Python process in time. Raises what ``start`` raises."""
        while True:
            try:
                return self._start(None)
            except JobError as error:
                if _NO_PROCESS not in error.message or self._restarts >= _RESTARTS_MAX:
                    raise
                self._restarts += 1
                logger.warning("job %s: %s; it is started again", self._job, _NO_PROCESS_REASON)

    # ------------------------------------------------------------------------------------------ what callers use

    def status(self) -> JobStatus:
        """Return the status as of the last completed micro-batch."""
        end = self._end
        state = JobState.STOPPING if self._stop_asked else JobState.RUNNING
        with self._lock:
            if end is not None:
                return self._figures.status(end.state, end.seconds, None if end.error is None else str(end.error))
            return self._figures.status(state, self._clock.monotonic() - self._begun, None)

    def progress(self) -> JobProgress | None:
        """Return Spark's progress of the last micro-batch with the figures of the job; None: there is none yet, or Spark runs no
        streaming query for the job.
        """
        query = self._started.query
        return progress(query) if isinstance(query, StreamingQuery) else None

    def on_progress(self, function: Callable[[JobProgress], object]) -> None:
        """Call a function after each micro-batch, in a thread of Spark's listeners, also if the query is started again."""
        self._told.append(function)
        self._tell(function)

    def _tell(self, function: Callable[[JobProgress], object]) -> None:
        if isinstance(self._started.query, StreamingQuery):
            on_progress(self._started.query, function)

    def savepoint(self, path: str | os.PathLike[str], timeout: timedelta = timedelta(minutes=5)) -> Path:
        """Write a savepoint of the last completed micro-batch, while the next ones run."""
        self._check_saveable(path)
        with self._saving:
            return take_savepoint(self._plan, self._started, path, self._clock, timeout, self._ended, stopped=False)

    def stop(
        self, timeout: timedelta = timedelta(seconds=30), *, savepoint: str | os.PathLike[str] | None = None
    ) -> None:
        """Let the current micro-batch finish, then stop. Raises TimeoutError when that takes longer."""
        if savepoint is not None:
            self._check_saveable(savepoint)
        if self._ended.is_set():
            return
        self._stop_asked = True
        with contextlib.suppress(
            FileNotFoundError
        ):  # the query is being started again at this moment, which asks as well
            self._started.run_directory.ask_to_stop()
        deadline = self._clock.monotonic() + timeout.total_seconds()
        while self._started.has_planner and not self._started.run_directory.drained:
            if self._clock.wait(self._ended, _STOP_LOOK_SECONDS):
                if savepoint is not None:
                    self._check_saveable(savepoint)
                return
            self._check_time(deadline, timeout)
        try:
            if savepoint is not None:
                take_savepoint(self._plan, self._started, savepoint, self._clock, timeout, self._ended, stopped=True)
        finally:
            with self._saving:  # a savepoint that is being taken needs the session
                self._started.run_directory.release()
                self._started.query.stop()
        if not self._ended.wait(max(0.0, deadline - self._clock.monotonic())):
            self._check_time(deadline, timeout)

    def wait(self, timeout: timedelta | None = None) -> JobReport:
        """Wait for the end. Raises JobFailedError when the job failed, TimeoutError when it has not ended in time."""
        if not self._ended.wait(None if timeout is None else timeout.total_seconds()):
            assert timeout is not None
            raise TimeoutError(f"job {self._job} has not ended within {timeout.total_seconds():g} s")
        assert self._end is not None
        error = self._end.error
        if error is None:
            return JobReport.of(self.status())
        if isinstance(error, JobFailedError):
            raise error
        message = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
        hint = error.hint if isinstance(error, HeadraceError) else None
        raise JobFailedError(f"the job failed: {message}", job=self._job, hint=hint) from error

    def _check_saveable(self, path: str | os.PathLike[str]) -> None:
        if self._ended.is_set():
            raise CheckpointError("the job has ended, so no savepoint can be taken", job=self._job, option="savepoint")
        if not self._started.has_planner:
            raise CheckpointError(
                "a job that reads batch DataFrames writes no savepoints: it does all work in one step",
                job=self._job,
                option="savepoint",
                hint="wait for its end; started again with the same checkpoint after a failure, it continues",
            )
        check_free(path)

    def _check_time(self, deadline: float, timeout: timedelta) -> None:
        if self._clock.monotonic() >= deadline:
            raise TimeoutError(f"job {self._job} has not stopped within {timeout.total_seconds():g} s")

    # --------------------------------------------------------------------------------------- the following thread

    def _follow(self) -> None:
        error: Exception | None = None
        while True:
            try:
                while not self._started.query.awaitTermination(_FOLLOW_SECONDS):  # type: ignore[arg-type]
                    self._take_events()
                    self._look_whether_owned()
                    self._progress.show(self.status)
                error = None
            except Exception as raised:  # whatever Spark or py4j raise: the job has failed, wait() raises it
                error = self._goes_on_after(raised)
                if error is None:
                    continue
            break
        if error is None and not self._stop_asked and self._started.input_read is not None:
            try:
                patience = Patience(self._job, self._start_timeout, SystemClock())
                tell_completed(self._plan, self._started.input_read(), patience.wait_for)
            except Exception as raised:  # an error of a sink or source: wait() raises it
                error = raised
        try:
            self._take_events()
        finally:
            state = JobState.STOPPED if self._stop_asked else JobState.FINISHED
            if error is None and state is JobState.FINISHED:
                error = self._only_broken()
            if error is not None:
                state = JobState.FAILED
            if self._started.in_use.spark is not None:
                self._started.in_use.spark.output.flush()
            self._end = _End(state, self._clock.monotonic() - self._begun, error)
            self._started.clean_up()
            if error is None and self._started.in_use.spark is not None:
                self._started.in_use.spark.job_has_run()
            self._plan.meter.ended(self.status())
            self._progress.end(self.status())
            try:
                self._hooks.headrace_job_stopped(job=self._job, report=JobReport.of(self.status()))
            finally:
                self._ended.set()

    def _goes_on_after(self, raised: Exception) -> Exception | None:
        """Start the query again from its checkpoint after an error if that can help. Return why the job ends; None: it continues."""
        while True:
            error = self._cause(raised)
            try:
                if isinstance(error, StorageFullError):
                    return None if self._goes_on_with_room(error) else error
                why = self._why_to_start_again(raised)
                if why is None:
                    return error
                self._start_again(why)
                return None
            except Exception as again:  # of the start: looked at as the one before, which is its context
                raised = again

    def _why_to_start_again(self, raised: Exception) -> str | None:
        """Return why the query can be started again from its checkpoint, after nothing of the job itself failed; None: it cannot."""
        if self._checkpoint is None or self._stop_asked or self._restarts >= _RESTARTS_MAX:
            return None
        if _says_that_java_has_ended(raised):
            return None
        said = str(raised)
        found = original_error(said)
        if found is None and _NO_PROCESS in said:
            return _NO_PROCESS_REASON
        if isinstance(raised, HeadraceError):
            return None
        if found is None and any(text in said for text in _EXECUTORS_LOST):
            return "executors were lost in the middle of a micro-batch"
        # If this run does not own the checkpoint any more, starting again raises.
        if _SAME_MICRO_BATCH in said or (isinstance(found, CheckpointError) and COMPLETED in found.message):
            return "an earlier run of the job has completed the same micro-batch"
        if found is None and _TASK_FAILED not in said and self._planner_has_ended(said):
            return "the process that plans micro-batches has ended"
        return None

    def _planner_has_ended(self, said: str) -> bool:
        """Return whether the planning process is gone. Where Spark has lost a connection, its end is waited for a little.

        A process that is killed closes its connections first. On a busy machine it may be there for long after that.
        """
        deadline = self._clock.monotonic() + _PLANNER_END_SECONDS_MAX
        while not self._started.run_directory.planner_has_ended:
            if not _LOST_CONNECTION.search(said) or self._clock.monotonic() >= deadline:
                return False
            self._clock.wait(self._ended, _STOP_LOOK_SECONDS)
        return True

    def _look_whether_owned(self) -> None:
        """Stop the query if a later run has claimed its checkpoint, where only Java reaches it. Raises CheckpointError."""
        claim = self._started.payload.ownership
        now = self._clock.monotonic()
        if claim is None or claim.by_driver or now - self._owned_at < _OWNED_LOOK_SECONDS:
            return
        self._owned_at = now
        try:
            self._started.checkpoint.check_owned()
        except CheckpointError:
            self._started.query.stop()
            raise

    def _goes_on_with_room(self, error: Exception) -> bool:
        """Start the query again once its checkpoint can be written, if that is why it has failed; return whether it runs.

        Spark ends a query whose files it cannot write. Everything that was stored is in the checkpoint, so the query continues from there.
        """
        if not isinstance(error, StorageFullError) or self._checkpoint is None:
            return False
        now = self._clock.monotonic()
        if self._full_since is None:
            self._full_since = now
            logger.warning("job %s waits: %s (%s)", self._job, error.message, error.hint)
        pause = _ROOM_PAUSE_SECONDS_FIRST
        while not self._stop_asked and self._clock.monotonic() - self._full_since < self._retry_seconds:
            self._clock.wait(self._ended, pause)
            pause = min(2 * pause, _ROOM_PAUSE_SECONDS_MAX)
            try:
                check_room(self._checkpoint)
                self._start_anew()
            except Exception as again:  # handled as the first time; wait() raises it when it is something else
                if not is_storage_full(again):
                    raise again from error
                continue
            return True
        return False

    def _start_again(self, why: str) -> None:
        """Start the query again from its checkpoint."""
        self._restarts += 1
        self._plan.meter.add(RESTARTS, 1)
        logger.warning("job %s: %s; it is started again", self._job, why)
        self._start_anew()

    def _start_anew(self) -> None:
        self._started.checkpoint.check_owned()
        self._take_events()
        self._started.clean_up()
        self._started = self._start(self._started.checkpoint)
        for function in self._told:
            self._tell(function)
        if self._stop_asked:
            self._started.run_directory.ask_to_stop()

    def _take_events(self) -> None:
        for event in self._started.run_directory.new_events():
            kind = event.pop("kind")
            if kind == "batch":
                self._take_batch(**event)
            elif kind == "queues":
                self._take_queues(**event)
            elif kind in ("broken", "whole"):
                self._take_broken(**event)
            elif kind in KINDS:
                self._troubles.take(kind, **event)
            else:
                with self._lock:
                    self._figures.set_latest(**event)

    def _take_broken(
        self, queue: str, offset: int | None = None, text: str | None = None, hint: str | None = None
    ) -> None:
        with self._lock:
            self._figures.set_broken(queue, offset, text)
        if text is None:
            tell_mended(self._job, queue)
        else:
            tell_set_aside(self._job, queue, offset, text, hint)

    def _only_broken(self) -> Exception | None:
        """Return the error of a bounded run in which no queue could be read."""
        status = self._figures.status(JobState.FINISHED, 0.0, None)
        if not status.only_broken_queues:
            return None
        first = status.queues[0]
        return BrokenQueueError(first.broken or "", job=self._job, queue=first.queue, offset=first.offset)

    def _take_batch(self, batch_id: int, tasks: list[Any]) -> None:
        with self._lock:
            new = self._figures.add_batch(batch_id, tasks)
        if new:
            self._restarts = 0
            if self._full_since is not None:
                self._full_since = None
                logger.warning("job %s continues: its checkpoint can be written again", self._job)
            now = self._clock.monotonic()
            seconds, self._batch_seconds = now - self._batch_seconds, now
            self._measure(tasks, seconds)
            self._hooks.headrace_checkpoint_completed(job=self._job, checkpoint_id=batch_id + 1, seconds=seconds)

    def _measure(self, tasks: list[Any], seconds: float) -> None:
        """Add the counts of the workers in a micro-batch."""
        meter = self._plan.meter
        if not meter.enabled:
            return
        for each in (each for task in tasks for each in task.get("metrics", ())):
            meter.merge(each)
        for task in tasks:
            self._state_bytes.update({name: shard.get("state_bytes") or 0 for name, shard in task["shards"].items()})
        meter.set(STATE_SIZE, sum(self._state_bytes.values()))
        meter.observe(CHECKPOINT_DURATION, seconds)
        meter.set(CHECKPOINT_TIME, self._clock.now())

    def _take_queues(self, added: list[Any], gone: list[Any]) -> None:
        for source, name, offset in added:
            with self._lock:
                self._figures.add_queue(Queue(name, source), offset)
            self._hooks.headrace_queue_added(job=self._job, queue=Queue(name, source))
        for source, name in gone:
            self._hooks.headrace_queue_removed(job=self._job, queue=Queue(name, source))

    def _cause(self, raised: Exception) -> Exception:
        """Return what made the query fail: the error of a worker, else the first line of what Spark says."""
        if isinstance(raised, HeadraceError):
            return raised
        text = str(raised)
        logger.debug("job %s failed: %s", self._job, text)
        found = original_error(text)
        if found is None or isinstance(found, OSError):
            full = storage_full(text, self._job, self._checkpoint)
            if full is not None:
                return full
        if found is not None:
            return found
        if _says_that_java_has_ended(raised):
            return JobFailedError(
                "Spark's Java process has ended",
                job=self._job,
                hint="it was probably killed because memory ran out; when the job is started again, it continues from its checkpoint",
            )
        reason = reason_in(text) or type(raised).__name__
        return JobFailedError(
            f"Spark failed: {reason}", job=self._job, hint=hint_for(text, self._started.in_use.log_file)
        )


def _says_that_java_has_ended(raised: Exception) -> bool:
    """Return whether a call of Java has failed because its process has ended, before the call or in the middle of it.

    py4j raises a bare Py4JError if the connection breaks while it waits for the answer: neither an exception of Java's nor a trace.
    """
    if isinstance(raised, ConnectionError | Py4JNetworkError):
        return True
    return isinstance(raised, Py4JError) and not isinstance(raised, Py4JJavaError) and "Trace:" not in str(raised)
