"""Servers that see each other: who lives, who assigns, what a clock that is set does. The database is real, the servers' clock is not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import OptionError
from headrace_lease.sql_store import TABLE
from headrace_server.registry.database import Registry
from headrace_server.registry.engines import open_engine, sqlite_url
from headrace_server.registry.records import Desired, RunnerNote
from headrace_server.registry.shared import SharedTables, note_runner
from headrace_server.sharing.agreement import check_agreement
from headrace_server.sharing.member import Identity, Member, lease_of

DURATION = timedelta(seconds=8)


class Servers:
    """Members on one registry, whose clock is moved for all of them at once."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock(1_000_000.0)
        self.engine = open_engine(sqlite_url(root / "registry.sqlite"))
        self.registry = Registry(self.engine, self.clock)
        self.root = root
        self.by_name: dict[str, Member] = {}

    def add(self, name: str, *, data: str | None = None) -> Member:
        identity = Identity(
            name=name, url=f"http://{name}", data=data or f"data-{name}", machine=f"machine-{name}", cores=1, version="1",
            reads_jobs=True, directory=self.root / name,
        )  # fmt: skip
        made = Member(self.engine, self.clock, identity, lease_duration=DURATION)
        made.join()
        self.registry.note_server(name, pid=1, url=identity.url)
        made.describe()
        self.by_name[name] = made
        return made

    def add_jobs(self, *names: str) -> None:
        for name in names:
            self.registry.add_job(name, desired=Desired.RUNNING, labels={}, unit=name)
            self.registry.change_job(name, current_version=1)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            for member in self.by_name.values():
                member.look(self.registry.jobs())
            self.clock.advance(1.0)

    def set_clock_of_database(self, seconds: float) -> None:
        """Set the clock of the database forward or back: all that it has stored is so much older or newer then."""
        moved = TABLE.c.expires_at_ms - int(seconds * 1000)
        with self.engine.begin() as transaction:
            transaction.execute(sa.update(TABLE).where(TABLE.c.expires_at_ms > 0).values(expires_at_ms=moved))

    def owned(self) -> dict[str, set[str]]:
        return {name: set(member.owned()) for name, member in self.by_name.items()}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    yield made
    made.engine.dispose()


def test_units_go_to_servers_that_live_and_move_from_one_that_is_silent(servers: Servers) -> None:
    servers.add("a")
    servers.add("b")
    servers.add_jobs("one", "two", "three", "four")
    servers.pass_time(4)
    assert sorted(map(len, servers.owned().values())) == [2, 2]
    silent = servers.by_name.pop("a")
    servers.pass_time(7)
    assert len(servers.by_name["b"].owned()) == 2
    servers.pass_time(5)
    assert len(servers.by_name["b"].owned()) == 4
    servers.by_name["a"] = silent  # it was paused, and gets its share
    servers.pass_time(12)
    assert sorted(map(len, servers.owned().values())) == [2, 2]


def test_a_unit_that_was_moved_for_balance_is_not_moved_again_within_a_minute_unless_its_server_goes(
    servers: Servers,
) -> None:
    servers.add("a")
    servers.add_jobs("one", "two")
    servers.pass_time(4)
    owned = []
    for name in ("b", "c", "d"):
        servers.add(name)
        servers.pass_time(4)
        owned.append(servers.owned()[name])
        if name != "d":
            servers.by_name.pop(name)
            servers.pass_time(12)
            assert servers.owned() == {"a": {"one", "two"}}  # what was moved a moment ago too, as its server has gone
    assert [len(each) for each in owned] == [1, 1, 0]
    assert owned[0] != owned[1]
    servers.pass_time(60)
    assert [len(each) for each in servers.owned().values()] == [1, 1]


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_clock_of_the_database_that_is_set_moves_nothing(servers: Servers, seconds: float) -> None:
    servers.add("a")
    servers.add("b")
    servers.add_jobs("one", "two")
    servers.pass_time(4)
    before = servers.owned()
    taken = servers.by_name["a"].obtain(next(iter(before["a"])))
    assert taken is not None
    servers.set_clock_of_database(seconds)
    for _ in range(3):
        servers.pass_time(2)
        assert servers.owned() == before


def test_the_lease_of_a_unit_is_taken_only_when_it_is_free_or_its_holder_is_silent(servers: Servers) -> None:
    a, b = servers.add("a"), servers.add("b")
    servers.add_jobs("one")
    servers.pass_time(4)
    owner, other = (a, b) if a.owned() else (b, a)
    assert other.obtain("one") is None  # it is not its unit
    taken = owner.obtain("one")
    assert taken is not None
    assert not taken.fenced
    assert owner.obtain("one") is None  # a process may be running it
    assert owner.obtain("one", dead_token=taken.lease.token - 1) is None
    again = owner.obtain("one", dead_token=taken.lease.token)
    assert again is not None
    assert (again.lease.token, again.fenced) == (taken.lease.token + 1, False)
    # A lease that has expired by the database's clock is not free: its process may renew it in a moment.
    servers.set_clock_of_database(3600)
    servers.pass_time(1)
    assert owner.obtain("one") is None
    servers.pass_time(10)
    last = owner.obtain("one")
    assert last is not None
    assert last.fenced  # nobody knows whether its process is dead
    assert last.lease.release()
    free = owner.obtain("one")
    assert free is not None
    assert not free.fenced


def test_a_process_that_starts_may_need_longer_than_a_lease_lasts(servers: Servers) -> None:
    """On a busy machine an interpreter needs many seconds; it was killed as silent, and so was the next one."""
    a = servers.add("a")
    servers.add_jobs("one")
    servers.pass_time(3)
    taken = a.obtain("one")
    assert taken is not None
    token = taken.lease.token
    servers.pass_time(50)
    assert not a.is_silent("one", token, pid=1), "it has not begun to renew"
    servers.pass_time(15)
    assert a.is_silent("one", token, pid=1), "it does not begin at all"
    again = a.obtain("one")
    assert again is not None
    note = RunnerNote(
        server="a", machine="machine-a", pid=1, generation="1", specification="", socket="", token=again.lease.token
    )
    with servers.engine.begin() as transaction:
        note_runner(transaction, "one", note)
    servers.pass_time(7)
    assert not a.is_silent("one", again.lease.token, pid=1)
    servers.pass_time(5)
    assert a.is_silent("one", again.lease.token, pid=1), "it held its lease, and renews it no more"


def test_a_unit_that_is_pinned_waits_for_its_server_and_says_why(servers: Servers) -> None:
    a = servers.add("a")
    servers.add_jobs("one")
    servers.pass_time(3)
    a.pin("one")
    b = servers.add("b")
    servers.by_name.pop("a")
    servers.pass_time(14)
    assert b.owned() == frozenset()
    assert "its state lies on the local disk of the server 'a', which does not run" in b.why_without_server("one")
    assert not b.is_leased("one")
    servers.add("a2", data="data-a")  # another name, the same data directory
    servers.pass_time(4)
    assert servers.by_name["a2"].owned() == {"one"}


def test_a_server_that_drains_gives_its_units_away_and_one_that_restarts_keeps_them(servers: Servers) -> None:
    a, b = servers.add("a"), servers.add("b")
    servers.add_jobs("one", "two")
    servers.pass_time(4)
    a.drain()
    servers.pass_time(3)
    assert (a.owned(), len(b.owned())) == (frozenset(), 2)
    b.leave(restarts=True)
    del servers.by_name["b"]
    servers.pass_time(20)
    assert a.owned() == frozenset()
    a.describe()
    servers.pass_time(20)
    assert len(a.owned()) == 1  # balance; the other one waits for its server
    servers.pass_time(60)
    assert len(a.owned()) == 2


def test_a_second_server_of_the_same_name_is_refused_unless_it_has_the_data_of_the_first(servers: Servers) -> None:
    servers.add("a")
    with pytest.raises(OptionError, match="a server with the name 'a' already uses"):
        _join_while_the_first_lives(servers)
    again = servers.add("a", data="data-a")  # its data directory is locked by one process: the first one is dead
    assert again.is_live("a") or again.has_looked is False


def _join_while_the_first_lives(servers: Servers) -> None:
    first = servers.by_name["a"]

    class Renewing(ManualClock):
        """While the second server waits, the first one goes on."""

        def wait(self, event: object, seconds: float) -> bool:
            servers.clock.advance(seconds)
            first.look([])
            return False

        def monotonic(self) -> float:
            return servers.clock.monotonic()

    identity = Identity(
        name="a", url="http://a", data="other", machine="other", cores=1, version="1", reads_jobs=True,
        directory=servers.root / "other",
    )  # fmt: skip
    Member(servers.engine, Renewing(), identity, lease_duration=DURATION).join()


def test_what_servers_must_have_in_common_is_compared(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = SharedTables(servers.engine)

    def check(shared_id: str | None = "one", seconds: int = 8) -> None:
        check_agreement(
            tables, servers.engine, shared=None if shared_id is None else tmp_path / shared_id, shared_id=shared_id,
            lease_duration=timedelta(seconds=seconds),
        )  # fmt: skip

    check()
    check()
    with pytest.raises(OptionError, match="is not the directory that the other servers of this registry share"):
        check("two")
    with pytest.raises(OptionError, match="this one was given none"):
        check(None)
    with pytest.raises(OptionError, match="the first server of the registry has 8 s"):
        check(seconds=9)
    with pytest.raises(OptionError, match="between 3 s and 10 min"):
        check(seconds=1)
    monkeypatch.setenv("HEADRACE_MACHINE", "another")
    with pytest.raises(OptionError, match="SQLite file that servers of another machine use"):
        check()


def test_names_of_leases_say_what_they_are() -> None:
    assert lease_of("team/orders") == "headrace/unit/team/orders"
