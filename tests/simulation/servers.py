"""Servers of the simulated world: a topic that jobs read, and tables that they write. They live on while processes are killed.

A call takes time, so that other threads run meanwhile. It may fail before the server has done anything, or after: then the answer is
lost, and the caller does not know that it was done.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Any

import numpy as np
from headrace.flow.messages import CHANGE, Bodies, ChangeKind, Position, Queue, RawBatch, ReadPosition
from headrace.foundation.errors import DataError, RetriableError
from headrace.interfaces.output_definition import InputRead, OutputDefinition
from headrace.interfaces.readers import OffsetReader
from headrace.interfaces.sink import IdempotentSink, Sink, SinkBatch, SinkSettings, StaleWriterError, TransactionalSink
from headrace.interfaces.source import LATEST, Reader, Source, StartPosition

from tests.simulation.world.scheduler import Crashed, World

Row = dict[str, Any]
_POLL_US = 300
_WRITE_US = 1500
#: How often of a hundred a write that did not arrive is carried out later, and how much later: microseconds, by the number of their digits.
_LATE = 0.3
_LATE_US_DIGITS = (2.5, 6.7)
#: How often of a hundred such a write comes right before the next one: behind the question where its writer should go on.
_BEFORE_NEXT = 0.5


class Server:
    """What is asked over a network. ``away``: spans of microseconds in which no call succeeds; ``lossy``: how many of 100 calls fail."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.away: list[tuple[int, int]] = []
        self.lossy = 0.0

    def request(self, what: str, us: int) -> None:
        """The request travels. Raises RetriableError when it does not arrive."""
        self.world.step(self.name, what)
        self.world.pause(int(us * (0.5 + self.world.random.random())))
        self.check(what, "it is not there")

    def answer(self, what: str, us: int = 0) -> None:
        """The answer travels. Raises RetriableError when it is lost."""
        self.world.step(f"{self.name}.done", what, us=us)
        self.check(what, "its answer was lost")

    def check(self, what: str, why: str) -> None:
        """Raise RetriableError when the server is away, or the call is one that fails."""
        now = self.world.us
        if any(begin <= now < end for begin, end in self.away) or self.world.random.random() < self.lossy:
            self.world.trace.add(now, self.name, "fails", f"{what}: {why}")
            raise RetriableError(f"{self.name}: {why}")


class Topic(Server):
    """Queues of records, each of which is there from a moment on.

    ``trims``: what a job says is stored is thrown away. ``appearing``: a queue is there from its first record on; ``vanishing``: one that
    has been read to its end goes.
    """

    def __init__(
        self,
        world: World,
        name: str,
        records: Mapping[str, Sequence[tuple[int, bytes]]],
        *,
        trims: bool = False,
        appearing: bool = False,
        vanishing: bool = False,
    ) -> None:
        super().__init__(world, name)
        self.vanishing = vanishing
        #: How far readers have come.
        self.read: Counter[str] = Counter()
        self.records = records
        self.trims = trims
        self.appearing = appearing
        self.begins: Counter[str] = Counter()

    def latest(self, queue: str) -> int:
        """Return the offset after the last record that has come."""
        records, now = self.records[queue], self.world.us
        count = len(records)
        while count and records[count - 1][0] > now:
            count -= 1
        return count

    def next_us(self, queue: str, offset: int) -> int | None:
        """Return when the record at an offset comes."""
        records = self.records[queue]
        return records[offset][0] if offset < len(records) else None


class TopicSource(Source):
    """Reads a topic."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def identity(self) -> Mapping[str, Any]:
        return {"topic": self._topic.name}

    def queues(self) -> Collection[Queue]:
        self._topic.request("queues", _POLL_US)
        topic = self._topic
        return [
            Queue(name)
            for name, records in topic.records.items()
            if name == "q0" or not topic.appearing or records[0][0] <= topic.world.us
            if name == "q0" or not topic.vanishing or topic.read[name] < len(records)
        ]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        topic = self._topic
        first = start.offset if isinstance(start, ReadPosition) else topic.begins[queue.name]
        if start is LATEST:
            first = topic.latest(queue.name)
        if first < topic.begins[queue.name]:
            raise DataError(
                f"offset {first} is gone, the first is {topic.begins[queue.name]}", queue=queue.name, offset=first
            )
        return _TopicReader(topic, queue.name, first)

    def stored(self, positions: Mapping[Queue, ReadPosition]) -> None:
        topic = self._topic
        topic.request("stored", _POLL_US)
        if topic.trims:
            for queue, position in positions.items():
                topic.begins[queue.name] = max(topic.begins[queue.name], position.offset)
        topic.answer("stored")


class _TopicReader(OffsetReader):
    def __init__(self, topic: Topic, queue: str, offset: int) -> None:
        super().__init__(offset)
        self._topic, self._queue = topic, queue

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        topic = self._topic
        topic.request(f"poll {self._queue} at {self._next}", _POLL_US)
        found = topic.latest(self._queue) - self._next
        comes = topic.next_us(self._queue, self._next)
        wait = int(timeout.total_seconds() * 1e6)
        if found <= 0 and wait > 0:
            topic.world.pause(wait if comes is None else min(wait, max(1, comes - topic.world.us)))
            found = topic.latest(self._queue) - self._next
        if found <= 0:
            return None
        # A broker gives what it has at hand, not as much as was asked for.
        count = min(max_records, found, 1 + int(topic.world.random.random() * 8))
        begin, self._next = self._next, self._next + count
        topic.read[self._queue] = max(topic.read[self._queue], self._next)
        bodies = [body for _, body in topic.records[self._queue][begin : self._next]]
        topic.world.trace.add(topic.world.us, topic.name, "gives", f"{self._queue} {begin} to {self._next}")
        return RawBatch(np.arange(begin, self._next, dtype=np.int64), self.position, bodies=Bodies.of(bodies))

    @property
    def earliest(self) -> int:
        return self._topic.begins[self._queue]

    @property
    def latest(self) -> int:
        return self._topic.latest(self._queue)


class Table(Server):
    """Rows and positions that writers have stored, and which rows are there after all changes.

    ``faults``: what was wrong with changes: of rows that are not there, or of a key that is there twice.
    """

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.positions: dict[str, Position] = {}
        self.keys: dict[str, str] = {}
        self.rows: Counter[str] = Counter()
        self.faults: list[str] = []
        #: How a row is kept; two rows are equal if their texts are.
        self.text = shown
        #: Columns of which no two rows that are there may have the same values; None: there are none. And how many rows have each.
        self.key: Sequence[str] | None = None
        self.by_key: Counter[str] = Counter()
        #: Writes that are still somewhere: when they are carried out, whether right before the next write instead, and how.
        self._late: list[tuple[int, bool, Callable[[], None]]] = []

    def settle(self, *, writes: bool = False, end: bool = False) -> None:
        """Carry out what comes late: what a writer gave up, or had sent when it was killed. ``writes``: before a write; ``end``: all."""
        due = [each for each in self._late if end or (writes if each[1] else each[0] <= self.world.us)]
        self._late = [each for each in self._late if each not in due]
        for us, _, carry_out in sorted(due, key=lambda each: each[0]):
            self.world.trace.add(self.world.us, self.name, "late", f"of {us}")
            with contextlib.suppress(StaleWriterError):
                carry_out()

    def write(self, what: str, carry_out: Callable[[], None]) -> None:
        """Carry a write out. Raises RetriableError when it does not arrive, or its answer does not; it may be carried out later then."""
        random = Random(
            f"late {self.world.seed} {self.world.us} {what}"
        )  # else all that happens later would be something else
        late = self.world.us + int(10 ** random.uniform(*_LATE_US_DIGITS)) if random.random() < _LATE else None
        try:
            self.request(what, _WRITE_US)
        except (RetriableError, Crashed):
            if late is not None:
                self._late.append((late, random.random() < _BEFORE_NEXT, carry_out))
            raise
        self.settle(writes=True)
        carry_out()
        self.answer(what)

    def store(self, batch: SinkBatch, *, keyed: bool) -> None:
        """Store the rows of a batch as one step. ``keyed``: a row that has come before, under the same id, changes nothing."""
        frame = batch.frame
        kinds = frame[CHANGE].to_list() if CHANGE in frame.columns else [ChangeKind.INSERT] * len(batch)
        for row, kind, key in zip(batch.rows(), kinds, batch.ids(), strict=True):
            text = self.text(row)
            if keyed:
                before = self.keys.setdefault(key, text)
                if before is not text:
                    if before != text:
                        self.faults.append(f"{key} was {before} and is {text} now")
                    continue
            self._change(text, kind, row)

    def _change(self, text: str, kind: int, row: Row) -> None:
        adds = kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)
        if adds:
            self.rows[text] += 1
        elif self.rows[text]:
            self.rows[text] -= 1
        else:
            self.faults.append(f"{text} is retracted, but it is not there")
        if self.key is not None:
            named = self.text({name: row[name] for name in self.key})
            self.by_key[named] += 1 if adds else -1
            if self.by_key[named] > 1:
                self.faults.append(f"there are {self.by_key[named]} rows of key {named}")

    def there(self) -> Counter[str]:
        """Return the rows that are there, and how often each."""
        return +self.rows


def shown(row: Mapping[str, Any]) -> str:
    """Return a row as a text that is the same for equal rows."""
    return "{" + ", ".join(f"{name}={row[name]}" for name in sorted(row)) + "}"


class _Writes(Sink):
    accepts = "changelog"

    def __init__(self, table: Table, settings: SinkSettings) -> None:
        self.table = table
        self.settings = settings

    def _insert(self, batch: SinkBatch, store: Callable[[], None]) -> None:
        what = f"insert {batch.queue.id} to {batch.last.offset}.{batch.last.index} ({len(batch)} rows)"
        self.table.write(what, store)


class PlainSink(_Writes):
    """At least once."""

    def batch_insert(self, batch: SinkBatch) -> None:
        self._insert(batch, lambda: self.table.store(batch, keyed=False))


class KeyedSink(_Writes, IdempotentSink):
    """Each row under its id."""

    accepts = "append"

    def batch_insert(self, batch: SinkBatch) -> None:
        self._insert(batch, lambda: self.table.store(batch, keyed=True))


class TransactionSink(_Writes, TransactionalSink):
    """Rows and position in one transaction."""

    def batch_insert(self, batch: SinkBatch) -> None:
        def store() -> None:
            if self.table.positions.get(batch.queue.id) != batch.after:
                raise StaleWriterError("another writer was here", queue=batch.queue.id)
            self.table.store(batch, keyed=False)
            self.table.positions[batch.queue.id] = batch.last

        self._insert(batch, store)

    def last_offset(self, queue: Queue) -> Position | None:
        self.table.request(f"last offset {queue.id}", _POLL_US)
        self.table.settle()
        return self.table.positions.get(queue.id)

    def adopt(self, output: OutputDefinition) -> InputRead | None:
        return None


SINKS: Mapping[str, type[_Writes]] = {"plain": PlainSink, "keyed": KeyedSink, "transactional": TransactionSink}
