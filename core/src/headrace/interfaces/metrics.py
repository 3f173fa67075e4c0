"""The metrics of a running job, and the interface of exporters, which send or show them.

Names follow OpenTelemetry: dots, no unit in the name. The name for Prometheus is derived by OpenTelemetry's rules:
``headrace.checkpoint.duration`` in seconds is ``headrace_checkpoint_duration_seconds``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram"]
#: Upper bounds of durations, in seconds.
DURATION_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
#: Upper bounds of how old records are, in seconds.
LATENCY_BOUNDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 86400.0)
#: The value of a label that sums up all combinations beyond the limit.
OTHERS = "(others)"
_SUFFIXES = {"s": "_seconds", "By": "_bytes"}


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of a metric. ``unit`` is ``s``, ``By``, or the name of the counted things, in braces: ``{row}``.

    ``join`` tells how gauges of several processes are combined: by their sum, or by the greatest.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    #: Upper bounds of the buckets of a histogram, growing, without infinity.
    bounds: tuple[float, ...] = ()
    join: Literal["sum", "max"] = "sum"

    @property
    def full_name(self) -> str:
        """The name in OpenTelemetry."""
        return f"headrace.{self.name}"

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, of a histogram without ``_bucket``, ``_sum`` and ``_count``."""
        total = "_total" if self.kind == "counter" else ""
        return f"headrace_{self.name.replace('.', '_')}{_SUFFIXES.get(self.unit, '')}{total}"


def _counter(name: str, unit: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", unit, text, labels)


def _gauge(name: str, unit: str, text: str, *labels: str, join: Literal["sum", "max"] = "sum") -> Metric:
    return Metric(name, "gauge", unit, text, labels, join=join)


def _histogram(name: str, text: str, *labels: str, bounds: tuple[float, ...] = DURATION_BOUNDS) -> Metric:
    return Metric(name, "histogram", "s", text, labels, bounds)


SOURCE_RECORDS = _counter("source.records", "{record}", "Records read.", "source", "queue")
SOURCE_IO = _counter("source.io", "By", "Bytes of the bodies read; of sources that give columns, of these.", "source")
SOURCE_RETRIES = _counter("source.retries", "{retry}", "Reads that failed and were tried again.", "source")
SOURCE_RENEWALS = _counter(
    "source.renewals",
    "{renewal}",
    "Clients of a source that were replaced: they did not find back to their server.",
    "source",
)
NODE_INPUT_ROWS = _counter("node.input.rows", "{row}", "Rows that came to a node.", "node")
NODE_OUTPUT_ROWS = _counter("node.output.rows", "{row}", "Rows that a node gave.", "node")
NODE_INPUT_SIZE = _counter("node.input.size", "By", "Size in memory of the rows that came to a node.", "node")
NODE_OUTPUT_SIZE = _counter("node.output.size", "By", "Size in memory of the rows that a node gave.", "node")
NODE_DURATION = _counter("node.duration", "s", "Time in which a node was at work.", "node")
SINK_ROWS = _counter("sink.rows", "{row}", "Rows stored.", "sink")
SINK_IO = _counter("sink.io", "By", "Size in memory of the rows stored.", "sink")
SINK_SKIPPED = _counter("sink.rows_skipped", "{row}", "Rows that sinks had stored before: a replay.")
SINK_RETRIES = _counter("sink.retries", "{retry}", "Inserts that failed and were tried again.", "sink")
SINK_DURATION = _histogram("sink.insert.duration", "Time of one insert.", "sink")
BATCH_DURATION = _histogram("batch.duration", "Time to take one batch through a stage.", "stage")
RECORD_LATENCY = _histogram(
    "record.latency", "From the source's time of a record to its rows in the sink.", "sink", bounds=LATENCY_BOUNDS
)
QUEUE_LAG = _gauge("queue.lag.records", "{record}", "Records in a queue that are not read yet.", "source", "queue")
QUEUE_LAG_TIME = _gauge(
    "queue.lag.time", "s", "Age of the last record that was read, 0 when none is left.", "source", "queue", join="max"
)
#: Kept to compute ``QUEUE_LAG_TIME``.
QUEUE_TIME = _gauge("queue.record.timestamp", "s", "The source's time of the last record read.", "source", "queue",
                    join="max")  # fmt: skip
BROKEN_QUEUES = _gauge("queues.broken", "{queue}", "Queues that are set aside.")
WATERMARK_LAG = _gauge("watermark.lag", "s", "How far event time is behind the clock.", join="max")
STATE_ROWS = _gauge("state.rows", "{row}", "Rows that operators remember.")
STATE_SIZE = _gauge("state.size", "By", "Size of the stored state that a restart reads.")
CHECKPOINT_DURATION = _histogram("checkpoint.duration", "Time to make a checkpoint; on Spark, of a micro-batch.")
CHECKPOINT_IO = _counter("checkpoint.io", "By", "Bytes of state that checkpoints wrote.")
CHECKPOINT_TIME = _gauge("checkpoint.timestamp", "s", "When the checkpoint was last up to date.", join="max")
MEMORY_USED = _gauge(
    "memory.used",
    "By",
    "Resident memory of the process that runs the job, and of its workers (light, with memory_max_bytes).",
    join="max",
)
MEMORY_PART = _gauge(
    "memory.part", "By", "Of it, what a part is known to hold: a node, rows that wait for a sink, workers.", "part"
)
DEAD_LETTERS = _counter(
    "dead_letters", "{record}", "Dead letters, by refusing node and kind of error.", "node", "error"
)
LATE_ROWS = _counter("late_rows", "{row}", "Rows that came too late for their window or join.")
RESTARTS = _counter(
    "restarts", "{restart}", "Starts of the job from its checkpoint after a failure, by its own process."
)
JOB_STATE = _gauge("job.state", "{job}", "1 for the state that the job is in.", "state", join="max")
JOB_UPTIME = _gauge("job.uptime", "s", "Time since the start of the job.", join="max")

#: The figures of core, by name. Plug-ins offer more by the hook ``headrace_metrics``.
METRICS: Mapping[str, Metric] = {each.name: each for each in list(globals().values()) if isinstance(each, Metric)}


@dataclass(frozen=True, slots=True)
class Series:
    """One metric with the values of its labels. For a histogram, ``counts`` has one number for each bucket; the last
    bucket is above all bounds.
    """

    labels: tuple[str, ...]
    #: The value; of a histogram, the sum of the observed values.
    value: float
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one figure."""

    metric: Metric
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The figures of one job at one moment: what ``handle.metrics()`` returns."""

    job: str
    backend: str
    families: tuple[Family, ...]

    def value(self, metric: Metric, *labels: str) -> float:
        """Return the value of a metric, or the sum over all its series if no labels are given; 0 if there is none."""
        found = [each for family in self.families if family.metric.name == metric.name for each in family.series]
        return sum(each.value for each in found if not labels or each.labels == labels)

    def to_json(self) -> Any:
        """Return a JSON object, which another process reads with ``from_json``."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, value: Any) -> Snapshot:
        """Read what ``to_json`` returned. Raises msgspec.ValidationError for anything else."""
        return msgspec.convert(value, cls)


@dataclass(frozen=True, slots=True)
class Span:
    """One step of rows on their way from source to sink. Times are microseconds since the Unix epoch.

    ``batch``: a batch was decoded and taken through the verbs in front of the first shuffle or sink. ``shard``: a shard
    took an entry. ``store``: a sink stored rows. ``queue``, ``first`` and ``last`` say which rows: of a shard, the
    numbers of entries. ``group`` is the entry or micro-batch to which batches and shards belong; None: there are no
    shards.
    """

    kind: Literal["batch", "shard", "store"]
    node: str
    queue: str
    first: int
    last: int
    rows: int
    begin_us: int
    end_us: int
    group: int | None = None


class MetricsExporter(ABC):
    """Sends or shows the metrics of jobs. One object may serve several jobs, and is used by several threads.

    An exporter that was made from a URL belongs to one job and is closed when the job has ended. One that the caller
    made is never closed by headrace. An error that an exporter raises after ``open`` is logged, and the job continues.
    """

    #: Whether ``take_span`` is to be called.
    wants_spans: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def from_url(cls, url: str) -> MetricsExporter:
        """Make the exporter that ``job.run(metrics=url)`` names. Raises OptionError."""

    def open(self) -> None:
        """Called before each job that uses it starts. Raises JobError if metrics cannot be shown, for example because a
        port is in use; then the job does not start.
        """

    @abstractmethod
    def job_started(self, job: str, read: Callable[[], Snapshot]) -> None:
        """Called when a job has started. ``read`` returns its metrics; it may be called at any time, in any thread."""

    def take_span(self, job: str, span: Span) -> None:
        """Called for every span of a job, if ``wants_spans`` is true. It must return quickly, because the job waits
        for it.
        """

    @abstractmethod
    def job_ended(self, job: str, last: Snapshot) -> None:
        """Called when a job has ended, with its last metrics. ``handle.wait()`` returns afterwards, so an exporter that
        sends metrics sends them now.
        """

    def close(self) -> None:
        """Release what ``open`` has opened, such as ports and threads. May be called twice."""
