"""What the thread that renews a lease does when the store refuses or is away."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import RetriableError
from headrace_lease import Lease, LeaseKeeper, LeaseRecord, Leases, LeaseStore
from lease_world import LeaseDatabase

from tests.eventually import eventually

SECONDS = timedelta(seconds=9)


class Away(LeaseStore):
    """Answers nothing."""

    def take(self, name: str, holder: str, duration: timedelta) -> int | None:
        raise RetriableError("away")

    def extend(self, name: str, token: int, duration: timedelta) -> bool:
        raise RetriableError("away")

    def give_back(self, name: str, token: int) -> bool:
        raise RetriableError("away")

    def read(self, name: str) -> LeaseRecord | None:
        raise RetriableError("away")


def acquired(database: LeaseDatabase) -> Lease:
    lease = Leases(database.store()).acquire("job", holder="one", duration=SECONDS)
    assert lease is not None
    return lease


def test_a_renewed_lease_lasts_from_the_renewal(sqlite_leases: LeaseDatabase) -> None:
    lease = acquired(sqlite_leases)
    keeper = LeaseKeeper(lease)
    for _ in range(5):
        sqlite_leases.advance(timedelta(seconds=8))
        keeper.renew_once()
        assert not keeper.lost.is_set()
        assert lease.check() == SECONDS


def test_a_lease_that_somebody_else_has_is_lost(sqlite_leases: LeaseDatabase) -> None:
    keeper = LeaseKeeper(acquired(sqlite_leases))
    sqlite_leases.advance(2 * SECONDS)
    assert sqlite_leases.leases().acquire("job", holder="two", duration=SECONDS) is not None
    keeper.renew_once()
    assert keeper.lost.is_set()


def test_a_store_that_is_away_loses_the_lease_only_when_it_may_have_expired(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    keeper = LeaseKeeper(Lease(Away(), "job", "one", 1, SECONDS), clock=clock)
    with caplog.at_level(logging.WARNING, "headrace_lease"):
        clock.advance(8.9)
        keeper.renew_once()
        assert not keeper.lost.is_set()
        clock.advance(0.1)
        keeper.renew_once()
    assert keeper.lost.is_set()
    assert ["was not renewed" in caplog.text, "may have expired" in caplog.text] == [True, True]


def test_the_end_releases_the_lease(sqlite_leases: LeaseDatabase) -> None:
    with LeaseKeeper(acquired(sqlite_leases)) as keeper:
        assert not keeper.lost.is_set()
    record = sqlite_leases.leases().read("job")
    assert record is not None
    assert record.holder is None


def test_the_thread_renews_by_the_clock_and_ends_when_the_lease_is_lost(sqlite_leases: LeaseDatabase) -> None:
    """A manual clock does not wait: the thread renews as fast as it can until somebody takes the lease."""
    lease = acquired(sqlite_leases)
    with LeaseKeeper(lease, clock=ManualClock()) as keeper:
        sqlite_leases.store().give_back("job", lease.token)
        eventually(keeper.lost.is_set, "the lease is lost")


def test_a_store_that_is_away_at_the_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    keeper = LeaseKeeper(Lease(Away(), "job", "one", 1, timedelta(hours=1)))
    keeper.start()
    keeper.stop()
    assert "expires by itself" in caplog.text
