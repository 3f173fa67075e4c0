"""A database with leases, whose clock is a row that tests move; also for processes that tests kill and pause."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any, cast

import sqlalchemy as sa
from headrace.foundation.errors import RetriableError
from headrace_lease import LeaseLostError, Leases, SqlLeaseStore, limit_idle_transactions

tables = sa.MetaData()
CLOCK = sa.Table("test_clock", tables, sa.Column("milliseconds", sa.BigInteger, nullable=False), mysql_engine="InnoDB")
#: What holders of the lease write, in transactions under their guard.
WORK = sa.Table(
    "test_work",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.String(50), nullable=False),
    mysql_engine="InnoDB",
)
CLOCK_OF_TABLE = cast("sa.ColumnElement[int]", sa.select(CLOCK.c.milliseconds).scalar_subquery())


class LeaseDatabase:
    """One database; ``store`` gives another store over it each time, as other processes have."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engines: list[sa.Engine] = []
        self.engine = self.new_engine()
        self.impatient = self.impatient_engine()
        SqlLeaseStore(self.engine).create_table()
        tables.create_all(self.engine)
        with self.engine.begin() as transaction:
            transaction.execute(sa.insert(CLOCK).values(milliseconds=1_000_000))

    def new_engine(self, **options: Any) -> sa.Engine:
        self.engines.append(sa.create_engine(self.url, **options))
        return self.engines[-1]

    def impatient_engine(self) -> sa.Engine:
        """An engine whose statements fail soon when they meet a lock."""
        if self.url.startswith("sqlite"):
            return self.new_engine(connect_args={"timeout": 0})
        if self.url.startswith("mysql"):
            return self.new_engine(connect_args={"init_command": "SET innodb_lock_wait_timeout = 1"})
        return self.new_engine(connect_args={"options": "-c lock_timeout=100"})

    def store(self, engine: sa.Engine | None = None) -> SqlLeaseStore:
        return SqlLeaseStore(engine or self.new_engine(), clock=CLOCK_OF_TABLE)

    def leases(self) -> Leases:
        return Leases(self.store())

    def advance(self, duration: timedelta, connection: sa.Connection | None = None) -> None:
        moved = sa.update(CLOCK).values(milliseconds=CLOCK.c.milliseconds + duration // timedelta(milliseconds=1))
        if connection is not None:
            connection.execute(moved)
            return
        with self.engine.begin() as transaction:
            transaction.execute(moved)

    def work(self) -> list[tuple[int, int, str]]:
        with self.engine.connect() as connection:
            rows = connection.execute(sa.select(WORK).order_by(WORK.c.number))
            return [(row.number, row.token, row.holder) for row in rows]

    def close(self) -> None:
        for engine in self.engines:
            engine.dispose()


def do_work(transaction: sa.Connection, token: int, holder: str) -> None:
    """Append a row whose number is one above the last: what two holders at once would spoil."""
    number = transaction.execute(sa.select(sa.func.coalesce(sa.func.max(WORK.c.number), 0))).scalar_one() + 1
    transaction.execute(sa.insert(WORK).values(number=number, token=token, holder=holder))


def tell(*words: object) -> None:
    """Give a line to the test that started this process."""
    print(*words, flush=True)


def work_step_by_step(store: SqlLeaseStore, holder: str) -> None:
    """Acquire, then do what each line of the input says: so that the test pauses this process where it wants."""
    lease = Leases(store).acquire("work", holder=holder, duration=timedelta(seconds=10))
    if lease is None:
        tell("refused")
        return
    tell("acquired", lease.token)
    for line in sys.stdin:
        try:
            if line.strip() == "check":
                tell("checked", lease.check())
            elif line.strip() == "renew":
                lease.renew()
                tell("renewed")
            else:
                with store.engine.begin() as transaction:
                    lease.guard(transaction)
                    do_work(transaction, lease.token, holder)
                tell("worked")
        except LeaseLostError as error:
            tell("lost", str(error).replace("\n", " "))


def stop_in_transaction(store: SqlLeaseStore, holder: str) -> None:
    """Acquire, guard a transaction, and stop in it as a pause of the machine would; then try to commit."""
    limit_idle_transactions(store.engine, timedelta(seconds=1))
    lease = Leases(store).acquire("work", holder=holder, duration=timedelta(milliseconds=300))
    assert lease is not None
    try:
        with store.engine.begin() as transaction:
            lease.guard(transaction)
            do_work(transaction, lease.token, holder)
            tell("guarded")
            os.kill(os.getpid(), signal.SIGSTOP)
        tell("committed")
    except sa.exc.DBAPIError as error:
        tell("rolled-back", type(error).__name__)


def work_until_killed(store: SqlLeaseStore, holder: str) -> None:
    """Take the lease whenever it is free, by the database's real clock, and work under its guard."""
    leases = Leases(store)
    while True:
        try:
            lease = leases.acquire("work", holder=holder, duration=timedelta(milliseconds=300))
            while lease is not None:
                lease.renew()
                with store.engine.begin() as transaction:
                    lease.guard(transaction)
                    do_work(transaction, lease.token, holder)
                time.sleep(0.002)  # lets others have the processor and SQLite's file
        except (LeaseLostError, RetriableError, sa.exc.OperationalError):
            lease = None
        time.sleep(0.005)


def main(mode: str, url: str, holder: str) -> None:
    engine = sa.create_engine(url)
    if mode == "steps":
        work_step_by_step(SqlLeaseStore(engine, clock=CLOCK_OF_TABLE), holder)
    elif mode == "stop in transaction":
        stop_in_transaction(SqlLeaseStore(engine), holder)
    else:
        work_until_killed(SqlLeaseStore(engine), holder)
    engine.dispose()


if __name__ == "__main__":
    main(*sys.argv[1:])
