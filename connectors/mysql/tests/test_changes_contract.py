"""The contract suite for the source of changes, by GTID and by file, through the snapshot and through the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest
from headrace.flow.messages import CHANGE, ChangeKind
from headrace.interfaces.source import EARLIEST, LATEST
from headrace_contract.source import SourceContract
from headrace_mysql import MySQLChangesSettings, MySQLChangesSource
from mysql_world import Database, Relay

from tests.servers.mysql import MySQLServer


class ChangesChecks(SourceContract):
    plugin = "mysql_changes"
    several_queues = False
    positions: ClassVar[str] = "gtid"

    @pytest.fixture(autouse=True)
    def _server(self, logging_mysql_server: MySQLServer, logging_mysql_database: str) -> Iterator[None]:
        self.database = Database(logging_mysql_server, logging_mysql_database)
        self.relay = Relay(logging_mysql_server)
        self.database.execute(
            "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, `number` BIGINT, `text` LONGTEXT) ENGINE = InnoDB"
        )
        yield
        self.relay.cut()
        self.database.close()

    def options(self, **more: Any) -> dict[str, Any]:
        options = self.database.options(port=self.relay.port, positions=self.positions, columns=["number", "text"])
        return {**options, **more}

    def make_source(self) -> MySQLChangesSource:
        return MySQLChangesSource(MySQLChangesSettings.of(self.options(), plugin="mysql_changes"))

    def make_with_secret(self, secret: str) -> MySQLChangesSource:
        return MySQLChangesSource(MySQLChangesSettings.of(self.options(password=secret), plugin="mysql_changes"))

    def make_missing_source(self) -> MySQLChangesSource:
        return MySQLChangesSource(MySQLChangesSettings.of(self.options(table="nothing"), plugin="mysql_changes"))

    def add_queue(self) -> str:
        return "t"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            row = json.loads(body)
            self.database.execute("INSERT INTO t (`number`, `text`) VALUES (%s, %s)", (row["number"], row["text"]))

    def as_read(self, body: bytes) -> Any:
        return {**json.loads(body), CHANGE: ChangeKind.INSERT}

    def begin_outage(self) -> None:
        self.relay.cut()

    def end_outage(self) -> None:
        self.relay.open()


class TestByGtid(ChangesChecks):
    """Rows that are there are read by the snapshot, later ones from the log."""


class TestByFile(ChangesChecks):
    positions = "file"


class FromLog(ChangesChecks):
    """All rows come from the log: the table is empty when the first source is made."""

    @pytest.fixture(autouse=True)
    def _begin(self, _server: None) -> None:
        source = super().make_source()
        [queue] = source.queues()
        reader = source.open(queue, LATEST)
        self.first_position = reader.position
        reader.close()

    def make_source(self) -> MySQLChangesSource:
        return _FromPosition(self.first_position, MySQLChangesSettings.of(self.options(), plugin="mysql_changes"))


class _FromPosition(MySQLChangesSource):
    """Takes a position as the earliest one."""

    def __init__(self, begin: Any, settings: Any) -> None:
        super().__init__(settings)
        self.begin = begin

    def open(self, queue: Any, start: Any) -> Any:
        return super().open(queue, self.begin if start is EARLIEST else start)


class TestLogByGtid(FromLog):
    """The log by GTID."""


class TestLogByFile(FromLog):
    """The log by file and position."""

    positions = "file"
