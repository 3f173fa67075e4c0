"""What headrace-spark offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_backends() -> Mapping[str, str]:
    return {"spark": "headrace_spark.backend:SparkBackend"}


@hookimpl
def headrace_sources() -> Mapping[str, str]:
    return {"dataframe": "headrace_spark.dataframes.frame_source:DataFrameSource"}
