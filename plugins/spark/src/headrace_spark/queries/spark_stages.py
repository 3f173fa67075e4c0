"""The stages of a job as DataFrames of Spark: what is read, shuffled and mapped, up to the stage that writes or gives rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions
from pyspark.sql import types as spark

from headrace_spark.dataframes.frame_source import is_of_connect
from headrace_spark.transit.envelopes import COLUMNS, SPARK_SCHEMA
from headrace_spark.transit.payload import JobPayload
from headrace_spark.workers.streaming import KeyedStage, batch_source_of, data_sources_of
from headrace_spark.workers.tasks import TIME_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BY_NAME: Mapping[str, spark.DataType] = {
    "STRING": spark.StringType(), "BIGINT": spark.LongType(), "INT": spark.IntegerType(), "BINARY": spark.BinaryType(),
}  # fmt: skip
#: The columns of envelopes, made without asking Spark what the text of them means.
ENVELOPE = spark.StructType(
    [spark.StructField(name, _BY_NAME[kind]) for name, kind in map(str.split, SPARK_SCHEMA.split(","))]
)


def planned_envelopes(payload: JobPayload, session: SparkSession) -> DataFrame:
    """Return the output of the source stage of a job that reads sources of headrace. Raises JobError as ``register`` does."""
    from headrace_spark.processes.driver_python import register  # not with Spark Connect, which has no driver here

    source = batch_source_of(payload) if payload.batch else data_sources_of(payload)[0]
    register(session, source, payload.workers_python)
    reader: Any = session.read if payload.batch else session.readStream
    made: DataFrame = reader.format(source.name()).load()
    return made


def envelope_columns(payload: JobPayload) -> Sequence[str]:
    """Return the columns of what keyed stages get: envelopes and, where it matters, the time of the micro-batch."""
    keyed = payload.keyed
    ticks = payload.frames is not None and keyed is not None and keyed.tick_seconds is not None
    return (*COLUMNS, TIME_COLUMN) if ticks else COLUMNS


def behind_shuffles(envelopes: DataFrame, payload: JobPayload, names: Sequence[str]) -> DataFrame:
    """Return the input of the last stage of a job. The caller runs that stage.

    ``names``: what each stage is called in Spark's UI. A job without shuffles has one stage: it gets the envelopes as they are.
    """
    levels = int(payload.shuffles) if payload.keyed is None else len(payload.keyed.levels)
    for level in range(1, levels + 1):
        envelopes = envelopes.repartitionById(payload.partitions, "partition")
        if TIME_COLUMN in envelope_columns(payload):
            # In a streaming query it is the time of the micro-batch, the same when that is run again.
            now = functions.unix_micros(functions.current_timestamp())
            envelopes = envelopes.withColumn(TIME_COLUMN, now)
        if level < levels:
            stage = KeyedStage(payload, level)
            python = payload.workers_python
            envelopes = mapped(envelopes, stage, ENVELOPE, envelope_columns(payload), names[level], python=python)
    return envelopes


def mapped(
    frame: DataFrame,
    stage: Any,
    schema: spark.StructType,
    columns: Sequence[str],
    name: str | None = None,
    *,
    python: str | None,
) -> DataFrame:
    """Return the output of a stage over Arrow batches: ``DataFrame.mapInArrow``, but without the need for pandas.

    ``columns`` are those of the DataFrame. ``name`` is shown in the plan of Spark's UI. ``python`` runs the stage; None: that
    of the session.
    """
    if is_of_connect(frame):
        return _mapped_by_server(frame, stage, schema, columns, name)
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    from headrace_spark.processes.session_packages import run_by  # not with Spark Connect

    function = UserDefinedFunction(stage, schema, name or type(stage).__name__, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    if python is not None:
        run_by(function, python)
    column: Any = function(*[frame[quoted(name)] for name in columns])
    return ClassicDataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def _mapped_by_server(
    frame: Any, stage: Any, schema: spark.StructType, columns: Sequence[str], name: str | None
) -> DataFrame:
    """Return the same with Spark Connect, without asking the server for the columns, as its ``mapInArrow`` does.

    In a function of a declarative pipeline the server must not be asked.
    """
    from pyspark.sql.connect.plan import MapPartitions
    from pyspark.sql.connect.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    function = UserDefinedFunction(
        stage, returnType=schema, name=name or type(stage).__name__, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    plan = MapPartitions(child=frame._plan, function=function, cols=list(columns), is_barrier=False, profile=None)
    made: DataFrame = type(frame)(plan, frame.sparkSession)
    return made


def quoted(name: str) -> str:
    """Return the name of a column as Spark takes it whatever its characters are."""
    return "`" + name.replace("`", "``") + "`"
