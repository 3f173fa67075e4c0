"""What the author of a source implements, and how the checks read."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.errors import RetriableError
from headrace.interfaces.source import EARLIEST, Reader, Source, StartPosition

from headrace_contract.contract import expect, optional_hook, shortened, violated
from headrace_contract.options import OptionChecks
from headrace_contract.outages import WithOutages

#: How long one poll may wait while a check waits for records.
_POLL = timedelta(milliseconds=100)


@dataclass
class Reading:
    """What was read from a queue: one entry per record, and the position after each batch."""

    offsets: list[int] = field(default_factory=list)
    #: Bodies, or rows of a columnar source.
    records: list[Any] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    positions: list[ReadPosition] = field(default_factory=list)

    def add(self, raw: RawBatch) -> None:
        """Add the records of a batch."""
        count = len(raw)
        self.offsets += raw.offsets.tolist()
        self.records += (
            list(raw.bodies) if raw.bodies is not None else raw.frame.to_dicts() if raw.frame is not None else []
        )
        self.times += raw.times.tolist() if raw.times is not None else [None] * count
        self.keys += list(raw.keys) if raw.keys is not None else [None] * count
        self.positions.append(raw.next_position)

    def __len__(self) -> int:
        return len(self.offsets)


class SourceHarness(WithOutages, OptionChecks):
    """The part of ``SourceContract`` that an author fills in."""

    #: False when the source has one queue only.
    several_queues: ClassVar[bool] = True
    #: False when a reader sees only the records that were in its queue when it was opened.
    queues_grow: ClassVar[bool] = True
    #: Bodies that the source must give back byte for byte. Add b"" and bodies with newlines if it can carry them.
    odd_bodies: ClassVar[Sequence[bytes]] = (
        b"{}",
        b" spaces around ",
        b"tab\tquote\"'",
        "grüße 漢字 🙂".encode(),
        b"NUL \x00 and \xff\xfe not UTF-8",
        b"x" * 300_000,
    )
    #: How many records, and in another check how many calls of ``write``, fill one queue; set less if a write is slow.
    many_records: ClassVar[int] = 2_500
    many_writes: ClassVar[int] = 25
    #: A poll with a time-out of zero counts as waiting if the quickest of five takes longer than this.
    zero_timeout_limit: ClassVar[timedelta] = timedelta(milliseconds=50)

    # ------------------------------------------------------------------------------------------- the author gives

    def make_source(self) -> Source:
        """Return a new source that begins at the earliest record. All sources made within one check must read the same data."""
        raise NotImplementedError

    def add_queue(self) -> str:
        """Create one more empty queue and return the name that ``Source.queues`` gives it."""
        raise NotImplementedError

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        """Append records to the queue of that name. On return readers must see them.

        Bodies are those of ``make_body`` (JSON objects with ``number`` and ``text``), ``bad_body`` and ``odd_bodies``.
        """
        raise NotImplementedError

    def make_body(self, number: int) -> bytes:
        """Return the body of a record; each number must have a different body."""
        return json.dumps({"number": number, "text": f"text {number}"}).encode()

    def bad_body(self) -> bytes:
        """Return a body that no JSON codec can decode."""
        return b'{"number": 17, "text": "cut o'

    def as_read(self, body: bytes) -> Any:
        """Return the row that a columnar source (one that gives frames) makes from a body of ``make_body``."""
        return json.loads(body)

    @optional_hook
    def remove_queue(self, queue: str) -> None:
        """Remove a queue."""
        raise NotImplementedError

    @optional_hook
    def forget(self, queue: str, before: int) -> None:
        """Delete the records of a queue before this offset, as retention does."""
        raise NotImplementedError

    @optional_hook
    def break_queue(self, queue: str) -> None:
        """Make the next records of the queue unreadable, for example by damage or by removing a permission."""
        raise NotImplementedError

    @optional_hook
    def mend_queue(self, queue: str) -> None:
        """Repair the queue: it can be read again, and no record is lost."""
        raise NotImplementedError

    @optional_hook
    def make_missing_source(self) -> Source:
        """Return a source that names something (a topic, a table, a directory) that does not exist."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------- the checks use

    def make_plugin(self) -> Any:
        return self.make_source()

    def use(self, plugin: Any) -> None:
        for queue in plugin.queues():
            plugin.open(queue, EARLIEST).poll(1, _POLL)

    def bodies(self, first: int, count: int) -> list[bytes]:
        """Return the bodies of ``count`` records, from number ``first`` on."""
        return [self.make_body(number) for number in range(first, first + count)]

    def filled_queue(self, count: int) -> str:
        """Create a queue with ``count`` records, from number 0 on, and return its name."""
        name = self.add_queue()
        self.write(name, self.bodies(0, count))
        return name

    @contextmanager
    def source(self) -> Iterator[Source]:
        """Give a new source after its ``check``, as when a job is built; close it at the end."""
        made = self.make_source()
        expect(
            isinstance(made, Source),
            expected="make_source() returns a headrace.Source",
            found=shortened(made),
            mend="derive the class from Source",
        )
        made.check()
        try:
            yield made
        finally:
            made.close()

    def queue(self, source: Source, name: str) -> Queue:
        """Return the queue of that name; wait until the source lists it, at most for ``patience``."""
        __tracebackhide__ = True

        def find() -> Queue | None:
            return next((queue for queue in source.queues() if queue.name == name), None)

        return self.eventually(
            find,
            expected=f"queues() lists the queue {name!r} that add_queue() has created",
            mend="at each call list the queues that exist now; add_queue() must return the name that the source uses",
        )

    @contextmanager
    def opened(self, name: str, start: StartPosition = EARLIEST) -> Iterator[Reader]:
        """Give a reader of a queue by a new source, after ``restore`` if ``start`` is a position; at the end close both."""
        with self.source() as source:
            if isinstance(start, ReadPosition):
                source.restore({Queue(name): start})
            reader = source.open(self.queue(source, name), start)
            try:
                yield reader
            finally:
                reader.close()

    def read(self, reader: Reader, count: int, *, per_poll: int = 1000, after_outage: bool = False) -> Reading:
        """Read ``count`` records (or more, if the source gives more). Fails the check if they do not come within ``patience``.

        ``after_outage``: after a RetriableError it polls again during that time, as backends do.
        """
        __tracebackhide__ = True
        reading = Reading()
        deadline = time.monotonic() + self.patience.total_seconds()
        pause = threading.Event()
        while len(reading) < count:
            try:
                raw = reader.poll(min(per_poll, count - len(reading)), _POLL)
            except RetriableError:
                if not after_outage or time.monotonic() > deadline:
                    raise
                pause.wait(_POLL.total_seconds())
                continue
            if raw is not None:
                reading.add(raw)
            if len(reading) < count and time.monotonic() > deadline:
                violated(
                    expected=f"{count} records can be read from {reader.position.offset if not reading else 'the start position'}",
                    found=f"{len(reading)} came within {self.patience.total_seconds():g} s (the last offsets are "
                    f"{shortened(reading.offsets[-5:])}), position {reader.position}",
                    mend="poll must give everything up to `latest`; write() must have made the records readable",
                )
        return reading

    def read_to_end(self, reader: Reader, *, per_poll: int = 1000) -> Reading:
        """Read until the position has reached ``latest`` (as it was at first) and a poll gives nothing, as a bounded run does."""
        __tracebackhide__ = True
        reading = Reading()
        end = reader.latest
        deadline = time.monotonic() + self.patience.total_seconds()
        while True:
            before = reader.position.offset
            at_end = before >= end
            raw = reader.poll(per_poll, timedelta(0) if at_end else _POLL)
            if raw is not None and len(raw):
                reading.add(raw)
                expect(
                    raw.next_position.offset > before,
                    expected="each batch moves the position forward",
                    found=f"from {before} to {raw.next_position}, after offsets {shortened(reading.offsets[-5:])}",
                    mend="offsets of a queue only grow: they do not begin again with a new file or segment or with a new reader",
                )
            elif at_end:
                return reading
            elif time.monotonic() > deadline:
                violated(
                    expected=f"reading continues to latest, {end}",
                    found=f"position {reader.position} after {self.patience.total_seconds():g} s; {len(reading)} records",
                    mend="`latest` is the offset after the last record; `position` moves with each poll",
                )

    def need_bodies(self, name: str) -> None:
        """Skip the running check if the source gives columns. Reads the first record of the queue to find out."""
        with self.opened(name) as reader:
            if not isinstance(self.read(reader, 1).records[0], bytes):
                pytest.skip("not checked: the source gives columns, not bodies")

    def expect_bodies(self, found: Sequence[Any], bodies: Sequence[bytes], *, what: str, mend: str) -> None:
        """Fail the check unless the records are exactly these, in this order."""
        __tracebackhide__ = True
        wanted = [body if not found or isinstance(found[0], bytes) else self.as_read(body) for body in bodies]
        if list(found) == wanted:
            return
        at = next(
            (i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), min(len(found), len(wanted))
        )
        here = shortened(found[at], 120) if at < len(found) else "nothing"
        there = shortened(wanted[at], 120) if at < len(wanted) else "nothing"
        violated(
            expected=f"{what}: the {len(wanted)} records as they were written, in that order",
            found=f"{len(found)} records; the first difference is record {at}: {here} instead of {there}",
            mend=mend,
        )


def as_checkpointed(position: ReadPosition) -> ReadPosition:
    """Return a position as it comes back from a checkpoint: written as JSON text and read again."""
    return ReadPosition.from_json(json.loads(json.dumps(position.to_json())))


def names(queues: Collection[Queue]) -> list[str]:
    """Return the names of queues, sorted."""
    return sorted(queue.name for queue in queues)
