"""Makes the helpers of these tests importable, and gives the databases in which leases are kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lease_world import LeaseDatabase

from tests.servers.mysql import MySQLServer
from tests.servers.postgresql import PostgreSQLServer


@pytest.fixture
def sqlite_leases(tmp_path: Path) -> Iterator[LeaseDatabase]:
    database = LeaseDatabase(f"sqlite:///{tmp_path / 'leases.sqlite'}")
    yield database
    database.close()


@pytest.fixture
def mysql_leases(mysql_server: MySQLServer, mysql_database: str) -> Iterator[LeaseDatabase]:
    server = mysql_server
    database = LeaseDatabase(
        f"mysql+pymysql://{server.user}:{server.password}@{server.host}:{server.port}/{mysql_database}"
    )
    yield database
    database.close()


@pytest.fixture
def postgresql_leases(postgresql_server: PostgreSQLServer, postgresql_database: str) -> Iterator[LeaseDatabase]:
    server = postgresql_server
    database = LeaseDatabase(
        f"postgresql+psycopg://{server.user}:{server.password}@{server.host}:{server.port}/{postgresql_database}"
    )
    yield database
    database.close()


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("mysql", marks=pytest.mark.servers),
        pytest.param("postgresql", marks=pytest.mark.servers),
    ]
)
def database(request: pytest.FixtureRequest) -> LeaseDatabase:
    """Each kind of database in turn."""
    found: LeaseDatabase = request.getfixturevalue(f"{request.param}_leases")
    return found
