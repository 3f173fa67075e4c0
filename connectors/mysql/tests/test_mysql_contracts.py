"""The contract suite: the sink in each of its modes, and the source that scans and polls."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from headrace.flow.schema import Schema
from headrace_contract.sink import SinkContract
from headrace_contract.source import SourceContract
from headrace_contract.values import ALL_TYPES
from headrace_mysql import MySQLSink, MySQLSinkSettings, MySQLSource, MySQLSourceSettings
from mysql_world import Database

from tests.relay import RelayedChecks
from tests.servers.mysql import MySQLServer
from tests.sink_tests import RowsByKey


class WithServer(RelayedChecks):
    """Gives each check the shared server behind a relay, which can be cut, and a database of its own."""

    database: Database

    @pytest.fixture(autouse=True)
    def _server(self, mysql_server: MySQLServer, mysql_database: str) -> Iterator[None]:
        yield from self.serve(Database(mysql_server, mysql_database), mysql_server)


class SinkChecks(WithServer, SinkContract):
    plugin = "mysql"
    types: ClassVar[Sequence[str]] = ALL_TYPES
    mode: ClassVar[str] = "insert"
    more: ClassVar[Mapping[str, Any]] = {}

    def make_sink(self) -> MySQLSink:
        options = self.options(mode=self.mode, create_table=True, **self.more)
        return MySQLSink(MySQLSinkSettings.of(options, plugin="mysql"))

    def make_with_secret(self, secret: str) -> MySQLSink:
        options = {**self.options(), "password": secret, "create_table": True}
        return MySQLSink(MySQLSinkSettings.of(options, plugin="mysql"))

    def make_sink_without_target(self) -> MySQLSink:
        return MySQLSink(MySQLSinkSettings.of(self.options(table="nothing"), plugin="mysql"))

    def unfit_schema(self) -> Mapping[str, Any]:
        return {"id": "int64", "a" * 65: "string"}

    def bad_row(self) -> dict[str, Any]:
        # Too long for the column as the check below has it.
        return {**self.make_row(10**9), "text": "x" * 300}

    def test_bad_row_goes_to_dead_letters(self) -> None:
        self.prepared_sink()
        self.database.execute("ALTER TABLE t MODIFY `text` VARCHAR(200)")
        super().test_bad_row_goes_to_dead_letters()

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        found = self.database.execute("SELECT column_name, data_type FROM information_schema.columns WHERE table_schema"
                                      " = %s AND table_name = 't'", (self.database.name,))  # fmt: skip
        expressions = [f"`{name}` + 0e0 AS `{name}`" if kind == "float" else f"`{name}`" for name, kind in found]
        return self.database.rows("t", ", ".join(expressions))

    def as_read(self, row: dict[str, Any]) -> dict[str, Any]:
        return {name: _as_read(value) for name, value in row.items()}


def _as_read(value: Any) -> Any:
    """Return a value as the driver shows it."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if value.__class__.__name__ == "time":
        return timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    return value


class TestInsert(SinkChecks):
    """Rows of a table without a key."""


class TestUpsert(RowsByKey, SinkChecks):
    """Rows by key; a later one changes the columns that it has."""

    mode = "upsert"


class TestReplace(RowsByKey, SinkChecks):
    """Rows by key; a later one takes the place of the earlier one."""

    mode = "replace"


class TestExistingTable(SinkChecks):
    """Rows whose columns are known only one by one, into a table that is there."""

    types: ClassVar[Sequence[str]] = ("string", "json")

    def make_sink(self) -> MySQLSink:
        return MySQLSink(MySQLSinkSettings.of(self.options(), plugin="mysql"))

    def create_target(self, schema: Schema) -> None:
        maker = MySQLSink(MySQLSinkSettings.of(self.options(create_table=True), plugin="mysql"))
        maker.check(schema)
        maker.prepare(schema)


class SourceChecks(WithServer, SourceContract):
    plugin = "mysql"

    def make_with_secret(self, secret: str) -> MySQLSource:
        return MySQLSource(MySQLSourceSettings.of({**self.options(), "password": secret}, plugin="mysql"))

    def make_missing_source(self) -> MySQLSource:
        return MySQLSource(MySQLSourceSettings.of(self.options(table="nothing"), plugin="mysql"))

    def create(self) -> None:
        self.database.execute(
            "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, `number` BIGINT, `text` LONGTEXT) ENGINE = InnoDB"
        )

    def add(self, first_id: int | None, bodies: Sequence[bytes]) -> None:
        for at, body in enumerate(bodies):
            row = json.loads(body)
            number = None if first_id is None else first_id + at
            self.database.execute("INSERT INTO t VALUES (%s, %s, %s)", (number, row["number"], row["text"]))


class TestPoll(SourceChecks):
    """New rows of one table. Nothing here commits out of order, so no row has to settle."""

    several_queues = False

    @pytest.fixture(autouse=True)
    def _table(self, _server: None) -> None:
        self.create()

    def make_source(self) -> MySQLSource:
        options = self.options(mode="poll", settle="0 s", columns=["number", "text"])
        return MySQLSource(MySQLSourceSettings.of(options, plugin="mysql"))

    def add_queue(self) -> str:
        return "t"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        self.add(None, bodies)


class TestScan(SourceChecks):
    """Ranges of keys. A row behind the last range makes the ranges before it exist even when they are empty."""

    size: ClassVar[int] = 10_000
    weaknesses: ClassVar[Mapping[str, str]] = {
        "test_position_behind_the_end_is_refused": "the last rows of a range may have been deleted: a position behind "
        "its last row is no sign of loss while the table's keys are beyond it",
    }

    @pytest.fixture(autouse=True)
    def _table(self, _server: None) -> None:
        self.create()
        self.ranges = itertools.count()
        self.used: dict[str, int] = {}

    def make_source(self) -> MySQLSource:
        options = self.options(range_size=self.size, columns=["number", "text"])
        return MySQLSource(MySQLSourceSettings.of(options, plugin="mysql"))

    def add_queue(self) -> str:
        low = next(self.ranges) * self.size
        name = f"t[{low},{low + self.size})"
        self.used[name] = max(low, 1)
        self.database.execute("DELETE FROM t WHERE `number` = -1")
        self.database.execute("INSERT INTO t VALUES (%s, -1, 'end')", (low + self.size,))
        if low == 0:
            self.database.execute("INSERT INTO t VALUES (-1, -2, 'begin')")
        return name

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        self.add(self.used[queue], bodies)
        self.used[queue] += len(bodies)

    def remove_queue(self, queue: str) -> None:
        low = int(queue[2:].partition(",")[0])
        self.database.execute("DELETE FROM t WHERE id >= %s", (low,))
        self.database.execute("INSERT INTO t VALUES (%s, -1, 'end')", (low - 1,))
