"""The table in which sinks store the position of each queue, in the same transaction as the rows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pymysql
from headrace.foundation.errors import JobError
from headrace_changes.databases.offsets_table import OffsetsTable

from headrace_mysql.connection import quoted, quoted_for_parameters, translating
from headrace_mysql.settings import MySQLSinkSettings

#: Names of writers and queues can differ only in case: another reason for hashes as the key.
STATEMENT = """
CREATE TABLE IF NOT EXISTS {table} (
  writer_id BINARY(32) NOT NULL COMMENT 'SHA-256 of the writer',
  queue_id BINARY(32) NOT NULL COMMENT 'SHA-256 of the queue',
  writer VARCHAR(500) NOT NULL COMMENT 'namespace.pipeline.node of the sink',
  queue VARCHAR(1000) NOT NULL,
  last_offset BIGINT NOT NULL COMMENT 'rows up to this offset of the queue are stored,',
  last_index INT NOT NULL COMMENT 'and of this offset, rows up to this index',
  updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (writer_id, queue_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4
"""
_PERMISSION = 1142


class Positions(OffsetsTable):
    """The positions of one writer. Every method uses the connection, in its present transaction."""

    plugin = "mysql"

    def __init__(self, settings: MySQLSinkSettings, writer: str) -> None:
        self._settings = settings
        super().__init__(quoted(settings.offsets_table), f"{settings.database}.{settings.offsets_table}", writer)

    def translating(self) -> AbstractContextManager[None]:
        return translating(self._settings)

    def found_columns(self, cursor: Any) -> set[str]:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            (self._settings.database, self._settings.offsets_table),
        )
        return {name for (name,) in cursor.fetchall()}

    def create(self, connection: Any, cursor: Any) -> None:
        settings = self._settings
        try:
            cursor.execute(STATEMENT.format(table=quoted_for_parameters(settings.offsets_table)), ())
        except pymysql.MySQLError as error:
            if not error.args or error.args[0] != _PERMISSION:
                raise
            raise JobError(
                f"MySQL at {settings.host}:{settings.port}: user {settings.user!r} may not create the table"
                f" {settings.database}.{settings.offsets_table}, which holds the positions of the queues",
                plugin="mysql",
                option="offsets_table",
                hint="let an administrator create it once (the statement is in docs/connectors/mysql.md), or grant CREATE",
            ) from error

    def inserting(self, values: str) -> str:
        columns = "writer_id, queue_id, writer, queue, last_offset, last_index"
        return f"INSERT IGNORE INTO {self._table} ({columns}) VALUES {values}"  # noqa: S608
