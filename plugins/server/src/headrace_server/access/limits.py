"""How much somebody may ask for: requests, logins that fail, bodies."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

from headrace.foundation.clock import Clock

from headrace_server.access.errors import AccessDeniedError

#: Callers that are remembered; the one that was quiet for longest is forgotten first.
_CALLERS_MAX = 10_000


@dataclass(frozen=True)
class Limits:
    """The limits of one server."""

    #: Requests of one address in a second, on average, and how many may come at once.
    requests_per_second: float = 200.0
    requests_at_once: int = 400
    #: Bytes of a request's body, also of one that does not say its length. The largest are files of rules.
    body_bytes_max: int = 32 * 1024 * 1024
    #: How long a body may take to arrive.
    body_time_max: timedelta = timedelta(seconds=60)


class RequestRate:
    """A bucket of tokens for each caller."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Count a request. Raises AccessDeniedError with status 429 when the caller sends too many."""
        now = self._clock.monotonic()
        full = float(self._limits.requests_at_once)
        left, at = self._buckets.pop(caller, (full, now))
        left = min(full, left + (now - at) * self._limits.requests_per_second)
        self._buckets[caller] = (max(0.0, left - 1), now)
        while len(self._buckets) > _CALLERS_MAX:
            self._buckets.popitem(last=False)
        if left < 1:
            raise AccessDeniedError(429, "too many requests", retry_after_seconds=1)


class FailedLogins:
    """Slows down password guessing: after some failures a name or an address must wait, twice as long each time.

    A guesser can so keep a user from logging in with a password, for up to 15 minutes at a time. Tokens and sessions are not held up.
    """

    _FREE = 5
    _WAIT_MAX_SECONDS = 900.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Failures, and when the next try is allowed.
        self._failures: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def attempt(self, name: str | None, address: str) -> None:
        """Count a try as failed, before the password is looked at: else many tries at once would all be the first.

        ``name`` is None for a login by token, which has none: its tries count for the address.
        Raises AccessDeniedError with status 429, and counts nothing, while the name or the address must wait.
        """
        now = self._clock.monotonic()
        with self._lock:
            keys = self._keys(name, address)
            wait = max(self._failures.get(key, (0, now))[1] for key in keys) - now
            if wait > 0:
                raise AccessDeniedError(429, "too many failed logins", retry_after_seconds=int(wait) + 1)
            for key in keys:
                count, until = self._failures.pop(key, (0, now))
                count = 1 if now - until > self._WAIT_MAX_SECONDS else count + 1
                # 2 ** 10 is more than the longest wait. A power of thousands of failures would be no number any more.
                pause = 0.0 if count < self._FREE else min(self._WAIT_MAX_SECONDS, 2.0 ** min(10, count - self._FREE))
                self._failures[key] = (count, now + pause)
            while len(self._failures) > _CALLERS_MAX:
                self._failures.popitem(last=False)

    def succeeded(self, name: str | None, address: str) -> None:
        """The password was right. The failures of its name are forgotten; of those of the address only this try.

        Else somebody with an account of his own could guess the passwords of others without end.
        """
        *of_name, of_address = self._keys(name, address)
        with self._lock:
            for key in of_name:
                self._failures.pop(key, None)
            count, _ = self._failures.pop(of_address, (1, 0.0))
            if count > 1:
                self._failures[of_address] = (count - 1, self._clock.monotonic())

    @staticmethod
    def _keys(name: str | None, address: str) -> list[tuple[str, str]]:
        of_name = [] if name is None else [("name", name[:100])]
        return [*of_name, ("address", address)]
