"""The lease of a unit, held by the process that runs it: it renews the lease, and ends itself when that is not possible any more."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec
from headrace.foundation.clock import Clock
from headrace.foundation.errors import HeadraceError
from headrace_lease import Lease, LeaseLostError, SqlLeaseStore
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from headrace_server.registry.engines import make_engine
from headrace_server.registry.records import RunnerNote
from headrace_server.registry.shared import note_outcomes, note_runner, server_of
from headrace_server.runner.specification import RunnerSpecification

logger = logging.getLogger(__name__)
_RENEWALS_PER_DURATION = 8
_RETRY_SECONDS = 0.5
_LOOK_SECONDS = 0.2
#: Parts of the duration without a renewal after which the jobs are stopped, and the process ends whatever they do. Others wait for the
#: whole duration.
_STOP_AT, _END_AT = 0.7, 0.95
#: How long the jobs go on after another server was given the unit, until they stop at a checkpoint and go there. A server of this machine
#: takes the process over as it is: nothing is gained by a stop, and one that has just started on a busy machine may need long.
_ADOPTION_SECONDS, _ADOPTION_HERE_SECONDS = 2.0, 60.0


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner reaches the registry: given to it on standard input, so that neither its files nor its environment have it."""

    url: str
    server: str
    machine: str
    duration_seconds: float
    #: The token of the lease, for a runner that does not wait for ``go``.
    token: int | None = None


class BootClock:
    """The machine's clock, with a monotonic time that also counts while the machine sleeps."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(max(0.0, seconds))


class UnitLease:
    """Keeps the lease of a runner's unit. ``begin`` is called before a job is started; ``end`` when all have ended.

    ``stop`` asks the runner to stop its jobs at a checkpoint. ``die`` ends the process at once: it must not return.
    """

    def __init__(
        self, access: Access, specification: RunnerSpecification, file: str, *, stop: Callable[[], None],
        clock: Clock | None = None, die: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._access = access
        self._unit = specification.unit
        self._clock: Clock = clock or BootClock()
        self._stop = stop
        self._die = die or _end_at_once
        self._duration = timedelta(seconds=access.duration_seconds)
        # A hung server must not keep the thread that renews for longer than the lease lasts.
        self._engine: Engine = make_engine(access.url, answer_timeout_seconds=max(2, int(access.duration_seconds / 2)))
        self._store = SqlLeaseStore(self._engine)
        self._note = RunnerNote(
            server=access.server, machine=access.machine, pid=os.getpid(), generation=specification.generation,
            specification=file, socket=specification.socket, token=0,
        )  # fmt: skip
        self._server = access.server
        #: The token that the registry has of this process: others know it by that.
        self._told: int | None = None
        self._lease: Lease | None = None
        self._held_until = float("-inf")
        #: Since when another server has the unit, and how long it may take until it takes this process over.
        self._wanted_elsewhere: tuple[float, float] | None = None
        self._ended = threading.Event()
        self._stop_asked = False
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def begin(self, token: int) -> None:
        """Hold the lease that the server has taken for this process. Raises LeaseLostError if another has it by now."""
        name = f"headrace/unit/{self._unit}"
        sent = self._clock.monotonic()
        lease = Lease(self._store, name, self._access.server, token, self._duration)
        try:
            lease.renew()
        except LeaseLostError:
            lease = self._continued(lease)
        self._lease, self._held_until = lease, sent + self._duration.total_seconds()
        self._tell(lease)
        for work, thread_name in ((self._keep, "lease"), (self._watch, "lease watch")):
            thread = threading.Thread(target=work, name=thread_name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def adopt(self, server: str) -> None:
        """Note that another server on this machine looks after this process."""
        with self._lock:
            self._server, self._wanted_elsewhere = server, None
        lease = self._lease
        if lease is not None:
            self._note = msgspec.structs.replace(self._note, server=server)
            self._tell(lease)

    def end(self, outcomes: Mapping[str, tuple[str, str | None]]) -> None:
        """Release the lease, with how the jobs have ended. If the registry is away, the lease ends by itself."""
        self._ended.set()
        lease, self._lease = self._lease, None
        if lease is None:
            self._engine.dispose()
            return
        try:
            with self._engine.begin() as transaction:
                lease.guard(transaction)
                note_outcomes(transaction, self._unit, outcomes)
            lease.release()
        except (HeadraceError, SQLAlchemyError) as error:
            logger.warning("the lease could not be released, and expires by itself: %s", error)
        finally:
            self._engine.dispose()

    def wait_for_threads(self, timeout: timedelta) -> bool:
        """Wait, after ``end``, until nothing of it works any more; return whether that is so before ``timeout``. Called by tests."""
        deadline = time.monotonic() + timeout.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # -------------------------------------------------------------------------------------------------------- inside

    def _tell(self, lease: Lease) -> None:
        """Note in the registry which process has the unit."""
        self._note = msgspec.structs.replace(self._note, token=lease.token)
        with self._engine.begin() as transaction:
            lease.guard(transaction)
            note_runner(transaction, self._unit, self._note)
        self._told = lease.token

    def _continued(self, lease: Lease) -> Lease:
        """Return a new lease for one that has expired, if nobody has had it in between: then its token is the next one.

        So it is when the database's clock was set forward. Raises LeaseLostError otherwise.
        """
        token = self._store.take(lease.name, lease.holder, self._duration)
        if token != lease.token + 1:
            if token is not None:
                self._store.give_back(lease.name, token)
            raise LeaseLostError(f"the lease {lease.name!r} (token {lease.token}) was taken by another process")
        return Lease(self._store, lease.name, lease.holder, token, self._duration)

    def _keep(self) -> None:
        pause = self._duration.total_seconds() / _RENEWALS_PER_DURATION
        while not self._clock.wait(self._ended, pause):
            lease, sent = self._lease, self._clock.monotonic()
            if lease is None:
                return
            try:
                self._renew(lease)
                with self._engine.connect() as connection:
                    server, machine = server_of(connection, self._unit)
            except LeaseLostError as error:
                if not self._ended.is_set():
                    logger.critical("%s: this process is ending at once", error)
                    self._die()
                return
            except (HeadraceError, SQLAlchemyError) as error:
                logger.warning("the lease could not be renewed: %s", error)
                pause = _RETRY_SECONDS
                continue
            self._held_until = sent + self._duration.total_seconds()
            pause = self._duration.total_seconds() / _RENEWALS_PER_DURATION
            with self._lock:
                if server in (None, self._server):
                    self._wanted_elsewhere = None
                else:
                    since = sent if self._wanted_elsewhere is None else self._wanted_elsewhere[0]
                    here = machine == self._access.machine
                    self._wanted_elsewhere = (since, _ADOPTION_HERE_SECONDS if here else _ADOPTION_SECONDS)

    def _renew(self, lease: Lease) -> None:
        try:
            lease.renew()
        except LeaseLostError:
            if self._ended.is_set():
                return
            self._lease = lease = self._continued(lease)
        if self._told != lease.token:  # also if the registry was away as it was to be told
            self._tell(lease)

    def _watch(self) -> None:
        """Stop, and end, by this process's own clock: the thread that renews may hang."""
        while not self._clock.wait(self._ended, _LOOK_SECONDS):
            now, seconds = self._clock.monotonic(), self._duration.total_seconds()
            without = now - (self._held_until - seconds)
            if without >= _END_AT * seconds:
                logger.critical(
                    "the lease could not be renewed for %.1f s: this process is ending, before another begins", without
                )
                self._die()
                return
            if without >= _STOP_AT * seconds:
                self._ask_to_stop("the lease cannot be renewed: the jobs stop until the registry is back")
            with self._lock:
                wanted = self._wanted_elsewhere
            if wanted is not None and now - wanted[0] >= wanted[1]:
                self._ask_to_stop("another server has the unit now: the jobs stop at a checkpoint and go there")

    def _ask_to_stop(self, why: str) -> None:
        if not self._stop_asked:
            self._stop_asked = True
            logger.warning("%s", why)
            self._stop()


def _end_at_once() -> None:
    """End this process and those that it has started, without a chance to write anything."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(1)
