"""The options of source, source of changes, and sink."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from headrace.foundation.errors import OptionError
from headrace.interfaces.connection_options import Password, SslCa, SslCertificate, SslKey, User, check_client_key
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.sink import SinkSettings
from headrace.interfaces.table_sink_options import ColumnNames, CreateTable, check_table_sink

# What source and sink have in common is described once.
_Database = Annotated[str, option("database of the table")]
_Schema = Annotated[str, option("schema of the table")]
_Host = Annotated[str, option("address of the server, or the directory of its local socket")]
_Port = Annotated[int, option("port of the server", ge=1, le=65535)]
_Ssl = Annotated[
    bool,
    option(
        "whether TLS is required, with a check of the server's certificate and host name; ssl_ca and ssl_certificate imply it"
    ),
]
_ConnectTimeout = Annotated[timedelta, option("how long to wait for a connection")]
_ReadTimeout = Annotated[timedelta, option("how long a statement may take")]


class PostgresSourceSettings(Settings, frozen=True, kw_only=True):
    """Options of ``from_postgres``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("table",)

    table: Annotated[str, option("table or view to read")]
    database: _Database
    schema: _Schema = "public"
    host: _Host = "localhost"
    port: _Port = 5432
    user: User = None
    password: Password = None
    columns: Annotated[list[str] | None, option("columns to read; default: all")] = None
    key: Annotated[
        list[str] | None,
        option(
            "columns that give the order of reading, unique together and never NULL; default: the primary key, or such a key;"
            " ctid: the order of the file"
        ),
    ] = None
    page_rows: Annotated[int, option("number of rows that one query reads", ge=1)] = 50_000
    ssl: _Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    read_timeout: _ReadTimeout = timedelta(minutes=1)

    def validate(self) -> None:
        check_client_key(self, plugin="postgres")


class PostgresChangesSettings(Settings, frozen=True, kw_only=True):
    """Options of ``from_postgres_changes``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("table",)

    table: Annotated[str, option("table to read")]
    database: _Database
    schema: _Schema = "public"
    host: _Host = "localhost"
    port: _Port = 5432
    user: User = None
    password: Password = None
    columns: Annotated[
        list[str] | dict[str, str] | None,
        option("columns to read, or their types by their names; default: all that the table has when the job is built"),
    ] = None
    slot: Annotated[
        str | None,
        option(
            "replication slot, which keeps the log for this job; created on first use; default: named after job and table"
        ),
    ] = None
    publication: Annotated[
        str | None,
        option("publication that has the table; created on first use; default: named after schema and table"),
    ] = None
    chunks_table: Annotated[
        str,
        option(
            "table of the same schema for the chunks of snapshots that are not in a checkpoint yet; created on first use"
        ),
    ] = "headrace_chunks"
    chunk_rows: Annotated[int, option("most rows that one query of the snapshot reads", ge=1)] = 50_000
    ignore_truncate: Annotated[
        bool,
        option("whether TRUNCATE is passed over; else it stops the job, as the log does not have the removed rows"),
    ] = False
    ssl: _Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    read_timeout: _ReadTimeout = timedelta(minutes=1)

    def validate(self) -> None:
        check_client_key(self, plugin="postgres")
        for name in ("slot", "publication"):
            value = getattr(self, name)
            if value is not None and (not value or len(value.encode()) > 63):
                raise OptionError("names have 1 to 63 bytes", plugin="postgres_changes", option=name)
        if self.slot is not None and re.fullmatch(r"[a-z0-9_]+", self.slot) is None:
            raise OptionError(
                f"{self.slot!r} cannot be the name of a slot", plugin="postgres_changes", option="slot",
                hint="it has small letters, digits and underscores only",
            )  # fmt: skip


class PostgresSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_postgres``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("table",)

    table: Annotated[str, option("table to write")]
    database: _Database
    schema: _Schema = "public"
    host: _Host = "localhost"
    port: _Port = 5432
    user: User = None
    password: Password = None
    mode: Annotated[
        Literal["insert", "upsert"],
        option(
            "what happens to a row whose key already exists: insert sends it to the dead letters, upsert updates its columns"
        ),
    ] = "insert"
    columns: ColumnNames = None
    key: Annotated[list[str] | None, option("columns of the stream that are the primary key of a created table")] = None
    create_table: CreateTable = False
    offsets_table: Annotated[
        str, option("table of the same schema for the positions of the queues; created on first use")
    ] = "headrace_offsets"
    ssl: _Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    read_timeout: _ReadTimeout = timedelta(minutes=1)

    def validate(self) -> None:
        check_client_key(self, plugin="postgres")
        check_table_sink(self, plugin="postgres")


PostgresSettings = PostgresSourceSettings | PostgresChangesSettings | PostgresSinkSettings
