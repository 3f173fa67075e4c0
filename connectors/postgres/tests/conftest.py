"""Makes the helpers of these tests importable."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tests.servers.postgresql import PostgreSQLServer


@pytest.fixture
def postgres(postgresql_server: PostgreSQLServer, postgresql_database: str) -> Iterator[object]:
    from postgres_world import PostgresDatabase

    made = PostgresDatabase(postgresql_server, postgresql_database)
    yield made
    made.close()


@pytest.fixture
def followed(logging_postgresql_server: PostgreSQLServer, logging_postgresql_database: str) -> Iterator[object]:
    """A database on a server that has a log for logical replication."""
    from postgres_world import PostgresDatabase

    made = PostgresDatabase(logging_postgresql_server, logging_postgresql_database)
    yield made
    made.close()
