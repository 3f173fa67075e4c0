"""The lease that a process of jobs holds: it ends by its own clock, and goes on when only the database's clock has changed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from headrace.foundation.clock import SystemClock
from headrace_lease import LeaseLostError, Leases, SqlLeaseStore
from headrace_lease.sql_store import TABLE
from headrace_server.registry.database import Registry
from headrace_server.registry.engines import open_engine, sqlite_url
from headrace_server.registry.shared import SharedTables, note_runner
from headrace_server.registry.tables import servers
from headrace_server.runner import unit_lease
from headrace_server.runner.specification import RunnerSpecification
from headrace_server.runner.unit_lease import Access, UnitLease

from tests.eventually import eventually

#: By the clock of the process, which tests move; the threads are real.
DURATION = timedelta(hours=1)
OF_DURATION = DURATION.total_seconds()


class MovedClock:
    """A clock that stands unless it is moved. Who waits by it looks again after a moment, so that no test waits and none needs luck."""

    def __init__(self) -> None:
        self.seconds = 0.0
        #: How often each thread has waited.
        self.waits: Counter[str] = Counter()

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits[threading.current_thread().name] += 1
        return event.wait(min(seconds, 0.01))


class World:
    """A registry with one unit, of the server ``a``, and what its process does."""

    def __init__(self, root: Path) -> None:
        self.url = sqlite_url(root / "registry.sqlite")
        self.engine = open_engine(self.url)
        Registry(self.engine, SystemClock())
        store = SqlLeaseStore(self.engine)
        store.create_table()
        self.leases = Leases(store)
        self.tables = SharedTables(self.engine)
        self.tables.add_units(["jobs"])
        self.give_to("a")
        self.stopped, self.died = threading.Event(), threading.Event()
        self.clock = MovedClock()
        specification = RunnerSpecification(
            unit="jobs", generation="g", jobs=(), socket="s", log="l", work_directory="w", leased=True
        )
        access = Access(url=self.url, server="a", machine="m", duration_seconds=OF_DURATION)
        self.lease = UnitLease(
            access, specification, "file", stop=self.stopped.set, die=self.died.set, clock=self.clock
        )
        taken = self.leases.acquire("headrace/unit/jobs", holder="a", duration=DURATION)
        assert taken is not None
        self.token = taken.token

    def add_server(self, name: str, *, machine: str) -> None:
        self.execute(sa.insert(servers).values(name=name, pid=1, started_seconds=0.0, machine=machine))

    def give_to(self, server: str) -> None:
        with self.engine.begin() as transaction:
            self.tables.assign(transaction, self.tables.units()["jobs"], server)

    def wait_for_looks(self) -> None:
        """Wait until both threads of the lease have looked at everything once more."""
        before = Counter(self.clock.waits)
        for thread in ("lease", "lease watch"):
            eventually(lambda: self.clock.waits[thread] >= before[thread] + 2, "it looks")  # noqa: B023

    def execute(self, statement: sa.Executable) -> None:
        with self.engine.begin() as transaction:
            transaction.execute(statement)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.lease.end({})
    assert made.lease.wait_for_threads(timedelta(seconds=20))  # one may hold a connection, which nobody would close
    made.engine.dispose()


def test_it_is_renewed_told_and_given_back(world: World) -> None:
    world.lease.begin(world.token)
    note = world.tables.units()["jobs"].runner
    assert note is not None
    assert (note.server, note.machine, note.token, note.specification) == ("a", "m", world.token, "file")
    first = world.leases.read("headrace/unit/jobs")
    assert first is not None
    eventually(lambda: world.leases.read("headrace/unit/jobs").mark != first.mark, "it is renewed")  # type: ignore[union-attr]
    world.lease.end({"one": ("finished", None)})
    assert world.tables.units()["jobs"].outcomes == {"one": ("finished", None)}
    last = world.leases.read("headrace/unit/jobs")
    assert last is not None
    assert last.last_holder is None


def test_a_process_whose_lease_another_has_does_not_begin(world: World) -> None:
    seen = world.leases.read("headrace/unit/jobs")
    assert seen is not None
    assert world.leases.take_over(seen, holder="b", duration=DURATION) is not None
    with pytest.raises(LeaseLostError):
        world.lease.begin(world.token)


def test_a_process_whose_lease_is_taken_dies(world: World) -> None:
    world.lease.begin(world.token)

    def taken() -> bool:
        seen = world.leases.read("headrace/unit/jobs")
        assert seen is not None
        return world.leases.take_over(seen, holder="b", duration=timedelta(hours=1)) is not None

    eventually(taken, "the lease is taken between two renewals")
    eventually(world.died.is_set, "the process dies")


def test_it_goes_on_when_the_clock_of_the_database_is_set_forward(world: World) -> None:
    world.lease.begin(world.token)
    world.execute(sa.update(TABLE).values(expires_at_ms=TABLE.c.expires_at_ms - 3_600_000))

    def told() -> bool:
        note = world.tables.units()["jobs"].runner
        return note is not None and note.token == world.token + 1

    eventually(told, "it has the next token")
    assert not world.died.is_set()


def test_it_tells_its_next_token_again_if_the_registry_was_away_in_that_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its server would never see that it is silent: it knows a process by its token."""
    world.lease.begin(world.token)
    failed = threading.Event()

    def note_once_more(*arguments: Any) -> None:
        if not failed.is_set():
            failed.set()
            raise sa.exc.OperationalError("UPDATE", {}, Exception("away"))
        note_runner(*arguments)

    monkeypatch.setattr(unit_lease, "note_runner", note_once_more)
    world.execute(sa.update(TABLE).values(expires_at_ms=TABLE.c.expires_at_ms - 3_600_000))

    def told() -> bool:
        note = world.tables.units()["jobs"].runner
        return note is not None and note.token == world.token + 1

    eventually(told, "it has the next token")
    assert failed.is_set()
    assert not world.died.is_set()


def test_it_stops_its_jobs_and_then_dies_when_the_registry_stays_away(world: World) -> None:
    world.lease.begin(world.token)
    world.execute(sa.text("ALTER TABLE headrace_leases RENAME TO away"))
    world.wait_for_looks()
    world.clock.seconds += 0.69 * OF_DURATION
    world.wait_for_looks()
    assert not world.stopped.is_set()
    world.clock.seconds += 0.02 * OF_DURATION
    eventually(world.stopped.is_set, "the jobs are stopped")
    assert not world.died.is_set()
    world.clock.seconds += 0.25 * OF_DURATION
    eventually(world.died.is_set, "the process dies, whatever they do")
    world.execute(sa.text("ALTER TABLE away RENAME TO headrace_leases"))


def test_it_stops_its_jobs_when_a_server_elsewhere_has_the_unit_and_not_when_one_adopts_it(world: World) -> None:
    world.lease.begin(world.token)
    world.lease.adopt("b")
    world.give_to("b")
    note = world.tables.units()["jobs"].runner
    assert note is not None
    assert note.server == "b"
    world.wait_for_looks()
    world.clock.seconds += 1000
    world.wait_for_looks()
    assert not world.stopped.is_set()
    world.add_server("c", machine="another")
    world.give_to("c")
    world.wait_for_looks()
    world.clock.seconds += 3
    eventually(world.stopped.is_set, "the jobs are stopped")


def test_it_waits_longer_for_a_server_of_its_machine_which_can_take_the_process_over_as_it_is(world: World) -> None:
    """A server that has just started on a busy machine was given the unit, and its loop does not run yet."""
    world.add_server("b", machine="m")
    world.lease.begin(world.token)
    world.give_to("b")
    world.wait_for_looks()
    world.clock.seconds += 50
    world.wait_for_looks()
    assert not world.stopped.is_set()
    world.lease.adopt("b")
    world.clock.seconds += 1000
    world.wait_for_looks()
    assert not world.stopped.is_set()
    world.add_server("c", machine="m")
    world.give_to("c")
    world.wait_for_looks()
    world.clock.seconds += 70
    eventually(world.stopped.is_set, "the jobs are stopped at a checkpoint if it does not do so")
