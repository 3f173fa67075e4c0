"""Rows of a job as a frame: the sink behind ``collect``, and the functions that turn the stored changes into a
frame.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import polars as pl

from headrace.flow.messages import CHANGE, HEADER_COLUMNS, ChangeKind
from headrace.interfaces.settings import option
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.backend import JobReport
    from headrace.jobs.dsl import Stream

logger = logging.getLogger(__name__)
_KINDS = {
    ChangeKind.INSERT: "+I", ChangeKind.UPDATE_BEFORE: "-U", ChangeKind.UPDATE_AFTER: "+U", ChangeKind.DELETE: "-D",
}  # fmt: skip


class CollectSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of the collect sink."""

    path: Annotated[str, option("directory for the collected rows; created if it does not exist")]


class CollectSink(Sink):
    """Keeps every row with its kind of change in Arrow files of a directory, for ``collect`` to read. At least once."""

    Settings: ClassVar[type[SinkSettings]] = CollectSettings
    accepts = "changelog"
    concurrent = True

    def __init__(self, settings: CollectSettings) -> None:
        self.settings: CollectSettings = settings

    def prepare(self, schema: Schema | None) -> None:
        os.makedirs(self.settings.path, exist_ok=True)

    def batch_insert(self, batch: SinkBatch) -> None:
        first = batch.first
        name = f"{first.offset:020d}-{first.index:010d}-{uuid.uuid4().hex}.arrow"
        target = os.path.join(self.settings.path, name)
        batch.frame.write_ipc(f"{target}.part")
        os.replace(f"{target}.part", target)  # a reader finds only complete files while the job runs


#: The column of ``collected`` that holds the kind of a change: no column of a result has this name.
MARK = "__hr_mark"


def collected(path: str, types: dict[str, Any]) -> pl.DataFrame:
    """Return the rows that a CollectSink kept, in order, with the column ``MARK`` (+I, -U, +U, -D)."""
    frames = []
    for name in sorted(each for each in os.listdir(path) if each.endswith(".arrow")):
        frame = pl.read_ipc(os.path.join(path, name))
        kinds = frame[CHANGE] if CHANGE in frame.columns else pl.Series([0] * frame.height, dtype=pl.Int8)
        ops = kinds.replace_strict(_KINDS, return_dtype=pl.String).alias(MARK)
        frames.append(frame.drop(HEADER_COLUMNS, strict=False).with_columns(ops))
    if not frames:
        return pl.DataFrame(schema={**types, MARK: pl.String()})
    return pl.concat(frames)


def materialized(changes: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that exist after all changes, each at the place of its last change."""
    columns = [name for name in changes.columns if name != MARK]
    if not changes[MARK].is_in(["-U", "-D", "+U"]).any():
        return changes.select(columns)
    rows = changes.select(columns)
    # Rows are compared by hashes of 128 bits, which practically never collide. Comparing wide rows themselves takes
    # three times as long.
    sign = pl.when(changes[MARK].is_in(["+I", "+U"])).then(1).otherwise(-1)
    marked = pl.select(
        rows.hash_rows(1).alias("one"), rows.hash_rows(2).alias("two"), sign.alias("sign")
    ).with_row_index("row")
    counted = marked.group_by("one", "two").agg(pl.col("sign").sum(), pl.col("row").max()).sort("row")
    kept = counted.filter(pl.col("sign") > 0).select(pl.col("row").repeat_by("sign").explode(empty_as_null=False))
    return rows[kept.to_series()] if kept.height else rows.clear()


def collect_all(streams: Mapping[str, Stream], backend: str, **options: Any) -> dict[str, pl.DataFrame]:
    """Run streams as one job to the end of the present input, and return their changes, by name.

    Logs how many records became dead letters, and why. Raises JobError as ``Job.run`` does.
    """
    with _collecting(streams) as (jobs, paths):
        report = jobs[0].also(*jobs[1:]).run(backend, **options)
        tell_dead_letters(report)
        return {name: collected(paths[name], dict(streams[name].schema or {})) for name in streams}


def first_rows(stream: Stream, rows: int, backend: str, **options: Any) -> pl.DataFrame:
    """Return the first rows, and stop the job as soon as there are enough. Only for streams whose rows never change."""
    with _collecting({"rows": stream}) as (jobs, paths):
        handle = jobs[0].start(backend, **{"until": "end", **options})
        while True:
            try:
                report = handle.wait(timedelta(milliseconds=50))
            except TimeoutError:
                if _height(paths["rows"]) < rows:
                    continue
                handle.stop()
                report = handle.wait()
            tell_dead_letters(report)
            made = collected(paths["rows"], dict(stream.schema or {}))
            return made.drop(MARK).head(rows)


def with_kinds(changes: pl.DataFrame) -> pl.DataFrame:
    """Return changes with their kinds in the column ``op``, or ``op_2`` and so on where the rows have such a column."""
    name, number = "op", 1
    while name in changes.columns:
        number += 1
        name = f"op_{number}"
    return changes.rename({MARK: name})


@contextmanager
def _collecting(streams: Mapping[str, Stream]) -> Iterator[tuple[Sequence[Any], dict[str, str]]]:
    place = tempfile.mkdtemp(prefix="headrace-collect-")
    try:
        paths = {name: os.path.join(place, str(number)) for number, name in enumerate(streams)}
        interval = timedelta(milliseconds=100)
        jobs = [
            stream.to(CollectSink(CollectSettings(path=paths[name], flush_interval=interval)), name=f"collect_{name}")
            for name, stream in streams.items()
        ]
        yield jobs, paths
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _height(path: str) -> int:
    if not os.path.isdir(path):
        return 0
    names = [each for each in os.listdir(path) if each.endswith(".arrow")]
    return sum(pl.scan_ipc(os.path.join(path, name)).select(pl.len()).collect().item() for name in names)


def tell_dead_letters(report: JobReport) -> None:
    """Log how many records of a run became dead letters, where they are, and the most frequent reasons."""
    if not report.dead_letters:
        return
    places = ", ".join(report.dead_letter_places)
    reasons = "; ".join(map(str, report.dead_letter_reasons))
    logger.warning(
        "%s: %s records are not in the result: they became dead letters%s (%s)",
        report.job, f"{report.dead_letters:,}", f" in {places}" if places else "", reasons,
    )  # fmt: skip
