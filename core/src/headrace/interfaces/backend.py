"""What a backend implements: it runs plans, and reports the status of a running job."""

from __future__ import annotations

import enum
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.flow.dead_letters import DeadLetterReason
from headrace.foundation.errors import CheckpointError, JobError
from headrace.interfaces.settings import Settings

if TYPE_CHECKING:
    from headrace.interfaces.metrics import Snapshot
    from headrace.jobs.dsl import Stream
    from headrace.jobs.job import Job
    from headrace.plan.graph import Plan

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JobState(enum.Enum):
    """The state of a job: STARTING, RUNNING and STOPPING while it runs; then FINISHED, STOPPED or FAILED for good.

    FINISHED: the job reached the end of its input. STOPPED: somebody stopped it. FAILED: an error ended it, see
    ``JobStatus.error``.
    """

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """How far one queue has been read. Offsets are those of the next record to read; ``lag`` is a number of records.

    ``latest`` is the end of the queue when it was last checked. If more has been read since then, the queue is longer
    now, so ``latest`` is never below ``offset``; a backend may pass the older value.
    ``broken`` is the reason if the queue is set aside: nothing beyond ``offset`` is read from it for now.
    """

    queue: str
    offset: int
    latest: int | None = None
    records: int = 0
    dead_letters: int = 0
    broken: str | None = None

    def __post_init__(self) -> None:
        if self.latest is not None and self.latest < self.offset:
            object.__setattr__(self, "latest", self.offset)

    @property
    def lag(self) -> int | None:
        """How many records are not read yet, as of the last check of the queue's end; None if that end is not known."""
        return None if self.latest is None else max(0, self.latest - self.offset)


def event_time(micros: int | None) -> datetime | None:
    """Return a time in microseconds since the Unix epoch as a datetime; None for None, and for what datetime cannot
    hold.
    """
    if micros is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What ``handle.status()`` returns: consistent figures of one moment."""

    job: str
    backend: str
    state: JobState
    records_read: int = 0
    rows_written: Mapping[str, int] = field(default_factory=dict)
    #: Rows that sinks had stored before, in this run or an earlier one: a replay.
    rows_skipped: int = 0
    dead_letters: int = 0
    #: The most frequent reasons of this run's dead letters.
    dead_letter_reasons: tuple[DeadLetterReason, ...] = ()
    #: Where dead letters go: each sink with its path (or topic, table, …).
    dead_letter_places: tuple[str, ...] = ()
    queues: tuple[QueueStatus, ...] = ()
    checkpoint_id: int = 0
    seconds: float = 0.0
    error: str | None = None
    #: The event time after the first shuffle; None: not known, or the job has no event time.
    watermark: datetime | None = None
    #: Rows (keys, groups, waiting rows) that operators remember.
    state_rows: int = 0
    #: Rows that came too late for their window or join, in this run.
    late_rows: int = 0
    #: Shards of keyed stages that this instance has, with how far each is in its shuffle, where instances share them.
    shards: tuple[QueueStatus, ...] = ()

    @property
    def only_broken_queues(self) -> bool:
        """Whether nothing was read and every queue was set aside. A bounded run that ends like this has failed."""
        return bool(self.queues) and not self.records_read and all(queue.broken is not None for queue in self.queues)


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a job has done, returned when it has ended. ``rows_written`` counts rows per sink."""

    job: str
    backend: str
    state: JobState
    records_read: int
    rows_written: Mapping[str, int]
    dead_letters: int
    seconds: float
    queues: tuple[QueueStatus, ...] = ()
    error: str | None = None
    rows_skipped: int = 0
    late_rows: int = 0
    dead_letter_reasons: tuple[DeadLetterReason, ...] = ()
    dead_letter_places: tuple[str, ...] = ()

    @property
    def all_dead_letters(self) -> bool:
        """Whether records were read and all of them became dead letters."""
        stored = sum(self.rows_written.values()) + self.rows_skipped
        return not stored and self.dead_letters >= self.records_read > 0

    @property
    def broken_queues(self) -> tuple[QueueStatus, ...]:
        """The queues that were set aside when the job ended. Their records after the offset were not read."""
        return tuple(queue for queue in self.queues if queue.broken is not None)

    @classmethod
    def of(cls, status: JobStatus) -> JobReport:
        """Return the report of a job whose last status this is."""
        return cls(
            job=status.job,
            backend=status.backend,
            state=status.state,
            records_read=status.records_read,
            rows_written=status.rows_written,
            dead_letters=status.dead_letters,
            seconds=status.seconds,
            queues=status.queues,
            error=status.error,
            rows_skipped=status.rows_skipped,
            late_rows=status.late_rows,
            dead_letter_reasons=status.dead_letter_reasons,
            dead_letter_places=status.dead_letter_places,
        )

    def __str__(self) -> str:
        rate = self.records_read / self.seconds if self.seconds else 0.0
        rows = ", ".join(f"{count:,} rows to {sink}" for sink, count in self.rows_written.items()) or "no rows written"
        skipped = f" ({self.rows_skipped:,} were there already)" if self.rows_skipped else ""
        late = f", {self.late_rows:,} too late" if self.late_rows else ""
        places = f" to {', '.join(self.dead_letter_places)}" if self.dead_letters and self.dead_letter_places else ""
        reasons = "".join(f"\n  {reason}" for reason in self.dead_letter_reasons)
        reasons += "".join(f"\n  set aside: {q.queue} at {q.offset}: {q.broken}" for q in self.broken_queues)
        return (
            f"{self.job} on {self.backend}: {self.state.value} after {self.seconds:.1f} s; "
            f"{self.records_read:,} records read ({rate:,.0f}/s), {rows}{skipped}, {self.dead_letters:,} dead letters"
            f"{places}{late}{reasons}"
        )


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run that every backend has.

    ``until``: ``"end"`` reads the input that exists when the job starts, and then stops; None runs until the job is
    stopped.
    ``checkpoint``: a directory to restart from; None: the job starts at the beginning each time and stores no state.
    ``max_batch_records``: how many records a queue gives at most in one batch; None: the backend's own number.
    ``allow_changed_input``: use the state of a verb although the filters, projections or sources before it have
    changed.
    ``replace_output``: outputs that store the definition of their rows remove these rows first, also those of another
    job.
    ``from_savepoint``: the savepoint to start from, with an empty ``checkpoint`` or none. If the checkpoint started
    from this savepoint, the job continues from the checkpoint.
    ``broken_queues``: what happens to a queue that cannot be read (permission, damage): "set_aside" reads the others
    and tries it again from time to time, "stop" stops the job.
    ``drop_state``: ids of verbs whose state in the savepoint is left out. ``sinks_ahead``: what happens if a sink has
    rows from after the checkpoint or savepoint at which the job starts: "refuse" raises an error, "write" writes
    these rows once more, after the old ones.
    ``metrics``: where metrics of the job are sent: a URL ("prometheus://127.0.0.1:9464"), a ``MetricsExporter``, or
    several of these; True: they are counted for ``handle.metrics()`` only.
    """

    until: Literal["end"] | None = "end"
    checkpoint: str | None = None
    checkpoint_interval: timedelta = timedelta(seconds=10)
    discovery_interval: timedelta = timedelta(seconds=2)
    max_batch_records: int | None = None
    #: How long the start waits for servers of sources, sinks and state stores that do not answer. Other errors end it
    #: immediately.
    start_timeout: timedelta = timedelta(minutes=1)
    show_progress: bool = False
    allow_changed_input: bool = False
    replace_output: bool = False
    broken_queues: Literal["set_aside", "stop"] = "set_aside"
    from_savepoint: str | None = None
    drop_state: Sequence[str] = ()
    sinks_ahead: Literal["refuse", "write"] = "refuse"
    metrics: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def batch_records(self, usual: int) -> int:
        """Return how many records a batch has at most. A backend calls it with its own default."""
        return usual if self.max_batch_records is None else self.max_batch_records


class JobHandle(ABC):
    """A job that was started. It can be used from any thread. As a context manager it stops the job at the end of the
    block.
    """

    #: What runs; None for a handle that was not made by ``Job.start``.
    plan: Plan | None = None

    @abstractmethod
    def status(self) -> JobStatus:
        """Return the current status of the job."""

    @abstractmethod
    def stop(
        self, timeout: timedelta = timedelta(seconds=30), *, savepoint: str | os.PathLike[str] | None = None
    ) -> None:
        """Stop gracefully: finish the current batch, flush, checkpoint, close. Returns when that is done.

        With ``savepoint``, a savepoint of the moment when the job stops is written to that directory. Raises
        TimeoutError if the job has not stopped in time, and CheckpointError if the savepoint cannot be written; the
        job has stopped in that case, too. Stopping a job that has ended does nothing; with ``savepoint`` it raises an
        error.
        """

    def savepoint(self, path: str | os.PathLike[str], timeout: timedelta = timedelta(minutes=5)) -> Path:
        """Write a savepoint while the job continues: a directory from which any backend can start the job again.

        Returns its path when it is on the disk. Raises CheckpointError if it cannot be written, JobError if the job
        has ended or cannot write savepoints, and TimeoutError if it takes too long (the savepoint may still be
        written later).
        """
        raise CheckpointError(f"{type(self).__name__} does not support savepoints", option="savepoint")

    @abstractmethod
    def wait(self, timeout: timedelta | None = None) -> JobReport:
        """Wait until the job ends and return its report.

        Raises JobFailedError (with the cause chained) when it failed, TimeoutError when it has not ended in time.
        """

    def metrics(self) -> Snapshot:
        """Return the figures of the job at this moment. Without the option ``metrics`` these are only the figures of
        ``status``.
        """
        from headrace.interfaces.meter import Meter
        from headrace.interfaces.registry import default_registry

        registry = default_registry()
        definitions = {name: registry.find("metric", name) for name in registry.names("metric")}
        meter = Meter(enabled=False) if self.plan is None or not self.plan.meter.enabled else self.plan.meter
        return meter.snapshot(self.status(), definitions)

    def update_rules(self, rules: Any, *, node: str | None = None, who: str | None = None) -> Any:
        """Replace the rules of a ``rules`` verb while the job runs. The job does not pause and reads nothing again.

        ``rules``: the rules, as the verb ``rules`` accepts them. ``node``: the name of the verb, if the job has
        several. ``who``: for the audit file. Returns the new version and which rules were rejected. Raises JobError
        when no rule can be used.
        """
        if self.plan is None:
            raise JobError(
                "this handle does not know the plan of its job, so it cannot replace rules",
                hint="replace rules by the handle that job.start() returned",
            )
        spec, schema = self.plan.with_rules(node)
        return spec.replace_rules(rules, schema, who)

    def __enter__(self) -> JobHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Backend(ABC):
    """Runs plans: the base of light, Spark and backends of others. Found by name (``job.run(backend="light",
    **options)``).

    An object is made from validated options for each ``run``, ``start`` or ``prepare`` of a job, in the process that
    calls it. Only ``start`` must be implemented. The optional methods belong to features (offsets, savepoints of
    versions, DataFrames); their defaults do nothing, or raise an error that says so. A backend must keep the guarantees
    that docs/jobs.md states: records are read again until all rows made from them are stored, and the results do not
    depend on how the input is cut into batches.
    """

    Settings: ClassVar[type[Settings]] = Settings

    def __init__(self, settings: Any = None) -> None:
        self.settings: Any = settings if settings is not None else self.Settings()

    @abstractmethod
    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        """Start the plan and return immediately. Called once for each start of a job.

        Raises JobError for errors that can be found before anything is read: wrong options, missing topics or tables, a
        checkpoint of another job. Later errors are in ``JobHandle.status().error``, and ``JobHandle.wait`` raises them.
        """

    def make_ready(self, plan: Plan, options: RunOptions) -> None:
        """Do slow work before ``start`` that touches neither checkpoint nor sources nor sinks, such as imports and
        compiling.

        ``Job.prepare`` calls it, while another process may still run the job with the same checkpoint. The default does
        nothing.
        """

    def load_ahead(self, plan: Plan, options: RunOptions) -> None:
        """Do slow work before ``start`` that reads the checkpoint or starts an engine. ``start`` uses the results that
        are still valid.

        ``PreparedJob.load_ahead`` calls it after ``make_ready``, any number of times, while another process still runs
        the job with the same checkpoint. So it must not lock, write or remove anything there, and the state that it
        reads may be replaced a moment later. It raises only errors that ``start`` would raise, too. The default does
        nothing.
        """

    def stored_positions(self, checkpoint: str) -> Mapping[str, int]:
        """Return the next offset of each queue that a checkpoint of a stopped job has, by ``source/queue``.

        Raises CheckpointError if the backend cannot tell, if a job runs with the checkpoint, or if it is damaged.
        """
        raise CheckpointError(f"{type(self).__name__} cannot show the offsets of a checkpoint", option="checkpoint")

    def move_positions(self, plan: Plan, checkpoint: str, offsets: Mapping[str, int]) -> Mapping[str, int]:
        """Let a stopped job continue at other offsets, by ``source/queue``; return all offsets after the change.

        Raises CheckpointError if the backend cannot do that, if the job runs, if a queue is not known, if keyed state
        belongs to the old offsets, or if a broker keeps the offsets of the job's group. The positions in sinks
        do not change: a transactional sink drops rows that it has, and refuses a gap.
        """
        raise CheckpointError(f"{type(self).__name__} cannot move the offsets of a checkpoint", option="checkpoint")

    def state_outside(self, plan: Plan) -> str | None:
        """Return, as text for messages, where the keyed state of a job is, if a copy of the checkpoint's directory
        would not contain it.

        None: such a copy, and the versions that ``headrace.runtime.kept_versions`` keeps, are enough for an earlier
        version of the job. The program that rolls versions out calls it for a prepared job: a version is refused if its
        predecessor has the state in another place.
        """
        return None

    @staticmethod
    def take_from_lost_process(checkpoint: str) -> None:
        """Free a checkpoint for the next start although its process may still exist and cannot be reached: it is
        paused, or its machine is cut off.

        A program that has acquired the right to run the job, for example a server with a lease, calls it before the
        next start. A backend removes obstacles of the start, such as a lock, if something else protects the checkpoint
        from the lost process. Raises OSError. The default does nothing.
        """

    @staticmethod
    def start_query(job: Job, session: Any, **options: Any) -> Any:
        """Start a job in the user's session and return the engine's own handle of it. ``job.to_spark(…)`` calls it.

        For backends that drive an engine with sessions. Raises JobError as ``start`` does.
        """
        raise JobError("this backend has no sessions, so a job cannot be started in one", hint="use job.start()")

    @staticmethod
    def to_dataframe(what: Job | Stream, session: Any = None, **options: Any) -> Any:
        """Return the rows of a job or stream as a DataFrame of the engine. ``job.to_dataframe(…)`` calls it.

        For backends that drive an engine with DataFrames. Raises JobError as ``start`` does.
        """
        raise JobError("this backend has no DataFrames", hint="use job.start()")
