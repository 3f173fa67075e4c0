"""The options of source and sink."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from headrace.errors import OptionError
from headrace.settings import Secret, Settings, option
from headrace.sink import SinkSettings


class MySQLSourceSettings(Settings, frozen=True, kw_only=True):
    """Options of ``from_mysql``."""

    table: Annotated[str, option("table to read")]
    database: Annotated[str, option("database (schema) that holds it")]
    host: Annotated[str, option("address of the server")] = "localhost"
    port: Annotated[int, option("port of the server", ge=1, le=65535)] = 3306
    user: Annotated[str | None, option("user")] = None
    password: Annotated[Secret | None, option('password; "${VARIABLE}" reads the environment')] = None
    mode: Annotated[
        Literal["scan", "poll"], option("scan reads the table once, in ranges of its key; poll goes on with new rows")
    ] = "scan"
    key: Annotated[str | None, option("integer column to read by; default: the primary key, if it is one integer")] = (
        None
    )
    columns: Annotated[list[str] | None, option("columns to read; default: all")] = None
    range_size: Annotated[int, option("keys per range: a scan has a queue for each range", ge=1)] = 1_000_000
    settle: Annotated[
        timedelta, option("in poll mode, how long a key waits for smaller keys of transactions that are still open")
    ] = timedelta(seconds=1)
    ssl: Annotated[bool, option("whether to insist on TLS")] = False
    ssl_ca: Annotated[str | None, option("file with the certificates to trust; implies ssl")] = None
    ssl_certificate: Annotated[str | None, option("file with the client's certificate")] = None
    ssl_key: Annotated[str | None, option("file with the client's key")] = None
    connect_timeout: Annotated[timedelta, option("how long to wait for a connection")] = timedelta(seconds=10)
    read_timeout: Annotated[timedelta, option("how long to wait for an answer")] = timedelta(minutes=1)


class MySQLSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_mysql``."""

    table: Annotated[str, option("table to write")]
    database: Annotated[str, option("database (schema) that holds it")]
    host: Annotated[str, option("address of the server")] = "localhost"
    port: Annotated[int, option("port of the server", ge=1, le=65535)] = 3306
    user: Annotated[str | None, option("user")] = None
    password: Annotated[Secret | None, option('password; "${VARIABLE}" reads the environment')] = None
    mode: Annotated[
        Literal["insert", "upsert", "replace"], option("what happens to rows whose key is there already")
    ] = "insert"
    columns: Annotated[
        dict[str, str] | None, option("column of the table by column of the stream, where names differ")
    ] = None
    key: Annotated[list[str] | None, option("primary key of a table that is created")] = None
    create_table: Annotated[bool, option("create the table from the stream's columns when it does not exist")] = False
    offsets_table: Annotated[str, option("table for the positions of the queues; made on first use")] = (
        "headrace_offsets"
    )
    ssl: Annotated[bool, option("whether to insist on TLS")] = False
    ssl_ca: Annotated[str | None, option("file with the certificates to trust; implies ssl")] = None
    ssl_certificate: Annotated[str | None, option("file with the client's certificate")] = None
    ssl_key: Annotated[str | None, option("file with the client's key")] = None
    connect_timeout: Annotated[timedelta, option("how long to wait for a connection")] = timedelta(seconds=10)
    read_timeout: Annotated[timedelta, option("how long to wait for an answer")] = timedelta(minutes=1)

    def validate(self) -> None:
        if self.key is not None and not self.create_table:
            raise OptionError(
                "key has an effect only together with create_table", plugin="mysql", option="key",
                hint="an existing table has its keys; remove the option, or add create_table=True",
            )  # fmt: skip


MySQLSettings = MySQLSourceSettings | MySQLSinkSettings
