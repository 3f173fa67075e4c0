"""Makes the database end a connection whose process was paused in a transaction, so that its locks are released."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: How long a client may be silent within a transaction.
IDLE_TRANSACTION_MAX = timedelta(seconds=20)


def limit_idle_transactions(engine: sa.Engine, limit: timedelta = IDLE_TRANSACTION_MAX) -> None:
    """Tell the database to end a connection if its client is silent for ``limit`` within a transaction. It applies to
    new connections of ``engine``.

    A paused process keeps its connection and the locks of its transaction. Without a limit, all others would wait until
    the process continues. With the limit, its transaction is rolled back, and its next statement raises
    ``sqlalchemy.exc.OperationalError``. A statement also waits for a lock no longer than ``limit``. ``limit`` is
    rounded up to whole seconds.

    MySQL applies the limit to every idle connection, not only within transactions. So the pool of ``engine`` must check
    connections before use (``pool_pre_ping=True``). SQLite has no such limit: its file stays locked until the process
    continues or ends.
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
