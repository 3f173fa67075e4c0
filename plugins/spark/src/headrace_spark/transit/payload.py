"""How a job travels to the worker processes: the plan as cloudpickle bytes, unpickled once per process."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from headrace.foundation.errors import BrokenQueueError, CheckpointError, JobError, PlanError
from headrace.interfaces.source import Source
from headrace.plan.stages import idle_timeouts_us, tick_seconds
from headrace.runtime.code_of_jobs import unimportable_modules_by_value
from pyspark import cloudpickle as untyped_cloudpickle

from headrace_spark.checkpoints.object_stores import S3Options
from headrace_spark.checkpoints.offsets import JobIdentity
from headrace_spark.checkpoints.ownership import Ownership, Spans
from headrace_spark.checkpoints.state_files import state_files
from headrace_spark.dataframes.frame_source import DataFrameSource
from headrace_spark.processes.kept_memory import keep_memory_of_polars
from headrace_spark.processes.output import print_to_driver
from headrace_spark.shards.topology import Address, Topology
from headrace_spark.transit.blobs import Blobs
from headrace_spark.transit.troubles import TroubleNotes

if TYPE_CHECKING:
    from headrace.plan.graph import Plan

    from headrace_spark.shards.shard_state import StateChain

cloudpickle: Any = untyped_cloudpickle
#: Plans kept per process. More than one only while jobs of one session overlap.
_PLANS_MAX = 4
_plans: OrderedDict[str, Plan] = OrderedDict()
_topologies: OrderedDict[str, Topology] = OrderedDict()


@dataclass(frozen=True)
class KeyedPlan:
    """What the planner of micro-batches must know about a job with keyed stages."""

    shards: int
    #: Shuffle ids by level, see ``topology``.
    levels: tuple[tuple[str, ...], ...]
    #: Per source how long a queue may be silent before it is not waited for.
    idle_timeouts_us: Mapping[str, int]
    #: How often operators that depend on the clock get a tick without data; None: there is no such operator.
    tick_seconds: float | None
    #: The directory of the shards' state, as a URI.
    state_uri: str = ""
    #: How workers reach that directory if it is in S3.
    s3: S3Options | None = None
    #: The smallest value that is added to the numbers of a job that begins: sinks have rows of smaller entries.
    base_least: int = 0
    #: What numbers are added to changes from the first to the second in micro-batches that are planned from now on.
    base_moved: tuple[int, int] | None = None
    #: Distinguishes the state files of this checkpoint from others; None: an older version of headrace created it.
    checkpoint: str | None = None
    #: Whether the shards began with the state of a savepoint.
    has_beginning: bool = False
    #: Which run's state files count, by micro-batch.
    spans: Spans = field(default_factory=Spans)

    def chain(self, address: Address) -> StateChain:
        """Return the state files of a shard."""
        from headrace_spark.shards.shard_state import NoState, StateChain

        if not self.state_uri:
            return NoState()
        files = state_files(self.state_uri, self.s3)
        return StateChain(files, address, self.checkpoint, has_beginning=self.has_beginning, spans=self.spans)

    @classmethod
    def of(cls, plan: Plan, shards: int, state_uri: str = "") -> KeyedPlan | None:
        """Return what concerns a plan's keyed stages; None when it has none. Raises PlanError."""
        topology = Topology(plan, shards)
        if not topology.levels:
            return None
        levels = tuple(tuple(names) for names in topology.levels)
        return cls(shards, levels, idle_timeouts_us(plan), tick_seconds(plan), state_uri)


@dataclass(frozen=True)
class FrameInput:
    """What workers must know of a job that reads DataFrames. There is no planner: Spark plans its own sources."""

    #: By id of the source node the column of event time, if the job has a watermark there.
    time_columns: Mapping[str, str | None]
    #: Sources whose rows keep the order of their partitions.
    in_order: frozenset[str] = frozenset()
    #: What the number of a micro-batch is added to, so that in sinks its rows come after those of earlier runs.
    base: int = 0


@dataclass(frozen=True)
class JobPayload:
    """All that a process needs to run a part of a job. Pickled with Spark's source and sink; made by the driver."""

    #: The unique name of this run: the key of what processes keep between batches.
    token: str
    identity: JobIdentity
    #: The sources alone as well: planning micro-batches needs nothing else of the plan, and is quicker to start so.
    sources_bytes: bytes
    plan_bytes: bytes
    #: Where the driver imports from, when the workers are on its machine; else empty.
    import_paths: tuple[str, ...]
    #: The driver's working directory, when the workers are on its machine: relative paths mean the same there.
    working_directory: str | None
    #: Where processes of the driver's machine tell the driver; None: nobody follows the query.
    run_directory: str | None
    until: Literal["end"] | None
    discovery_seconds: float
    idle_wait_seconds: float
    retry_seconds: float
    #: Records given to the operators at once.
    batch_records: int
    #: Records read in one micro-batch, over all queues; None: the planner finds how many are best.
    micro_batch_records: int | None
    parallelism: int
    #: Where a job without checkpoint begins, as JSON; None: the planner finds out.
    beginning: Mapping[str, Any] | None = None
    #: Whether the driver tells the planner where the queues of a bounded run end.
    driver_finds_ends: bool = False
    #: What an earlier run's micro-batch that was not completed is numbered, if there is one: it is run again.
    replayed_batch_id: int | None = None
    #: Whether a queue that cannot be read as it is stops the job, rather than being set aside.
    stops_on_broken_queues: bool = False
    #: Whether what tasks have read comes together behind them, so that several can read one queue.
    cuts_ranges: bool = False
    #: None: the job has no keyed stages.
    keyed: KeyedPlan | None = None
    #: Sinks that have all results of the keyed stages from an earlier run over the same input.
    known_outputs: frozenset[str] = frozenset()
    #: The DataFrames that the job reads, perhaps beside sources of headrace; None: it reads none.
    frames: FrameInput | None = None
    #: Whether it runs as a plain batch query: one piece of work to the end of the input, and nothing is kept of it.
    batch: bool = False
    #: Whether the stages are part of queries of the user's, which Spark starts and stops.
    in_user_query: bool = False
    #: Whether state belongs to a query as Spark knows it, by the id in its checkpoint, because no planner plans what is read.
    state_by_query: bool = False
    #: The run's claim of its checkpoint; None: the run keeps none.
    ownership: Ownership | None = None
    #: The Python of the job's package, where that came into a session that ran already; None: the session's own.
    workers_python: str | None = None
    #: The shortest time between the starts of two micro-batches.
    trigger_seconds: float = 0.0
    #: Whether the workers of all stages see the files of one machine, and the sink stage tells when a micro-batch is completed.
    uses_blobs: bool = False

    def blobs(self, batch_id: int) -> Blobs | None:
        """Return where a task of a micro-batch leaves frames for the next stage; None: they go through Java."""
        if not self.uses_blobs:
            return None
        assert self.run_directory is not None, "a query that nobody follows removes no files"
        return Blobs(self.run_directory, batch_id)

    def of_query(self, query_id: str) -> JobPayload:
        """Return the payload for a query whose state is in its own directory."""
        assert self.state_by_query
        keyed = self.keyed
        if keyed is not None:
            keyed = replace(keyed, state_uri=f"{keyed.state_uri}/{query_id}", checkpoint=query_id)
        return replace(self, token=f"{self.token}-{query_id}", keyed=keyed)

    @property
    def closes_windows(self) -> bool:
        """Whether the end of the input closes all windows. Not in a user's streaming query, which may continue at any time."""
        return self.until == "end" and (self.batch or not self.in_user_query)

    @property
    def shuffles(self) -> bool:
        """Whether what tasks have read goes to others, by shard or by queue. Otherwise the task that reads also writes."""
        return self.keyed is not None or self.cuts_ranges

    @property
    def partitions(self) -> int:
        """Into how many partitions Spark shuffles: one per shard number, or one per task."""
        return self.parallelism if self.keyed is None else self.keyed.shards

    def patience_seconds(self, error: Exception) -> float:
        """Return how long a range that was planned is waited for, when reading it fails with this error."""
        broken = isinstance(error, BrokenQueueError) and self.stops_on_broken_queues
        return 0.0 if broken else self.retry_seconds

    def check_owned_on_driver(self) -> None:
        """Check that no later run has claimed the checkpoint. Raises CheckpointError, RetriableError when it cannot be read."""
        if self.ownership is not None:
            self.ownership.check_on_driver()

    def check_owned_in_worker(self, batch_id: int) -> None:
        """Check that a task of a micro-batch may still store its results. Raises CheckpointError, RetriableError."""
        if self.ownership is None:
            return
        try:
            self.ownership.check_in_worker(batch_id)
        except CheckpointError as error:
            TroubleNotes(self.run_directory).fenced(batch_id, error.message)
            raise

    def chain(self, address: Address) -> StateChain:
        """Return the state files of a shard of keyed stages."""
        assert self.keyed is not None
        return self.keyed.chain(address)

    def topology(self) -> Topology:
        """Return the keyed stages of the plan, the same object whenever this process asks."""
        found = _topologies.get(self.token)
        if found is None:
            found = _topologies[self.token] = Topology(self.plan(), self.partitions)
            while len(_topologies) > _PLANS_MAX:
                _topologies.popitem(last=False)
        return found

    def plan(self) -> Plan:
        """Return the plan, the same object whenever this process asks. Called at the begin of every piece of work."""
        self._settle_in()
        found = _plans.get(self.token)
        if found is None:
            found = unpickled(self.plan_bytes)
            assert found is not None
            tell_run(sources_of(found), self.until)
            _plans[self.token] = found
            while len(_plans) > _PLANS_MAX:
                _plans.popitem(last=False)
        return found

    def sources(self) -> Mapping[str, Source]:
        """Return copies of the sources, by node id. Called once, by the planning process."""
        self._settle_in()
        sources: Mapping[str, Source] = unpickled(self.sources_bytes)
        tell_run(sources, self.until)
        return sources

    def _settle_in(self) -> None:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # Spark runs one task per core
        keep_memory_of_polars(threads=True)
        print_to_driver()
        if self.working_directory is not None:
            os.chdir(self.working_directory)
        sys.path.extend(path for path in self.import_paths if path not in sys.path)


def tell_run(sources: Mapping[str, Source], until: Literal["end"] | None) -> None:
    """Tell the sources whether the run ends with their input."""
    for source in sources.values():
        source.use_run(until=until)


def sources_of(plan: Plan) -> Mapping[str, Source]:
    """Return the sources of a plan that headrace reads, by node id: not DataFrames, whose reading Spark plans.

    Raises PlanError for one that only one process can read.
    """
    sources = {name: node.source for name, node in plan.sources.items() if not isinstance(node.source, DataFrameSource)}
    for name, source in sources.items():
        if not source.read_by_copies:
            raise PlanError(
                f"the source {name!r} can be read only by the process that opened it, and Spark reads in several processes",
                job=plan.job_name,
                plugin=name,
                hint="run the job with backend='light'; or write to a topic with a job on light, and read the topic with a job on Spark",
            )
    return sources


def pickled(part: object, job: str) -> bytes:
    """Return a plan or a part of it as bytes. Raises PlanError when something in it cannot travel."""
    with unimportable_modules_by_value(cloudpickle):
        try:
            content: bytes = cloudpickle.dumps(part)
        except Exception as error:  # whatever a user's object raises: it cannot travel
            raise PlanError(
                f"the job cannot be sent to Spark's workers: {error}",
                job=job,
                hint="a function or object of the job holds something that cannot be pickled, such as a lock, "
                "a connection or an open file; create it at its first use",
            ) from error
    return content


def unpickled(content: bytes) -> Any:
    """Return what ``pickled`` made into bytes: never anything that comes from outside.

    Raises JobError when a module that it needs is not installed here.
    """
    try:
        return cloudpickle.loads(content)
    except ModuleNotFoundError as error:
        raise JobError(
            f"the job needs the module {error.name!r}, which this worker process cannot import",
            plugin="spark",
            hint="pack it with the job (headrace package), install it where the workers run, "
            "or ship it: spark-submit --py-files, or conf spark.submit.pyFiles",
        ) from error
