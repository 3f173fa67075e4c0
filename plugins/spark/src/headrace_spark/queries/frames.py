"""``to_dataframe``: the rows of a job as a DataFrame of Spark, streaming or batch, in a query of the user's."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from headrace.foundation.errors import CheckpointError, JobError, OptionError, PlanError
from headrace.interfaces.backend import RunOptions
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings
from headrace.interfaces.state_definition import definitions_from_json, definitions_to_json
from headrace.jobs.dsl import Stream
from headrace.jobs.job import Job
from headrace.plan.graph import Input, OperatorNode, Plan, SinkNode, SourceNode, input_schema
from headrace.plan.state_check import check_definitions
from pyspark.sql import functions
from pyspark.sql import types as spark

from headrace_spark.checkpoints.checkpoint import not_shared
from headrace_spark.checkpoints.object_stores import S3Options
from headrace_spark.checkpoints.offsets import JobIdentity
from headrace_spark.checkpoints.state_files import state_files
from headrace_spark.dataframes.frame_source import DataFrameSource, frames_of, is_of_connect
from headrace_spark.dataframes.frame_types import schema_to_spark
from headrace_spark.processes.settings import BATCH_RECORDS, SparkSettings, is_local_master
from headrace_spark.queries.spark_stages import (
    ENVELOPE,
    behind_shuffles,
    envelope_columns,
    mapped,
    planned_envelopes,
    quoted,
)
from headrace_spark.queries.stage_names import source_name, stage_names
from headrace_spark.transit.envelopes import COLUMNS
from headrace_spark.transit.payload import FrameInput, JobPayload, KeyedPlan, pickled, sources_of
from headrace_spark.workers.output_stage import FrameStage, Output, OutputStage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DESCRIPTION = "headrace.json"
_STATE = "shards"
_TARGET = "dataframe"


class RowsSink(Sink):
    """Stands where the rows of a job leave it for a DataFrame. Spark takes them; nothing is written here."""

    accepts: ClassVar[str] = "changelog"  # type: ignore[misc]

    def __init__(self) -> None:
        self.settings = SinkSettings()

    def batch_insert(self, batch: SinkBatch) -> None:
        raise AssertionError("rows of a DataFrame are not written by headrace")


@dataclass(frozen=True)
class FrameOptions:
    """The options of ``to_dataframe``."""

    checkpoint: str | None = None
    shards: int | None = None
    #: None: as the sources are.
    batch: bool | None = None
    sink: str | None = None
    kind_column: str = "_kind"
    order_column: str = "_order"
    archive: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FrameOptions:
        """Return options. Raises OptionError for an unknown option."""
        unknown = sorted(given.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            raise OptionError(
                f"unknown option {unknown[0]!r}",
                plugin="to_dataframe",
                option=unknown[0],
                hint=f"options are {', '.join(cls.__dataclass_fields__)}",
            )
        options = cls(**given)
        if options.shards is not None and options.shards < 1:
            raise OptionError(
                f"unusable value {options.shards}: it must be at least 1", plugin="to_dataframe", option="shards"
            )
        place = options.checkpoint
        return options if place is None else replace(options, checkpoint=os.fspath(place))


def to_dataframe(what: Job | Stream, session: SparkSession | None = None, **given: Any) -> DataFrame:
    """Return the rows of a job, or of a stream, as a DataFrame: see docs/dataframes.md.

    Nothing runs before Spark runs a query with it. Raises JobError for what can be seen before.
    """
    options = FrameOptions.of(given)
    plan, target = _plan_of(what, options)
    frames = frames_of(plan)
    batch = _is_batch(plan, frames, options)
    spark_session = _session_of(plan, frames, session)
    spark_schema, output = _output_of(plan, target, options)
    payload = _payload_of(plan, frames, options, spark_session, batch=batch)
    for sink_id, node in plan.sinks.items():
        if sink_id != target:
            node.sink.prepare(input_schema(node.input))
    python = payload.workers_python
    if payload.keyed is None:
        made = [
            _stage_over(name, source, plan, OutputStage(payload, output, name), spark_schema, python)
            for name, source in frames.items()
        ]
        if others_than(frames, plan):
            planned = planned_envelopes(payload, spark_session)
            made.insert(0, mapped(planned, OutputStage(payload, output), spark_schema, COLUMNS, python=python))
        return _union(made)
    envelopes = envelopes_of(plan, frames, payload, spark_session)
    names = stage_names(plan, payload.keyed.levels)
    behind = behind_shuffles(envelopes, payload, names)
    columns = envelope_columns(payload)
    return mapped(behind, OutputStage(payload, output), spark_schema, columns, names[-1], python=python)


# ---------------------------------------------------------------------------------------------------- what is given


def frames_of_stream_or_job(what: Job | Stream) -> bool:
    """Return whether a job or stream reads DataFrames."""
    job = what.to(RowsSink(), name=_TARGET) if isinstance(what, Stream) else what
    return bool(frames_of(Plan(job.namespace, job.pipeline, job.sink_nodes)))


def _plan_of(what: Job | Stream, options: FrameOptions) -> tuple[Plan, str]:
    """Return a plan whose only sinks are that of the DataFrame and those of dead letters, and the first one's id."""
    if isinstance(what, Stream):
        job = what.to(RowsSink(), name=_TARGET)
    else:
        edge, others = _rows_of(what, options)
        node = SinkNode(label=_TARGET, schema=input_schema(edge), sink=RowsSink(), input=edge)
        job = replace(what, sink_nodes=(node, *others))
    plan = job.plan(RunOptions(checkpoint=options.checkpoint))
    return plan, next(name for name, node in plan.sinks.items() if isinstance(node.sink, RowsSink))


def _rows_of(job: Job, options: FrameOptions) -> tuple[Input, Sequence[SinkNode]]:
    """Return where the rows of a job's sink come from, and the sinks of its dead letters. Raises OptionError."""
    plan = Plan(job.namespace, job.pipeline, job.sink_nodes)
    bad = plan.dead_letters_id
    behind = {} if bad is None else plan.reachable(plan.nodes[bad])
    names = [name for name in plan.sinks if name not in behind]
    wanted = options.sink or (names[0] if len(names) == 1 else None)
    if wanted not in names:
        why = f"no sink is called {wanted!r}" if wanted else f"the job has {len(names)} sinks"
        raise OptionError(
            f"{why}: name the output whose rows the DataFrame is to contain",
            job=job.name,
            plugin="to_dataframe",
            option="sink",
            hint=f"one of {', '.join(names)}",
        )
    return plan.sinks[wanted].input, [node for name, node in plan.sinks.items() if name in behind]


def _is_batch(plan: Plan, frames: Mapping[str, DataFrameSource], options: FrameOptions) -> bool:
    if not frames:
        return bool(options.batch)
    if options.batch is not None and all(
        source.frame is not None and is_of_connect(source.frame) for source in frames.values()
    ):
        return options.batch  # the server is not asked: a function of a declarative pipeline must not
    batch = not is_streaming(plan, frames)
    if options.batch not in (None, batch):
        raise OptionError(
            f"the job reads a {'batch' if batch else 'streaming'} DataFrame, so its result is one, too",
            job=plan.job_name,
            plugin="to_dataframe",
            option="batch",
            hint="spark.read gives a batch DataFrame, spark.readStream a streaming one",
        )
    return batch


def others_than(frames: Collection[str], plan: Plan) -> list[str]:
    """Return the sources of a job that headrace reads itself, beside its DataFrames."""
    return [name for name in plan.sources if name not in frames]


def is_streaming(plan: Plan, frames: Mapping[str, DataFrameSource]) -> bool:
    """Return whether a job's DataFrames are streaming. Raises PlanError when only some are."""
    kinds = {name: source.frame is not None and source.frame.isStreaming for name, source in frames.items()}
    if len(set(kinds.values())) > 1:
        one = next(name for name, streaming in kinds.items() if not streaming)
        raise PlanError(
            f"the DataFrame {one!r} is a batch DataFrame and others of the job are streaming ones",
            job=plan.job_name,
            plugin=one,
            hint="join the batch DataFrame in Spark before from_dataframe(), or look rows up in a dimension table",
        )
    return any(kinds.values())


def _session_of(plan: Plan, frames: Mapping[str, DataFrameSource], session: SparkSession | None) -> SparkSession:
    for source in frames.values():
        assert source.frame is not None
        session = source.frame.sparkSession
    if not others_than(frames, plan):
        assert session is not None
        return session
    if session is None:
        raise OptionError(
            "this option is required: the SparkSession in which the DataFrame is created",
            job=plan.job_name,
            plugin="to_dataframe",
            option="session",
        )
    if not hasattr(session, "_jsparkSession"):
        raise JobError(
            "a source of headrace needs a SparkSession with a driver in this process; this is one of Spark Connect",
            job=plan.job_name,
            plugin="to_dataframe",
            hint="read with spark.readStream or spark.read and from_dataframe(): that works with Spark Connect",
        )
    return session


def _output_of(plan: Plan, target: str, options: FrameOptions) -> tuple[spark.StructType, Output]:
    edge = plan.sinks[target].input
    schema = input_schema(edge)
    if schema is None:
        raise PlanError(
            "the columns of the rows are not known when the job is built, and a DataFrame needs them",
            job=plan.job_name,
            plugin="to_dataframe",
            hint="declare what the function returns: map(function, schema={'column': 'type', …}), or a TypedDict or "
            "dataclass as its return annotation",
        )
    made, arrow = schema_to_spark(schema, plan.job_name)
    if plan.changes_at(edge) is None:
        return made, Output(target, arrow)
    for option, name in (("kind_column", options.kind_column), ("order_column", options.order_column)):
        if name in schema:
            raise OptionError(
                f"the rows have a column {name!r} already",
                job=plan.job_name,
                plugin="to_dataframe",
                option=option,
                hint="give another name",
            )
    made = made.add(options.kind_column, spark.StringType()).add(options.order_column, spark.LongType())
    arrow = arrow.append(pa.field(options.kind_column, pa.string())).append(pa.field(options.order_column, pa.int64()))
    return made, Output(target, arrow, options.kind_column, options.order_column)


# ------------------------------------------------------------------------------------------------------ the payload


def _payload_of(
    plan: Plan, frames: Mapping[str, DataFrameSource], options: FrameOptions, session: SparkSession, *, batch: bool
) -> JobPayload:
    keyed = _keyed_plan(plan, options, session, batch=batch)
    given = None if not frames else frame_input(plan, frames)
    python = None
    if options.archive is not None and not is_local(session):
        python = _python_of(options.archive, session, plan.job_name)
    return plain_payload(
        plan,
        session,
        run_directory=None,
        keyed=keyed,
        frames=given,
        batch=batch,
        in_user_query=True,
        state_by_query=True,
        workers_python=python,
    )


def _python_of(archive: str, session: SparkSession, job: str) -> str | None:
    """Give the package of a job to the session; return its Python. Raises OptionError as ``give_package`` does."""
    if not hasattr(session, "_jsparkSession"):
        raise OptionError(
            "has no effect with Spark Connect: the server decides the Python of its workers",
            job=job,
            plugin="to_dataframe",
            option="archive",
            hint="install headrace where the server's workers find it",
        )
    from headrace_spark.processes.session_packages import give_package  # not with Spark Connect

    return give_package(session, archive, job)


def plain_payload(plan: Plan, session: SparkSession, *, keyed: KeyedPlan | None, **changes: Any) -> JobPayload:
    """Return a payload for a query that no handle of headrace follows from its offsets."""
    settings, options = SparkSettings(), RunOptions()
    local = is_local(session)
    values: dict[str, Any] = dict(
        token=uuid.uuid4().hex[:12],
        identity=JobIdentity.of(plan),
        sources_bytes=pickled(sources_of(plan), plan.job_name),
        plan_bytes=pickled(plan, plan.job_name),
        import_paths=tuple(sys.path) if local else (),
        working_directory=os.getcwd() if local else None,
        until="end" if changes.get("batch") else None,
        discovery_seconds=options.discovery_interval.total_seconds(),
        idle_wait_seconds=settings.idle_wait.total_seconds(),
        retry_seconds=settings.retry_timeout.total_seconds(),
        batch_records=options.batch_records(BATCH_RECORDS),
        micro_batch_records=settings.max_micro_batch_records,
        parallelism=default_parallelism(session),
        cuts_ranges=keyed is not None,
        keyed=keyed,
    )
    return JobPayload(**{**values, **changes})


def frame_input(plan: Plan, frames: Mapping[str, DataFrameSource], base: int = 0) -> FrameInput:
    """Return the description of a job's DataFrames that workers need."""
    times = {name: _time_column(plan, plan.sources[name]) for name in frames}
    return FrameInput(times, frozenset(name for name, source in frames.items() if source.keep_order), base)


def _time_column(plan: Plan, source: SourceNode) -> str | None:
    """Return the column of event time behind a source: that of its watermark, where there is one."""
    found = [
        node.spec.event_time
        for node in plan.stage(source).values()
        if isinstance(node, OperatorNode) and node.spec.event_time is not None
    ]
    return found[0] if len(found) == 1 else None


def is_local(session: SparkSession) -> bool:
    """Return whether workers run on the driver's machine and see its files."""
    if not hasattr(session, "_jsparkSession"):  # Spark Connect: the server is anywhere
        return False
    return is_local_master(session.sparkContext.master)


def default_parallelism(session: SparkSession) -> int:
    """Return how many tasks run at once; with Spark Connect how many partitions a shuffle makes."""
    if not hasattr(session, "_jsparkSession"):
        return int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    return session.sparkContext.defaultParallelism


def _keyed_plan(plan: Plan, options: FrameOptions, session: SparkSession, *, batch: bool) -> KeyedPlan | None:
    """Return the keyed stages with their number of shards, which a checkpoint fixes. Raises CheckpointError, OptionError."""
    shards = options.shards or default_parallelism(session)
    keyed = KeyedPlan.of(plan, shards)
    if keyed is None or batch:
        return keyed
    if options.checkpoint is None:
        raise OptionError(
            "the job keeps state by key, and a streaming query needs a directory for the state, which the workers can write to",
            job=plan.job_name,
            plugin="to_dataframe",
            option="checkpoint",
            hint="name it with to_dataframe(checkpoint='…'); the query itself needs its checkpointLocation as usual",
        )
    uri = _uri(options.checkpoint)
    if "://" not in options.checkpoint and not is_local(session) and hasattr(session, "_jsparkSession"):
        raise not_shared(plan.job_name, hint="name a directory in hdfs, s3, gs or abfs, or a shared disk as file:///…")
    s3 = None
    if hasattr(session, "_jsparkSession"):  # a session of Spark Connect does not show Hadoop's settings
        context = session.sparkContext
        jvm: Any = context._jvm
        s3 = S3Options.of_hadoop(jvm, context._jsc.hadoopConfiguration(), uri)
    described = _as_described(plan, keyed, uri, options.shards, s3)
    return replace(described, state_uri=f"{uri}/{_STATE}", s3=s3)


def _uri(place: str) -> str:
    return place.rstrip("/") if "://" in place else Path(place).absolute().as_uri()


def _as_described(plan: Plan, keyed: KeyedPlan, uri: str, wanted: int | None, s3: S3Options | None) -> KeyedPlan:
    """Compare the job with the one whose state is in a directory, and store its description. Raises CheckpointError."""
    files = state_files(uri, s3)
    found = files.read(_DESCRIPTION)
    sources = [*others_than(frames_of(plan), plan), *frames_of(plan)]
    now = {"format": 1, "job": plan.job_name, "shards": keyed.shards, "levels": keyed.levels, "sources": sources}
    now["definitions"] = definitions_to_json(plan.state_definitions)
    if found is None:
        files.write(_DESCRIPTION, json.dumps(now).encode())
        return keyed
    try:
        about = json.loads(found)
        job, shards, levels = about["job"], int(about["shards"]), tuple(tuple(names) for names in about["levels"])
        before = about.get("sources", sources)
        stored = definitions_from_json(about["definitions"]) if "definitions" in about else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{uri}/{_DESCRIPTION} is damaged: {error!r}", job=plan.job_name, option="checkpoint"
        ) from error
    problem = None
    if job != plan.job_name:
        problem = f"holds the state of the job {job!r}"
    elif levels != keyed.levels:
        problem = f"is of a job whose keyed stages were {levels}; now they are {keyed.levels}"
    elif wanted not in (None, shards):
        problem = f"is of a job with {shards} shards, but the job asks for {wanted}"
    elif before != sources:
        # Spark knows sources by their order only: it would give one the offsets of another.
        problem = f"is of a job that read {', '.join(before)}, and now reads {', '.join(sources)}"
    if problem is not None:
        raise CheckpointError(
            f"the state directory {uri} {problem}",
            job=plan.job_name,
            option="checkpoint",
            hint="start from the beginning with another checkpoint directory, and another checkpointLocation for the query",
        )
    # What must turn out to be empty is seen by the workers, which restore it.
    check_definitions(plan, stored, place=f"the state directory {uri}")
    if about != (now := json.loads(json.dumps({**now, "shards": shards}))):
        files.write(_DESCRIPTION, json.dumps(now).encode())
    return replace(keyed, shards=shards)


# ------------------------------------------------------------------------------------------------------- DataFrames


def envelopes_of(
    plan: Plan, frames: Mapping[str, DataFrameSource], payload: JobPayload, session: SparkSession
) -> DataFrame:
    """Return the output of the source stage: of DataFrames, of sources of headrace, or of both.

    Spark stores the offsets of its sources by their order: those of headrace are the first, then DataFrames as in the plan.
    """
    # A job of headrace's own handle always has a planner, so that it can be stopped between two micro-batches.
    has_planner = others_than(frames, plan) or not (payload.batch or payload.in_user_query)
    planned = [planned_envelopes(payload, session)] if has_planner else []
    stages = {name: FrameStage(payload, name) for name in frames}
    return _union(
        [
            *planned,
            *(
                _stage_over(name, source, plan, stages[name], ENVELOPE, payload.workers_python)
                for name, source in frames.items()
            ),
        ]
    )


def _stage_over(
    name: str, source: DataFrameSource, plan: Plan, stage: Any, schema: spark.StructType, python: str | None
) -> DataFrame:
    """Return the output of a stage over those columns of a DataFrame that the job needs."""
    node, frame = plan.sources[name], source.frame
    assert frame is not None
    columns = [source.body]
    if not source.has_bodies:
        columns = [each for each in plan.decode_columns()[name] if each not in node.metadata]
        columns = columns or list(node.body_schema or {})[:1]  # rows are counted, so some column must come
    selected = frame.select(*[functions.col(quoted(each)) for each in columns])
    return mapped(selected, stage, schema, columns, source_name(plan, name), python=python)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    made = frames[0]
    for each in frames[1:]:
        made = made.union(each)
    return made
