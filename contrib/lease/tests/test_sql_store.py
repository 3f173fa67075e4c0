"""Leases in SQL databases keep the contract, and what is special about SQL."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from headrace.foundation.errors import JobError, OptionError, RetriableError
from headrace_lease import LeaseLostError, LeaseRecord, Leases, SqlLeaseStore
from headrace_lease.contract import LeaseContract
from lease_world import LeaseDatabase, do_work

SECONDS = timedelta(seconds=10)


class SqlContract(LeaseContract):
    """Over a database whose clock is a table."""

    database: LeaseDatabase

    def make_store(self) -> SqlLeaseStore:
        return self.database.store()

    def advance(self, duration: timedelta) -> None:
        self.database.advance(duration)

    def open_transaction(self) -> AbstractContextManager[sa.Connection]:
        return self.database.engine.begin()


class TestSQLite(SqlContract):
    @pytest.fixture(autouse=True)
    def _database(self, sqlite_leases: LeaseDatabase) -> None:
        self.database = sqlite_leases

    def advance_under_guard(self, transaction: Any, duration: timedelta) -> None:
        self.database.advance(duration, transaction)  # SQLite has one writer at a time


@pytest.mark.servers
class TestMySQL(SqlContract):
    @pytest.fixture(autouse=True)
    def _database(self, mysql_leases: LeaseDatabase) -> None:
        self.database = mysql_leases


@pytest.mark.servers
class TestPostgreSQL(SqlContract):
    @pytest.fixture(autouse=True)
    def _database(self, postgresql_leases: LeaseDatabase) -> None:
        self.database = postgresql_leases


def test_the_databases_own_clock_is_near_that_of_this_machine(database: LeaseDatabase) -> None:
    """The servers of the tests run here; an hour or a factor of 1000 between the clocks is an error of the expression."""
    from headrace.foundation.clock import SystemClock
    from headrace_lease.database_clock import DatabaseMilliseconds

    with database.engine.connect() as connection:
        for zone in ("+05:30", "America/New_York"):
            if connection.dialect.name == "mysql" and zone[0] == "+":
                connection.execute(sa.text(f"SET time_zone = '{zone}'"))
            elif connection.dialect.name == "postgresql":
                connection.execute(sa.text(f"SET TIME ZONE '{zone}'"))
            found = connection.execute(sa.select(DatabaseMilliseconds())).scalar_one()
            assert isinstance(found, int)
            assert abs(found / 1000 - SystemClock().now()) < 600


def test_leases_work_by_the_databases_own_clock(database: LeaseDatabase) -> None:
    leases = Leases(SqlLeaseStore(database.engine))
    lease = leases.acquire("job", holder="one", duration=timedelta(hours=1))
    assert lease is not None
    assert leases.acquire("job", holder="two", duration=SECONDS) is None
    assert timedelta(minutes=50) < lease.check() <= timedelta(hours=1)
    lease.renew()
    assert lease.release()
    with pytest.raises(
        LeaseLostError, match=r"'one' has lost the lease 'job' \(token 1\): it was not renewed in time, or it"
    ):
        lease.check()


def test_a_guarded_transaction_makes_others_wait_and_lets_the_holders_own_in(database: LeaseDatabase) -> None:
    lease = database.leases().acquire("job", holder="one", duration=SECONDS)
    assert lease is not None
    impatient = database.store(database.impatient)
    with database.engine.begin() as transaction:
        lease.guard(transaction)
        for change in (partial(impatient.extend, "job", 1, SECONDS), partial(impatient.give_back, "job", 1)):
            with pytest.raises(RetriableError, match="not available or busy"):
                change()
        if database.engine.dialect.name != "sqlite":  # it has one writer at a time
            with impatient.engine.begin() as second:
                assert impatient.guard("job", 1, second)
    assert impatient.extend("job", 1, SECONDS)


def test_a_lost_lease_undoes_the_transaction(database: LeaseDatabase) -> None:
    lease = database.leases().acquire("job", holder="one", duration=SECONDS)
    assert lease is not None
    database.advance(2 * SECONDS)
    assert database.leases().acquire("job", holder="two", duration=SECONDS) is not None

    def work_too_late() -> None:
        with database.engine.begin() as transaction:
            do_work(transaction, lease.token, "one")
            lease.guard(transaction)

    with pytest.raises(LeaseLostError, match="it was taken under token 2; now 'two' has it"):
        work_too_late()
    assert database.work() == []


def test_a_connection_that_commits_each_statement_cannot_be_guarded(database: LeaseDatabase) -> None:
    lease = database.leases().acquire("job", holder="one", duration=SECONDS)
    assert lease is not None
    loose = database.new_engine(isolation_level="AUTOCOMMIT")
    with loose.connect() as connection, pytest.raises(JobError, match="in AUTOCOMMIT mode"):
        lease.guard(connection)
    with pytest.raises(JobError, match=r"guards a sqlalchemy.Connection, not a str"):
        lease.guard("transaction")


def test_a_missing_table_says_how_to_make_it(database: LeaseDatabase) -> None:
    with database.engine.begin() as transaction:
        transaction.execute(sa.text("DROP TABLE headrace_leases"))
    with pytest.raises(JobError, match="cannot be used") as caught:
        database.leases().acquire("job", holder="one", duration=SECONDS)
    assert "create_table()" in str(caught.value.hint)


def test_a_table_that_was_emptied_or_put_back_loses_the_lease(database: LeaseDatabase) -> None:
    lease = database.leases().acquire("job", holder="one", duration=SECONDS)
    assert lease is not None
    for statement, reason in (
        ("UPDATE headrace_leases SET token = 0", "does not know it"),
        ("DELETE FROM headrace_leases", "does not know it"),
    ):
        with database.engine.begin() as transaction:
            transaction.execute(sa.text(statement))
        for call in (lease.renew, lease.check):
            with pytest.raises(LeaseLostError, match=reason):
                call()


def test_an_address_without_a_database_is_refused_without_its_password(tmp_path: Path) -> None:
    for url in ("oddbase://user:hush@host/x", "hush", "sqlite+odd:///hush"):
        with pytest.raises(OptionError, match="no database can be reached") as caught:
            Leases.at(url)
        assert "hush" not in str(caught.value)
        assert caught.value.__cause__ is None
    with pytest.raises(RetriableError, match="not available or busy"):
        Leases.at(f"sqlite:///{tmp_path}/none/leases.sqlite")
    with pytest.raises(OptionError, match="of kind 'other'"):
        SqlLeaseStore(_engine_of_other_kind())


def _engine_of_other_kind() -> sa.Engine:
    engine = sa.create_engine("sqlite://")
    engine.dialect.name = "other"
    return engine


@pytest.mark.parametrize("text", ["", " a", "a ", "a\nb", "a\x00b", "x" * 256])
def test_names_that_databases_would_change_are_refused(sqlite_leases: LeaseDatabase, text: str) -> None:
    leases = sqlite_leases.leases()
    for name, holder in ((text, "one"), ("job", text)):
        with pytest.raises(OptionError, match="printable characters"):
            leases.acquire(name, holder=holder, duration=SECONDS)


@pytest.mark.parametrize("duration", [timedelta(0), timedelta(milliseconds=99), timedelta(days=2), -SECONDS])
def test_durations_out_of_bounds_are_refused(sqlite_leases: LeaseDatabase, duration: timedelta) -> None:
    with pytest.raises(OptionError, match="cannot have the duration"):
        sqlite_leases.leases().acquire("job", holder="one", duration=duration)


def test_marks_change_with_each_sign_of_life_and_a_lease_without_one_is_taken_over(database: LeaseDatabase) -> None:
    leases = database.leases()
    one = leases.acquire("job", holder="one", duration=timedelta(seconds=10))
    assert one is not None
    taken = _record(leases)
    assert (taken.holder, taken.last_holder) == ("one", "one")
    database.advance(timedelta(seconds=1))
    one.renew()
    renewed = _record(leases)
    assert renewed.mark != taken.mark
    # It has not expired, and was renewed since the first look.
    assert leases.take_over(taken, holder="two", duration=timedelta(seconds=10)) is None
    two = leases.take_over(renewed, holder="two", duration=timedelta(seconds=10))
    assert two is not None
    assert two.token == one.token + 1
    with pytest.raises(LeaseLostError):
        one.renew()
    two.renew()
    assert two.release()
    assert (_record(leases).holder, _record(leases).last_holder) == (None, None)


def test_an_expired_lease_shows_who_had_it_and_a_clock_that_is_set_back_does_not_keep_it(
    database: LeaseDatabase,
) -> None:
    leases = database.leases()
    assert leases.acquire("job", holder="one", duration=timedelta(seconds=10)) is not None
    database.advance(timedelta(seconds=11))
    assert (_record(leases).holder, _record(leases).last_holder) == (None, "one")
    database.advance(timedelta(hours=-2))
    assert leases.acquire("job", holder="two", duration=timedelta(seconds=10)) is None
    assert leases.take_over(_record(leases), holder="two", duration=timedelta(seconds=10)) is not None


def test_the_records_of_a_prefix(database: LeaseDatabase) -> None:
    leases = database.leases()
    for name in ("unit/b", "unit/a", "unit%/c", "units"):
        leases.acquire(name, holder="one", duration=timedelta(seconds=10))
    store = leases.store
    assert isinstance(store, SqlLeaseStore)
    assert [each.name for each in store.records("unit/")] == ["unit/a", "unit/b"]
    assert [each.name for each in store.records("unit%")] == ["unit%/c"]


def _record(leases: Leases) -> LeaseRecord:
    found = leases.read("job")
    assert found is not None
    return found
