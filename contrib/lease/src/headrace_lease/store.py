"""The interface of lease stores, for stores other than an SQL database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.foundation.errors import JobError


@dataclass(frozen=True)
class LeaseRecord:
    """The state of one name in a store, at the time of the request."""

    name: str
    #: How often the name was acquired. It never decreases and never repeats.
    token: int
    #: Who has the lease; None when it is free or has expired.
    holder: str | None
    #: The time until it expires, by the store's clock; zero when nobody has it.
    time_left: timedelta
    #: The last holder, also after the lease has expired; None if the lease was released.
    last_holder: str | None = None
    #: A text that changes with each acquisition and each renewal: a sign of life that does not depend on a clock.
    #: Empty: the store has no marks.
    mark: str = ""


class LeaseStore(ABC):
    """Keeps leases for several processes. ``LeaseContract`` checks an implementation.

    Each method is atomic: simultaneous calls take effect one after the other. Times are measured by the store's clock,
    never by the caller's. Methods raise RetriableError when the store cannot be reached; it is then unknown whether the
    step was done. Several threads may call at the same time.
    """

    @abstractmethod
    def take(self, name: str, holder: str, duration: timedelta) -> int | None:
        """Give a free or expired lease to ``holder`` and return its token, which is higher than all earlier tokens of
        the name.

        Returns None, without waiting, if somebody has the lease, even if it is ``holder``: a restarted process
        must not share the lease with its predecessor.
        """

    @abstractmethod
    def extend(self, name: str, token: int, duration: timedelta) -> bool:
        """Extend the lease to ``duration`` from now, if it is still held under ``token``. Return whether it was held.

        An expired lease is not extended, even if nobody has taken it.
        """

    @abstractmethod
    def give_back(self, name: str, token: int) -> bool:
        """Free the lease if it is still held under ``token``. Return whether it was held. The token stays stored."""

    @abstractmethod
    def read(self, name: str) -> LeaseRecord | None:
        """Return the record of the name, or None if nobody ever acquired it."""

    def take_over(self, name: str, holder: str, duration: timedelta, seen: LeaseRecord) -> int | None:
        """Give a lease to ``holder``, even if it has not expired, if its record is still ``seen``.

        Returns the token, which is higher than all earlier ones; None if the lease was renewed, released or acquired
        since then. Only a store with marks can do this. Other stores raise JobError.
        """
        raise JobError(f"a store of kind {type(self).__name__} does not support taking leases over")

    def guard(self, name: str, token: int, transaction: Any) -> bool:
        """Return whether the lease is held under ``token``, and prevent others from acquiring it until ``transaction``
        ends.

        Only a store that shares transactions with its users can do this. Other stores raise JobError; their users must
        compare tokens in the resource to which they write.
        """
        raise JobError(
            f"a store of kind {type(self).__name__} cannot guard a transaction",
            hint="store the token beside what you write, and refuse a write whose token is lower",
        )
