"""The options of source, sink and state store."""

from __future__ import annotations

import re
from datetime import timedelta
from random import Random
from typing import Annotated, ClassVar, Literal

from headrace.foundation.errors import OptionError
from headrace.interfaces.connection_options import Password, SslCa, SslCertificate, SslKey, User, check_client_key
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.sink import SinkSettings
from headrace.interfaces.table_sink_options import ColumnNames, CreateTable, check_table_sink

#: Server ids are unsigned numbers of 32 bits; people choose small ones.
_SERVER_ID_FIRST, _SERVER_ID_MAX = 2**31, 2**32 - 1
# What source and sink have in common is described once.
_Database = Annotated[str, option("database (schema) of the table")]
_Host = Annotated[str, option("address of the server")]
_Port = Annotated[int, option("port of the server", ge=1, le=65535)]
_Ssl = Annotated[
    bool,
    option(
        "whether TLS is required, with a check of the server's certificate and host name; ssl_ca and ssl_certificate imply it"
    ),
]
_ConnectTimeout = Annotated[timedelta, option("how long to wait for a connection")]
_ReadTimeout = Annotated[timedelta, option("how long to wait for the answer to a query")]


class MySQLSourceSettings(Settings, frozen=True, kw_only=True):
    """Options of ``from_mysql``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("table",)

    table: Annotated[str, option("table to read")]
    database: _Database
    host: _Host = "localhost"
    port: _Port = 3306
    user: User = None
    password: Password = None
    mode: Annotated[
        Literal["scan", "poll"],
        option("scan reads the table once, in ranges of its key; poll also reads new rows and never ends"),
    ] = "scan"
    key: Annotated[
        str | None,
        option("integer column that gives the order of reading; default: the primary key, if it is one integer column"),
    ] = None
    columns: Annotated[list[str] | None, option("columns to read; default: all")] = None
    range_size: Annotated[int, option("number of keys per range; a scan has one queue for each range", ge=1)] = (
        1_000_000
    )
    settle: Annotated[
        timedelta, option("in poll mode, how long a row waits for rows with smaller keys that are not yet committed")
    ] = timedelta(seconds=1)
    ssl: _Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    read_timeout: _ReadTimeout = timedelta(minutes=1)

    def validate(self) -> None:
        check_client_key(self, plugin="mysql")


class MySQLChangesSettings(Settings, frozen=True, kw_only=True):
    """Options of ``from_mysql_changes``."""

    table: Annotated[str, option("table to read")]
    database: _Database
    host: _Host = "localhost"
    port: _Port = 3306
    user: User = None
    password: Password = None
    columns: Annotated[
        list[str] | dict[str, str] | None,
        option("columns to read, or their types by their names; default: all that the table has when the job is built"),
    ] = None
    positions: Annotated[
        Literal["gtid", "file"] | None,
        option(
            "how places in the binary log are named; default: by GTIDs if the server has them, else by file and position"
        ),
    ] = None
    server_id: Annotated[
        str | None,
        option(
            "number that this client has among the server's replicas, or a range such as 5400-5499 to choose from; default: "
            "chosen at random, from 2147483648 on"
        ),
    ] = None
    chunk_rows: Annotated[int, option("most rows that one query of the snapshot reads", ge=1)] = 50_000
    snapshot_memory_max_bytes: Annotated[
        int, option("most memory for rows that were changed while the snapshot has not reached them", ge=2**20)
    ] = 2**30
    ignore_truncate: Annotated[
        bool,
        option(
            "whether TRUNCATE TABLE is passed over; else it stops the job, as the log does not have the removed rows"
        ),
    ] = False
    ignore_cascades: Annotated[
        bool,
        option(
            "whether a table is read whose rows other tables change by ON DELETE or ON UPDATE CASCADE or SET NULL: such "
            "changes are not in the binary log"
        ),
    ] = False
    ssl: _Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    read_timeout: _ReadTimeout = timedelta(minutes=1)

    def validate(self) -> None:
        check_client_key(self, plugin="mysql")
        self.server_ids()

    def server_ids(self) -> tuple[int, int]:
        """Return the range of numbers to choose from, both ends included. Raises OptionError."""
        if self.server_id is None:
            return _SERVER_ID_FIRST, _SERVER_ID_MAX
        found = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", self.server_id)
        if found is not None and 0 < int(found[1]) <= int(found[2] or found[1]) <= _SERVER_ID_MAX:
            return int(found[1]), int(found[2] or found[1])
        raise OptionError(
            f"{self.server_id!r} is neither a number nor a range", plugin="mysql_changes", option="server_id",
            hint=f"write 5400 or 5400-5499; numbers are between 1 and {_SERVER_ID_MAX}",
        )  # fmt: skip

    def chosen_server_id(self, chance: Random) -> int:
        """Return a number of the range. Another one for each connection: a server ends the older of two with the same number."""
        return chance.randint(*self.server_ids())


class MySQLSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_mysql``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("table",)

    table: Annotated[str, option("table to write")]
    database: _Database
    host: _Host = "localhost"
    port: _Port = 3306
    user: User = None
    password: Password = None
    mode: Annotated[
        Literal["insert", "upsert", "replace"],
        option(
            "what happens to a row whose key already exists: insert sends it to the dead letters, upsert updates its "
            "columns, replace replaces the whole row"
        ),
    ] = "insert"
    columns: ColumnNames = None
    key: Annotated[list[str] | None, option("columns of the primary key of a created table")] = None
    create_table: CreateTable = False
    offsets_table: Annotated[str, option("table for the positions of the queues; created on first use")] = (
        "headrace_offsets"
    )
    ssl: _Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    read_timeout: _ReadTimeout = timedelta(minutes=1)

    def validate(self) -> None:
        check_client_key(self, plugin="mysql")
        check_table_sink(self, plugin="mysql", folded=str.casefold)


class MySQLStateSettings(Settings, frozen=True, kw_only=True):
    """Options of the state store ``mysql``."""

    database: Annotated[str, option("database (schema) of the state")]
    job: Annotated[
        str, option("name of the job whose state is stored; default on the light backend: the job's own name")
    ]
    table: Annotated[
        str,
        option("table of the state, created on first use; a second table, TABLE_shards, holds the owner of each shard"),
    ] = "headrace_state"
    host: _Host = "localhost"
    port: _Port = 3306
    user: User = None
    password: Password = None
    ssl: _Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    read_timeout: _ReadTimeout = timedelta(minutes=1)

    def validate(self) -> None:
        check_client_key(self, plugin="mysql")

    @property
    def shards_table(self) -> str:
        """The table of the owners of shards."""
        return f"{self.table}_shards"


MySQLSettings = MySQLSourceSettings | MySQLChangesSettings | MySQLSinkSettings | MySQLStateSettings
