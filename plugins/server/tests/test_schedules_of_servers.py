"""Schedules over several servers: each instant begins one run, whichever server is killed, stopped or paused, whatever clock is set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sa
from fake_servers import FakeServers
from headrace_lease import SqlLeaseStore
from headrace_server.registry.tables import runs
from headrace_server.schedules.tables import HISTORY
from headrace_server.sharing.member import SCHEDULES_LEASE
from shared_servers import SharedServers

from tests.eventually import eventually

EVERY = "until: end\nschedule: {every: 10 s, catch_up: all, overlap: queue}\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeServers]:
    made = FakeServers(tmp_path)
    made.add("a")
    made.add("b")
    yield made
    made.close()


def finish(world: FakeServers, seconds: float) -> None:
    """Let time pass, in which each run ends in the second after its begin."""
    for _ in range(round(seconds)):
        world.pass_time(1)
        for _, runner in world.runners():
            runner.finish()


def instants(world: FakeServers, job: str = "refresh") -> dict[float, str]:
    """Return what became of each instant."""
    query = sa.select(HISTORY.c.due_ms, HISTORY.c.state).where(HISTORY.c.job == job).order_by(HISTORY.c.due_ms)
    with world.engine.connect() as connection:
        return {due / 1000: state for due, state in connection.execute(query)}


def begun(world: FakeServers) -> int:
    """Return how many processes of jobs were started, by all servers, without those that only prepare a version."""
    return sum(len(server.registry.runs_of("refresh", limit=1000)) for server in [next(iter(world.by_name.values()))])


def check(world: FakeServers, *, count_min: int) -> None:
    """Check that no instant is left out and that each has begun one run."""
    found = instants(world)
    assert len(found) >= count_min
    assert {after - before for before, after in pairwise(found)} == {10.0}
    assert set(found.values()) == {"started"}
    for _ in range(8):  # what was started just now is begun in one of the next rounds
        if begun(world) != len(instants(world)):
            finish(world, 1)
    assert begun(world) == len(instants(world))


def test_of_several_servers_one_starts_what_is_due(world: FakeServers) -> None:
    world.write("refresh", settings=EVERY)
    finish(world, 65)
    check(world, count_min=5)


@pytest.mark.parametrize("role", ["starts schedules", "has the job"])
def test_what_was_missed_while_a_dead_server_was_not_known_to_be_dead_is_caught_up(
    world: FakeServers, role: str
) -> None:
    world.write("refresh", settings=EVERY)
    finish(world, 35)
    one = (world.owner_of_lease(SCHEDULES_LEASE) if role == "starts schedules" else owner(world)) or ""
    assert one in world.by_name
    del world.by_name[one]
    finish(world, 45)
    assert world.owner_of_lease(SCHEDULES_LEASE) in world.by_name
    check(world, count_min=7)


def test_a_run_that_has_ended_when_its_server_died_is_not_begun_again(world: FakeServers) -> None:
    """Its process has told how it has ended; the next server notes it, and must not go by what it has read before."""
    world.write("refresh", settings=EVERY.replace("10 s", "10 min"))
    while not world.runners():
        world.pass_time(1)
    [(name, runner)] = world.runners()
    runner.finish()
    del world.by_name[name]
    world.pass_time(60)
    found = next(iter(world.by_name.values())).registry.runs_of("refresh")
    assert [each.outcome for each in found] == ["finished"]


def owner(world: FakeServers) -> str | None:
    found = next(iter(world.by_name.values())).member.unit("refresh")
    return None if found is None else found.server


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_clock_of_the_database_that_is_set_neither_doubles_nor_delays(world: FakeServers, seconds: float) -> None:
    world.write("refresh", settings=EVERY)
    finish(world, 35)
    world.set_clock_of_database(seconds)
    before = instants(world)
    finish(world, 30)
    assert len(instants(world)) >= len(before) + 2
    check(world, count_min=5)
    # Nor does it keep the tasks of a server that dies then.
    del world.by_name[world.owner_of_lease(SCHEDULES_LEASE) or ""]
    world.set_clock_of_database(seconds)
    before = instants(world)
    finish(world, 45)
    assert len(instants(world)) >= len(before) + 3
    check(world, count_min=8)


def test_a_server_that_was_paused_starts_nothing_that_another_has_started(world: FakeServers) -> None:
    world.write("refresh", settings=EVERY)
    finish(world, 35)
    name = world.owner_of_lease(SCHEDULES_LEASE) or ""
    paused = world.by_name.pop(name)
    finish(world, 40)
    world.by_name[name] = paused
    finish(world, 40)
    check(world, count_min=9)


def test_a_job_that_rests_on_another_server_begins_anew_at_its_next_time(world: FakeServers) -> None:
    """Else it would be taken for one that is at work, for ever."""
    world.write("refresh", "fails", settings="until: end\nschedule: {every: 10 min}\n")
    world.pass_time(8)
    for _ in range(40):  # until the server that starts schedules is another one than that of the job
        if world.owner_of_lease(SCHEDULES_LEASE) != owner(world):
            break
        name = world.owner_of_lease(SCHEDULES_LEASE) or ""
        world.by_name[name].member._schedules.release()
        world.pass_time(1)
    assert world.owner_of_lease(SCHEDULES_LEASE) != owner(world)
    world.pass_time(600 + 150, step=3)
    server = world.by_name[owner(world) or ""]
    assert server.supervisor.phase("refresh") == "resting"
    failed = begun(world)
    world.pass_time(600, step=3)
    assert begun(world) > failed
    assert "skipped" not in instants(world).values()


# ------------------------------------------------------------------------------------------------- real processes


@pytest.mark.slow
def test_runs_of_real_jobs_go_on_after_kills_and_stops_of_servers_each_once(servers: SharedServers) -> None:
    """Three servers; the one that starts schedules is killed with its machine, then the next one is stopped."""
    servers.write_job("refresh")
    (servers.jobs / "job.yaml").write_text(
        "until: end\nhealth_window: 300 ms\nschedule: {every: 3 s, catch_up: all, overlap: queue}\n"
    )
    for name in ("a", "b", "c"):
        servers.add(name)
    engine = sa.create_engine(servers.url)
    store = SqlLeaseStore(engine)
    add_and_wait(servers)

    def starter() -> str:
        found = store.read(SCHEDULES_LEASE)
        return found.last_holder or "" if found is not None else ""

    first = eventually(starter, "a server starts schedules", shown=servers.logs)
    servers.by_name[first].kill_machine()
    del servers.by_name[first]
    add_and_wait(servers)
    second = eventually(lambda: (name := starter()) in servers.by_name and name, "another one does", shown=servers.logs)
    ended = servers.by_name.pop(str(second))
    assert ended.stop() == 0
    add_and_wait(servers)
    last = eventually(lambda: (name := starter()) in servers.by_name and name, "the last one does", shown=servers.logs)
    servers.by_name[str(last)].client.ask("POST", "/v1/actions", {"action": "stop", "select": "refresh"})
    eventually(lambda: settled(engine), "nothing waits any more", shown=lambda: (states(engine), servers.logs()))
    found = states(engine)
    assert len(found) >= 3  # one with each server at least
    assert {after - before for before, after in pairwise(sorted(found))} == {3000}
    assert set(found.values()) <= {"started", "skipped"}  # skipped: it was due when the job was stopped
    # Each instant that was started has one run that came to its end; the last one was perhaps stopped.
    started, finished = Counter(found.values())["started"], outcomes(engine)["finished"]
    assert started - 1 <= finished <= started, (found, outcomes(engine))
    engine.dispose()


def add_and_wait(servers: SharedServers) -> None:
    servers.add_events("refresh")
    servers.wait_for_rows()


def states(engine: sa.Engine) -> dict[int, str]:
    with engine.connect() as connection:
        return {row.due_ms: row.state for row in connection.execute(sa.select(HISTORY))}


def outcomes(engine: sa.Engine) -> Counter[str | None]:
    with engine.connect() as connection:
        return Counter(connection.execute(sa.select(runs.c.outcome)).scalars())


def settled(engine: sa.Engine) -> bool:
    return not set(states(engine).values()) & {"due", "starting"}
