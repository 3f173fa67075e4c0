"""Savepoints of simulated jobs, from which the jobs go on with Spark, outside the world.

In the world a job runs on the light backend, is killed or not, and is stopped with a savepoint at some seam. What it has read and
written until then is in the savepoint. A job of the same plan begins there on Spark and reads the rest of the records. Its rows complete
those of the world.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import headrace as hr
from headrace.flow.messages import Position, Queue
from headrace.interfaces.output_definition import InputRead, OutputDefinition
from headrace.interfaces.sink import TransactionalSink
from headrace.testing import MemorySource

from tests.differential.on_spark import KeptSink, kept_in
from tests.simulation.entering import inside, memory
from tests.simulation.histories import PLACES, Fault, History, history_of
from tests.simulation.jobs import SCHEMA, bad_records, body_of, expected
from tests.simulation.jobs_beside import ALL_SHAPES
from tests.simulation.running import Run
from tests.simulation.servers import shown


@dataclass(frozen=True)
class Taken:
    """A savepoint that a history has left at ``place``, the rows that were written until then, and the number of dead letters."""

    history: History
    place: Path
    rows: Counter[str]
    letters: int
    #: How far the writers of both sinks have come, by sink and queue. A process that was killed may have come further than the savepoint.
    positions: Mapping[str, Mapping[str, Position]]


class TopicSource(MemorySource):
    """The records of a topic of the world, in any process. Its class has the name of the source in the world: a savepoint asks for it."""

    def __init__(self, name: str, bodies: Mapping[str, Sequence[bytes]]) -> None:
        super().__init__(bodies)
        self._name = name

    def identity(self) -> Mapping[str, Any]:
        return {"topic": self._name}


class ContinuedSink(KeptSink, TransactionalSink):
    """Keeps batches, and goes on where another sink was."""

    def __init__(self, directory: Path, name: str, positions: Mapping[str, Position]) -> None:
        super().__init__(directory, name)
        self._positions = positions

    def last_offset(self, queue: Queue) -> Position | None:
        found = [kept.last for kept in kept_in(self.directory, self.name) if kept.queue == queue.id]
        return found[-1] if found else self._positions.get(queue.id)

    def adopt(self, output: OutputDefinition) -> InputRead | None:
        return None


def stopping_history_of(seed: int) -> History:
    """Return a history whose job is killed up to two times, and is then stopped with a savepoint. Its sink stores each row once.

    The power does not fail, and no bit turns round: after those, rows with state may come twice (ADR 009), or the job is refused.
    """
    random = Random(f"savepoint for spark {seed}")
    places = [each for each in PLACES if not each.startswith("sink.")]
    kills = [
        Fault("kill", random.choice(places), random.choice((1, 2, 3, 4, 6))) for _ in range(random.choice((0, 0, 1, 2)))
    ]
    stop = Fault(
        "savepoint",
        random.choice(("reader.after_poll", "lane.after_process", "table.done", "s0.done")),
        random.randint(1, 5),
    )
    return replace(
        history_of(seed), sink="transactional", faults=(*kills, stop), full_until_us=0, failing=0.0, vanishing=False
    )


class _UntilSavepoint(Run):
    """A history that ends when its savepoint is there, or when all faults have happened."""

    def all(self) -> None:
        self.begin()
        for fault in self.history.faults:
            self._fault = fault
            process = self._one(bounded=False)
            self.look(final=False)
            if process.error is not None and not self.wrong:
                self._failed(process)
            if self._savepoint is not None or self.wrong:
                return

    @property
    def savepoint(self) -> str | None:
        return self._savepoint

    def taken(self, place: Path) -> Taken:
        """Copy the savepoint to ``place``."""
        assert self._savepoint is not None
        self._out.settle()
        self._bad.settle(end=True)
        shutil.copytree(self._savepoint, place)
        positions = {"out": self._out.server.positions, "bad": self._bad.positions}
        return Taken(self.history, place, self._rows(), sum(self._bad.there().values()), positions)


def savepoint_of(history: History, place: Path) -> Taken | None:
    """Run a history until it has a savepoint, which is copied to ``place``; None: the job had ended before.

    Raises AssertionError if the history breaks a rule until then.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-world-", dir=memory()) as root:
        os.mkdir(disk_place := os.path.join(root, "disk"))
        run = _UntilSavepoint(history, disk_place)
        with inside(run.world, run.disk), run.standing_in():
            run.all()
        assert not run.wrong, f"{history}\n" + "\n".join(run.wrong)
        return None if run.savepoint is None else run.taken(place)


def rest_on_spark(taken: Taken, directory: Path, **options: Any) -> tuple[int, list[str]]:
    """Let the job go on from its savepoint, in the Spark session of this process, to the end of its input.

    Returns how many rows it has written there, and what is wrong with all rows.
    """
    history = taken.history
    shape = ALL_SHAPES[history.shape]
    pipe = hr.stream("simulated", "job")
    streams = {
        name: pipe.from_(
            TopicSource(name, {q: [body_of(row) for _, row in rows] for q, rows in queues.items()}),
            format="json", schema=SCHEMA, name=name,
        )
        for name, queues in history.input.items()
    }  # fmt: skip
    out, bad = (ContinuedSink(directory, name, taken.positions[name]) for name in ("out", "bad"))
    stream = shape.build(streams).dead_letters(lambda letters: letters.to(bad, name="bad"))
    stream.to(out, name="out").run(
        "spark", show_progress=False, from_savepoint=taken.place, checkpoint=directory / "checkpoint", **options
    )
    there, wrong = Counter(taken.rows), []
    batches = kept_in(directory, "out")
    for kept in batches:
        for row, sign in zip(kept.rows, kept.signs, strict=True):
            text = shown(row)
            there[text] += sign
            if there[text] < 0:
                wrong.append(f"{text} is taken back, but it is not there")
    model = expected(shape, history.input)
    if +there != model:
        wrong.append(f"missing: {dict(model - there)}, too many: {dict(+there - model)}")
    letters = taken.letters + sum(len(kept.rows) for kept in kept_in(directory, "bad"))
    if letters != (count := bad_records(history.input)):
        wrong.append(f"{letters} dead letters of {count} bad records")
    return sum(len(kept.rows) for kept in batches), wrong
