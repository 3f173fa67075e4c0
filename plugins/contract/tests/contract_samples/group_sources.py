"""A healthy group source on a real store that needs no server: members, owners and offsets are tables of SQLite."""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import headrace as hr
from headrace.interfaces.source import GroupListener, GroupSource

from contract_samples.sources import LogSource

_TABLES = """
CREATE TABLE IF NOT EXISTS members (name TEXT PRIMARY KEY, process INTEGER);
CREATE TABLE IF NOT EXISTS owners (queue TEXT PRIMARY KEY, member TEXT);
CREATE TABLE IF NOT EXISTS commits (queue TEXT PRIMARY KEY, position INTEGER);
"""


class GroupLogSource(LogSource, GroupSource):
    """Shares the queues of a SQLite file out among its members; a queue is taken when nobody has it any more."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.member: str | None = None
        self.listener: GroupListener | None = None
        self.held: set[str] = set()

    @contextmanager
    def group(self) -> Iterator[sqlite3.Connection]:
        """Give a connection in a transaction that no other member disturbs; the dead are removed from the group."""
        connection = sqlite3.connect(f"{self.settings.database}.group", timeout=20, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        try:
            connection.executescript(_TABLES)
            connection.execute("BEGIN IMMEDIATE")
            for name, process in connection.execute("SELECT name, process FROM members").fetchall():
                if not os.path.exists(f"/proc/{process}"):
                    self.remove(connection, name)
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()

    @staticmethod
    def remove(connection: sqlite3.Connection, member: str) -> None:
        connection.execute("DELETE FROM owners WHERE member = ?", (member,))
        connection.execute("DELETE FROM members WHERE name = ?", (member,))

    def join(self, listener: GroupListener) -> None:
        self.listener, self.member = listener, secrets.token_hex(4)
        with self.group() as connection:
            connection.execute("INSERT INTO members VALUES (?, ?)", (self.member, os.getpid()))

    def poll_group(self, timeout: timedelta) -> None:
        if self.member is None:
            return
        own = self.share()
        if own == self.held:
            threading.Event().wait(min(timeout.total_seconds(), 0.01))
            return
        self.give_up(self.held - own)
        with self.group() as connection:
            owned = dict(connection.execute("SELECT queue, member FROM owners").fetchall())
            taken = {name for name in own - self.held if owned.get(name, self.member) == self.member}
            connection.executemany("INSERT OR IGNORE INTO owners VALUES (?, ?)", [(q, self.member) for q in taken])
        self.take(taken)

    def share(self) -> set[str]:
        """Return the queues that this member should have."""
        names = sorted(queue.name for queue in self.queues())
        with self.group() as connection:
            members = [name for (name,) in connection.execute("SELECT name FROM members ORDER BY name")]
        assert self.member is not None
        return set(names[members.index(self.member) :: len(members)])

    def take(self, names: set[str]) -> None:
        self.held |= names
        if names:
            assert self.listener is not None
            self.listener.assigned([hr.Queue(name) for name in sorted(names)])

    def give_up(self, names: set[str]) -> None:
        if names:
            assert self.listener is not None
            self.listener.revoked([hr.Queue(name) for name in sorted(names)])
            self.held -= names
            with self.group() as connection:
                connection.executemany("DELETE FROM owners WHERE queue = ?", [(name,) for name in names])

    def leave(self) -> None:
        member, self.member = self.member, None
        if member is not None:
            self.held.clear()
            with self.group() as connection:
                self.remove(connection, member)

    def commit(self, positions: Mapping[hr.Queue, hr.ReadPosition]) -> None:
        with self.group() as connection:
            for queue, position in positions.items():
                connection.execute("INSERT OR REPLACE INTO commits VALUES (?, ?)", (queue.name, position.offset))

    def committed(self, queue: hr.Queue) -> hr.ReadPosition | None:
        with self.group() as connection:
            row = connection.execute("SELECT position FROM commits WHERE queue = ?", (queue.name,)).fetchone()
        return None if row is None else hr.ReadPosition(row[0])

    def close(self) -> None:
        self.leave()
