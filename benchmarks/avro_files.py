"""Avro's object container files on one core: ``python -m benchmarks.avro_files [records]``.

The records are those of ``benchmarks.avro``: eight fields. Files have one codec each and blocks as fastavro makes them. Beside the reader
of ``from_avro`` runs fastavro, which gives a dictionary for each record.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import fastavro
from headrace_avro.container_files import AvroFileSource

from benchmarks.avro import FIELDS, records_of, schema_of
from benchmarks.rounds import best

CODECS = ("null", "deflate", "snappy")


def rows_of(path: str, columns: Sequence[str]) -> int:
    """Read a file to the end; return the number of rows."""
    file = AvroFileSource.open_file(path)
    try:
        return sum(batch.num_rows for group in range(len(file.group_rows)) for batch in file.read(group, columns))
    finally:
        file.close()


def by_fastavro(path: str) -> int:
    with open(path, "rb") as file:
        return sum(1 for _ in fastavro.reader(file))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    records = records_of(count)
    print("| codec | all eight columns | two columns | fastavro |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for codec in CODECS:
            path = str(Path(directory) / f"{codec}.avro")
            with open(path, "wb") as file:
                fastavro.writer(file, schema_of(FIELDS), records, codec=codec)
            assert rows_of(path, ["ts"]) == count
            every = best(count, partial(rows_of, path, list(FIELDS)))
            rates = [
                every,
                best(count, partial(rows_of, path, ["host", "bytes"])),
                best(count, partial(by_fastavro, path)),
            ]
            print(f"| {codec} | " + " | ".join(f"{round(rate, -3):,.0f}" for rate in rates) + " |", flush=True)


if __name__ == "__main__":
    main()
