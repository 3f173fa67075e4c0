"""The Spark backend of headrace: one Structured Streaming query per job, on one machine or a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_spark.backend import SparkBackend as SparkBackend
    from headrace_spark.backend import to_spark as to_spark

__all__ = ["SparkBackend", "to_spark"]


def __getattr__(name: str) -> Any:
    # Worker processes import this package too: they must not load what only the driver needs.
    if name not in __all__:
        raise AttributeError(f"module 'headrace_spark' has no attribute {name!r}")
    from headrace_spark import backend

    return getattr(backend, name)
