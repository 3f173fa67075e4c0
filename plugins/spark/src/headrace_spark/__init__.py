"""The Spark backend of headrace: one Structured Streaming query per job, on one machine or a cluster."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_spark.backend import SparkBackend as SparkBackend
    from headrace_spark.backend import to_spark as to_spark
    from headrace_spark.dataframes.frame_source import source as source
    from headrace_spark.queries.first_rows import Preview as Preview
    from headrace_spark.queries.first_rows import preview as preview
    from headrace_spark.queries.frames import to_dataframe as to_dataframe
    from headrace_spark.queries.query_progress import JobFigures as JobFigures
    from headrace_spark.queries.query_progress import JobProgress as JobProgress
    from headrace_spark.queries.query_progress import on_progress as on_progress
    from headrace_spark.queries.query_progress import progress as progress

_PLACES = {
    "JobFigures": "headrace_spark.queries.query_progress",
    "JobProgress": "headrace_spark.queries.query_progress",
    "Preview": "headrace_spark.queries.first_rows",
    "SparkBackend": "headrace_spark.backend",
    "on_progress": "headrace_spark.queries.query_progress",
    "preview": "headrace_spark.queries.first_rows",
    "progress": "headrace_spark.queries.query_progress",
    "source": "headrace_spark.dataframes.frame_source",
    "to_dataframe": "headrace_spark.queries.frames",
    "to_spark": "headrace_spark.backend",
}
__all__ = [
    "JobFigures",
    "JobProgress",
    "Preview",
    "SparkBackend",
    "on_progress",
    "preview",
    "progress",
    "source",
    "to_dataframe",
    "to_spark",
]


def __getattr__(name: str) -> Any:
    # Worker processes import this package too: they must not load what only the driver needs.
    if name not in _PLACES:
        raise AttributeError(f"module 'headrace_spark' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
