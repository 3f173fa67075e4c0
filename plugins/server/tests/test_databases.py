"""Access and schedules in MySQL and PostgreSQL: the same as in SQLite, where all other tests are."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa
from access_world import HASHER, PASSWORD
from headrace.foundation.clock import ManualClock
from headrace_server.access import AuditLog, Authority, Principal, Role, metadata
from schedule_world import ScheduleWorld

from tests.servers.mysql import MySQLServer
from tests.servers.postgresql import PostgreSQLServer

pytestmark = pytest.mark.servers


@pytest.fixture(params=["mysql", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    server: MySQLServer | PostgreSQLServer = request.getfixturevalue(f"{request.param}_server")
    database = request.getfixturevalue(f"{request.param}_database")
    driver = {"mysql": "mysql+pymysql", "postgresql": "postgresql+psycopg"}[request.param]
    return f"{driver}://{server.user}:{server.password}@{server.host}:{server.port}/{database}"


def test_users_tokens_sessions_and_the_audit_log(url: str) -> None:
    engine = sa.create_engine(url)
    metadata.create_all(engine)
    clock = ManualClock(1_790_000_000.125)
    authority = Authority(engine, clock, hasher=HASHER)
    for role in (Role.VIEWER, Role.AUTHOR):
        authority.put_user("Ann", PASSWORD, role)
    begun = authority.log_in("Ann", PASSWORD, address="a")
    clock.advance(100)
    found = authority.session_of(begun.cookie)
    assert found is not None
    assert found.principal == Principal("Ann", Role.AUTHOR, "session")
    authority.put_user("ann", PASSWORD, Role.VIEWER)  # another user
    assert authority.remove_user("ann")
    assert authority.session_of(begun.cookie) is not None
    principal = authority.principal_of_token(authority.make_token("ci", Role.OPERATOR))
    assert principal == Principal("ci", Role.OPERATOR, "token")
    log = AuditLog(engine, clock)
    log.record(found.principal, "jobs.put", "team/orders", after="水🌊" * 50_000)
    [entry] = log.entries()
    assert (entry.at, entry.difference.count("水🌊")) == (1_790_000_100.125, 50_000)
    engine.dispose()


def test_schedules(url: str) -> None:
    world = ScheduleWorld(url)
    world.tick(every="15 min")
    for _ in range(3):
        world.pass_time(timedelta(minutes=15))
        assert world.tick(every="15 min")
    assert world.states() == [("02 10:15", "started"), ("02 10:30", "skipped"), ("02 10:45", "skipped")]
    world.close()
