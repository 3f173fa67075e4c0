"""Types of columns between headrace and Spark: those of a DataFrame as polars types, and those of a job as Spark's types."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import PlanError
from pyspark.sql import types as spark

_SIMPLE_FROM_SPARK: Mapping[type[spark.DataType], pl.DataType] = {
    spark.StringType: pl.String(), spark.BinaryType: pl.Binary(), spark.BooleanType: pl.Boolean(),
    spark.ByteType: pl.Int8(), spark.ShortType: pl.Int16(), spark.IntegerType: pl.Int32(), spark.LongType: pl.Int64(),
    spark.FloatType: pl.Float32(), spark.DoubleType: pl.Float64(), spark.DateType: pl.Date(),
    spark.TimestampType: pl.Datetime("us", "UTC"), spark.TimestampNTZType: pl.Datetime("us"),
    spark.DayTimeIntervalType: pl.Duration("us"),
}  # fmt: skip
_SIMPLE_TO_SPARK: Mapping[pl.DataType, tuple[spark.DataType, pa.DataType]] = {
    pl.String(): (spark.StringType(), pa.string()),
    pl.Categorical(): (spark.StringType(), pa.string()),
    pl.Binary(): (spark.BinaryType(), pa.binary()),
    pl.Boolean(): (spark.BooleanType(), pa.bool_()),
    pl.Int8(): (spark.ByteType(), pa.int8()),
    pl.Int16(): (spark.ShortType(), pa.int16()),
    pl.Int32(): (spark.IntegerType(), pa.int32()),
    pl.Int64(): (spark.LongType(), pa.int64()),
    pl.UInt8(): (spark.ShortType(), pa.int16()),
    pl.UInt16(): (spark.IntegerType(), pa.int32()),
    pl.UInt32(): (spark.LongType(), pa.int64()),
    pl.UInt64(): (spark.DecimalType(20, 0), pa.decimal128(20, 0)),
    pl.Float32(): (spark.FloatType(), pa.float32()),
    pl.Float64(): (spark.DoubleType(), pa.float64()),
    pl.Date(): (spark.DateType(), pa.date32()),
}


def schema_from_spark(schema: spark.StructType, source: str) -> Schema:
    """Return the columns of a DataFrame. Raises PlanError for a column that headrace has no type for."""
    return Schema({field.name: _from_spark(field.dataType, field.name, source) for field in schema.fields})


def _from_spark(kind: spark.DataType, column: str, source: str) -> pl.DataType:
    found = next((made for known, made in _SIMPLE_FROM_SPARK.items() if isinstance(kind, known)), None)
    if found is not None:
        return found
    if isinstance(kind, spark.CharType | spark.VarcharType):
        return pl.String()
    if isinstance(kind, spark.DecimalType):
        return pl.Decimal(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        return pl.List(_from_spark(kind.elementType, column, source))
    if isinstance(kind, spark.StructType):
        return pl.Struct({each.name: _from_spark(each.dataType, column, source) for each in kind.fields})
    if isinstance(kind, spark.MapType):
        key, value = (_from_spark(each, column, source) for each in (kind.keyType, kind.valueType))
        return pl.List(pl.Struct({"key": key, "value": value}))
    raise PlanError(
        f"column {column!r} of the DataFrame has the type {kind.simpleString()}, which headrace does not support",
        plugin=source,
        option="frame",
        hint=f"cast it, or leave it out: df.drop({column!r})",
    )


def schema_to_spark(schema: Schema, job: str) -> tuple[spark.StructType, pa.Schema]:
    """Return the columns of a job as Spark's types and as the Arrow types that bring them there. Raises PlanError."""
    fields, arrow = [], []
    for name, kind in schema.items():
        spark_type, arrow_type = _to_spark(kind, name, job)
        fields.append(spark.StructField(name, spark_type, True))
        arrow.append(pa.field(name, arrow_type))
    return spark.StructType(fields), pa.schema(arrow)


def _to_spark(kind: pl.DataType, column: str, job: str) -> tuple[spark.DataType, pa.DataType]:
    simple = _SIMPLE_TO_SPARK.get(kind)
    if simple is not None:
        return simple
    if isinstance(kind, pl.Enum):
        return spark.StringType(), pa.string()
    if isinstance(kind, pl.Datetime):
        if kind.time_zone is None:
            return spark.TimestampNTZType(), pa.timestamp("us")
        return spark.TimestampType(), pa.timestamp("us", "UTC")
    if isinstance(kind, pl.Duration):
        return spark.DayTimeIntervalType(), pa.duration("us")
    if isinstance(kind, pl.Decimal):
        precision = 38 if kind.precision is None else kind.precision
        return spark.DecimalType(precision, kind.scale), pa.decimal128(precision, kind.scale)
    if isinstance(kind, pl.List | pl.Array):
        assert isinstance(kind.inner, pl.DataType)
        spark_type, arrow_type = _to_spark(kind.inner, column, job)
        return spark.ArrayType(spark_type), pa.list_(arrow_type)
    if isinstance(kind, pl.Struct):
        names = [each.name for each in kind.fields]
        found = [_to_spark(each.dtype, column, job) for each in kind.fields]  # type: ignore[arg-type]
        fields = [spark.StructField(name, made, True) for name, (made, _) in zip(names, found, strict=True)]
        arrow_fields = [pa.field(name, made) for name, (_, made) in zip(names, found, strict=True)]
        return spark.StructType(fields), pa.struct(arrow_fields)
    raise PlanError(
        f"column {column!r} is {type_name(kind)}, which cannot be written to a DataFrame",
        job=job,
        hint=f"cast it before to_dataframe(), for example to text: with_columns('CAST({column} AS STRING) AS {column}')",
    )
