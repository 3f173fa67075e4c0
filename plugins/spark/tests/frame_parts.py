"""For tests of DataFrames: the same job on light over the same rows, and queries that end with their input."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
from headrace.flow.changelog import KIND_MARKS, KIND_NAMES
from headrace.jobs.collecting import MARK, CollectSettings, CollectSink, collected
from headrace.jobs.dsl import Pipeline
from headrace_sql.operators.frames import FrameSource
from pyspark.sql import DataFrame, SparkSession

Chain = Callable[[hr.Stream], hr.Stream]
Rows = Counter[tuple[Any, ...]]
_SIGNS = {"insert": 1, "update_after": 1, "update_before": -1, "delete": -1}
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_WORDS = {KIND_MARKS[kind]: KIND_NAMES[kind] for kind in KIND_NAMES}


def begin(name: str, **options: Any) -> Pipeline:
    """Begin a job of these tests."""
    return hr.stream("frames", name, **options)


def on_light(rows: pl.DataFrame, chain: Chain, name: str = "light") -> Rows:
    """Return what a chain of verbs makes of rows on the light backend, as the result is at the end."""
    stream = chain(begin(name).from_(FrameSource.of(rows)))
    return light_result(stream)


def light_result(stream: hr.Stream) -> Rows:
    with tempfile.TemporaryDirectory() as place:
        stream.to(CollectSink(CollectSettings(path=place))).run("light")
        assert stream.schema is not None
        frame = collected(place, dict(stream.schema))
    kinds = [_WORDS[mark] for mark in frame[MARK].to_list()]
    return net(frame.drop(MARK).rows(), kinds)


def net(rows: list[tuple[Any, ...]], kinds: list[str]) -> Rows:
    """Return how often each row is there when all changes were made."""
    found: Rows = Counter()
    for place, row in enumerate(rows):
        found[_hashable(row)] += _SIGNS[kinds[place]] if kinds else 1
    assert all(count >= 0 for count in found.values()), found
    return +found


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_hashable(each) for each in value.values())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def result(frame: pl.DataFrame) -> Rows:
    """Return what the rows of a DataFrame come to, its changes made."""
    kinds = frame["_kind"].to_list() if "_kind" in frame.columns else []
    return net(frame.drop("_kind", "_order", strict=False).rows(), kinds)


def collect(frame: DataFrame) -> pl.DataFrame:
    """Return the rows of a batch DataFrame."""
    return pl.DataFrame(pl.from_arrow(frame.toArrow()))


def run_query(frame: DataFrame, place: Path, checkpoint: str = "checkpoint") -> pl.DataFrame:
    """Write a streaming DataFrame to Parquet up to the end of its input; return all that is there then."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(place / checkpoint))
        .trigger(availableNow=True)
        .start(str(place / "rows"))
    )
    query.awaitTermination()
    return written(place)


def written(place: Path) -> pl.DataFrame:
    """Return the rows of Spark's file sink: those of completed micro-batches."""
    files: list[Path] = []
    for log in sorted((place / "rows" / "_spark_metadata").iterdir(), key=lambda each: each.name):
        if log.name.isdigit():
            files += [
                Path(json.loads(line)["path"].removeprefix("file://")) for line in log.read_text().splitlines()[1:]
            ]
    parts = [pl.read_parquet(file) for file in files]
    return pl.concat([part for part in parts if part.height] or parts)


def events(count: int, keys: int = 5) -> pl.DataFrame:
    """Rows in the order of time: every 7 s one, with a key and a text."""
    numbers = range(count)
    return pl.DataFrame(
        {
            "n": list(numbers),
            "k": [f"key-{n % keys}" for n in numbers],
            "at": [BEGIN + timedelta(seconds=7 * n) for n in numbers],
            "price": [Decimal(n) / 4 for n in numbers],
            "text": [None if n % 6 == 0 else "curl http://x" if n % 5 == 0 else f"ls {n}" for n in numbers],
        },
        schema_overrides={"price": pl.Decimal(10, 2), "at": pl.Datetime("us", "UTC")},
    )


class Files:
    """A directory of Parquet files that a streaming DataFrame reads one by one."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark = spark
        self.place = place
        place.mkdir()
        self._count = 0

    def add(self, rows: pl.DataFrame, parts: int = 1) -> None:
        """Add rows as files; each is a micro-batch."""
        size = -(-rows.height // parts)
        for part in rows.iter_slices(size):
            # Spark takes files in the order of their times of change, and those of one moment in any order. It does not see a
            # name that begins with a dot. It would take a visible file that is not whole yet for one of today, and then leave
            # out the whole one for ever: its time is more than a week before.
            path, hidden = self.place / f"{self._count:04}.parquet", self.place / f".{self._count:04}"
            part.write_parquet(hidden)
            os.utime(hidden, (self._count + 1, self._count + 1))
            hidden.rename(path)
            self._count += 1

    def read(self) -> DataFrame:
        return self.spark.read.parquet(str(self.place))

    def stream(self) -> DataFrame:
        schema = self.read().schema
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.place))
