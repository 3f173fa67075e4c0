"""The contract suite: the sink in each of its modes, the source, and the source of changes through its snapshot and its log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from headrace.flow.messages import CHANGE, ChangeKind
from headrace.flow.schema import Schema
from headrace.interfaces.source import EARLIEST, LATEST
from headrace_contract.sink import SinkContract
from headrace_contract.source import SourceContract
from headrace_contract.values import ALL_TYPES
from headrace_postgres import (
    PostgresChangesSettings,
    PostgresChangesSource,
    PostgresSink,
    PostgresSinkSettings,
    PostgresSource,
    PostgresSourceSettings,
)
from postgres_world import PostgresDatabase

from tests.relay import RelayedChecks
from tests.servers.postgresql import PostgreSQLServer
from tests.sink_tests import RowsByKey


class WithServer(RelayedChecks):
    """Gives each check the shared server behind a relay, which can be cut, and a database of its own."""

    database: PostgresDatabase

    @pytest.fixture(autouse=True)
    def _server(self, postgresql_server: PostgreSQLServer, postgresql_database: str) -> Iterator[None]:
        yield from self.serve(PostgresDatabase(postgresql_server, postgresql_database), postgresql_server)


class SinkChecks(WithServer, SinkContract):
    plugin = "postgres"
    types: ClassVar[Sequence[str]] = ALL_TYPES
    mode: ClassVar[str] = "insert"
    more: ClassVar[Mapping[str, Any]] = {}

    def make_sink(self) -> PostgresSink:
        options = self.options(mode=self.mode, create_table=True, **self.more)
        return PostgresSink(PostgresSinkSettings.of(options, plugin="postgres"))

    def make_with_secret(self, secret: str) -> PostgresSink:
        options = {**self.options(), "password": secret, "create_table": True}
        return PostgresSink(PostgresSinkSettings.of(options, plugin="postgres"))

    def make_sink_without_target(self) -> PostgresSink:
        return PostgresSink(PostgresSinkSettings.of(self.options(table="nothing"), plugin="postgres"))

    def unfit_schema(self) -> Mapping[str, Any]:
        return {"id": "int64", "a" * 64: "string"}

    def bad_row(self) -> dict[str, Any]:
        # Too long for the column as the check below has it.
        return {**self.make_row(10**9), "text": "x" * 300}

    def test_bad_row_goes_to_dead_letters(self) -> None:
        self.prepared_sink()
        self.database.execute("ALTER TABLE t ALTER text TYPE varchar(200)")
        super().test_bad_row_goes_to_dead_letters()

    def edge_values(self, type_name: str) -> Sequence[Any]:
        # No server stores a NUL in a text: such rows are dead letters, see test_postgres_sink.py.
        return [value for value in super().edge_values(type_name) if "\\x00" not in repr(value)]

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        kinds = self.database.execute("SELECT attname, atttypid::regtype::text FROM pg_attribute WHERE attrelid = 't'::regclass"
                                      " AND attnum > 0")  # fmt: skip
        # The driver rounds texts of a real as if they were those of a double.
        return self.database.rows(
            "t", ", ".join(f'"{name}"::float8' if kind == "real" else f'"{name}"' for name, kind in kinds)
        )

    def as_read(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: _as_read(value) for name, value in row.items()}


def _as_read(value: Any) -> Any:
    """Return a value as the driver shows it."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


class TestInsert(SinkChecks):
    """Rows of a table without a key."""


class TestUpsert(RowsByKey, SinkChecks):
    """Rows by key; a later one changes the columns that it has."""

    mode = "upsert"


class TestExistingTable(SinkChecks):
    """Rows whose columns are known only one by one, into a table that is there."""

    types: ClassVar[Sequence[str]] = ("string", "json")

    def make_sink(self) -> PostgresSink:
        return PostgresSink(PostgresSinkSettings.of(self.options(), plugin="postgres"))

    def create_target(self, schema: Schema) -> None:
        maker = PostgresSink(PostgresSinkSettings.of(self.options(create_table=True), plugin="postgres"))
        maker.check(schema)
        maker.prepare(schema)


class SourceChecks(WithServer, SourceContract):
    """One table, whose rows are added in the order of its key."""

    several_queues = False
    kind: ClassVar[type[Any]] = PostgresSource
    settings: ClassVar[type[Any]] = PostgresSourceSettings
    plugin = "postgres"

    @pytest.fixture(autouse=True)
    def _table(self, _server: None) -> None:
        self.database.execute(
            "CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number BIGINT, text TEXT)"
        )

    def options(self, **more: Any) -> dict[str, Any]:
        return super().options(**{"columns": ["number", "text"], **more})

    def made(self, **more: Any) -> Any:
        return self.kind(self.settings.of(self.options(**more), plugin=self.plugin))

    def make_source(self) -> Any:
        return self.made()

    def make_with_secret(self, secret: str) -> Any:
        return self.made(password=secret)

    def make_missing_source(self) -> Any:
        return self.made(table="nothing")

    def add_queue(self) -> str:
        return "t"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            row = json.loads(body)
            self.database.execute("INSERT INTO t (number, text) VALUES (%s, %s)", (row["number"], row["text"]))


class TestTable(SourceChecks):
    """A table that is read once."""


class TestChanges(SourceChecks):
    """Rows that are there are read by the snapshot, later ones from the log."""

    kind: ClassVar[type[Any]] = PostgresChangesSource
    settings: ClassVar[type[Any]] = PostgresChangesSettings
    plugin = "postgres_changes"

    @pytest.fixture(autouse=True)
    def _server(self, logging_postgresql_server: PostgreSQLServer, logging_postgresql_database: str) -> Iterator[None]:
        database = PostgresDatabase(logging_postgresql_server, logging_postgresql_database)
        yield from self.serve(database, logging_postgresql_server)

    def as_read(self, body: bytes) -> Any:
        return {**json.loads(body), CHANGE: ChangeKind.INSERT}


class TestChangesFromLog(TestChanges):
    """All rows come from the log: the table is empty when the first source is made."""

    @pytest.fixture(autouse=True)
    def _begin(self, _table: None) -> None:
        source = super().make_source()
        [queue] = source.queues()
        reader = source.open(queue, LATEST)
        self.first_position = reader.position
        reader.close()

    def make_source(self) -> Any:
        settings = self.settings.of(self.options(), plugin=self.plugin)
        return _FromPosition(self.first_position, settings)


class _FromPosition(PostgresChangesSource):
    """Takes a position as the earliest one."""

    def __init__(self, begin: Any, settings: Any) -> None:
        super().__init__(settings)
        self.begin = begin

    def open(self, queue: Any, start: Any) -> Any:
        return super().open(queue, self.begin if start is EARLIEST else start)
