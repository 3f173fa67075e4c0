"""Starts the streaming query of a job."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.backend import RunOptions
from headrace.interfaces.output_definition import InputRead
from headrace.interfaces.source import Source
from headrace.jobs.job import DEFAULT_DEAD_LETTERS
from headrace.plan.graph import Plan, input_schema
from headrace.plan.outputs import check_same_input, tell_outputs
from headrace.plan.state_check import check_definitions, lost_sources
from headrace.runtime.patience import Patience
from headrace.runtime.savepoint_start import SavepointStart
from headrace.runtime.shard import Shard
from headrace.runtime.sources_in_use import check_sources_free
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace_spark.checkpoints.checkpoint import SparkCheckpoint, not_shared
from headrace_spark.checkpoints.object_stores import use_checkpoint_files
from headrace_spark.checkpoints.offsets import JobIdentity, JobOffsets, KeyedMarks
from headrace_spark.checkpoints.state_files import state_files
from headrace_spark.planning.queue_ends import ENDS, beginning_of, ends_from_json, ends_of, ends_to_json
from headrace_spark.processes.session import SessionInUse, note_query, session_for
from headrace_spark.processes.settings import BATCH_RECORDS, SparkSettings
from headrace_spark.processes.temporary import remove, temporary_directory
from headrace_spark.queries.batch_run import BatchRun
from headrace_spark.queries.numbering import numbered_behind_sinks
from headrace_spark.queries.savepoints import begin_at, shards_wanted
from headrace_spark.queries.spark_stages import behind_shuffles, planned_envelopes
from headrace_spark.queries.stage_names import stage_names
from headrace_spark.queries.stream_start import started_stream
from headrace_spark.shards.shard_state import StateVersion
from headrace_spark.shards.topology import Topology
from headrace_spark.transit.payload import JobPayload, KeyedPlan, pickled, sources_of, tell_run, unpickled
from headrace_spark.transit.run_directory import RunDirectory

logger = logging.getLogger(__name__)


@dataclass
class StartedQuery:
    """A running query and what belongs to its run."""

    query: StreamingQuery | BatchRun
    run_directory: RunDirectory
    in_use: SessionInUse
    payload: JobPayload
    checkpoint: SparkCheckpoint
    #: What a bounded run that starts without a checkpoint reads; None: another kind of run, or the planner finds it.
    input_read: Callable[[], InputRead] | None
    _cleanup: contextlib.ExitStack
    #: Whether headrace plans when a micro-batch runs; it does not plan the one piece of work over batch DataFrames.
    has_planner: bool = True

    def clean_up_at_end(self) -> None:
        """Wait for the query's end, then clean up: for queries that no handle follows."""
        try:
            self.query.awaitTermination()
        except Exception as error:  # the owner of the query sees the error there
            logger.debug("query %s failed: %s", self.query.name, error)
        self.clean_up()

    def clean_up(self) -> None:
        """Remove what only this run needed. Called when the query has ended; may be called twice."""
        self._cleanup.close()
        atexit.unregister(self._cleanup.close)


def start_query(
    plan: Plan, options: RunOptions, settings: SparkSettings, before: SparkCheckpoint | None = None
) -> StartedQuery:
    """Check the outside world, find a session and start the query.

    ``before`` is the checkpoint of the query that this one replaces in a run; it must still be there.
    Raises JobError for mistakes that can be found before anything is read.
    """
    check_sources_free(plan)
    patience = Patience(plan.job_name, options.start_timeout, SystemClock())
    for name, node in plan.sinks.items():
        patience.wait_for(f"sink {name}", partial(node.sink.prepare, input_schema(node.input)))
    identity = JobIdentity.of(plan)
    plan_bytes, sources_bytes = pickled(plan, plan.job_name), pickled(sources_of(plan), plan.job_name)
    begin = Begin(identity, sources_bytes, options.until, patience)
    savepoint = SavepointStart.of(plan, options)
    if savepoint is None and not _may_have_offsets(options.checkpoint):
        begin.find()  # errors of a source are raised before Spark has started
    in_use = session_for(settings)
    warn_of_lost_dead_letters(plan, options, in_use)
    with contextlib.ExitStack() as cleanup:
        run_place = temporary_directory("run")
        cleanup.callback(remove, run_place)
        run_path = str(run_place)
        run_directory = RunDirectory(run_path)
        cleanup.callback(run_directory.remove)
        checkpoint = open_checkpoint(plan, options, in_use, cleanup)
        checkpoint.check(before)
        if options.checkpoint is not None:
            _check_fits(plan, settings, checkpoint, in_use, savepoint)
            checkpoint.claim()
        found = _gone_on_from(plan, plan_bytes, options, settings, checkpoint, in_use, begin, savepoint)
        parallelism = settings.parallelism or in_use.session.sparkContext.defaultParallelism
        payload = JobPayload(
            token=uuid.uuid4().hex[:12],
            identity=found.identity,
            sources_bytes=sources_bytes,
            plan_bytes=plan_bytes,
            import_paths=tuple(sys.path) if in_use.local else (),
            working_directory=os.getcwd() if in_use.local else None,
            run_directory=run_path,
            until=options.until,
            discovery_seconds=options.discovery_interval.total_seconds(),
            idle_wait_seconds=settings.idle_wait.total_seconds(),
            retry_seconds=settings.retry_timeout.total_seconds(),
            batch_records=options.batch_records(BATCH_RECORDS),
            micro_batch_records=settings.max_micro_batch_records,
            parallelism=parallelism,
            beginning=found.beginning,
            driver_finds_ends=begin.leave_ends(found.beginning, run_directory),
            replayed_batch_id=checkpoint.interrupted_batch(),
            stops_on_broken_queues=options.broken_queues == "stop",
            # A job without keyed stages needs another stage for it, which costs time if there is a queue for each core.
            cuts_ranges=found.keyed is not None or 0 < found.queues < parallelism,
            keyed=found.keyed,
            known_outputs=found.known,
            ownership=checkpoint.ownership(keyed=found.keyed is not None),
            trigger_seconds=settings.trigger_interval.total_seconds(),
            uses_blobs=in_use.local,
        )
        names = stage_names(plan, () if found.keyed is None else found.keyed.levels, cuts_ranges=payload.cuts_ranges)
        make = partial(_stages, payload, names, in_use)
        query = started_stream(make, names, payload, checkpoint.location, options, settings, in_use)
        note_query(query)
        # A process that ends without waiting for its job leaves nothing behind either.
        kept = cleanup.pop_all()
        atexit.register(kept.close)
        return StartedQuery(query, run_directory, in_use, payload, checkpoint, found.read, kept)


def _check_fits(
    plan: Plan,
    settings: SparkSettings,
    checkpoint: SparkCheckpoint,
    in_use: SessionInUse,
    savepoint: SavepointStart | None,
) -> None:
    """Compare the job with its checkpoint and change nothing: if this run is refused, an earlier one continues. Raises JobError."""
    stored = checkpoint.offsets()
    if stored is None:
        return
    stored[1].check_belongs_to(replace(JobIdentity.of(plan), checkpoint=checkpoint.id))
    _check_lost_sources(plan, stored[1], checkpoint)
    keyed = _keyed_plan(plan, stored[1], shards_wanted(settings.shards, savepoint), checkpoint, in_use)
    if keyed is not None:
        check_stored_definitions(plan, keyed, stored[0], checkpoint)


def _check_lost_sources(plan: Plan, stored: JobOffsets, checkpoint: SparkCheckpoint) -> None:
    """Check that a source which the job no longer has may be gone, and is in no micro-batch that is run again. Raises CheckpointError."""
    lost = lost_sources(plan, stored.sources)
    if lost and checkpoint.interrupted_batch() is not None:
        raise CheckpointError(
            f"the last micro-batch must be run again, but the job no longer has the source {min(lost)!r}, which it reads",
            job=plan.job_name,
            option="checkpoint",
            hint="start the job once as it was and stop it; then it can go on without the source",
        )


def warn_of_lost_dead_letters(plan: Plan, options: RunOptions, in_use: SessionInUse) -> None:
    """Warn if dead letters go to the working directories of workers on other machines: nobody finds them there."""
    on_shared_disk = options.checkpoint is not None and "://" not in options.checkpoint
    if not in_use.local and not on_shared_disk and DEFAULT_DEAD_LETTERS in plan.sinks:
        logger.warning(
            "job %s: dead letters are written to the working directories of Spark's workers; "
            "name an output for them: dead_letters(lambda bad: bad.to_…)",
            plan.job_name,
        )


def _may_have_offsets(checkpoint: str | None) -> bool:
    """Return whether the job may continue from a checkpoint: then its sources must not be asked without it."""
    if checkpoint is None:
        return False
    return "://" in checkpoint or (Path(checkpoint) / "spark" / "offsets").exists()


class Begin:
    """Asks copies of the sources where a job without checkpoint begins and, if it is bounded, where its queues end.

    The plan's own sources are not opened, because they are pickled. The ends are counted in a thread while Spark starts.
    """

    def __init__(
        self, identity: JobIdentity, sources_bytes: bytes, until: Literal["end"] | None, patience: Patience
    ) -> None:
        self._identity = identity
        self.patience = patience
        self._bytes = sources_bytes
        self._until = until
        self._found = False
        self._beginning: JobOffsets | None = None
        self._ends: Future[list[Any]] | None = None

    def find(self) -> JobOffsets | None:
        """Return where queues begin; called once. Raises JobError as sources do, RetriableError while a server is not available."""
        if not self._found:
            self._found = True
            sources = self._copies()
            try:
                found = partial(beginning_of, self._identity, sources)
                self._beginning = self.patience.wait_for("its sources", found)
            finally:
                _close(sources)
            if self._beginning is not None and self._until == "end":
                executor = ThreadPoolExecutor(1, thread_name_prefix="headrace ends")
                self._ends = executor.submit(self._find_ends, self._beginning)
                executor.shutdown(wait=False)
        return self._beginning

    def whole_input(self) -> tuple[JobOffsets, list[Any]]:
        """Return where queues begin and where they end now, as ``ends_to_json`` gives it. Raises what ``find`` raises."""
        beginning = self.find()
        assert beginning is not None
        assert self._ends is not None, "asked of a bounded run only"
        return beginning, self._ends.result()

    def leave_ends(self, beginning: Mapping[str, Any] | None, run_directory: RunDirectory) -> bool:
        """Let the planner have the ends once they are known. Return whether it is to wait for them.

        They are of use only to a job that begins where was looked, not where an earlier start found its beginning.
        """
        if self._ends is None or not self._begins_at(beginning):
            return False

        def leave(ends: Future[list[Any]]) -> None:
            error = ends.exception()
            if error is not None:
                logger.debug(
                    "job %s: the ends of the queues are not known yet, the planner will find them: %s",
                    self._identity.job,
                    error,
                )
            with contextlib.suppress(FileNotFoundError):  # the job has ended already
                run_directory.put(ENDS, None if error is not None else ends.result())

        self._ends.add_done_callback(leave)
        return True

    def _begins_at(self, beginning: Mapping[str, Any] | None) -> bool:
        """Return whether the job begins where was looked."""
        if self._beginning is None or beginning is None:
            return False
        return JobOffsets.from_json(beginning).begun_in(None) == self._beginning

    def input_read(
        self, beginning: Mapping[str, Any] | None, plan: Plan, keyed: KeyedPlan | None
    ) -> Callable[[], InputRead] | None:
        """Return an object that gives the ends of the run once they are known; None if the planner finds them."""
        if self._ends is None or self._beginning is None or keyed is None or not self._begins_at(beginning):
            return None
        begins, ends, shards = self._beginning.queues, self._ends, dict.fromkeys(plan.shuffles, keyed.shards)

        def read() -> InputRead:
            found = ends_from_json(ends.result())
            return InputRead.of({queue: (at, found[queue].position.offset) for queue, at in begins.items()}, shards)

        return read

    def _find_ends(self, beginning: JobOffsets) -> list[Any]:
        sources = self._copies()
        try:
            return ends_to_json(ends_of(beginning, sources))
        finally:
            _close(sources)

    def _copies(self) -> Mapping[str, Source]:
        sources: Mapping[str, Source] = unpickled(self._bytes)
        tell_run(sources, self._until)
        return sources


@dataclass(frozen=True)
class _Found:
    """What a start continues from, after checkpoint and outputs were checked."""

    identity: JobIdentity
    keyed: KeyedPlan | None
    beginning: Mapping[str, Any] | None
    known: frozenset[str]
    read: Callable[[], InputRead] | None
    #: How many queues are known.
    queues: int


def _gone_on_from(
    plan: Plan,
    plan_bytes: bytes,
    options: RunOptions,
    settings: SparkSettings,
    checkpoint: SparkCheckpoint,
    in_use: SessionInUse,
    begin: Begin,
    savepoint: SavepointStart | None,
) -> _Found:
    """Compare the job with its checkpoint and outputs, and store in both that they belong to the job. Raises JobError."""
    identity = replace(JobIdentity.of(plan), checkpoint=checkpoint.id)
    stored = checkpoint.offsets()
    if stored is not None:
        stored[1].check_belongs_to(identity)
    wanted = shards_wanted(settings.shards, savepoint)
    keyed = _keyed_plan(plan, None if stored is None else stored[1], wanted, checkpoint, in_use)
    if keyed is not None and stored is not None:
        check_stored_definitions(plan, keyed, stored[0], checkpoint)
    outputs: Mapping[str, str] | None = None if stored is None else checkpoint.outputs()
    if stored is None and savepoint is not None:
        outputs = savepoint.savepoint.outputs
    begins = keyed is not None and stored is None and savepoint is None
    tell = partial(tell_outputs, plan, outputs, begins=begins, replace=options.replace_output)
    known = begin.patience.wait_for("its sinks", tell)
    if stored is None:
        checkpoint.keep_definitions(plan.state_definitions, plan.output_digests)
    if savepoint is not None:
        begin_at(savepoint, plan_bytes, checkpoint, keyed, identity, options)
    if keyed is not None and (savepoint is None or stored is not None):
        numbered = partial(numbered_behind_sinks, plan, plan_bytes, keyed, stored, write=options.sinks_ahead == "write")
        keyed = begin.patience.wait_for("its sinks", numbered)
    checkpoint.keep_definitions(plan.state_definitions, plan.output_digests)
    beginning = checkpoint.beginning(begin.find if stored is None else None)
    if keyed is not None:
        keyed = replace(keyed, has_beginning=checkpoint.began_at_savepoint)
    read = begin.input_read(beginning, plan, keyed) if begins else None
    if known:
        check_same_input(plan, known, None if read is None else read())
    at = stored[1] if stored is not None else None if beginning is None else JobOffsets.from_json(beginning)
    return _Found(identity, keyed, beginning, frozenset(known), read, 0 if at is None else len(at.queues))


def _close(sources: Mapping[str, Source]) -> None:
    for source in sources.values():
        source.close()


def open_checkpoint(
    plan: Plan, options: RunOptions, in_use: SessionInUse, cleanup: contextlib.ExitStack
) -> SparkCheckpoint:
    place = options.checkpoint
    if place is None:
        made = temporary_directory("checkpoint")
        cleanup.callback(remove, made)
        place = str(made / "state")
    # Only the driver writes to its temporary directory, so it is local even on a cluster.
    local = in_use.local or options.checkpoint is None
    checkpoint = SparkCheckpoint(in_use.session, place, local=local, job=plan.job_name)
    checkpoint.open()
    use_checkpoint_files(in_use.session, checkpoint.location)
    cleanup.callback(checkpoint.close)
    return checkpoint


def _stages(payload: JobPayload, names: Sequence[str], in_use: SessionInUse) -> DataFrame:
    """Return the input of the sink stage."""
    return behind_shuffles(planned_envelopes(payload, in_use.session), payload, names)


def _keyed_plan(
    plan: Plan, stored: JobOffsets | None, shards: int | None, checkpoint: SparkCheckpoint, in_use: SessionInUse
) -> KeyedPlan | None:
    """Return the keyed stages with their number of shards: the checkpoint's, if it has one. Raises CheckpointError."""
    before = None if stored is None else stored.keyed
    wanted = shards or in_use.session.sparkContext.defaultParallelism
    keyed = KeyedPlan.of(plan, wanted if before is None else before.shards, checkpoint.state_uri)
    if keyed is not None:
        keyed = replace(
            keyed,
            checkpoint=checkpoint.id,
            has_beginning=checkpoint.began_at_savepoint,
            spans=checkpoint.spans,
            s3=checkpoint.s3,
        )
        if checkpoint.only_here and not in_use.local:
            raise not_shared(plan.job_name)
        state_files(keyed.state_uri, keyed.s3)  # tells now if workers could not reach it
    if stored is None:
        return keyed
    if (None if keyed is None else keyed.levels) != (None if before is None else before.levels):
        raise CheckpointError(
            f"the checkpoint is of a job whose keyed stages were {_named(before)}; now they are {_named(keyed)}",
            job=plan.job_name,
            option="checkpoint",
            hint="the state of other stages cannot be used: start from the beginning with another checkpoint directory",
        )
    if before is not None and shards not in (None, before.shards):
        raise CheckpointError(
            f"the checkpoint is of a job with {before.shards} shards, but the job asks for {shards}",
            job=plan.job_name,
            option="shards",
            hint=f"leave 'shards' out or say {before.shards}: keys cannot move between shards while there is state; "
            "or start from the beginning with another checkpoint directory",
        )
    return keyed


def check_stored_definitions(plan: Plan, keyed: KeyedPlan, last_batch: int, checkpoint: SparkCheckpoint) -> None:
    """Compare the verbs with those whose state is stored. Raises CheckpointError."""
    must_be_empty = check_definitions(plan, checkpoint.definitions(), place=checkpoint.location)
    if must_be_empty:
        interrupted = checkpoint.interrupted_batch()
        _check_restored(plan, keyed, last_batch + 1 if interrupted is None else interrupted)


def _check_restored(plan: Plan, keyed: KeyedPlan, batch_id: int) -> None:
    """Restore every shard once, one after the other, to check what it holds. Raises CheckpointError."""
    for address in Topology(plan, keyed.shards).addresses():
        shard = Shard(plan, address.shuffle, address.shard)
        try:
            for state, _ in keyed.chain(address).after(StateVersion(), batch_id):
                shard.apply(state)
            shard.end_restore()
        finally:
            shard.close()


def _named(keyed: KeyedPlan | KeyedMarks | None) -> str:
    return "none" if keyed is None else ", ".join(name for names in keyed.levels for name in names)
