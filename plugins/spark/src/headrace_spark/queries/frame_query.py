"""Starts a job that reads DataFrames and writes to sinks of headrace: a streaming query, or a plain batch query."""

from __future__ import annotations

import atexit
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import CheckpointError, JobError, OptionError, PlanError
from headrace.interfaces.backend import RunOptions
from headrace.plan.graph import Plan, input_schema
from headrace.plan.outputs import tell_outputs
from headrace.runtime.patience import Patience
from headrace.runtime.sinks_ahead import newest_rows, sink_is_ahead
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace_spark.checkpoints.checkpoint import SparkCheckpoint, not_shared
from headrace_spark.dataframes.frame_source import DataFrameSource, frames_of
from headrace_spark.processes.driver_python import register
from headrace_spark.processes.session import SessionInUse, active, note_query, session_of
from headrace_spark.processes.settings import SparkSettings
from headrace_spark.processes.temporary import remove, temporary_directory
from headrace_spark.queries.batch_run import BatchRun
from headrace_spark.queries.frames import (
    check_only_frames,
    envelopes_of,
    frame_input,
    is_streaming,
    plain_payload,
)
from headrace_spark.queries.numbering import opened
from headrace_spark.queries.query import StartedQuery, open_checkpoint
from headrace_spark.queries.spark_stages import behind_shuffles
from headrace_spark.queries.stage_names import stage_names
from headrace_spark.queries.stream_start import started_stream
from headrace_spark.transit.payload import JobPayload, KeyedPlan
from headrace_spark.transit.run_directory import RunDirectory
from headrace_spark.workers.streaming import data_sources_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Beginning:
    """What the first start of a job fixes."""

    parts: int
    base: int
    #: Whether the job goes on from its checkpoint.
    goes_on: bool


def start_frame_query(
    plan: Plan, options: RunOptions, settings: SparkSettings, before: SparkCheckpoint | None = None
) -> StartedQuery:
    """Check the outside world and start the query. Raises JobError for what can be seen before anything is read."""
    frames = frames_of(plan)
    check_only_frames(plan, frames)
    streaming = is_streaming(plan, frames)
    in_use = _session(plan, frames, settings)
    _check_options(plan, options, streaming=streaming)
    patience = Patience(plan.job_name, options.start_timeout, SystemClock())
    for name, node in plan.sinks.items():
        patience.wait_for(f"sink {name}", partial(node.sink.prepare, input_schema(node.input)))
    with contextlib.ExitStack() as cleanup:
        place = temporary_directory("run")
        cleanup.callback(remove, place)
        run_directory = RunDirectory(str(place))
        cleanup.callback(run_directory.remove)
        checkpoint = open_checkpoint(plan, options, in_use, cleanup)
        payload = _payload(
            plan, frames, options, settings, in_use, checkpoint, str(place), patience, streaming=streaming
        )
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
        return StartedQuery(query, run_directory, in_use, payload, checkpoint, None, kept, has_planner=False)


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
    for name in ("master", "conf", "ui"):
        if getattr(settings, name):
            raise OptionError(
                "has no effect: the job runs in the session of its DataFrame",
                job=plan.job_name,
                plugin="spark",
                option=name,
                hint="set it where the session is created",
            )
    return session_of(session)


def _check_options(plan: Plan, options: RunOptions, *, streaming: bool) -> None:
    if options.from_savepoint is not None:
        raise OptionError(
            "a job that reads DataFrames cannot start from a savepoint: how far it is, is in Spark's checkpoint",
            job=plan.job_name,
            option="from_savepoint",
        )
    if streaming and options.until == "end" and plan.shuffles:
        raise PlanError(
            "the job keeps state by key and reads a streaming DataFrame, which has no end at which windows could close",
            job=plan.job_name,
            hint="use job.start(), or read the data as a batch DataFrame: spark.read instead of spark.readStream",
        )


def _payload(
    plan: Plan,
    frames: Mapping[str, DataFrameSource],
    options: RunOptions,
    settings: SparkSettings,
    in_use: SessionInUse,
    checkpoint: SparkCheckpoint,
    place: str,
    patience: Patience,
    *,
    streaming: bool,
) -> JobPayload:
    wanted = settings.shards if plan.shuffles else settings.parallelism
    payload = plain_payload(plan, in_use.session, run_directory=place, keyed=None, batch=not streaming)
    begun = _beginning(plan, checkpoint, wanted, payload.parallelism)
    tell = partial(
        tell_outputs,
        plan,
        checkpoint.outputs() if begun.goes_on else None,
        begins=False,
        replace=options.replace_output,
    )
    patience.wait_for("its sinks", tell)
    base = patience.wait_for("its sinks", partial(_base, plan, payload.plan_bytes, begun, checkpoint, options))
    about = {"job": plan.job_name, "parts": begun.parts, "base": base, "streaming": streaming}
    checkpoint.keep_frames(about)
    checkpoint.keep_definitions(plan.state_definitions, plan.output_digests)
    keyed = KeyedPlan.of(plan, begun.parts, checkpoint.state_uri if streaming else "")
    if keyed is not None and streaming:
        keyed = replace(keyed, s3=checkpoint.s3)
    if keyed is not None and streaming and checkpoint.only_here and not in_use.local:
        raise not_shared(plan.job_name)
    return replace(
        payload,
        keyed=keyed,
        parallelism=begun.parts,
        frames=frame_input(plan, frames, base),
        cuts_ranges=True,
        state_by_query=streaming,
        batch_records=options.max_batch_records,
        retry_seconds=settings.retry_timeout.total_seconds(),
        replayed_batch_id=checkpoint.interrupted_batch(),
    )


def _beginning(plan: Plan, checkpoint: SparkCheckpoint, wanted: int | None, otherwise: int) -> _Beginning:
    """Return what the first start has fixed, or fixes now. Raises CheckpointError when it was another job."""
    found = checkpoint.frames()
    if found is None:
        if checkpoint.last_planned() is not None:
            raise CheckpointError(
                "the checkpoint is not of a job that reads DataFrames",
                job=plan.job_name,
                option="checkpoint",
                hint="begin anew with another directory",
            )
        return _Beginning(wanted or otherwise, 0, goes_on=False)
    parts = int(found["parts"])
    problem = None
    if found["job"] != plan.job_name:
        problem = f"belongs to the job {found['job']!r}"
    elif wanted not in (None, parts):
        problem = f"is of a job with {parts} parts, but the job asks for {wanted}"
    if problem is not None:
        raise CheckpointError(
            f"the checkpoint {problem}",
            job=plan.job_name,
            option="checkpoint",
            hint="begin anew with another directory",
        )
    return _Beginning(parts, int(found["base"]), goes_on=True)


def _base(plan: Plan, plan_bytes: bytes, begun: _Beginning, checkpoint: SparkCheckpoint, options: RunOptions) -> int:
    """Return what the numbers of micro-batches are added to, so that no sink takes new rows for rows that it has."""
    with opened(plan_bytes) as sinks:
        numbers = range(begun.parts)
        found = newest_rows(plan, sinks, {name: numbers for name in (*plan.sources, *plan.shuffles)})
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
    register(in_use.session, sink)

    def write() -> None:
        with active(in_use.session):
            envelopes.write.format(sink.name()).mode("append").save()
        checkpoint.forget_frames()  # the next run is another one, whose rows are new

    return BatchRun(in_use.session, payload.identity.job, write)
