"""The contract suite, for the file source and the file sink in its formats."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
import zstandard
from headrace_contract.sink import SinkContract
from headrace_contract.source import SourceContract
from headrace_contract.values import ALL_TYPES
from headrace_file import FileSink, FileSinkSettings, FileSource, FileSourceSettings


class FileSourceChecks(SourceContract):
    plugin = "file"
    compression: ClassVar[str] = "none"

    def begin(self, tmp_path: Any) -> None:
        super().begin(tmp_path)
        self.directory = tmp_path / "events"
        self.directory.mkdir()
        self.numbers = itertools.count()

    def make_source(self) -> FileSource:
        return FileSource(FileSourceSettings.of({"path": str(self.directory)}))

    def make_missing_source(self) -> FileSource:
        return FileSource(FileSourceSettings.of({"path": str(self.directory / "nothing.ndjson")}))

    def add_queue(self) -> str:
        path = self.directory / f"events-{next(self.numbers)}.log"
        path.touch()
        return str(path)

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        data = b"".join(body + b"\n" for body in bodies)
        with open(queue, "ab") as file:
            file.write(self.pack(data))

    def pack(self, data: bytes) -> bytes:
        return data

    def remove_queue(self, queue: str) -> None:
        os.unlink(queue)

    def begin_outage(self) -> None:
        self.directory.rename(self.tmp_path / "away")

    def end_outage(self) -> None:
        (self.tmp_path / "away").rename(self.directory)


class TestPlainFileSource(FileSourceChecks):
    """Plain files."""


class PackedFileSourceChecks(FileSourceChecks):
    """Files that can be damaged: bytes follow that no member begins with."""

    damage = b"\x1f\x8b no member"

    def break_queue(self, queue: str) -> None:
        with open(queue, "ab") as file:
            file.write(self.damage)

    def mend_queue(self, queue: str) -> None:
        os.truncate(queue, os.path.getsize(queue) - len(self.damage))


class TestGzipFileSource(PackedFileSourceChecks):
    """Files to which gzip members are appended."""

    def add_queue(self) -> str:
        path = self.directory / f"events-{next(self.numbers)}.log.gz"
        path.touch()
        return str(path)

    def pack(self, data: bytes) -> bytes:
        return gzip.compress(data)


@pytest.mark.slow
class TestZstdFileSource(PackedFileSourceChecks):
    """Files to which zstd frames are appended."""

    def add_queue(self) -> str:
        path = self.directory / f"events-{next(self.numbers)}.log.zst"
        path.touch()
        return str(path)

    def pack(self, data: bytes) -> bytes:
        return zstandard.ZstdCompressor().compress(data)


class FileSinkChecks(SinkContract):
    plugin = "file"
    options: ClassVar[Mapping[str, Any]] = {}

    def begin(self, tmp_path: Any) -> None:
        super().begin(tmp_path)
        self.directory = tmp_path / "out"

    def make_sink(self) -> FileSink:
        return FileSink(FileSinkSettings.of({"path": str(self.directory), "fsync": False, **self.options}))

    def parts(self) -> list[str]:
        return sorted(str(path) for path in self.directory.iterdir() if path.name != "_headrace")

    def begin_outage(self) -> None:
        self.directory.rename(self.tmp_path / "away")

    def end_outage(self) -> None:
        (self.tmp_path / "away").rename(self.directory)


class TestJsonFileSink(FileSinkChecks):
    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        return [json.loads(line) for part in self.parts() for line in Path(part).read_bytes().split(b"\n")[:-1]]


class TestJsonColumnFileSink(TestJsonFileSink):
    """With a column of JSON texts, which a row can get wrong."""

    schema: ClassVar[Mapping[str, Any]] = {"id": "int64", "text": "string", "document": "string"}
    options: ClassVar[Mapping[str, Any]] = {"format_options": {"json_columns": ["document"]}}
    # The option names a column, so that the checks with columns of their own do not fit.
    types: ClassVar[Sequence[str]] = ()
    longest_text = 0

    def make_row(self, number: int) -> dict[str, Any]:
        return {"id": number, "text": f"text {number}", "document": f'{{"n": {number}}}'}

    def as_read(self, row: dict[str, Any]) -> dict[str, Any]:
        document = row["document"]
        return {**row, "document": None if document is None else json.loads(document)}

    def bad_row(self) -> dict[str, Any]:
        return {"id": 17, "text": "bad", "document": "{cut"}


@pytest.mark.slow
class TestZstdJsonFileSink(FileSinkChecks):
    options: ClassVar[Mapping[str, Any]] = {"compression": "zstd"}

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        unpacked = [zstandard.ZstdDecompressor().decompress(Path(part).read_bytes()) for part in self.parts()]
        return [json.loads(line) for data in unpacked for line in data.split(b"\n")[:-1]]


class TestCsvFileSink(FileSinkChecks):
    options: ClassVar[Mapping[str, Any]] = {"format": "csv"}

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        rows = []
        csv.field_size_limit(2 * self.longest_text)
        for part in self.parts():
            with open(part, newline="", encoding="utf-8") as file:
                rows += list(csv.DictReader(file))
        return rows

    def as_read(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: _csv_text(value) for name, value in row.items()}


class TestParquetFileSink(FileSinkChecks):
    options: ClassVar[Mapping[str, Any]] = {"format": "parquet"}
    types: ClassVar[Sequence[str]] = ALL_TYPES

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        return [row for part in self.parts() for row in pl.read_parquet(part).to_dicts()]


def _csv_text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
