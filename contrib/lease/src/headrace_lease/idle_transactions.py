"""Locks of a process that was paused within a transaction: the database ends its connection after a while."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: How long a client may say nothing within a transaction.
IDLE_TRANSACTION_MAX = timedelta(seconds=20)


def limit_idle_transactions(engine: sa.Engine, limit: timedelta = IDLE_TRANSACTION_MAX) -> None:
    """Let the database end each later connection of ``engine`` whose client says nothing for ``limit`` within a transaction.

    A paused process keeps its connection, and the locks of its transaction with it: without a limit everybody else would wait until the
    process goes on. Its transaction is rolled back then, and its next statement raises ``sqlalchemy.exc.OperationalError``. A statement
    that meets a lock waits no longer than ``limit`` either. ``limit`` is rounded up to whole seconds.

    MySQL has no such limit for transactions alone: there it counts for each connection, so the pool of ``engine`` must look
    whether a connection still works (``pool_pre_ping=True``). SQLite has none: its file stays locked until the process goes on or ends.
    """
    kind, seconds = engine.dialect.name, max(1, math.ceil(limit.total_seconds()))
    if kind == "sqlite":
        return

    @event.listens_for(engine, "connect")
    def set_limit(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(_postgresql(seconds) if kind == "postgresql" else _mysql(connection.get_server_info(), seconds))
        cursor.close()
        connection.commit()


def _postgresql(seconds: int) -> str:
    return f"SET SESSION idle_in_transaction_session_timeout = '{seconds}s'"


def _mysql(version: str, seconds: int) -> str:
    name = "idle_transaction_timeout" if "mariadb" in version.lower() else "wait_timeout"
    return f"SET SESSION {name} = {seconds}, SESSION innodb_lock_wait_timeout = {seconds}"
