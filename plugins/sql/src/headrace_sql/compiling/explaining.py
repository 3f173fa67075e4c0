"""EXPLAIN: the plan of a statement as a row of text. What is explained is compiled and checked, and never runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar

import polars as pl
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings
from headrace.jobs.job import Job
from headrace.plan.explain import plan_as_text

from headrace_sql.binding.scope import Column, Relation
from headrace_sql.operators.frames import FrameSource

if TYPE_CHECKING:
    from headrace_sql.binding.catalog import Catalog

_RESULT = "result"


def explained(catalog: Catalog, job: Job) -> Relation:
    """Return the plan of a job as a relation of one row with the column ``result``, as in Flink. Raises what the plan raises."""
    frame = pl.DataFrame({_RESULT: [plan_as_text(job.plan())]})
    stream = catalog.pipeline.from_(FrameSource.of(frame), name=catalog.unused_source_name("explain"))
    return Relation(stream, (Column(_RESULT, _RESULT),))


class PlanSink(Sink):
    """Prints plans as they are, line by line: what EXPLAIN gives where nothing collects it."""

    Settings: ClassVar[type[SinkSettings]] = SinkSettings

    def __init__(self, settings: SinkSettings | None = None) -> None:
        self.settings = settings if settings is not None else SinkSettings()

    @property
    def prints_to_terminal(self) -> bool:
        """Whether rows appear on the terminal of this process, where nothing else should be drawn meanwhile."""
        return sys.stdout.isatty()

    def batch_insert(self, batch: SinkBatch) -> None:
        for text in batch.frame[_RESULT].to_list():
            print(text.rstrip("\n"))
        sys.stdout.flush()
