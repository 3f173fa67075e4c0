"""Makes the helpers of these tests importable."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tests.servers.mysql import MySQLServer


@pytest.fixture
def database(mysql_server: MySQLServer, mysql_database: str) -> Iterator[object]:
    from mysql_world import Database

    made = Database(mysql_server, mysql_database)
    yield made
    made.close()


@pytest.fixture
def logged(logging_mysql_server: MySQLServer, logging_mysql_database: str) -> Iterator[object]:
    """A database on a server that writes a binary log."""
    from mysql_world import Database

    made = Database(logging_mysql_server, logging_mysql_database)
    yield made
    made.close()
