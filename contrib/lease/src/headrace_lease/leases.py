"""The interface of leases for their users."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.foundation.errors import OptionError

from headrace_lease.errors import LeaseLostError
from headrace_lease.sql_store import SqlLeaseStore
from headrace_lease.store import LeaseRecord, LeaseStore

_NAME_LENGTH_MAX = 255
#: Shorter ones expire between two calls over a network; longer ones are locks that outlive their process.
_DURATION_MIN = timedelta(milliseconds=100)
_DURATION_MAX = timedelta(days=1)


class Leases:
    """The leases of one store. Several threads may use it."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store

    @classmethod
    def at(cls, url: str) -> Leases:
        """Return the leases in the database at an SQLAlchemy URL. Create their table if it is missing.

        Raises OptionError for an unsupported database, RetriableError if it cannot be reached.
        """
        store = SqlLeaseStore.at(url)
        store.create_table()
        return cls(store)

    def acquire(self, name: str, *, holder: str, duration: timedelta) -> Lease | None:
        """Acquire a lease, or return None without waiting if somebody has it.

        ``holder`` is only shown to people: two calls with the same holder do not share a lease. The lease
        expires after ``duration`` by the store's clock unless it is renewed. When the call raises RetriableError, the
        store may have given the lease; it then expires unused.
        """
        _check_text("name", name)
        _check_text("holder", holder)
        _check_duration(duration)
        token = self.store.take(name, holder, duration)
        return None if token is None else Lease(self.store, name, holder, token, duration)

    def take_over(self, seen: LeaseRecord, *, holder: str, duration: timedelta) -> Lease | None:
        """Take over a lease whose holder is gone, also before it expires. Return None if the holder has shown a sign of
        life since ``seen``.

        Call it if the holder is known to be dead, or if holders stop by their own clocks and ``SignsOfLife.gone``
        returns true. Unlike ``acquire`` it does not depend on the store's clock, which may have been changed. Raises
        JobError for a store without marks.
        """
        _check_text("holder", holder)
        _check_duration(duration)
        token = self.store.take_over(seen.name, holder, duration, seen)
        return None if token is None else Lease(self.store, seen.name, holder, token, duration)

    def read(self, name: str) -> LeaseRecord | None:
        """Return the record of a lease, or None if nobody ever acquired this name. It is for people, because it may
        change immediately.
        """
        _check_text("name", name)
        return self.store.read(name)


@dataclass(frozen=True)
class Lease:
    """An acquired lease. Only ``check``, ``renew`` and ``guard`` tell whether it is still held."""

    store: LeaseStore
    name: str
    holder: str
    #: Grows each time that the name is acquired. Pass it to resources that can refuse a lower token.
    token: int
    duration: timedelta

    def renew(self) -> None:
        """Extend the lease to ``duration`` from now. Raises LeaseLostError; RetriableError if the store cannot be
        reached.

        Call it several times in each ``duration``; ``LeaseKeeper`` does.
        """
        if not self.store.extend(self.name, self.token, self.duration):
            raise self._lost()

    def check(self) -> timedelta:
        """Ask the store whether the lease is held, and return the time until it expires. Raises LeaseLostError.

        It does not guarantee that the lease is still held when the caller acts, because the process may be paused in
        between. ``guard`` guarantees it, and so does a resource that compares tokens.
        """
        found = self.store.read(self.name)
        if found is None or found.token != self.token or found.holder is None:
            raise self._lost(found)
        return found.time_left

    def guard(self, transaction: Any) -> None:
        """Make sure that ``transaction`` commits only while nobody else has the lease. Raises LeaseLostError.

        Call it first in a transaction on the database of the leases (a ``sqlalchemy.Connection``): the lease cannot be
        taken, renewed or released until that transaction ends, so keep it much shorter than ``duration``. Roll back
        after the error.
        """
        if not self.store.guard(self.name, self.token, transaction):
            raise self._lost()

    def release(self) -> bool:
        """Free the lease, so that others need not wait until it expires. Return whether it was still held."""
        return self.store.give_back(self.name, self.token)

    def _lost(self, found: LeaseRecord | None = None) -> LeaseLostError:
        found = found or self.store.read(self.name)
        if found is None:
            reason = "the store does not know it: its table was emptied"
        elif found.token > self.token:
            holder = "nobody" if found.holder is None else repr(found.holder)
            reason = f"it was taken under token {found.token}; now {holder} has it"
        elif found.token < self.token:
            reason = f"the store has the lower token {found.token}: it was put back to an older state"
        else:
            reason = "it was not renewed in time, or it was released"
        return LeaseLostError(
            f"{self.holder!r} has lost the lease {self.name!r} (token {self.token}): {reason}",
            hint="stop the work that only the holder may do, and acquire the lease again",
        )


def _check_text(option: str, text: str) -> None:
    if not text or len(text) > _NAME_LENGTH_MAX or text != text.strip() or not text.isprintable():
        raise OptionError(
            f"{text[:_NAME_LENGTH_MAX]!r} is no {option} of a lease",
            option=option,
            hint=f"1 to {_NAME_LENGTH_MAX} printable characters, without spaces at the ends",
        )


def _check_duration(duration: timedelta) -> None:
    if not _DURATION_MIN <= duration <= _DURATION_MAX:
        raise OptionError(
            f"a lease cannot have the duration {duration}",
            option="duration",
            hint=f"between {_DURATION_MIN.total_seconds():g} s and {_DURATION_MAX.days} day",
        )
