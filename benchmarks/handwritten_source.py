"""What one would write by hand with PySpark alone: a Python streaming source of lines, two partitions, Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

CHUNK = 4 * 1024 * 1024


class LinesSource(DataSource):
    """``spark.readStream.format("lines")``: the lines of every events-*.ndjson below ``path``."""

    @classmethod
    def name(cls) -> str:
        return "lines"

    def schema(self) -> str:
        return "value string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return LinesReader(self.options["path"])


class Piece(InputPartition):
    def __init__(self, path: str, begin: int, end: int) -> None:
        super().__init__(path)
        self.path, self.begin, self.end = path, begin, end


class LinesReader(DataSourceStreamReader):
    """Offsets are file sizes; each file is one partition of the batch."""

    def __init__(self, path: str) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, int]:
        return {}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        return {str(file): file.stat().st_size for file in sorted(Path(self._path).glob("events-*.ndjson"))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Piece]:
        return [Piece(path, start.get(path, 0), size) for path, size in end.items() if size > start.get(path, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        with open(partition.path, "rb") as file:
            file.seek(partition.begin)
            rest, left = b"", partition.end - partition.begin
            while left > 0:
                chunk = file.read(min(CHUNK, left))
                left -= len(chunk)
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                yield pa.RecordBatch.from_arrays([pa.array([line.decode() for line in lines])], ["value"])


def session(master: str) -> SparkSession:
    """A session with sensible settings for the job."""
    return (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .getOrCreate()
    )
