"""The contract of sources of files of columns, which several packages have."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import polars as pl
from headrace_contract.source import SourceContract
from headrace_dimension.columnar_files import ColumnarFileSettings, ColumnarFileSource


class ColumnarFileContract(SourceContract):
    """Files with the columns ``number`` and ``text``; one that grows is written anew, in small groups of rows."""

    queues_grow = False
    odd_bodies: ClassVar[Sequence[bytes]] = tuple(
        json.dumps({"number": number, "text": text}).encode()
        for number, text in enumerate(
            ["", " spaces around ", "tab\tquote\"'\n", "grüße 漢字 🙂", "NUL \x00", "x" * 300_000]
        )
    )
    schema: ClassVar[Mapping[str, Any]] = {"number": pl.Int64(), "text": pl.String()}
    source_class: ClassVar[type[ColumnarFileSource]]

    def begin(self, tmp_path: Any) -> None:
        super().begin(tmp_path)
        self.directory = tmp_path / "table"
        self.directory.mkdir()
        self.numbers = itertools.count()
        self.frames: dict[str, pl.DataFrame] = {}

    def save(self, frame: pl.DataFrame, path: str) -> None:
        """Write a frame in groups of 30 rows."""
        raise NotImplementedError

    def make_source(self) -> ColumnarFileSource:
        return self.source_class(ColumnarFileSettings.of({"path": str(self.directory)}, plugin=self.plugin))

    def make_missing_source(self) -> ColumnarFileSource:
        missing = str(self.directory / "nothing")
        return self.source_class(ColumnarFileSettings.of({"path": missing}, plugin=self.plugin))

    def add_queue(self) -> str:
        path = str(self.directory / f"part-{next(self.numbers)}{self.source_class.ending}")
        self.frames[path] = pl.DataFrame(schema=self.schema)
        self.save(self.frames[path], path)
        return path

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        rows = [json.loads(body) for body in bodies]
        self.frames[queue] = pl.concat([self.frames[queue], pl.DataFrame(rows, schema=dict(self.schema))])
        self.save(self.frames[queue], f"{queue}.new")
        os.replace(f"{queue}.new", queue)

    def remove_queue(self, queue: str) -> None:
        os.unlink(queue)
