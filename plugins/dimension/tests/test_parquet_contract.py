"""The contract of sources, for parquet files."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import polars as pl
from headrace_contract.source import SourceContract
from headrace_dimension.parquet import ParquetSettings, ParquetSource


class TestParquetSource(SourceContract):
    """Files with the columns ``number`` and ``text``; one that grows is written anew, in small row groups."""

    plugin = "parquet"
    queues_grow = False
    odd_bodies: ClassVar[Sequence[bytes]] = tuple(
        json.dumps({"number": number, "text": text}).encode()
        for number, text in enumerate(
            ["", " spaces around ", "tab\tquote\"'\n", "grüße 漢字 🙂", "NUL \x00", "x" * 300_000]
        )
    )
    schema: ClassVar[Mapping[str, Any]] = {"number": pl.Int64(), "text": pl.String()}

    def begin(self, tmp_path: Any) -> None:
        super().begin(tmp_path)
        self.directory = tmp_path / "table"
        self.directory.mkdir()
        self.numbers = itertools.count()

    def make_source(self) -> ParquetSource:
        return ParquetSource(ParquetSettings.of({"path": str(self.directory)}, plugin="parquet"))

    def make_missing_source(self) -> ParquetSource:
        return ParquetSource(ParquetSettings.of({"path": str(self.directory / "nothing.parquet")}, plugin="parquet"))

    def add_queue(self) -> str:
        path = self.directory / f"part-{next(self.numbers)}.parquet"
        pl.DataFrame(schema=self.schema).write_parquet(path)
        return str(path)

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        rows = [json.loads(body) for body in bodies]
        grown = pl.concat([pl.read_parquet(queue), pl.DataFrame(rows, schema=dict(self.schema))])
        grown.write_parquet(f"{queue}.new", row_group_size=30)
        os.replace(f"{queue}.new", queue)

    def remove_queue(self, queue: str) -> None:
        os.unlink(queue)
