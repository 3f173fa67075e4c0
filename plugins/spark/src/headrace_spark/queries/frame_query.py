"""Starts a job that reads DataFrames and writes to sinks of headrace: a streaming query, or a plain batch query."""

from __future__ import annotations

import atexit
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import CheckpointError, JobError, OptionError, PlanError
from headrace.interfaces.backend import RunOptions
from headrace.plan.graph import Plan, input_schema
from headrace.plan.outputs import tell_outputs
from headrace.runtime.patience import Patience
from headrace.runtime.savepoint_start import SavepointStart
from headrace.runtime.sinks_ahead import newest_rows, sink_is_ahead
from headrace.runtime.sources_in_use import check_sources_free
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace_spark.checkpoints.checkpoint import SparkCheckpoint, not_shared
from headrace_spark.dataframes.frame_source import DataFrameSource, frames_of
from headrace_spark.planning.queue_ends import ENDS
from headrace_spark.processes.driver_python import register
from headrace_spark.processes.session import SessionInUse, active, note_query, session_of
from headrace_spark.processes.session_packages import give_package
from headrace_spark.processes.settings import BATCH_RECORDS, SparkSettings
from headrace_spark.processes.temporary import remove, temporary_directory
from headrace_spark.queries.batch_run import BatchRun
from headrace_spark.queries.frame_savepoints import FrameSavepoint
from headrace_spark.queries.frames import (
    envelopes_of,
    frame_input,
    is_streaming,
    others_than,
    plain_payload,
)
from headrace_spark.queries.numbering import opened
from headrace_spark.queries.query import (
    Begin,
    StartedQuery,
    check_stored_definitions,
    open_checkpoint,
    warn_of_lost_dead_letters,
)
from headrace_spark.queries.savepoints import shards_wanted
from headrace_spark.queries.spark_stages import behind_shuffles
from headrace_spark.queries.stage_names import stage_names
from headrace_spark.queries.stream_start import started_stream
from headrace_spark.shards.topology import Topology
from headrace_spark.transit.payload import JobPayload, KeyedPlan
from headrace_spark.transit.run_directory import RunDirectory
from headrace_spark.workers.streaming import data_sources_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Beginning:
    """What the first start of a job fixes."""

    parts: int
    base: int
    #: Whether the job continues from its checkpoint.
    goes_on: bool
    #: Of a batch run that reads sources of headrace too: where their queues begin and end.
    input: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class _Start:
    """A start of a job: everything that is known before its checkpoint is read."""

    plan: Plan
    frames: Mapping[str, DataFrameSource]
    options: RunOptions
    settings: SparkSettings
    in_use: SessionInUse
    streaming: bool
    patience: Patience
    savepoint: FrameSavepoint | None = None

    @property
    def others(self) -> Sequence[str]:
        """The sources that headrace reads, beside the DataFrames."""
        return others_than(self.frames, self.plan)

    @property
    def sources(self) -> Sequence[str]:
        """All sources, in the order in which Spark stores their offsets."""
        return [*self.others, *self.frames]


def start_frame_query(
    plan: Plan, options: RunOptions, settings: SparkSettings, before: SparkCheckpoint | None = None
) -> StartedQuery:
    """Check the outside world and start the query.

    ``before`` is the checkpoint of the query that this one replaces in a run. Raises JobError for mistakes that can be
    found before anything is read.
    """
    frames = frames_of(plan)
    streaming = is_streaming(plan, frames)
    in_use = _session(plan, frames, settings)
    patience = Patience(plan.job_name, options.start_timeout, SystemClock())
    start = _Start(plan, frames, options, settings, in_use, streaming, patience)
    _check_options(start)
    at = SavepointStart.of(plan, options)
    if at is not None:
        start = replace(start, savepoint=FrameSavepoint.of(at, start.sources))
    check_sources_free(plan)
    for name, node in plan.sinks.items():
        patience.wait_for(f"sink {name}", partial(node.sink.prepare, input_schema(node.input)))
    warn_of_lost_dead_letters(plan, options, in_use)
    with contextlib.ExitStack() as cleanup:
        place = temporary_directory("run")
        cleanup.callback(remove, place)
        run_directory = RunDirectory(str(place))
        cleanup.callback(run_directory.remove)
        checkpoint = open_checkpoint(plan, options, in_use, cleanup)
        checkpoint.check(before, of_frames=True)
        payload = _payload(start, checkpoint, run_directory)
        names = stage_names(plan, () if payload.keyed is None else payload.keyed.levels, cuts_ranges=True)
        envelopes = envelopes_of(plan, frames, payload, in_use.session)
        make = partial(behind_shuffles, envelopes, payload, names)
        query: StreamingQuery | BatchRun
        if streaming:
            query = started_stream(make, names, payload, checkpoint.location, options, settings, in_use)
            note_query(query)
        else:
            query = _start_batch(make(), payload, checkpoint, in_use)
        kept = cleanup.pop_all()
        atexit.register(kept.close)
        return StartedQuery(query, run_directory, in_use, payload, checkpoint, None, kept, has_planner=streaming)


def _session(plan: Plan, frames: Mapping[str, DataFrameSource], settings: SparkSettings) -> SessionInUse:
    frame = next(iter(frames.values())).frame
    assert frame is not None
    session = frame.sparkSession
    if not hasattr(session, "_jsparkSession"):
        raise JobError(
            "a DataFrame of Spark Connect cannot be written to sinks of headrace",
            job=plan.job_name,
            hint="use to_dataframe(), and write the DataFrame with a connector of Spark",
        )
    for name in ("master", "conf", "submit_arguments", "ui"):
        if getattr(settings, name):
            raise OptionError(
                "has no effect, because the job runs in the session of its DataFrame",
                job=plan.job_name,
                plugin="spark",
                option=name,
                hint="set it where the session is created",
            )
    return session_of(session)


def _check_options(start: _Start) -> None:
    plan, options = start.plan, start.options
    if options.from_savepoint is not None and not start.streaming:
        raise OptionError(
            "a job that reads batch DataFrames cannot start from a savepoint, because it always reads them as a whole",
            job=plan.job_name,
            option="from_savepoint",
        )
    if start.streaming and options.until == "end" and plan.shuffles:
        raise PlanError(
            "the job keeps state by key and reads a streaming DataFrame, which has no end, so job.run() would never close the last windows",
            job=plan.job_name,
            hint="use job.start(), or read the data as a batch DataFrame: spark.read instead of spark.readStream",
        )
    if not start.streaming and start.others and options.until is None:
        raise PlanError(
            f"the job reads the batch DataFrame {next(iter(start.frames))!r}, which ends, and the source {start.others[0]!r}, which "
            "does not",
            job=plan.job_name,
            hint="use job.run(), which reads the source to its current end, or a streaming DataFrame: spark.readStream",
        )


def _payload(start: _Start, checkpoint: SparkCheckpoint, run_directory: RunDirectory) -> JobPayload:
    """Compare the job with its checkpoint and outputs, claim them, and return what its processes are to do. Raises JobError."""
    plan, options, settings, in_use = start.plan, start.options, start.settings, start.in_use
    payload = plain_payload(
        plan, in_use.session, run_directory=str(run_directory.path), keyed=None, batch=not start.streaming
    )
    if settings.archive is not None and not in_use.local:
        payload = replace(payload, workers_python=give_package(in_use.session, settings.archive, plan.job_name))
    begun = _beginning(start, checkpoint, payload.parallelism)
    _check_fits(start, checkpoint, begun)
    if options.checkpoint is not None:
        checkpoint.claim()
    outputs: Mapping[str, str] | None = checkpoint.outputs() if begun.goes_on else None
    if start.savepoint is not None and not begun.goes_on:
        outputs = start.savepoint.start.savepoint.outputs
    tell = partial(tell_outputs, plan, outputs, begins=False, replace=options.replace_output)
    start.patience.wait_for("its sinks", tell)
    base = start.patience.wait_for("its sinks", partial(_base, start, payload.plan_bytes, begun, checkpoint))
    if start.savepoint is not None and not begun.goes_on:
        checkpoint.note_savepoint(start.savepoint.start.savepoint.id)
        checkpoint.forget_spark_files()
        start.savepoint.begin(checkpoint, _keyed(start, checkpoint, begun), payload.identity, base)
        checkpoint.claim()  # the micro-batches of this run come after that of the savepoint
    whole = _whole_input(start, payload, begun)
    checkpoint.keep_definitions(plan.state_definitions, plan.output_digests)
    checkpoint.keep_frames(  # the last: now the job has begun
        {
            "job": plan.job_name,
            "parts": begun.parts,
            "base": base,
            "streaming": start.streaming,
            "sources": start.sources,
            "levels": _levels(plan),
            **({} if whole is None else {"input": whole}),
        }
    )
    if whole is not None:
        run_directory.put(ENDS, whole["ends"])
    return replace(
        payload,
        keyed=_keyed(start, checkpoint, begun),
        parallelism=begun.parts,
        frames=frame_input(plan, start.frames, base),
        cuts_ranges=True,
        state_by_query=start.streaming,
        batch_records=options.batch_records(BATCH_RECORDS),
        retry_seconds=settings.retry_timeout.total_seconds(),
        replayed_batch_id=checkpoint.interrupted_batch(),
        ownership=checkpoint.ownership(keyed=bool(plan.shuffles)),
        until="end" if not start.streaming else options.until,
        discovery_seconds=options.discovery_interval.total_seconds(),
        idle_wait_seconds=settings.idle_wait.total_seconds(),
        micro_batch_records=settings.max_micro_batch_records,
        trigger_seconds=settings.trigger_interval.total_seconds(),
        stops_on_broken_queues=options.broken_queues == "stop",
        beginning=None if whole is None else whole["beginning"],
        driver_finds_ends=whole is not None,
    )


def _keyed(start: _Start, checkpoint: SparkCheckpoint, begun: _Beginning) -> KeyedPlan | None:
    """Return the keyed stages with the place of their state: a directory for Spark's query, in streaming jobs only."""
    keyed = KeyedPlan.of(start.plan, begun.parts, checkpoint.state_uri if start.streaming else "")
    if keyed is None or not start.streaming:
        return keyed
    if checkpoint.only_here and not start.in_use.local:
        raise not_shared(start.plan.job_name)
    return replace(keyed, s3=checkpoint.s3, spans=checkpoint.spans)


def _check_fits(start: _Start, checkpoint: SparkCheckpoint, begun: _Beginning) -> None:
    """Compare the verbs with those whose state is stored, before an earlier run is disturbed. Raises CheckpointError."""
    query_id, last = checkpoint.query_id(), checkpoint.last_planned()
    keyed = _keyed(start, checkpoint, begun)
    if keyed is not None and begun.goes_on and query_id is not None and last is not None:
        of_query = replace(keyed, state_uri=f"{keyed.state_uri}/{query_id}", checkpoint=query_id)
        check_stored_definitions(start.plan, of_query, last, checkpoint)


def _whole_input(start: _Start, payload: JobPayload, begun: _Beginning) -> Mapping[str, Any] | None:
    """Return the ranges that a batch run reads from sources of headrace: the same ones after a restart."""
    if start.streaming or not start.others or begun.input is not None:
        return begun.input
    beginning, ends = Begin(payload.identity, payload.sources_bytes, "end", start.patience).whole_input()
    return {"beginning": beginning.to_json(), "ends": ends}


def _levels(plan: Plan) -> list[list[str]]:
    return Topology(plan, 1).levels


def _beginning(start: _Start, checkpoint: SparkCheckpoint, otherwise: int) -> _Beginning:
    """Return the decisions of the first start, or make them now. Raises CheckpointError when it was another job."""
    plan, settings = start.plan, start.settings
    wanted = settings.shards if plan.shuffles else settings.parallelism
    found = checkpoint.frames()
    _check_savepoint(start, checkpoint, begun=found is not None)
    if found is None:
        if start.savepoint is not None:
            return _Beginning(shards_wanted(wanted, start.savepoint.start) or otherwise, 0, goes_on=False)
        if checkpoint.last_planned() is not None:
            raise CheckpointError(
                "the checkpoint is not of a job that reads DataFrames",
                job=plan.job_name,
                option="checkpoint",
                hint="start from the beginning with another checkpoint directory",
            )
        return _Beginning(wanted or otherwise, 0, goes_on=False)
    parts, sources, levels = int(found["parts"]), found.get("sources"), found.get("levels")
    problem = None
    if found["job"] != plan.job_name:
        problem = f"belongs to the job {found['job']!r}"
    elif found["streaming"] != start.streaming:
        kinds = ("streaming", "batch")
        problem = "is of a job that read {} DataFrames, and now reads {} ones".format(
            *(kinds if found["streaming"] else reversed(kinds))
        )
    elif wanted not in (None, parts):
        problem = f"is of a job with {parts} parts, but the job asks for {wanted}"
    elif sources != start.sources:
        # Spark knows sources by their order only: it would give one the offsets of another.
        problem = f"is of a job that read {', '.join(sources or ['?'])}, and now reads {', '.join(start.sources)}"
    elif levels not in (None, _levels(plan)):
        problem = f"is of a job whose keyed stages were {levels}; now they are {_levels(plan)}"
    if problem is not None:
        raise CheckpointError(
            f"the checkpoint {problem}",
            job=plan.job_name,
            option="checkpoint",
            hint="start from the beginning with another checkpoint directory",
        )
    return _Beginning(parts, int(found["base"]), goes_on=True, input=found.get("input"))


def _check_savepoint(start: _Start, checkpoint: SparkCheckpoint, *, begun: bool) -> None:
    """Check that the job begins at the savepoint that is asked for, or has begun at it. Raises CheckpointError."""
    noted, wanted = checkpoint.noted_savepoint(), start.savepoint
    if wanted is not None and (begun or checkpoint.last_planned() is not None):
        if noted != wanted.start.savepoint.id:
            raise CheckpointError(
                f"the checkpoint {start.options.checkpoint!r} belongs to a job that has already started, and not from the savepoint "
                f"{start.options.from_savepoint!r}",
                job=start.plan.job_name,
                option="from_savepoint",
                hint="start from a savepoint with an empty checkpoint directory; to continue from the checkpoint, leave out from_savepoint",
            )
    elif wanted is None and noted is not None and not begun:
        raise CheckpointError(
            "a start from a savepoint was interrupted in this checkpoint",
            job=start.plan.job_name,
            option="checkpoint",
            hint="start again with the same from_savepoint, or start from the beginning with another checkpoint directory",
        )


def _base(start: _Start, plan_bytes: bytes, begun: _Beginning, checkpoint: SparkCheckpoint) -> int:
    """Return the number to which micro-batch numbers are added, so that no sink takes new rows for rows that it has stored."""
    plan, options = start.plan, start.options
    with opened(plan_bytes) as sinks:
        savepoint = None if start.savepoint is None or begun.goes_on else start.savepoint.start
        most = begun.parts if savepoint is None else max(begun.parts, *savepoint.savepoint.place.shards.values(), 1)
        found = newest_rows(plan, sinks, {name: range(most) for name in (*start.frames, *plan.shuffles)})
        if savepoint is not None:
            at = savepoint.savepoint.place.sequence or 0
            if found is not None and found.entry > at and options.sinks_ahead == "refuse":
                raise sink_is_ahead(plan, found, at)
            all_sinks = {**{name: node.sink for name, node in plan.sinks.items()}, **sinks}
            now_us = max(int(time.time() * 1_000_000), 0 if found is None else found.entry)
            return savepoint.sequence_before(all_sinks, dict.fromkeys(plan.shuffles, begun.parts), now_us) + 1
    if not begun.goes_on:
        return max(int(time.time() * 1_000_000), 0 if found is None else found.entry + 1)
    planned = checkpoint.last_planned()
    last = begun.base + (planned if planned is not None else 0)
    if found is None or found.entry <= last:
        return begun.base
    if options.sinks_ahead == "refuse":
        raise sink_is_ahead(plan, found, last)
    logger.warning(
        "job %s: %s has rows up to entry %d, but the checkpoint is at entry %d: the rows since then are written again",
        plan.job_name, found.sink_id, found.entry, last,
    )  # fmt: skip
    return begun.base + found.entry - last


def _start_batch(
    envelopes: DataFrame, payload: JobPayload, checkpoint: SparkCheckpoint, in_use: SessionInUse
) -> BatchRun:
    sink = data_sources_of(payload)[1]
    register(in_use.session, sink, payload.workers_python)

    def write() -> None:
        with active(in_use.session):
            envelopes.write.format(sink.name()).mode("append").save()
        checkpoint.check_owned()
        checkpoint.forget_frames()  # the next run is another one, whose rows are new

    return BatchRun(in_use.session, payload.identity.job, write)
