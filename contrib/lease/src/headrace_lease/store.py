"""What keeps leases: the interface for stores of other kinds than a SQL database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.foundation.errors import JobError


@dataclass(frozen=True)
class LeaseRecord:
    """What a store knows of one name at the moment when it was asked."""

    name: str
    #: The number of times that the name was taken. It never falls and never repeats.
    token: int
    #: Who has the lease; None when it is free or has expired.
    holder: str | None
    #: The time until it expires, by the store's clock; zero when nobody has it.
    time_left: timedelta
    #: Who has had it last, also after it has expired; None when it was released.
    last_holder: str | None = None
    #: Another text after each take and each renewal: a sign of life that no clock can fake. Empty: the store gives none.
    mark: str = ""


class LeaseStore(ABC):
    """Keeps leases for several processes. ``LeaseContract`` checks an implementation.

    Each method is one atomic step: of calls at the same moment one takes effect after the other. Time is the store's own, never
    the caller's. Methods raise RetriableError when the store cannot be reached; it is then unknown whether the step was done.
    Several threads may call at the same time.
    """

    @abstractmethod
    def take(self, name: str, holder: str, duration: timedelta) -> int | None:
        """Give a free or expired lease to ``holder`` and return its token, which is higher than every earlier one of the name.

        Returns None, without waiting, when somebody has the lease, also when that is ``holder``: a process that was started
        again must not share the lease with the one before it.
        """

    @abstractmethod
    def extend(self, name: str, token: int, duration: timedelta) -> bool:
        """Let the lease expire ``duration`` from now, if it is still held under ``token``. Return whether it was.

        An expired lease is not extended, even if nobody has taken it.
        """

    @abstractmethod
    def give_back(self, name: str, token: int) -> bool:
        """Free the lease if it is still held under ``token``. Return whether it was. Its token is kept."""

    @abstractmethod
    def read(self, name: str) -> LeaseRecord | None:
        """Return what is known of the name, or None if nobody ever took it."""

    def take_over(self, name: str, holder: str, duration: timedelta, seen: LeaseRecord) -> int | None:
        """Give a lease to ``holder``, also one that has not expired, if its record is still the one that was ``seen``.

        Returns the token, which is higher than every earlier one; None if the lease was renewed, released or taken since. Only a
        store that gives marks can do this. Others raise JobError.
        """
        raise JobError(f"a store of kind {type(self).__name__} does not support taking leases over")

    def guard(self, name: str, token: int, transaction: Any) -> bool:
        """Return whether the lease is held under ``token``, and keep others from taking it until ``transaction`` ends.

        Only a store that shares transactions with its users can do this. Others raise JobError: their users compare tokens
        where they write.
        """
        raise JobError(
            f"a store of kind {type(self).__name__} cannot guard a transaction",
            hint="store the token beside what you write, and refuse a write whose token is lower",
        )
