"""What the tests of the file sink share: batches of known rows, sinks, and what a reader of the directory sees."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from headrace.flow.messages import INDEX, OFFSET, Batch, Position, Queue
from headrace.flow.schema import Schema
from headrace.interfaces.sink import SinkBatch
from headrace_file import FileSink, FileSinkSettings

SCHEMA = Schema({"id": pl.Int64(), "text": pl.String()})
#: Also with a column that partitions go by.
DIVIDED = Schema({**SCHEMA, "half": pl.Int64()})


def rows(queue: str, first: int, count: int, *, divided: bool = False) -> Batch:
    """Return records ``first`` … of a queue, one row each; ``divided``: with the column ``half``, 0 or 1."""
    offsets = np.arange(first, first + count, dtype=np.int64)
    frame = pl.DataFrame(
        {
            OFFSET: offsets,
            INDEX: np.zeros(count, dtype=np.int32),
            "id": offsets,
            "text": [f"{queue} {offset}" for offset in range(first, first + count)],
        }
    )
    return Batch(Queue(queue), frame.with_columns(half=pl.col("id") % 2) if divided else frame)


def insert(sink: FileSink, queue: str, first: int, count: int, after: int | None = -1) -> None:
    """Insert records; ``after`` is the offset that is believed to be stored (-1: the one before)."""
    batch = rows(queue, first, count)
    stored = first - 1 if after == -1 else after
    sink.batch_insert(SinkBatch(batch.queue, batch.frame, None if stored is None or stored < 0 else Position(stored)))


def make_sink(directory: Path, **options: Any) -> FileSink:
    """Return a sink as a job has it once it runs."""
    clock = options.pop("clock", None)
    sink = FileSink(
        FileSinkSettings.of({"path": str(directory), "fsync": False, **options}, plugin="file"), clock=clock
    )
    schema = DIVIDED if "partition_by" in options else SCHEMA
    sink.check(schema)
    sink.prepare(schema)
    sink.open()
    return sink


def parts(directory: Path) -> list[Path]:
    """Return the parts that a reader sees, in the order of their names."""
    return sorted(directory.glob("*.json"))


def stored(paths: Iterable[Path]) -> list[tuple[str, int]]:
    """Return (queue, offset) of every row in JSON parts, in order."""
    found = []
    for path in paths:
        data = path.read_bytes()
        assert data.endswith(b"\n")
        for line in data.split(b"\n")[:-1]:
            row = json.loads(line)
            queue, _, offset = row["text"].rpartition(" ")
            assert int(offset) == row["id"]
            found.append((queue, row["id"]))
    return found
