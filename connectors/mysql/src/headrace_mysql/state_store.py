"""The state store: the shards of jobs in two tables, so that any instance on any machine goes on where another stopped."""

from __future__ import annotations

import hashlib
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pymysql
from headrace.errors import CheckpointError, DataError, JobError
from headrace.settings import Settings
from headrace.sink import StaleWriterError
from headrace.state_store import StateStore, versions_to_load, versions_to_remove

from headrace_mysql.connection import connect, quoted_for_parameters, translating
from headrace_mysql.settings import MySQLStateSettings

#: Names of jobs and shards can be longer than an index allows, and differ in case alone: hashes are the key.
SHARDS_STATEMENT = """
CREATE TABLE IF NOT EXISTS {table} (
  shard_id BINARY(32) NOT NULL COMMENT 'SHA-256 of job and shard',
  job VARCHAR(500) NOT NULL,
  shard VARCHAR(1000) NOT NULL,
  owner BINARY(16) NOT NULL COMMENT 'drawn anew by each process: only this one may store changes',
  PRIMARY KEY (shard_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4
"""
STATEMENT = """
CREATE TABLE IF NOT EXISTS {table} (
  shard_id BINARY(32) NOT NULL COMMENT 'SHA-256 of job and shard',
  version BIGINT NOT NULL,
  part INT NOT NULL COMMENT 'large versions are cut: these follow one another',
  whole BOOLEAN NOT NULL COMMENT 'a snapshot, not what has changed since the version before',
  content MEDIUMBLOB NOT NULL,
  PRIMARY KEY (shard_id, version, part)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4
"""
_COLUMNS = {"shard_id", "version", "part", "whole", "content"}
_SHARDS_COLUMNS = {"shard_id", "job", "shard", "owner"}
#: The first byte says how the rest is packed. Fast compression: Arrow's columns come down to a third all the same.
_PLAIN, _ZLIB = b"\x00", b"\x01"
_COMPRESSION_LEVEL = 1
#: One row holds at most so much: InnoDB takes no row of more than a tenth of its log.
_PART_BYTES_MAX = 1024**2
#: What a statement has beside the digits of a part, at most.
_STATEMENT_BYTES = 10_000


class MySQLStateStore(StateStore):
    """Keeps each version of a shard as rows of one transaction. Used by one thread.

    An object owns a shard from its first ``load`` or ``save`` of it, until another object does the same: from then on its
    deltas are refused with StaleWriterError, as what they change is not what is stored any more. A snapshot that is not
    older than what is stored makes it the owner again. So the deltas behind a snapshot are always of one owner.
    """

    Settings: ClassVar[type[Settings]] = MySQLStateSettings
    shared: ClassVar[bool] = True

    def __init__(self, settings: MySQLStateSettings) -> None:
        self._settings = settings
        self._token = secrets.token_bytes(16)
        self._claimed: set[str] = set()
        self._connection: Any = None
        self._part_bytes = _PART_BYTES_MAX
        # Every statement is executed with parameters, be it none: see `quoted_for_parameters`.
        self._table = quoted_for_parameters(settings.table)
        self._shards = quoted_for_parameters(settings.shards_table)

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        """See StateStore. Raises StaleWriterError when another object has taken the shard, RetriableError and JobError."""
        content = _packed(delta)
        key = self._key(shard)
        with self._transaction() as cursor:
            self._be_owner(cursor, shard, version, snapshot=snapshot)
            # Versions that an unfinished checkpoint left behind are replaced, this one and later ones.
            cursor.execute(f"DELETE FROM {self._table} WHERE shard_id = %s AND version >= %s", (key, version))  # noqa: S608
            for part, begin in enumerate(range(0, len(content), self._part_bytes)):
                digits = content[begin : begin + self._part_bytes].hex()
                cursor.execute(
                    f"INSERT INTO {self._table} (shard_id, version, part, whole, content)"  # noqa: S608
                    " VALUES (%s, %s, %s, %s, UNHEX(%s))",
                    (key, version, part, snapshot, digits),
                )
        self._claimed.add(shard)

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        """See StateStore. Takes the shard: whoever has had it can store no more deltas of it."""
        key = self._key(shard)
        with self._transaction() as cursor:
            self._take(cursor, shard)
            wanted, unfinished = versions_to_load(self._versions(cursor, key), version)
            if unfinished:
                cursor.execute(
                    f"DELETE FROM {self._table} WHERE shard_id = %s AND version >= %s",  # noqa: S608
                    (key, unfinished[0]),
                )
        self._claimed.add(shard)
        for number in wanted:
            with self._transaction() as cursor:
                cursor.execute(
                    f"SELECT whole, content FROM {self._table} WHERE shard_id = %s AND version = %s ORDER BY part",  # noqa: S608
                    (key, number),
                )
                rows = cursor.fetchall()
            content = self._unpacked(b"".join(part for _, part in rows), shard, number)
            yield number, content, bool(rows[0][0])

    def remove(self, shard: str, *, before: int) -> None:
        key = self._key(shard)
        with self._transaction() as cursor:
            old = versions_to_remove(self._versions(cursor, key), before)
            if old:
                cursor.execute(f"DELETE FROM {self._table} WHERE shard_id = %s AND version <= %s", (key, old[-1]))  # noqa: S608

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    # ----------------------------------------------------------------------------------------------- owners

    def _take(self, cursor: Any, shard: str) -> None:
        """Make this object the owner, and lock the shard until the transaction ends."""
        cursor.execute(
            f"INSERT INTO {self._shards} (shard_id, job, shard, owner) VALUES (%s, %s, %s, UNHEX(%s))"  # noqa: S608
            " ON DUPLICATE KEY UPDATE owner = VALUES(owner)",
            (self._key(shard), self._settings.job[:500], shard[:1000], self._token.hex()),
        )

    def _be_owner(self, cursor: Any, shard: str, version: int, *, snapshot: bool) -> None:
        if shard in self._claimed:
            key = self._key(shard)
            cursor.execute(f"SELECT owner FROM {self._shards} WHERE shard_id = %s FOR UPDATE", (key,))  # noqa: S608
            if cursor.fetchone() == (self._token,):
                return
            newest = max((number for number, _ in self._versions(cursor, key)), default=version)
            if not snapshot or version < newest:
                raise StaleWriterError(
                    f"the shard belongs to another instance of job {self._settings.job!r}: version {version} of its state"
                    f" is not stored; the newest is {newest}",
                    plugin="mysql",
                    queue=shard,
                )
        self._take(cursor, shard)

    def _versions(self, cursor: Any, key: bytes) -> list[tuple[int, bool]]:
        """Return (version, is snapshot) of a shard in order."""
        cursor.execute(
            f"SELECT version, whole FROM {self._table} WHERE shard_id = %s AND part = 0 ORDER BY version",  # noqa: S608
            (key,),
        )
        return [(number, bool(whole)) for number, whole in cursor.fetchall()]

    def _key(self, shard: str) -> bytes:
        return hashlib.sha256(f"{self._settings.job}\0{shard}".encode()).digest()

    def _unpacked(self, content: bytes, shard: str, number: int) -> bytes:
        kind, packed = content[:1], content[1:]
        try:
            if kind == _ZLIB:
                return zlib.decompress(packed)
            if kind == _PLAIN:
                return packed
            problem = f"packed in a way that this version of headrace does not know ({kind!r})"
        except zlib.error as error:
            problem = f"damaged: {error}"
        raise CheckpointError(
            f"version {number} of the state of shard {shard} of job {self._settings.job!r} is {problem}",
            plugin="mysql",
            option="table",
            hint=f"restore the table {self._settings.database}.{self._settings.table} from a backup",
        )

    # ------------------------------------------------------------------------------------------- connection

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Give a cursor in a transaction, which is committed at the end. After an error, the next has a new connection."""
        try:
            connection = self._connected()
            with translating(self._settings), connection.cursor() as cursor:
                yield cursor
                connection.commit()
        except DataError as error:
            self.close()
            raise CheckpointError(f"the server does not take the state: {error.message}", plugin="mysql") from error
        except BaseException:
            self.close()
            raise

    def _connected(self) -> Any:
        if self._connection is None:
            connection = connect(self._settings)
            try:
                with translating(self._settings), connection.cursor() as cursor:
                    # Shards of different instances lie side by side: without this, one's DELETE would lock the gap that
                    # another's first INSERT falls into.
                    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                    self._make_table(cursor, self._settings.shards_table, SHARDS_STATEMENT, _SHARDS_COLUMNS)
                    self._make_table(cursor, self._settings.table, STATEMENT, _COLUMNS)
                    cursor.execute("SELECT @@max_allowed_packet")
                    (packet_bytes,) = cursor.fetchone()
                    connection.commit()
            except BaseException:
                connection.close()
                raise
            # Each byte is two digits on its way.
            self._part_bytes = max(1, min(_PART_BYTES_MAX, (packet_bytes - _STATEMENT_BYTES) // 2))
            self._connection = connection
        return self._connection

    def _make_table(self, cursor: Any, name: str, statement: str, columns: set[str]) -> None:
        """Make a table unless it is there. Raises JobError when it is another, or must not be made."""
        own = self._settings
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            (own.database, name),
        )
        found = {column for (column,) in cursor.fetchall()}
        if found and not found >= columns:
            raise JobError(
                f"table {own.database}.{name} is not one that holds state",
                plugin="mysql",
                option="table",
                hint="name a table that does not exist, it will be made",
            )
        if found:  # asked first, because IF NOT EXISTS needs the right to create even when it does not
            return
        try:
            cursor.execute(statement.format(table=quoted_for_parameters(name)), ())
        except pymysql.MySQLError as error:
            if error.args and error.args[0] == 1142:
                raise JobError(
                    f"MySQL at {own.host}:{own.port}: user {own.user!r} may not create the table {own.database}.{name}",
                    plugin="mysql",
                    option="table",
                    hint="let an administrator create it once (the statements are in docs/connectors/mysql.md), "
                    "or grant CREATE",
                ) from error
            raise


def _packed(content: bytes) -> bytes:
    packed = zlib.compress(content, _COMPRESSION_LEVEL)
    return _ZLIB + packed if len(packed) < len(content) else _PLAIN + content
