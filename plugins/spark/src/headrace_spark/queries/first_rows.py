"""A look at the first rows of a job, for notebooks: runs it as a plain batch query, shows how far it is, and returns a table."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace.foundation.errors import JobError, OptionError
from headrace.jobs.dsl import Stream
from headrace.jobs.job import Job
from headrace.runtime.progress import RewrittenLine

from headrace_spark.dataframes.frame_source import is_of_connect
from headrace_spark.queries.batch_run import BatchRun
from headrace_spark.queries.frames import frames_of_stream_or_job, to_dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Preview:
    """The first rows of a result. A notebook shows it as a table; ``frame`` is a polars frame."""

    frame: pl.DataFrame
    #: Whether the result has further rows.
    more: bool
    seconds: float

    def __repr__(self) -> str:
        return f"{self.frame}\n{self._caption()}"

    def _repr_html_(self) -> str:
        return f"{self.frame._repr_html_()}<small>{self._caption()}</small>"

    def _caption(self) -> str:
        rows = f"the first {self.frame.height:,} rows" if self.more else f"all {self.frame.height:,} rows"
        return f"{rows}, after {self.seconds:.1f} s"


def preview(
    what: Job | Stream | DataFrame,
    session: SparkSession | None = None,
    *,
    rows: int = 20,
    progress: bool | None = None,
    **options: Any,
) -> Preview:
    """Run a job, a stream or a batch DataFrame once, and return its first rows.

    ``progress``: whether a line on stderr shows how many tasks are done; None: in a terminal or a notebook. ``options`` are
    those of ``to_dataframe``. Raises JobError for a streaming DataFrame, which has no end.
    """
    if rows < 1:
        raise OptionError(f"unusable value {rows}: it must be at least 1", plugin="preview", option="rows")
    if isinstance(what, Job | Stream):
        given = options if frames_of_stream_or_job(what) else {"batch": True, **options}
        frame = to_dataframe(what, session, **given)
    else:
        frame = what
    if frame.isStreaming:
        raise JobError(
            "the first rows of a streaming DataFrame cannot be shown",
            plugin="preview",
            hint="to look at the data, read it with spark.read instead of spark.readStream",
        )
    begun = time.monotonic()
    if is_of_connect(frame):  # it shows its progress itself
        table = pl.DataFrame(pl.from_arrow(frame.limit(rows + 1).toArrow()))
        return Preview(table.head(rows), table.height > rows, time.monotonic() - begun)
    found: list[Any] = []
    run = BatchRun(frame.sparkSession, "preview", lambda: found.append(frame.limit(rows + 1).toArrow()))
    shown, line = _is_watched() if progress is None else progress, RewrittenLine()
    try:
        while not run.awaitTermination(_LOOK_SECONDS):
            if shown:
                line.show(_text(run, time.monotonic() - begun))
    except KeyboardInterrupt:
        run.stop()
        raise
    finally:
        line.clear()
    table = pl.DataFrame(pl.from_arrow(found[0]))
    return Preview(table.head(rows), table.height > rows, time.monotonic() - begun)


def _is_watched() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _text(run: BatchRun, seconds: float) -> str:
    done, total = run.tasks()
    return f"{done:,} of {total:,} tasks, {seconds:.0f} s"
