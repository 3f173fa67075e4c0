"""The contracts of the sample sinks, as their author would write them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from headrace_contract import BASIC_TYPES, SinkContract

from contract_samples.sinks import LedgerSink, LineSink, TableSink


class LineContract(SinkContract):
    """What the author of a simple sink writes."""

    kind: type[LineSink] = LineSink

    def make_sink(self) -> LineSink:
        return self.kind(self.kind.Settings(path=str(self.tmp_path / "rows")))

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        file = self.tmp_path / "rows"
        return [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []


class TableContract(SinkContract):
    """A sink with every optional method."""

    types = (*BASIC_TYPES, "int8", "int32", "binary", "json")
    kind: type[TableSink] = TableSink

    def make_sink(self) -> TableSink:
        return self.kind(self.kind.Settings(database=str(self.tmp_path / "database" / "file"), table=self.unique_name))

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        with closing(sqlite3.connect(self.tmp_path / "database" / "file")) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(f"SELECT * FROM {self.unique_name}")]  # noqa: S608

    def create_target(self, schema: object) -> None:
        (self.tmp_path / "database").mkdir()

    def bad_row(self) -> dict[str, Any]:
        return {**self.make_row(0), "text": "refuse me"}

    def begin_outage(self) -> None:
        (self.tmp_path / "database").rename(self.tmp_path / "away")

    def end_outage(self) -> None:
        (self.tmp_path / "away").rename(self.tmp_path / "database")

    def make_sink_without_target(self) -> TableSink:
        return self.kind(self.kind.Settings(database=str(self.tmp_path / "nowhere" / "file")))

    def unfit_schema(self) -> Mapping[str, Any]:
        return {"id": "int64", "forbidden": "string"}

    def make_with_secret(self, secret: str) -> TableSink:
        return self.kind(self.kind.Settings.of({"database": str(self.tmp_path / "nowhere" / "x"), "password": secret}))


class LedgerContract(TableContract):
    """A transactional sink."""

    kind = LedgerSink
