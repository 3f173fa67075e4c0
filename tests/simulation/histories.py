"""A history: a job, its input, its options, and which faults happen when. All of it is made from one seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log10
from random import Random
from typing import Any

from tests.simulation.jobs import SHAPES, Input, make_input
from tests.simulation.jobs_beside import chosen

#: Kinds of seams at which a fault may happen, beside every seam alike.
PLACES = (
    "open", "write", "sync", "rename", "remove", "mkdir", "reader.after_poll", "lane.after_process", "sink.before_insert",
    "sink.after_insert",
    "shard.after_process", "shard.after_settle", "shard.after_save", "checkpoint.after_flush", "checkpoint.after_save",
    "table", "table.done", "s0", "s0.done",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What happens to one start of the job, and when: when it passes seams of kind ``place`` for the ``count``th time.

    ``kind``: "kill" (as kill -9), "torn" (killed in the middle of a write), "power" (the machine loses it), "stop" (it is asked to
    stop), "savepoint" (and to write one, from which the next start begins, with another number of shards), "rot" (killed, and a bit of its
    checkpoint turns round). ``place`` None: any seam.
    """

    kind: str
    place: str | None
    count: int


#: All kinds of faults.
FAULTS = frozenset({"kill", "torn", "power", "stop", "savepoint", "rot"})


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What happens around a job beside faults: how threads take turns, servers, disk and clock."""

    #: How often a thread gives way at a seam.
    preempt: float = 0.1
    #: How many of 100 calls of a server fail.
    lossy: float = 0.0
    #: Spans in which servers are away, by name, in microseconds.
    away: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    #: Until when the disk is full, in microseconds; 0: it is not.
    full_until_us: int = 0
    journal: bool = False
    #: How often of a hundred a sync of the disk fails, or takes up to two seconds.
    failing: float = 0.0
    slow: float = 0.0
    #: When the clock of the wall jumps, and by how much, in microseconds.
    jumps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class History(Surroundings):
    """One history. ``faults``: of the first starts, one each; the last start has none."""

    seed: int
    shape: str
    sink: str
    input: Input
    options: Mapping[str, Any]
    faults: tuple[Fault, ...]
    trims: bool = False
    #: Whether a queue goes as soon as all of it has been read.
    vanishing: bool = False

    def __str__(self) -> str:
        count = sum(len(records) for queues in self.input.values() for records in queues.values())
        faults = ", ".join(f"{each.kind} at {each.place or 'seam'} {each.count}" for each in self.faults)
        return f"seed {self.seed}: {self.shape}, {self.sink} sink, {count} records, {dict(self.options)}, faults: {faults or 'none'}"


def history_of(seed: int) -> History:
    """Return the history of a seed."""
    random = Random(f"history {seed}")
    shape = chosen("one", seed, random.choice(list(SHAPES.values())))
    sink = random.choice(("transactional", "transactional", "file", "keyed", "plain"))
    if shape.changes and sink in ("keyed", "file"):
        sink = "transactional"
    span_us = random.choice((0, 200_000, 2_000_000))
    given = make_input(
        random, shape.sources, records_max=random.choice((3, 8, 16)), span_us=span_us, bad=random.random() < 0.3
    )
    options = {
        "max_batch_records": random.choice((1, 3, 100)),
        "checkpoint_interval": random.choice((0.001, 0.05, 0.5, 10.0)),
        "shards": random.choice((1, 1, 3)) if shape.keyed else 1,
        "batch_size": random.choice((2, 3, 100)),
        "flush_interval": random.choice((0.001, 0.1, 1.0)),
        "max_cached_rows": random.choice((1, 3, 5, 100_000)),
    }
    away: dict[str, tuple[tuple[int, int], ...]] = {}
    for server in ("s0", "table", *(("asked",) if shape.asks else ())):
        if random.random() < 0.2:
            begin = random.randrange(1_000_000)
            away[server] = ((begin, begin + random.randrange(3_000_000)),)
    faults = tuple(fault_of(random) for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3))))
    return History(
        seed,
        shape.name,
        sink,
        given,
        options,
        faults,
        # What was read of a queue that has gone cannot be read again: all that was read must be processed when a start ends. A record whose
        # function asks a server that is away is not, when the job is stopped.
        vanishing=random.random() < 0.5 and all(each.kind == "stop" for each in faults) and not shape.asks,
        preempt=random.choice((0.0, 0.02, 0.2)),
        trims=random.random() < 0.5,
        lossy=random.choice((0.0, 0.0, 0.0, 0.05)),
        away=away,
        full_until_us=random.randrange(2_000_000) if random.random() < 0.1 else 0,
        journal=random.random() < 0.5,
        failing=random.choice((0.0, 0.0, 0.0, 0.0, 0.05)),
        slow=random.choice((0.0, 0.0, 0.0, 0.0, 0.1)),
        jumps=tuple(
            (random.randrange(3_000_000), random.choice((-1, 1)) * random.choice((1_000, 2_000_000, 3_600_000_000)))
            for _ in range(random.choice((0, 0, 0, 1, 2)))
        ),
    )


def rot_history_of(seed: int) -> History:
    """Return a history in which nothing happens but that a bit of a checkpoint turns round, after a kill."""
    random = Random(f"rot {seed}")
    place = random.choice(("reader.after_poll", "sink.after_insert", "checkpoint.after_save", None))
    history = history_of(seed)
    return replace(
        history, faults=(Fault("rot", place, random.randint(1, 6) if place else random.randint(100, 400)),), lossy=0.0, away={},
        failing=0.0, slow=0.0, full_until_us=0, jumps=(), vanishing=False,
        options={**history.options, "checkpoint_interval": 0.001},
    )  # fmt: skip


def fault_of(
    random: Random,
    places: Sequence[str] = PLACES,
    counts: Sequence[int] = (1, 1, 2, 2, 3, 4, 6, 9),
    *,
    seams_max: int = 1000,
) -> Fault:
    """Return a fault, when one of the ``places`` is passed for one of the ``counts``, or any seam for up to the ``seams_max``th time."""
    kind = random.choice(("kill", "kill", "kill", "kill", "torn", "power", "power", "stop", "savepoint", "rot"))
    if kind == "torn":
        return Fault(kind, "write", random.choice((1, 2, 3, 5, 8)))
    if random.random() < 0.4:
        return Fault(kind, None, int(10 ** random.uniform(0.5, log10(seams_max))))
    return Fault(kind, random.choice(places), random.choice(counts))
