"""The options of source and sink."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from headrace.foundation.errors import OptionError
from headrace.interfaces.connection_options import (
    Password,
    PlaintextLogin,
    Ssl,
    SslCa,
    SslCertificate,
    SslKey,
    check_client_key,
    check_login,
)
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.sink import SinkSettings

PLUGIN = "redis"

# What source and sink have in common is described once.
_Host = Annotated[str, option("address of the server")]
_Port = Annotated[int, option("port of the server", ge=1, le=65_535)]
_Database = Annotated[int, option("number of the database", ge=0)]
_User = Annotated[str | None, option("user name of the server's access control list; default: the user default")]
_ConnectTimeout = Annotated[timedelta, option("how long to wait for a connection")]
_ReadTimeout = Annotated[timedelta, option("how long to wait for the answer to a command")]
_Entry = Annotated[
    Literal["body", "columns"],
    option(
        "what an entry holds: body: a record in one field; columns: a field for each column, with its value as text"
    ),
]
_Field = Annotated[str, option("field of the entries that holds the record, with entry='body'")]


class RedisSourceSettings(Settings, frozen=True, kw_only=True):
    """Options of ``from_redis``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("stream", "key_prefix")

    stream: Annotated[
        str | None,
        option(
            "streams to read: keys, or patterns with *, ? and [...], separated by commas; new keys that fit a pattern are read; either "
            "this or key_prefix is given"
        ),
    ] = None
    host: _Host = "localhost"
    port: _Port = 6379
    database: _Database = 0
    entry: _Entry = "body"
    field: _Field = "data"
    trim: Annotated[
        bool, option("whether entries are removed from the server (XTRIM) once a checkpoint covers them")
    ] = False
    discovery_interval: Annotated[timedelta, option("how often keys that fit a pattern are looked for")] = timedelta(
        seconds=5
    )
    key_prefix: Annotated[
        str | None, option("a table is read: each key that begins with this is a row, for lookup_join")
    ] = None
    key: Annotated[
        str | list[str] | None,
        option("of a table: column, or columns, that get what follows the prefix in a key; default: none"),
    ] = None
    value: Annotated[
        Literal["hash", "json", "text"],
        option(
            "of a table: what a key holds: hash: a field for each column; json: a string with a JSON object; text: a string"
        ),
    ] = "hash"
    value_column: Annotated[str, option("of a table: column that gets the string, with value='text'")] = "value"
    user: _User = None
    password: Password = None
    plaintext_login: PlaintextLogin = False
    ssl: Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    read_timeout: _ReadTimeout = timedelta(seconds=30)

    def validate(self) -> None:
        check_connection(self)
        if (self.stream is None) == (self.key_prefix is None):
            raise refused(
                "stream", "either stream or key_prefix is given", "stream='events' reads entries, key_prefix='user:' the rows of a table",
            )  # fmt: skip
        if self.stream is not None and not self.streams:
            raise refused("stream", "the list of streams is empty", "stream='events'")
        of_tables, of_streams = ("key", "value", "value_column"), ("entry", "field", "trim", "discovery_interval")
        for name in of_tables if self.key_prefix is None else of_streams:
            if getattr(self, name) != getattr(_UNSET, name):
                raise refused(
                    name, f"it is only for {'tables' if self.key_prefix is None else 'streams'}", "leave it out"
                )

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that are made of parts of the key."""
        return () if self.key is None else (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def queue_name(self) -> str:
        """The name of a table's queue."""
        return f"{self.key_prefix}*"

    @property
    def streams(self) -> tuple[str, ...]:
        """The names and patterns, each once, in the order given."""
        if self.stream is None:
            return ()
        return tuple(dict.fromkeys(name.strip() for name in self.stream.split(",") if name.strip()))


#: The defaults of all options. It is not validated: it names neither a stream nor a table.
_UNSET = RedisSourceSettings()


class RedisSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """Options of ``to_redis``."""

    in_pictures: ClassVar[tuple[str, ...]] = ("stream", "key_prefix")

    stream: Annotated[str | None, option("stream that the rows are added to; either this or key is given")] = None
    host: _Host = "localhost"
    port: _Port = 6379
    database: _Database = 0
    entry: _Entry = "body"
    field: _Field = "data"
    max_length: Annotated[
        int | None,
        option("about how many entries the stream keeps: older ones are removed when new ones are added"),
    ] = None
    key: Annotated[
        str | list[str] | None,
        option("column, or columns, by whose values rows are kept: the newest row of each, under a key of its own"),
    ] = None
    key_prefix: Annotated[str, option("what the keys begin with, such as 'user:'")] = ""
    value: Annotated[
        Literal["hash", "json"],
        option("what a key holds: hash: a field for each column; json: a string with the row as a JSON object"),
    ] = "hash"
    ttl: Annotated[timedelta | None, option("how long a key is kept after its last row")] = None
    user: _User = None
    password: Password = None
    plaintext_login: PlaintextLogin = False
    ssl: Ssl = False
    ssl_ca: SslCa = None
    ssl_certificate: SslCertificate = None
    ssl_key: SslKey = None
    connect_timeout: _ConnectTimeout = timedelta(seconds=10)
    read_timeout: _ReadTimeout = timedelta(seconds=30)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key; none: rows are added to a stream."""
        return () if self.key is None else (self.key,) if isinstance(self.key, str) else tuple(self.key)

    def validate(self) -> None:
        check_connection(self)
        if (self.stream is None) == (self.key is None):
            raise refused(
                "stream", "either stream or key is given", "stream='alerts' adds rows to a stream; key='user' keeps one row of each user",
            )  # fmt: skip
        if self.stream == "":
            raise refused("stream", "the list of streams is empty", "stream='alerts'")
        if self.key is not None and not self.key_columns:
            raise refused("key", "the list of columns is empty", "key='user'")
        if self.key is not None and self.max_length is not None:
            raise refused("max_length", "it is only for streams", "use ttl to remove keys")
        if self.key is None:
            for name, unset in (("key_prefix", ""), ("value", "hash"), ("ttl", None)):
                if getattr(self, name) != unset:
                    raise refused(name, "it is only for rows by key", "name the columns of the key: key='user'")
        if self.max_length is not None and self.max_length < 1:
            raise refused("max_length", f"{self.max_length} is less than 1", "max_length=1000000")
        if self.ttl is not None and self.ttl < timedelta(milliseconds=1):
            raise refused("ttl", f"{self.ttl} is shorter than 1 ms", "ttl='1 h'")


RedisSettings = RedisSourceSettings | RedisSinkSettings


def refused(option: str, reason: str, hint: str) -> OptionError:
    """Return the error for an option that cannot be used as it is."""
    return OptionError(reason, plugin=PLUGIN, option=option, hint=hint)


def check_connection(settings: RedisSettings) -> None:
    """Raise OptionError when the options for reaching the server do not go together."""
    check_client_key(settings, plugin=PLUGIN)
    if settings.user is not None and settings.password is None:
        raise refused("user", "a user needs a password", 'password="${VARIABLE}"')
    check_login(settings, plugin=PLUGIN)
