"""Holders that are killed and paused: never two at once, whatever moment it is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sa
from headrace.foundation.errors import RetriableError
from headrace_lease import SqlLeaseStore
from headrace_lease.sql_store import TABLE
from lease_world import LeaseDatabase

from tests.eventually import eventually

PROGRAM = Path(__file__).with_name("lease_world.py")


class Holder:
    """A process that holds the lease, or wants to."""

    def __init__(self, mode: str, url: str, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), mode, url, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def said(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    started: list[Holder] = []
    yield started
    for each in started:
        each.end()


def begin(holders: list[Holder], mode: str, database: LeaseDatabase, name: str) -> Holder:
    holders.append(Holder(mode, database.url, name))
    return holders[-1]


def test_a_holder_that_was_paused_is_refused_when_it_wakes(database: LeaseDatabase, holders: list[Holder]) -> None:
    one = begin(holders, "steps", database, "one")
    assert one.said() == ["acquired", "1"]
    one.say("work")
    assert one.said() == ["worked"]
    one.send(signal.SIGSTOP)
    for step in ("work", "check", "renew"):
        one.say(step)
    assert begin(holders, "steps", database, "two").said() == ["refused"]
    database.advance(timedelta(seconds=11))
    three = begin(holders, "steps", database, "three")
    assert three.said() == ["acquired", "2"]
    three.say("work")
    assert three.said() == ["worked"]
    one.send(signal.SIGCONT)
    for _ in range(3):
        answer = one.said()
        assert (answer[0], "taken" in answer) == ("lost", True)
    three.say("work")
    assert three.said() == ["worked"]
    assert [(token, holder) for _, token, holder in database.work()] == [(1, "one"), (2, "three"), (2, "three")]


def test_a_killed_holder_is_replaced_when_its_lease_expires(database: LeaseDatabase, holders: list[Holder]) -> None:
    one = begin(holders, "steps", database, "one")
    assert one.said() == ["acquired", "1"]
    one.send(signal.SIGKILL)
    one.process.wait()
    assert begin(holders, "steps", database, "one").said() == ["refused"]
    database.advance(timedelta(seconds=11))
    assert begin(holders, "steps", database, "one").said() == ["acquired", "2"]


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["mysql", "postgresql"])
def test_a_holder_that_is_paused_in_its_transaction_keeps_nobody_waiting(
    request: pytest.FixtureRequest, holders: list[Holder], kind: str
) -> None:
    """The database ends its connection after the limit; when the holder goes on, it learns that nothing was committed."""
    database: LeaseDatabase = request.getfixturevalue(f"{kind}_leases")
    one = begin(holders, "stop in transaction", database, "one")
    assert one.said() == ["guarded"]
    store = SqlLeaseStore(database.new_engine(pool_pre_ping=True))

    def taken() -> int | None:
        try:
            return store.take("work", "two", timedelta(minutes=1))
        except RetriableError:  # it still waits for the row
            return None

    eventually(taken, "another holder takes over while the first one is paused")
    one.send(signal.SIGCONT)
    assert one.said()[0] == "rolled-back"
    assert database.work() == []


def storm(database: LeaseDatabase, holders: list[Holder], rounds: int, seed: int) -> None:
    """Kill and pause the holder of the moment, again and again; the next one must take over each time."""
    chance = random.Random(seed)
    running = {f"p{number}": begin(holders, "storm", database, f"p{number}") for number in range(3)}
    taken_over = 0
    for number in range(rounds):
        seen = len(database.work())
        eventually(partial(_has_worked, database, seen + 2), "the holder works")
        holder = database.work()[-1][2]
        victim = running[holder]
        if chance.random() < 0.5:
            victim.send(signal.SIGKILL)
            victim.process.wait()
            running[holder] = begin(holders, "storm", database, holder)
        else:
            token = database.work()[-1][1]
            victim.send(signal.SIGSTOP)
            locked = 0

            def gone_on(token: int = token) -> bool:
                """Whether another has taken over, or the victim was stopped in its guarded transaction: then nobody can."""
                nonlocal locked
                if _locked(database):  # others lock it too, for moments
                    locked += 1
                    return locked > 30
                locked = 0
                return database.work()[-1][1] > token

            eventually(gone_on, f"another takes over in round {number}")
            taken_over += locked == 0
            victim.send(signal.SIGCONT)
    work = database.work()
    assert [number for number, _, _ in work] == list(range(1, len(work) + 1))
    assert all(before[1] <= after[1] for before, after in pairwise(work))
    holder_of: dict[int, str] = {}
    for _, token, holder in work:
        assert holder_of.setdefault(token, holder) == holder
    assert len(holder_of) > rounds // 4
    assert taken_over > 0


def _has_worked(database: LeaseDatabase, count: int) -> bool:
    return len(database.work()) > count


def _locked(database: LeaseDatabase) -> bool:
    """Return whether a transaction that does not end holds the lease's row, or SQLite's file."""
    row = sa.select(TABLE.c.token).where(TABLE.c.name == "work").with_for_update(nowait=True)
    try:
        with database.impatient.begin() as transaction:
            if database.engine.dialect.name == "sqlite":
                database.advance(timedelta(milliseconds=1), transaction)
            else:
                transaction.execute(row)
    except sa.exc.OperationalError:
        return True
    return False


def test_kills_and_pauses_never_make_two_holders(database: LeaseDatabase, holders: list[Holder]) -> None:
    storm(database, holders, rounds=8, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_and_pauses_never_make_two_holders(
    database: LeaseDatabase, holders: list[Holder], seed: int
) -> None:
    storm(database, holders, rounds=60, seed=seed)
