"""The state store: the shards of jobs in two tables, so that any instance on any machine can continue where another stopped."""

from __future__ import annotations

import hashlib
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, ClassVar

import pymysql
from headrace.foundation.errors import CheckpointError, DataError, JobError, RetriableError
from headrace.interfaces.settings import Settings
from headrace.interfaces.sink import StaleWriterError
from headrace.interfaces.state_store import (
    KeyedStateStore,
    ReadableStateStore,
    StoredVersion,
    versions_to_load,
    versions_to_remove,
)

from headrace_mysql.connection import connect, quoted_for_parameters, translating
from headrace_mysql.settings import MySQLStateSettings

#: Names of jobs and shards can be longer than an index allows, and differ only in case: so hashes are the key.
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
#: The first byte says how the rest is compressed. The compression is fast; Arrow's columns still shrink to a third.
_PLAIN, _ZLIB = b"\x00", b"\x01"
#: Stands before that byte in a version with parts: each part is compressed separately, and part p has the rows from p * 1024 on.
_IN_PARTS = b"\x02"
_PIECES_MAX = 1024
#: The number of ranges of parts in one query.
_RANGES_MAX = 200
_COMPRESSION_LEVEL = 1
#: One row holds at most so much: InnoDB takes no row of more than a tenth of its log.
_PART_BYTES_MAX = 1024**2
#: The largest size of a statement without the digits of a part, and of a row without its digits.
_STATEMENT_BYTES = 10_000
_ROW_BYTES = 200


class MySQLStateStore(KeyedStateStore, ReadableStateStore):
    """Keeps each version of a shard as rows of one transaction. Used by one thread.

    An object owns a shard from its first ``load`` or ``save`` of it, until another object does the same: from then on its
    deltas are refused with StaleWriterError, because they no longer fit the stored state. A snapshot that is not older than
    what is stored makes it the owner again. So the deltas after a snapshot always have one owner.
    """

    Settings: ClassVar[type[Settings]] = MySQLStateSettings
    shared: ClassVar[bool] = True

    @classmethod
    def defaults(cls, job: str, directory: str) -> Mapping[str, Any]:
        return {"job": job}

    def __init__(self, settings: MySQLStateSettings) -> None:
        self._settings = settings
        self._token = secrets.token_bytes(16)
        self._claimed: set[str] = set()
        self._connection: Any = None
        self._part_bytes = _PART_BYTES_MAX
        # Every statement is executed with parameters, even if there are none: see `quoted_for_parameters`.
        self._table = quoted_for_parameters(settings.table)
        self._shards = quoted_for_parameters(settings.shards_table)

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        """See StateStore. Raises StaleWriterError when another object has taken the shard, RetriableError and JobError."""
        self._store(shard, version, lambda: _pieces(_packed(delta), 0, self._part_bytes), snapshot=snapshot)

    def save_parts(self, shard: str, version: int, parts: Sequence[bytes], *, snapshot: bool = False) -> None:
        """See KeyedStateStore. Raises what ``save`` does, and JobError for a part of which 1024 rows are not enough."""

        def pieces() -> Iterator[tuple[int, bytes]]:
            for number, part in enumerate(parts):
                packed = _packed(part) if number else _IN_PARTS + _packed(part)
                if len(packed) > self._part_bytes * _PIECES_MAX:
                    raise JobError(
                        f"{len(packed)} bytes of the state of shard {shard} belong to neighbouring keys and must be stored together: more "
                        "than the server takes",
                        plugin="mysql",
                        hint="raise max_allowed_packet of the server, or turn quick_start off",
                    )
                yield from _pieces(packed, number * _PIECES_MAX, self._part_bytes)

        self._store(shard, version, pieces, snapshot=snapshot)

    def _store(
        self, shard: str, version: int, pieces: Callable[[], Iterable[tuple[int, bytes]]], *, snapshot: bool
    ) -> None:
        key = self._key(shard)
        with self._transaction() as cursor:
            self._be_owner(cursor, shard, version, snapshot=snapshot)
            # Versions of an unfinished checkpoint are replaced, this one and later ones.
            cursor.execute(f"DELETE FROM {self._table} WHERE shard_id = %s AND version >= %s", (key, version))  # noqa: S608
            for rows in _together(pieces(), 2 * self._part_bytes):
                places = ", ".join(["(%s, %s, %s, %s, UNHEX(%s))"] * len(rows))
                values = [value for part, piece in rows for value in (key, version, part, snapshot, piece.hex())]
                cursor.execute(
                    f"INSERT INTO {self._table} (shard_id, version, part, whole, content) VALUES {places}",  # noqa: S608
                    values,
                )
        self._claimed.add(shard)

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        """See StateStore. Takes the shard: its previous owner can store no more deltas of it."""
        with self._transaction() as cursor:
            wanted = self._found(cursor, shard, version)
        self._claimed.add(shard)
        for number in wanted:
            with self._transaction() as cursor:
                cursor.execute(
                    f"SELECT s.whole, s.part, s.content {self._own()} AND s.version = %s ORDER BY s.part",
                    (self._key(shard), self._token.hex(), number),
                )
                rows = cursor.fetchall()
            if not rows:
                raise _changed(shard, number)
            yield number, self._content(rows, shard, number), bool(rows[0][0])

    def stored(self, shard: str, version: int) -> tuple[bytes, bool] | None:
        """See ReadableStateStore. Does not take the shard, so its owner continues."""
        with self._transaction() as cursor:
            cursor.execute(
                f"SELECT whole, part, content FROM {self._table} WHERE shard_id = %s AND version = %s ORDER BY part",  # noqa: S608
                (self._key(shard), version),
            )
            rows = cursor.fetchall()
        return (self._content(rows, shard, version), bool(rows[0][0])) if rows else None

    def go_on_from(self, shard: str, version: int) -> None:
        """See ReadableStateStore. Takes the shard, as ``load`` does."""
        with self._transaction() as cursor:
            self._found(cursor, shard, version)
        self._claimed.add(shard)

    def _content(self, rows: Sequence[tuple[int, int, bytes]], shard: str, number: int) -> bytes:
        """Return a version from its rows: (is snapshot, part, piece) in order."""
        pieces = [(part, piece) for _, part, piece in rows]
        if pieces[0][1].startswith(_IN_PARTS):
            return b"".join(each for _, each in self._parts(pieces, shard, number))
        return self._unpacked(b"".join(piece for _, piece in pieces), shard, number)

    def versions(self, shard: str) -> Sequence[StoredVersion]:
        """See KeyedStateStore. Takes the shard, as ``load`` does."""
        key = self._key(shard)
        with self._transaction() as cursor:
            wanted = self._found(cursor, shard, None)
            rows: Sequence[tuple[int, int, int, bytes | None]] = ()
            if wanted:
                # Of a version without parts only the first byte is needed.
                cursor.execute(
                    f"SELECT version, part, whole, IF(f.kind = %s, s.content, NULL) FROM {self._table} s"  # noqa: S608
                    f" JOIN (SELECT version AS number, LEFT(content, 1) AS kind FROM {self._table}"
                    f" WHERE shard_id = %s AND part = 0 AND version IN ({', '.join(['%s'] * len(wanted))})) f"
                    f" ON s.version = f.number WHERE s.shard_id = %s AND s.part < {_PIECES_MAX} ORDER BY version, part",
                    (_IN_PARTS, key, *wanted, key),
                )
                rows = cursor.fetchall()
        self._claimed.add(shard)
        firsts: dict[int, list[tuple[int, bytes]]] = {}
        snapshots: dict[int, bool] = {}
        for number, part, whole, piece in rows:
            snapshots[number] = bool(whole)
            if piece is not None:
                firsts.setdefault(number, []).append((part, piece))
        return [
            StoredVersion(
                number, whole, next(self._parts(firsts[number], shard, number))[1] if number in firsts else None
            )
            for number, whole in snapshots.items()
        ]

    def load_parts(self, shard: str, wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
        """See KeyedStateStore."""
        ranges = [(number, each) for number, some in wanted.items() for each in some]
        for begin in range(0, len(ranges), _RANGES_MAX):
            some = ranges[begin : begin + _RANGES_MAX]
            places = " OR ".join(["(s.version = %s AND s.part BETWEEN %s AND %s)"] * len(some))
            values = [
                value
                for number, each in some
                for value in (number, each.start * _PIECES_MAX, each.stop * _PIECES_MAX - 1)
            ]
            with self._transaction() as cursor:
                cursor.execute(
                    f"SELECT s.version, s.part, s.content {self._own()} AND ({places}) ORDER BY s.version, s.part",
                    (self._key(shard), self._token.hex(), *values),
                )
                rows = cursor.fetchall()
            count = 0
            for number, found in groupby(rows, key=lambda row: int(row[0])):
                for part, content in self._parts([(row[1], row[2]) for row in found], shard, number):
                    count += 1
                    yield number, part, content
            if count != sum(len(each) for _, each in some):
                raise _changed(shard, some[0][0])

    def _found(self, cursor: Any, shard: str, version: int | None) -> list[int]:
        """Take the shard, and return the versions that a load gives; versions of no finished checkpoint are removed."""
        key = self._key(shard)
        self._take(cursor, shard)
        wanted, unfinished = versions_to_load(self._versions(cursor, key), version)
        if unfinished:
            cursor.execute(
                f"DELETE FROM {self._table} WHERE shard_id = %s AND version >= %s",  # noqa: S608
                (key, unfinished[0]),
            )
        return wanted

    def _own(self) -> str:
        """Return the tables of a SELECT that gives rows of a shard only to its owner: then no other instance has changed them."""
        return (
            f"FROM {self._shards} h JOIN {self._table} s ON s.shard_id = h.shard_id"
            " WHERE h.shard_id = %s AND h.owner = UNHEX(%s)"
        )

    def _parts(self, pieces: Iterable[tuple[int, bytes]], shard: str, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield (number, content) of the parts that rows hold, which are in their order."""
        for part, some in groupby(pieces, key=lambda row: row[0] // _PIECES_MAX):
            content = b"".join(piece for _, piece in some)
            yield part, self._unpacked(content if part else content.removeprefix(_IN_PARTS), shard, number)

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
                    f"the shard now belongs to another instance of job {self._settings.job!r}: version {version} of its state"
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
                    # Shards of different instances are neighbours in the index: without this, the DELETE of one instance would
                    # lock the gap for the first INSERT of another.
                    cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                    self._make_table(cursor, self._settings.shards_table, SHARDS_STATEMENT, _SHARDS_COLUMNS)
                    self._make_table(cursor, self._settings.table, STATEMENT, _COLUMNS)
                    cursor.execute("SELECT @@max_allowed_packet")
                    (packet_bytes,) = cursor.fetchone()
                    connection.commit()
            except BaseException:
                connection.close()
                raise
            # Each byte is sent as two digits.
            self._part_bytes = max(1, min(_PART_BYTES_MAX, (packet_bytes - _STATEMENT_BYTES) // 2))
            self._connection = connection
        return self._connection

    def _make_table(self, cursor: Any, name: str, statement: str, columns: set[str]) -> None:
        """Create a table unless it exists. Raises JobError when it is another table, or the user may not create it."""
        own = self._settings
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
            (own.database, name),
        )
        found = {column for (column,) in cursor.fetchall()}
        if found and not found >= columns:
            raise JobError(
                f"table {own.database}.{name} is not a table of state",
                plugin="mysql",
                option="table",
                hint="name a table that does not exist; it will be created",
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


def _pieces(content: bytes, first: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield (part, piece) of content that is cut, numbered from ``first``."""
    for place, begin in enumerate(range(0, len(content), size)):
        yield first + place, content[begin : begin + size]


def _together(pieces: Iterable[tuple[int, bytes]], size: int) -> Iterator[list[tuple[int, bytes]]]:
    """Yield pieces in groups that fit into one statement of so many digits, the size of each row included."""
    group: list[tuple[int, bytes]] = []
    filled = 0
    for part, piece in pieces:
        more = 2 * len(piece) + _ROW_BYTES
        if group and filled + more > size:
            yield group
            group, filled = [], 0
        group.append((part, piece))
        filled += more
    if group:
        yield group


def _changed(shard: str, version: int) -> RetriableError:
    return RetriableError(
        f"version {version} of the state has changed: another instance has stored the shard",
        plugin="mysql",
        queue=shard,
    )
