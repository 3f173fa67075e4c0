"""Keeps a lease from expiring while its holder works."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import RetriableError

from headrace_lease.errors import LeaseLostError
from headrace_lease.leases import Lease

logger = logging.getLogger(__name__)

#: Renewals in each duration of a lease, so that two may fail before it expires.
_RENEWALS_PER_DURATION = 3


class LeaseKeeper:
    """Renews a lease in its own thread: ``with LeaseKeeper(lease) as keeper: …``. Releases it at the end.

    ``lost`` is set when the lease is lost, or when the store could not be reached for so long that the lease may have
    expired. The holder checks it between its steps. It is no proof, because a paused process sees it too late;
    ``Lease.guard`` is a proof.
    """

    def __init__(self, lease: Lease, *, clock: Clock | None = None) -> None:
        self.lease = lease
        self.lost = threading.Event()
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        #: Counted from before a request is sent: the store's duration begins later.
        self._held_until = self._clock.monotonic() + lease.duration.total_seconds()
        self._thread = threading.Thread(target=self._keep, name=f"lease {lease.name}", daemon=True)

    def start(self) -> None:
        """Begin to renew. Call it once, right after the lease was acquired."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and release the lease. If the store cannot be reached, this is logged, and the lease expires
        later.
        """
        self._stop.set()
        self._thread.join()
        if not self.lost.is_set():
            try:
                self.lease.release()
            except RetriableError as error:
                logger.warning("lease %r could not be released, and expires by itself: %s", self.lease.name, error)

    def renew_once(self) -> None:
        """Renew now, and set ``lost`` if that shows the lease to be lost. The thread calls it."""
        sent = self._clock.monotonic()
        try:
            self.lease.renew()
        except LeaseLostError as error:
            logger.error("%s", error)
            self.lost.set()
        except RetriableError as error:
            left = self._held_until - self._clock.monotonic()
            if left <= 0:
                logger.error("lease %r may have expired while its store was not available: %s", self.lease.name, error)
                self.lost.set()
            else:
                logger.warning("lease %r was not renewed, %.1f s are left: %s", self.lease.name, left, error)
        else:
            self._held_until = sent + self.lease.duration.total_seconds()

    def _keep(self) -> None:
        pause_seconds = self.lease.duration.total_seconds() / _RENEWALS_PER_DURATION
        try:
            while not self.lost.is_set() and not self._clock.wait(self._stop, pause_seconds):
                self.renew_once()
        except BaseException:
            self.lost.set()  # a holder must not continue with a lease that is no longer renewed
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
