"""Histories of several instances of a job, which share its queues and the shards of its state over a broker.

Instances are killed, stopped, started again, taken for dead by the broker while they live (paused: they wake up as zombies), and the
broker is away or loses answers. In the end every row must be there, once in sinks that promise it.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any
from unittest.mock import patch

import headrace as hr
from headrace.foundation.errors import JobFailedError
from headrace.interfaces.sink import SinkSettings
from headrace.interfaces.source import Source
from headrace_light.stages import shard_storage

from tests.simulation.entering import inside, memory
from tests.simulation.histories import PLACES
from tests.simulation.inputs import input_of
from tests.simulation.jobs import BEGIN, SCHEMA, SHAPES, Asked, Input, body_of, expected, make_input
from tests.simulation.jobs_beside import ALL_SHAPES, BESIDE, chosen
from tests.simulation.outputs import output_of
from tests.simulation.running import sink_options
from tests.simulation.servers import SINKS, Server, Table
from tests.simulation.starting import Outcome
from tests.simulation.state_stores import NAME, StateServer
from tests.simulation.world.disk import Disk
from tests.simulation.world.scheduler import Process, World

_real_close = os.close
_TICK_US = 100_000
#: What closes all windows: one record in every queue, behind all others. Its key is left out of what is compared.
_LAST = {"id": -1, "k": "~", "v": 0, "ts": BEGIN + timedelta(days=1)}
#: What an instance may end with while its broker or its table is away and it is to stop.
_AWAY = (
    "did not accept rows",
    "was not available",
    "cannot be written",
    "does not answer",
    "does not accept",
    "is not there",
    "was lost",
)


@dataclass(frozen=True)
class Event:
    """What happens at a moment to one of the instances.

    ``kind``: "kill", "pause" (for ``span_us``), "stop", "expel" (the broker takes its members for dead). ``place``: it happens when the
    instance passes that kind of seam for the ``count``th time from then on; None: at once.
    """

    us: int
    kind: str
    instance: int
    span_us: int = 0
    place: str | None = None
    count: int = 1


@dataclass(frozen=True)
class SharedHistory:
    """One history of ``instances``. ``back_us``: how long after its end an instance is started again."""

    seed: int
    shape: str
    sink: str
    input: Input
    options: Mapping[str, Any]
    events: tuple[Event, ...]
    instances: int = 2
    back_us: int = 500_000
    preempt: float = 0.05
    lossy: float = 0.0
    away: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    broker: str = "memory"

    def __str__(self) -> str:
        count = sum(len(records) for queues in self.input.values() for records in queues.values())
        events = ", ".join(f"{each.kind} {each.instance} at {each.us / 1e6:.2f} s" for each in self.events)
        what = f"{self.instances} instances, {self.broker}, {self.shape}, {self.sink} sink, {count} records"
        return f"seed {self.seed}: {what}, {dict(self.options)}, {events}"


def shared_history_of(seed: int) -> SharedHistory:
    """Return the history of a seed."""
    random = Random(f"instances {seed}")
    shape = chosen("instances", seed, random.choice(list(SHAPES.values())))
    sink = random.choice(("transactional", "transactional", "keyed", "plain"))
    if shape.changes and sink == "keyed":
        sink = "transactional"
    given = make_input(random, shape.sources, records_max=random.choice((3, 8, 12)), span_us=3_000_000, bad=False)
    options: dict[str, Any] = {
        "max_batch_records": random.choice((1, 3, 100)),
        "checkpoint_interval": random.choice((0.05, 0.5, 2.0)),
        "shards": random.choice((1, 2, 3)),
        "batch_size": random.choice((2, 100)),
        "flush_interval": random.choice((0.01, 0.1, 1.0)),
        "max_cached_rows": random.choice((1, 3, 100_000)),
        "session": random.choice((1.0, 3.0)),
    }
    instances = random.choice((1, 2, 2, 3))
    events = []
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        kind = random.choice(("kill", "kill", "kill", "pause", "pause", "stop", "expel"))
        place = random.choice((*PLACES, "broker", "broker", "broker.done")) if random.random() < 0.7 else None
        span_us = random.choice((500_000, 2_000_000, 8_000_000))
        events.append(
            Event(
                random.randrange(4_000_000),
                kind,
                random.randrange(instances),
                span_us,
                place,
                random.choice((1, 1, 2, 3, 6)),
            )
        )
    away: dict[str, tuple[tuple[int, int], ...]] = {}
    for server in ("broker", "table"):
        if random.random() < 0.15:
            begin = random.randrange(3_000_000)
            away[server] = ((begin, begin + random.randrange(3_000_000)),)
    if Random(f"state {seed}").random() < 0.3:
        options["state_store"] = NAME
        if random.random() < 0.15:
            begin = random.randrange(3_000_000)
            away["state"] = ((begin, begin + random.randrange(3_000_000)),)
    return SharedHistory(
        seed, shape.name, sink, given, options, tuple(sorted(events, key=lambda each: each.us)), instances,
        back_us=random.choice((1_000, 500_000, 4_000_000)), preempt=random.choice((0.0, 0.02, 0.1)),
        lossy=random.choice((0.0, 0.0, 0.0, 0.03)), away=away,
    )  # fmt: skip


def run_shared(history: SharedHistory) -> Outcome:
    """Run a history."""
    with tempfile.TemporaryDirectory(prefix="headrace-world-", dir=memory()) as place:
        os.mkdir(disk_place := os.path.join(place, "disk"))
        world = World(f"world {history.seed}", preempt=history.preempt)
        disk = Disk(world, disk_place)
        with inside(world, disk):
            run = _Run(history, world, disk)
            with run.out.standing_in(), run._broker.standing_in(), run._state.standing_in(), run.asked():
                run.all()
        return Outcome(
            history, tuple(run.wrong), world.trace, run.starts, len(world.trace.events), world.us / 1e6
        )  # fmt: skip


class _Instance:
    """One place where an instance runs, again and again."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.handle: Any = None
        self.source: list[Source] = []
        self.stop_asked = False
        self.ended_us = 0
        #: What waits for it to pass a seam: the event, and how often it had passed it before.
        self.waiting: list[tuple[Event, int]] = []


class _Run:
    """One history while it runs. Used by the driver of its world."""

    def __init__(self, history: SharedHistory, world: World, disk: Disk) -> None:
        self._history = history
        self._shape = ALL_SHAPES[history.shape]
        self._world, self._disk = world, disk
        self._broker = input_of(history.broker, world, int(history.options["session"] * 1e6))
        world.steps_left = self._broker.steps_max
        #: Within which time all rows must be there. A minute without records passes twice: for the queues, then for what waits for more.
        self._progress_us = self._broker.progress_us
        if self._shape.idle:
            world.steps_left, self._progress_us = 2 * world.steps_left, self._progress_us + 150_000_000
        self.out, self._bad = output_of(history.sink, world, self._shape, self._broker.server), Table(world, "bad")
        self._state, self._asked = StateServer(world), Server(world, "asked")
        for server in (self._broker.server, self.out.server, self._state, self._asked):
            server.away = list(history.away.get(server.name, ()))
            server.lossy = history.lossy
        if Random(f"state {history.seed}").random() < 0.15:
            self._state.lossy = 0.25  # requests for parts are few
        for name, queues in history.input.items():
            for _ in queues:
                self._broker.add_queue(name)
        self._last_us = max(us for queues in history.input.values() for rows in queues.values() for us, _ in rows)
        self._model = expected(self._shape, history.input)
        self._instances = [_Instance(number) for number in range(history.instances)]
        self._sent = False
        self.starts = 0
        self.wrong: list[str] = []
        world.watch = self._watch

    def all(self) -> None:
        """Run the instances until all rows are there, and a little longer; then stop them."""
        world = self._world
        beside = [world.process("producer", self._produce), world.process("coordinator", self._coordinate)]
        events = list(self._history.events)
        until_us, rest_us = 0, 3_000_000
        while not self.wrong:
            while events and events[0].us <= world.us:
                self._happens(events.pop(0))
            for instance in self._instances:
                self._keep_running(instance)
            if events or not self._sent or any(each.waiting for each in self._instances if world.us < 10_000_000):
                until_us = world.us + self._progress_us
            elif not self._model - self._there():
                rest_us -= _TICK_US
                if rest_us <= 0:
                    break
            elif world.us > until_us:
                self.wrong.append(f"rows are missing: {dict(self._model - self._there())}")
            self._look()
            world.pause(_TICK_US)
        if not self.wrong:
            self._stop_all()
        for process in (*beside, *(each.process for each in self._instances if each.process is not None)):
            world.kill(process, "end")
            world.run(process)
            self._disk.release(process.descriptors, _real_close)

    def asked(self) -> AbstractContextManager[Any]:
        """Return a context in which a part of the job asks its server."""
        return patch.object(Asked, "here", self._asked) if self._shape.name in BESIDE else nullcontext()

    # --------------------------------------------------------------------------------------- processes beside

    def _produce(self) -> None:
        records = sorted(
            (us, source, number, body_of(row))
            for source, queues in self._history.input.items()
            for number, rows in enumerate(queues.values())
            for us, row in rows
        )
        for us, source, number, body in records:
            self._world.pause(max(1, us - self._world.us))
            self._broker.put(source, number, body)
        for source, queues in self._history.input.items() if not self._shape.idle else ():
            for number in range(len(queues)):
                self._broker.put(source, number, body_of(_LAST))
        self._sent = True

    def _coordinate(self) -> None:
        while True:
            self._world.pause(self._broker.tick_us)
            self._broker.tick()

    # ---------------------------------------------------------------------------------------------- instances

    def _keep_running(self, instance: _Instance) -> None:
        process = instance.process
        if process is not None and process.ended:
            self._disk.release(process.descriptors, _real_close)
            if process.stacks:
                self.wrong.append(
                    f"no end after {self._broker.steps_max} steps, {self._world.us / 1e6:.1f} s:\n{process.stacks}"
                )
            if process.errors:
                self.wrong.append(f"a thread ended with an error: {process.errors}")
            if process.error is not None:
                self._failed(instance, process.error)
            instance.process, instance.ended_us = None, self._world.us
            instance.waiting.clear()
        if instance.process is None and (
            self._world.us - instance.ended_us >= self._history.back_us or not self.starts
        ):
            self.starts += 1
            instance.stop_asked, instance.handle = False, None
            instance.process = self._world.process(f"{instance.number}.{self.starts}", lambda: self._main(instance))

    def _failed(self, instance: _Instance, error: BaseException) -> None:
        text = str(error)
        if isinstance(error, JobFailedError) and instance.stop_asked and any(each in text for each in _AWAY):
            return
        self.wrong.append(f"instance {instance.number} failed: {type(error).__name__}: {text}")

    def _main(self, instance: _Instance) -> None:
        options = self._history.options
        instance.handle = self._job(instance).start(
            "light",
            checkpoint=os.path.join(self._disk.place, str(instance.number)),
            checkpoint_interval=timedelta(seconds=options["checkpoint_interval"]),
            discovery_interval=timedelta(seconds=1),
            max_batch_records=options["max_batch_records"],
            until=None,
            show_progress=False,
            **({"reliability": "high", "shards": options["shards"]} if self._shape.keyed else {}),
            **({"state_store": NAME} if self._shape.keyed and "state_store" in options else {}),
        )
        instance.handle.wait()

    def _job(self, instance: _Instance) -> Any:
        pipe = hr.stream("simulated", "job")
        instance.source = [self._broker.source(name) for name in self._history.input]
        streams = {
            name: pipe.from_(source, format="json", schema=SCHEMA, name=name)
            for name, source in zip(self._history.input, instance.source, strict=True)
        }
        settings = sink_options(self._history.options)
        bad = SINKS.get(self._history.sink, SINKS["transactional"])(self._bad, SinkSettings(**settings))
        stream = self._shape.build(streams).dead_letters(lambda letters: letters.to(bad, name="bad"))
        return stream.to(self.out.sink(settings), name="out")

    # ------------------------------------------------------------------------------------------------- faults

    def _happens(self, event: Event) -> None:
        instance = self._instances[event.instance]
        if instance.process is None:
            return
        if event.place is None:
            self._strike(event, instance, instance.process)
        else:
            instance.waiting.append((event, instance.process.passed[event.place]))

    def _watch(self, process: Process, kind: str, what: str) -> None:
        for instance in self._instances:
            if instance.process is process and instance.waiting:
                for event, before in list(instance.waiting):
                    if event.place == kind and process.passed[kind] - before >= event.count:
                        instance.waiting.remove((event, before))
                        self._strike(event, instance, process)

    def _strike(self, event: Event, instance: _Instance, process: Process) -> None:
        self._world.trace.add(
            self._world.us, process.name, event.kind, f"for {event.span_us} us" if event.kind == "pause" else ""
        )
        if event.kind == "kill":
            self._world.kill(process, "kill")
        elif event.kind == "pause":
            process.frozen_until_us = max(process.frozen_until_us, self._world.us + event.span_us)
        elif event.kind == "expel":
            self._broker.expel(instance.source, process)
        else:
            self._stop(instance, process)

    def _stop(self, instance: _Instance, process: Process) -> None:
        handle, instance.stop_asked = instance.handle, True
        if handle is not None and not process.ended:
            stopper = threading.Thread(target=lambda: handle.stop(timedelta(hours=1)), name="stopper", daemon=True)
            self._world.spawn(stopper, process, f"{process.name}/stopper")

    def _stop_all(self) -> None:
        until_us = self._world.us + self._broker.progress_us
        running = [each for each in self._instances if each.process is not None and each.handle is not None]
        for each in running:
            assert each.process is not None
            self._stop(each, each.process)
        while (
            any(each.process is not None and not each.process.ended for each in running) and self._world.us < until_us
        ):
            self._world.pause(_TICK_US)
        for each in running:
            process = each.process
            assert process is not None
            if not process.ended:
                self.wrong.append(f"instance {each.number} does not stop:\n{self._world.stacks()}")
            elif process.error is not None:
                self._failed(each, process.error)
        self._look(final=True)

    # ------------------------------------------------------------------------------------------------- checks

    def _there(self) -> Counter[str]:
        return Counter({text: count for text, count in self.out.there().items() if "k=~" not in text})

    def _look(self, *, final: bool = False) -> None:
        if final:
            self.out.settle()
        there, promised = self._there(), self._history.sink != "plain"
        if promised:
            self.wrong += self.out.faults
        if not self._shape.changes or (final and promised):
            wrong = there - self._model
            if not promised:
                wrong = Counter({text: count for text, count in wrong.items() if text not in self._model})
            if wrong:
                self.wrong.append(f"rows that must not be there: {dict(wrong)}")
        if final and self._model - there:
            self.wrong.append(f"rows are missing: {dict(self._model - there)}")
        if final and not (self._history.events or self._history.away or self._history.lossy):
            self.wrong += self._broker.left(shard_storage._PUT_OFF_MAX * shard_storage._DELTAS_MAX + 1)
