"""Histories of a lease: several processes want it, its holder is killed or paused, the store is away, and what the holder writes is fenced.

Rules: the tokens of writes never fall, though a zombie writes after it wakes up; a holder that runs learns in time that it has lost the
lease; when the faults are over, somebody has it soon.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from headrace.foundation.errors import RetriableError
from headrace_lease.errors import LeaseLostError
from headrace_lease.keeper import LeaseKeeper
from headrace_lease.leases import Leases
from headrace_lease.store import LeaseRecord, LeaseStore

from tests.simulation.entering import inside, memory
from tests.simulation.instances import Event
from tests.simulation.servers import Server
from tests.simulation.starting import Outcome
from tests.simulation.world.disk import Disk
from tests.simulation.world.scheduler import Process, World

_NAME = "job"
_DURATION = timedelta(seconds=2)
_DURATION_US = 2_000_000
_STEP_US = 50_000
#: After the last fault somebody must have the lease within this time, and a call of the store takes at most so long.
_PROGRESS_US, _CALL_US = 8_000_000, 500_000
_US = 2_000


@dataclass(frozen=True)
class LeaseHistory:
    """One history: how many processes want the lease, and what happens to them."""

    seed: int
    events: tuple[Event, ...]
    processes: int = 2
    preempt: float = 0.1
    lossy: float = 0.0
    away: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        events = ", ".join(f"{each.kind} {each.instance} at {each.us / 1e6:.2f} s" for each in self.events)
        return f"seed {self.seed}: {self.processes} processes and a lease, {events or 'nothing happens'}"


def lease_history_of(seed: int) -> LeaseHistory:
    """Return the history of a seed."""
    random = Random(f"lease {seed}")
    processes = random.choice((2, 2, 3))
    events = [
        Event(random.randrange(8_000_000), random.choice(("kill", "pause", "pause")), random.randrange(processes),
              random.choice((500_000, 1_500_000, 3_000_000, 6_000_000)))
        for _ in range(random.choice((1, 2, 3, 4)))
    ]  # fmt: skip
    begin = random.randrange(6_000_000)
    away = ((begin, begin + random.choice((500_000, 1_500_000, 4_000_000))),) if random.random() < 0.4 else ()
    return LeaseHistory(
        seed, tuple(sorted(events, key=lambda each: each.us)), processes, random.choice((0.0, 0.1, 0.3)),
        random.choice((0.0, 0.0, 0.05)), away,
    )  # fmt: skip


class Store(LeaseStore):
    """A store of leases in the world, each of whose calls is one step of its server. Its clock is the world's."""

    def __init__(self, world: World) -> None:
        self.server = Server(world, "leases")
        self._world = world
        self.token = 0
        self.holder: str | None = None
        self.expires_us = 0

    @property
    def held(self) -> bool:
        return self.holder is not None and self._world.us < self.expires_us

    def take(self, name: str, holder: str, duration: timedelta) -> int | None:
        self.server.request(f"take by {holder}", _US)
        token = None
        if not self.held:
            self.token += 1
            self.holder, self.expires_us, token = holder, self._world.us + _DURATION_US, self.token
        self.server.answer(f"take by {holder}: {token}")
        return token

    def extend(self, name: str, token: int, duration: timedelta) -> bool:
        self.server.request(f"extend {token}", _US)
        done = self.held and self.token == token
        if done:
            self.expires_us = self._world.us + _DURATION_US
        self.server.answer(f"extend {token}: {done}")
        return done

    def give_back(self, name: str, token: int) -> bool:
        self.server.request(f"give back {token}", _US)
        done = self.held and self.token == token
        if done:
            self.holder = None
        self.server.answer(f"give back {token}: {done}")
        return done

    def read(self, name: str) -> LeaseRecord | None:
        self.server.request("read", _US)
        left = timedelta(microseconds=max(0, self.expires_us - self._world.us))
        return LeaseRecord(name, self.token, self.holder if self.held else None, left)

    def guard(self, name: str, token: int, transaction: object) -> bool:
        """One step with the write that follows: the caller writes before anything else can happen."""
        self.server.request(f"guarded write {token}", _US)
        return self.held and self.token == token


def run_lease(history: LeaseHistory) -> Outcome:
    """Run a history."""
    with tempfile.TemporaryDirectory(prefix="headrace-world-", dir=memory()) as place:
        world = World(f"world {history.seed}", preempt=history.preempt, steps_max=20_000)
        run = _Run(history, world)
        with inside(world, Disk(world, place)):
            run.all()
        return Outcome(
            history, tuple(run.wrong), world.trace, run.starts, len(world.trace.events), world.us / 1e6
        )  # fmt: skip


class _Run:
    def __init__(self, history: LeaseHistory, world: World) -> None:
        self._history, self._world = history, world
        self._store = Store(world)
        self._store.server.away, self._store.server.lossy = list(history.away), history.lossy
        self._processes: list[Process | None] = [None] * history.processes
        self._written: list[int] = []
        #: Since when each token is not the valid one any more, and when somebody had the lease last.
        self._lost_us: dict[int, int] = {}
        self._held_us = 0
        self.starts = 0
        self.wrong: list[str] = []

    def all(self) -> None:
        world, events = self._world, list(self._history.events)
        quiet_us = max([each.us + each.span_us for each in events] + [end for _, end in self._history.away], default=0)
        while world.us < quiet_us + _PROGRESS_US and not self.wrong:
            while events and events[0].us <= world.us:
                self._happens(events.pop(0))
            for number, process in enumerate(self._processes):
                if process is None or process.ended:
                    if process is not None and (process.error or process.errors):
                        self.wrong.append(f"process {number} failed: {process.error or process.errors}")
                    self.starts += 1
                    self._processes[number] = world.process(f"p{number}.{self.starts}", self._want)
            if self._store.held:
                self._held_us = world.us
            elif world.us - self._held_us > _PROGRESS_US - _STEP_US and world.us > quiet_us + _DURATION_US:
                self.wrong.append(f"nobody has had the lease since {self._held_us / 1e6:.1f} s")
            world.pause(_STEP_US)
        if not self._written and not self.wrong:
            self.wrong.append("nobody has ever written")
        if self._written != sorted(self._written):
            self.wrong.append(f"a token came after a higher one: {self._written}")
        for process in self._processes:
            if process is not None:
                world.kill(process, "end")
                world.run(process)

    def _happens(self, event: Event) -> None:
        process = self._processes[event.instance]
        if process is None or process.ended:
            return
        self._world.trace.add(self._world.us, process.name, event.kind, "")
        if event.kind == "kill":
            self._world.kill(process, "kill")
        else:
            process.frozen_until_us = max(process.frozen_until_us, self._world.us + event.span_us)

    def _want(self) -> None:
        """What a process does: it waits for the lease, and works as long as it has it."""
        leases, own = Leases(self._store), self._world.current.process
        while True:
            try:
                lease = leases.acquire(_NAME, holder=own.name, duration=_DURATION)
            except RetriableError:
                lease = None
            if lease is None:
                time.sleep(0.3)
                continue
            with LeaseKeeper(lease) as keeper:
                self._work(keeper, lease.token, own)

    def _work(self, keeper: LeaseKeeper, token: int, own: Process) -> None:
        while not keeper.lost.is_set():
            try:
                keeper.lease.guard(None)
                self._written.append(token)
            except (RetriableError, LeaseLostError):
                pass
            if self._store.token == token and self._store.held:
                self._lost_us.pop(token, None)
            else:
                since = max(self._lost_us.setdefault(token, self._world.us), own.frozen_until_us)
                if self._world.us - since > _DURATION_US + _CALL_US:
                    self.wrong.append(
                        f"the holder of token {token} has not learnt that it lost the lease at {since / 1e6:.2f} s"
                    )
                    return
            time.sleep(0.02)
