"""The contract suite, for the sink in each of its modes."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, ClassVar

import pytest
from headrace.flow.schema import Schema
from headrace_contract.sink import SinkContract
from headrace_contract.values import ALL_TYPES
from headrace_sqlite import SQLiteSink, SQLiteSinkSettings
from sqlite_world import Database


class SinkChecks(SinkContract):
    plugin = "sqlite"
    types: ClassVar[Sequence[str]] = ALL_TYPES
    more: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _database(self, tmp_path: Any) -> None:
        self.database = Database(tmp_path)

    def settings(self, **more: Any) -> SQLiteSinkSettings:
        options = {"create_table": True, "lock_timeout": "100 ms", **self.more, **more}
        return SQLiteSinkSettings.of(self.database.options(**options), plugin="sqlite")

    def make_sink(self) -> SQLiteSink:
        return SQLiteSink(self.settings())

    def make_sink_without_target(self) -> SQLiteSink:
        return SQLiteSink(self.settings(table="nothing", create_table=False))

    def unfit_schema(self) -> Mapping[str, Any]:
        return {"id": "int64", "ID": "string"}

    def bad_row(self) -> dict[str, Any]:
        return {**self.make_row(10**9), "text": "refused"}

    def test_bad_row_goes_to_dead_letters(self) -> None:
        self.prepared_sink()
        self.database.execute(
            "CREATE TRIGGER refusing BEFORE INSERT ON t WHEN NEW.text = 'refused' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        super().test_bad_row_goes_to_dead_letters()

    def edge_values(self, type_name: str) -> Sequence[Any]:
        values = super().edge_values(type_name)
        if "decimal" not in type_name:
            return values
        # Texts of decimals have all digits of their type.
        last = Decimal(1).scaleb(-18 if "18" in type_name else -2)
        return [value.quantize(last, context=Context(prec=38)) for value in values]

    def begin_outage(self) -> None:
        """Another program writes the file and does not end."""
        self.other = sqlite3.connect(self.database.path, isolation_level=None, check_same_thread=False)
        self.other.execute("BEGIN EXCLUSIVE")

    def end_outage(self) -> None:
        self.other.rollback()
        self.other.close()

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        return self.database.rows()

    def as_read(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: _as_stored(value) for name, value in row.items()}


def _as_stored(value: Any) -> Any:
    """Return a value as SQLite has it."""
    if isinstance(value, dt.datetime):
        return value.isoformat(" ", "microseconds")
    if isinstance(value, dt.time):
        return value.isoformat("microseconds")
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, list | dict):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return value.isoformat() if isinstance(value, dt.date) else value


class TestInsert(SinkChecks):
    """Rows of a table without a key."""


class TestUpsert(SinkChecks):
    """Rows by key; a later one changes the columns that it has."""

    key = ("id",)
    more: ClassVar[Mapping[str, Any]] = {"mode": "upsert", "key": ["id"]}
    types: ClassVar[Sequence[str]] = ("string", "int64")


class TestExistingTable(SinkChecks):
    """Rows whose columns are known only one by one, into a table that is there, of a file that is not in WAL mode."""

    more: ClassVar[Mapping[str, Any]] = {"create_table": False}
    types: ClassVar[Sequence[str]] = ("string", "int64")

    def create_target(self, schema: Schema) -> None:
        self.database.execute("CREATE TABLE IF NOT EXISTS other (a)")
        maker = SQLiteSink(self.settings(create_table=True))
        maker.check(schema)
        maker.prepare(schema)
        assert self.database.execute("PRAGMA journal_mode") == [("delete",)]
