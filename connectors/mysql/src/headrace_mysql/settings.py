"""The options of source, sink and state store."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Secret, Settings, option
from headrace.interfaces.sink import SinkSettings


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
        timedelta, option("in poll mode, how long a row waits for rows of smaller keys that are not committed yet")
    ] = timedelta(seconds=1)
    ssl: Annotated[bool, option("insist on TLS, and check the server's certificate and name")] = False
    ssl_ca: Annotated[
        str | None, option("file with the certificates to trust, instead of the system's; implies ssl")
    ] = None
    ssl_certificate: Annotated[str | None, option("file with the client's certificate; implies ssl")] = None
    ssl_key: Annotated[str | None, option("file with the client's key, when it is not in ssl_certificate")] = None
    connect_timeout: Annotated[timedelta, option("how long to wait for a connection")] = timedelta(seconds=10)
    read_timeout: Annotated[timedelta, option("how long to wait for an answer")] = timedelta(minutes=1)

    def validate(self) -> None:
        check_client_certificate(self)


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
    ssl: Annotated[bool, option("insist on TLS, and check the server's certificate and name")] = False
    ssl_ca: Annotated[
        str | None, option("file with the certificates to trust, instead of the system's; implies ssl")
    ] = None
    ssl_certificate: Annotated[str | None, option("file with the client's certificate; implies ssl")] = None
    ssl_key: Annotated[str | None, option("file with the client's key, when it is not in ssl_certificate")] = None
    connect_timeout: Annotated[timedelta, option("how long to wait for a connection")] = timedelta(seconds=10)
    read_timeout: Annotated[timedelta, option("how long to wait for an answer")] = timedelta(minutes=1)

    def validate(self) -> None:
        check_client_certificate(self)
        if self.key is not None and not self.create_table:
            raise OptionError(
                "key has an effect only together with create_table", plugin="mysql", option="key",
                hint="an existing table has its keys; remove the option, or add create_table=True",
            )  # fmt: skip
        if self.create_table and self.mode != "insert" and not self.key:
            raise OptionError(
                f"mode {self.mode!r} needs a key, and the table that is created would have none", plugin="mysql",
                option="key", hint="name the columns that are the primary key: key=['id']",
            )  # fmt: skip
        if self.offsets_table.casefold() == self.table.casefold():
            raise OptionError("offsets_table must not be the table itself", plugin="mysql", option="offsets_table")
        targets = list((self.columns or {}).values())
        for name in targets:
            if targets.count(name) > 1:
                raise OptionError(f"two columns of the stream go to {name!r}", plugin="mysql", option="columns")


class MySQLStateSettings(Settings, frozen=True, kw_only=True):
    """Options of the state store ``mysql``."""

    database: Annotated[str, option("database (schema) that holds the state")]
    job: Annotated[str, option("whose state it is; the light backend gives the job's own name")]
    table: Annotated[
        str, option("table of the state; made on first use, and beside it TABLE_shards, of who has which shard")
    ] = "headrace_state"
    host: Annotated[str, option("address of the server")] = "localhost"
    port: Annotated[int, option("port of the server", ge=1, le=65535)] = 3306
    user: Annotated[str | None, option("user")] = None
    password: Annotated[Secret | None, option('password; "${VARIABLE}" reads the environment')] = None
    ssl: Annotated[bool, option("insist on TLS, and check the server's certificate and name")] = False
    ssl_ca: Annotated[
        str | None, option("file with the certificates to trust, instead of the system's; implies ssl")
    ] = None
    ssl_certificate: Annotated[str | None, option("file with the client's certificate; implies ssl")] = None
    ssl_key: Annotated[str | None, option("file with the client's key, when it is not in ssl_certificate")] = None
    connect_timeout: Annotated[timedelta, option("how long to wait for a connection")] = timedelta(seconds=10)
    read_timeout: Annotated[timedelta, option("how long to wait for an answer")] = timedelta(minutes=1)

    def validate(self) -> None:
        check_client_certificate(self)

    @property
    def shards_table(self) -> str:
        """The table of who has which shard."""
        return f"{self.table}_shards"


MySQLSettings = MySQLSourceSettings | MySQLSinkSettings | MySQLStateSettings


def check_client_certificate(settings: MySQLSettings) -> None:
    """Check the options of TLS. Raises OptionError."""
    if settings.ssl_key and not settings.ssl_certificate:
        raise OptionError(
            "ssl_key goes together with ssl_certificate", plugin="mysql", option="ssl_key",
            hint="name the file with the client's certificate too",
        )  # fmt: skip
