"""EXPLAIN: the plan of a statement as a row of text. What is explained is compiled and checked, and never runs."""

from __future__ import annotations

import polars as pl
from headrace.jobs.job import Job
from headrace.plan.explain import plan_as_text

from headrace_sql.binding.catalog import Catalog
from headrace_sql.binding.scope import Column, Relation
from headrace_sql.operators.frames import FrameSource
from headrace_sql.operators.plan_sink import RESULT


def explained(catalog: Catalog, job: Job) -> Relation:
    """Return the plan of a job as a relation of one row with the column ``result``, as in Flink. Raises the errors of the plan."""
    frame = pl.DataFrame({RESULT: [plan_as_text(job.plan())]})
    stream = catalog.pipeline.from_(FrameSource.of(frame), name=catalog.unused_source_name("explain"))
    return Relation(stream, (Column(RESULT, RESULT),))
