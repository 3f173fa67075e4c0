"""A server's database, a clock, and jobs that note when they were started; also as a process that is killed on the way."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import sqlalchemy as sa
from headrace.foundation.clock import ManualClock
from headrace_lease import Leases, SqlLeaseStore
from headrace_server.schedules import Scheduler, ScheduleSettings, metadata

BEGIN = datetime(2026, 3, 2, 10, 0, 30, tzinfo=UTC)
JOB = "team/orders"
tables = sa.MetaData()
CLOCK = sa.Table("test_clock", tables, sa.Column("milliseconds", sa.BigInteger, nullable=False))
RUNS = sa.Table(
    "test_runs",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("job", sa.String(100), nullable=False),
    sa.Column("scheduled_for", sa.String(40), nullable=False),
    sa.Column("server", sa.String(40), nullable=False),
    sa.UniqueConstraint("job", "scheduled_for"),
)


class NotingStarter:
    """Starts runs as the server does: a row with a unique key first."""

    def __init__(self, engine: sa.Engine, server: str, kill_at: str = "") -> None:
        self.engine = engine
        self.server = server
        self.kill_at = kill_at
        self.running: set[str] = set()
        self.stopped: list[str] = []
        self.error: Exception | None = None
        self.calls = 0

    def start_job(self, name: str, scheduled_for: datetime) -> str:
        self.calls += 1
        self.reach("before")
        if self.error is not None:
            raise self.error
        key = {"job": name, "scheduled_for": scheduled_for.isoformat()}
        try:
            with self.engine.begin() as transaction:
                transaction.execute(sa.insert(RUNS).values(**key, server=self.server))
                self.running.add(name)
        except sa.exc.IntegrityError:
            pass  # the run is there: this is the second call
        self.reach("after")
        with self.engine.connect() as connection:
            found = sa.select(RUNS.c.id).where(RUNS.c.job == name, RUNS.c.scheduled_for == key["scheduled_for"])
            return str(connection.execute(found).scalar_one())

    def reach(self, point: str) -> None:
        if self.kill_at == point:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kill_at == f"pause {point}":
            print("paused", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)

    def stop_job(self, name: str) -> None:
        self.stopped.append(name)

    def is_running(self, name: str) -> bool:
        return name in self.running


class ScheduleWorld:
    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock(BEGIN.timestamp())
        self.engine = sa.create_engine(url)
        lease_clock = cast("sa.ColumnElement[int]", sa.select(CLOCK.c.milliseconds).scalar_subquery())
        self.store = SqlLeaseStore(self.engine, clock=lease_clock)
        self.store.create_table()
        metadata.create_all(self.engine)
        tables.create_all(self.engine)
        with self.engine.begin() as transaction:
            if not transaction.execute(sa.select(CLOCK)).all():
                transaction.execute(sa.insert(CLOCK).values(milliseconds=1_000_000))
        self.starter = NotingStarter(self.engine, "one")
        self.scheduler = self.server("one", self.starter)

    def server(self, name: str, starter: NotingStarter) -> Scheduler:
        return Scheduler(self.engine, Leases(self.store), self.clock, starter, server=name)

    def pass_time(self, duration: timedelta, *, leases_too: bool = False) -> None:
        self.clock.advance(duration.total_seconds())
        if leases_too:
            with self.engine.begin() as transaction:
                later = CLOCK.c.milliseconds + duration // timedelta(milliseconds=1)
                transaction.execute(sa.update(CLOCK).values(milliseconds=later))

    def run_for(self, duration: timedelta, step: timedelta, **schedule: Any) -> None:
        """Tick every ``step``; each run ends before the next tick."""
        settings = {JOB: ScheduleSettings.of(schedule)}
        for _ in range(duration // step):
            self.pass_time(step)
            assert self.scheduler.tick(settings)
            self.starter.running.clear()

    def tick(self, **schedule: Any) -> bool:
        return self.scheduler.tick({JOB: ScheduleSettings.of(schedule)})

    def runs(self) -> list[str]:
        with self.engine.connect() as connection:
            rows = connection.execute(sa.select(RUNS.c.scheduled_for).order_by(RUNS.c.id)).scalars()
            return [datetime.fromisoformat(each).strftime("%d %H:%M") for each in rows]

    def states(self) -> list[tuple[str, str]]:
        return [(each.due.strftime("%d %H:%M"), str(each.state)) for each in reversed(self.scheduler.history())]

    def close(self) -> None:
        self.engine.dispose()


def main(url: str, kill_at: str, seconds_later: str) -> None:
    """A server that ticks once, at a given time, and meets its fate on the way."""
    world = ScheduleWorld(url)
    world.clock.advance(float(seconds_later))
    scheduler = world.server("other", NotingStarter(world.engine, "other", kill_at))
    print("ticked", scheduler.tick({JOB: ScheduleSettings.of({"every": "15 min"})}), flush=True)
    world.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
