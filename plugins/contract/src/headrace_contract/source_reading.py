"""Checks of a source that concern reading one queue: order, offsets, positions, time-outs."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from headrace.flow.messages import RawBatch, ReadPosition
from headrace.foundation.errors import DataError
from headrace.interfaces.source import LATEST, Reader, StartAt

from headrace_contract.contract import expect, shortened, violated
from headrace_contract.source_harness import Reading, SourceHarness, as_checkpointed

_ZERO = timedelta(0)
_EXACT = (
    "a position is that of the next record: usual causes are an error by one, and a hint that belongs to another record"
)


class SourceReadingChecks(SourceHarness):
    """One queue, read in all ways that runtimes use."""

    def test_queue_is_drained(self) -> None:
        """Everything in a queue is read, in the order in which it was written.

        Steps: write 250 records, read from EARLIEST to ``latest`` in polls of 100. Passes when exactly these came.
        """
        name = self.filled_queue(250)
        with self.opened(name) as reader:
            reading = self.read_to_end(reader, per_poll=100)
        self.expect_bodies(reading.records, self.bodies(0, 250), what="the whole queue", mend="give each record once")

    def test_many_records(self) -> None:
        """A queue with many records gives each of them, also across the borders of the blocks in which they are stored.

        Steps: write ``many_records`` records in four writes, read them in polls of 400. Passes when exactly these came, in
        their order.
        """
        name = self.add_queue()
        quarter = -(-self.many_records // 4)
        for begin in range(0, 4 * quarter, quarter):
            self.write(name, self.bodies(begin, quarter))
        with self.opened(name) as reader:
            reading = self.read_to_end(reader, per_poll=400)
        self.expect_bodies(
            reading.records,
            self.bodies(0, 4 * quarter),
            what="many records",
            mend="after a block, continue at the record after its last one, not one record later",
        )

    def test_many_writes_keep_their_order(self) -> None:
        """Records come in the order in which they were written, also if they are in many parts (files, segments).

        Steps: write ``many_writes`` times two records, read all; with new sources, read to the middle, and continue from the
        position. Passes when all came, in their order, both times.
        """
        name = self.add_queue()
        for number in range(self.many_writes):
            self.write(name, self.bodies(2 * number, 2))
        count, mend = 2 * self.many_writes, "order parts by number, not by name: 10 comes before 2 in a list of texts"
        with self.opened(name) as reader:
            whole = self.read_to_end(reader)
        self.expect_bodies(whole.records, self.bodies(0, count), what=f"{self.many_writes} writes", mend=mend)
        with self.opened(name) as reader:
            before = self.read(reader, count // 2 + 1)
            position = as_checkpointed(reader.position)
        with self.opened(name, position) as reader:
            after = self.read_to_end(reader)
        self.expect_bodies(
            before.records + after.records, self.bodies(0, count), what="a stop in the middle, then the rest", mend=mend
        )

    def test_batches_are_whole(self) -> None:
        """A RawBatch has either bodies or a frame, and one entry per record in each of its sequences.

        Steps: read 20 records in polls of 7. Passes when all sequences of a batch have its length, and offsets are int64.
        """
        name = self.filled_queue(20)
        given = 0
        with self.opened(name) as reader:
            while given < 20:
                raw = reader.poll(7, timedelta(seconds=1))
                if raw is None:
                    self.read(reader, 1)  # fails after `patience`
                    violated(
                        expected="20 records",
                        found=f"None after {given}",
                        mend="a later poll gave records: poll must give them within its time-out",
                    )
                given += len(raw)
                lengths = {
                    "bodies": None if raw.bodies is None else len(raw.bodies),
                    "frame": None if raw.frame is None else raw.frame.height,
                    "times": None if raw.times is None else len(raw.times),
                    "keys": None if raw.keys is None else len(raw.keys),
                    "headers": None if raw.headers is None else len(raw.headers),
                }
                wrong = {what: length for what, length in lengths.items() if length not in (None, len(raw))}
                expect(
                    not wrong and (raw.bodies is None) != (raw.frame is None) and raw.offsets.dtype == np.int64,
                    expected=f"{len(raw)} entries in each sequence, bodies or a frame, offsets of int64",
                    found=f"{lengths}, offsets {raw.offsets.dtype}",
                    mend="build every sequence of the RawBatch from the same records",
                )

    def test_offsets_grow(self) -> None:
        """Offsets grow from record to record and never repeat; the next position is after them.

        Steps: read 100 records in polls of 9. Passes when offsets grow, each batch's ``next_position`` is greater than
        its last offset, and ``position`` is the same.
        """
        name = self.filled_queue(100)
        offsets: list[int] = []
        with self.opened(name) as reader:
            while len(offsets) < 100:
                reading = self.read(reader, min(9, 100 - len(offsets)))
                offsets += reading.offsets
                last, after = offsets[-1], reading.positions[-1]
                expect(
                    after.offset > last and reader.position == after,
                    expected=f"after offset {last}: a greater next_position, and an equal position",
                    found=f"next_position {after}, position {reader.position}",
                    mend="set the position to where the next poll begins, and return it as next_position",
                )
        falls = [i for i in range(1, len(offsets)) if offsets[i] <= offsets[i - 1]]
        expect(
            not falls and offsets[0] >= 0,
            expected="offsets that grow and are not negative",
            found=f"{shortened(offsets[max(0, falls[0] - 2) : falls[0] + 2] if falls else offsets[:3])}",
            mend="number the records of a queue with growing integers; gaps are allowed, repetitions are not",
        )

    def test_poll_gives_at_most_max_records(self) -> None:
        """``max_records`` is kept: the size of batches limits the memory that a job needs.

        Steps: poll 30 records with limits 1, 7 and 1000. Passes when no poll gives more.
        """
        name = self.filled_queue(30)
        with self.opened(name) as reader:
            for limit in (1, 7, 1000):
                reading = Reading()
                raw = None
                while raw is None or not len(raw):
                    raw = reader.poll(limit, timedelta(seconds=1))
                    if raw is None and reader.position.offset >= reader.latest:
                        return
                reading.add(raw)
                expect(
                    len(reading) <= limit,
                    expected=f"at most {limit} records",
                    found=f"{len(reading)}",
                    mend="if the client library gives more records, keep the rest for the next poll",
                )

    def test_same_range_gives_same_records(self) -> None:
        """Reading a range again gives the same records, offsets, times and keys: recovery and retries depend on it.

        Steps: read 60 records from position 20 on; again after seeking back, in polls of 7; again by a new source.
        Passes when all three are equal.
        """
        name = self.filled_queue(80)
        with self.opened(name) as reader:
            self.read(reader, 20)
            begin = as_checkpointed(reader.position)
            first = self.read(reader, 60)
            reader.seek(begin)
            second = self.read(reader, 60, per_poll=7)
        with self.opened(name, begin) as reader:
            third = self.read(reader, 60, per_poll=33)
        for which, again in (("after seeking back", second), ("by a new source", third)):
            for what in ("offsets", "records", "times", "keys"):
                expect(
                    getattr(again, what) == getattr(first, what),
                    expected=f"the same {what} {which}",
                    found=f"{shortened(getattr(again, what)[:4])} instead of {shortened(getattr(first, what)[:4])}",
                    mend="take offsets, times and keys from the server or file, not from a counter or clock of the reader",
                )

    def test_resume_from_position(self) -> None:
        """A restart continues at the checkpoint: no record is lost, and none comes twice.

        Steps: write 50 records; stop after 0, 1, 17, 49 and 50; send the position through JSON to a new source and read
        to the end. Passes when both parts together are all records, each once.
        """
        name = self.filled_queue(50)
        for stop in (0, 1, 17, 49, 50):
            with self.opened(name) as reader:
                before = self.read(reader, stop)
                position = as_checkpointed(reader.position)
            with self.opened(name, position) as reader:
                after = self.read_to_end(reader)
            self.expect_bodies(
                before.records + after.records,
                self.bodies(0, 50),
                what=f"a stop after {stop}, then the rest",
                mend=_EXACT,
            )

    def test_positions_are_json(self) -> None:
        """A position can be stored in a checkpoint, which is JSON.

        Steps: read 3 records, write the position as JSON and read it back. Passes when both are equal.
        """
        name = self.filled_queue(3)
        with self.opened(name) as reader:
            self.read(reader, 3)
            position = reader.position
        mend = "make hint of str, int, float, bool, None, lists and dicts with str keys"
        try:
            again = as_checkpointed(position)
        except (TypeError, ValueError) as error:
            violated(expected="a hint of JSON types", found=f"{position}: {error}", mend=mend)
        expect(again == position, expected=f"{position}", found=f"{again}", mend=mend)

    def test_seek(self) -> None:
        """``seek`` moves to any position that the reader has given, backward and forward.

        Steps: read 40 records, four at a time, and keep each position; seek to some of them in mixed order and read two
        records. Passes when these are the right ones, and ``position`` is the given one after each seek.
        """
        name = self.filled_queue(40)
        with self.opened(name) as reader:
            places = [(0, reader.position)]
            while places[-1][0] < 40:
                self.read(reader, 4)
                places.append((places[-1][0] + 4, reader.position))
            for at in (5, 2, 9, 0, 7, 7):
                number, position = places[at]
                reader.seek(position)
                expect(
                    reader.position == position,
                    expected=f"position {position} after seeking there",
                    found=str(reader.position),
                    mend="seek must set the position, and drop records that were fetched in advance",
                )
                reading = self.read(reader, 2)
                self.expect_bodies(
                    reading.records[:2], self.bodies(number, 2), what=f"after seek to record {number}", mend=_EXACT
                )

    def test_earliest_and_latest(self) -> None:
        """``earliest`` and ``latest`` are the limits of the queue; lag, bounded runs and admission control use them.

        Steps: look at an empty queue; write 10; read all. Passes when earliest = latest on the empty queue, then
        earliest <= the first offset, latest > the last offset, and the position reaches latest.
        """
        name = self.add_queue()
        mend = "earliest: the smallest offset in the queue, or latest if it is empty; latest: the offset after the last record, now"
        with self.opened(name) as reader:
            empty = (reader.earliest, reader.latest)
            expect(
                empty[0] == empty[1],
                expected="earliest = latest, because the queue is empty",
                found=f"{empty}",
                mend=mend,
            )
            if self.queues_grow:
                self.write(name, self.bodies(0, 10))
                self.eventually(lambda: reader.latest > empty[1], expected="latest grows", mend=mend)
                self._expect_framed(reader, mend)
        if not self.queues_grow:
            self.write(name, self.bodies(0, 10))
            with self.opened(name) as reader:
                self._expect_framed(reader, mend)

    def _expect_framed(self, reader: Reader, mend: str) -> None:
        """Fail the check unless the 10 records are between ``earliest`` and ``latest``."""
        __tracebackhide__ = True
        latest = reader.latest
        reading = self.read(reader, 10)
        found = f"earliest {reader.earliest}, latest {latest}, position {reader.position}, read {reading.offsets}"
        good = reader.earliest <= reading.offsets[0] and latest > reading.offsets[-1]
        expect(
            good and self.read_to_end(reader).offsets == [] and reader.position.offset >= latest,
            expected="earliest <= first offset, last offset < latest <= position at the end",
            found=found,
            mend=mend,
        )

    def test_latest_does_not_fall(self) -> None:
        """``latest`` only grows: a bounded run ends there, and the lag is computed from it.

        Steps: write 10 records five times; look at ``latest`` of one reader before and after each write, and between polls.
        Passes when it never becomes smaller, and is at least the position when the last record was read.
        """
        self._need_following()
        name = self.add_queue()
        seen: list[int] = []
        with self.opened(name) as reader:
            for turn in range(5):
                seen.append(reader.latest)
                self.write(name, self.bodies(10 * turn, 10))
                seen.append(reader.latest)
                for _ in range(2):
                    self.read(reader, 5)
                    seen.append(reader.latest)
                expect(
                    seen == sorted(seen) and seen[-1] >= reader.position.offset,
                    expected=f"latest grows, up to {reader.position.offset} at least",
                    found=f"{seen}",
                    mend="latest is the offset after the last record of the whole queue, not of the block or part that is being read",
                )

    def test_start_at_latest(self) -> None:
        """LATEST leaves out the records that exist already, and misses no later record.

        Steps: write 10 records, open at LATEST, write 5 more. Passes when exactly the 5 come.
        """
        self._need_following()
        name = self.filled_queue(10)
        with self.opened(name, LATEST) as reader:
            expect(
                reader.position.offset >= reader.latest,
                expected="position = latest",
                found=f"position {reader.position}, latest {reader.latest}",
                mend="look up the end in open, not at the first poll",
            )
            self.write(name, self.bodies(10, 5))
            reading = self.read(reader, 5)
        self.expect_bodies(reading.records, self.bodies(10, 5), what="from LATEST", mend="look up the end in open")

    def test_start_at_time(self) -> None:
        """StartAt begins with the first record at or after a time, by the records' own times.

        Steps: read 30 records with their times; open at three of these times, and at times long before and long after.
        Passes when the first record read is the first one of that time or later. For sources that give times.
        """
        name = self.filled_queue(30)
        with self.opened(name) as reader:
            whole = self.read(reader, 30)
        if None in whole.times:
            pytest.skip("not checked: the records of this source have no times")
        times = [moment for moment in whole.times if moment is not None]
        for moment in (times[0] - 10**9, times[0], times[14], times[-1], times[-1] + 10**12):
            first = next((i for i, found in enumerate(times) if found >= moment), 30)
            start = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=moment)
            with self.opened(name, StartAt(start)) as reader:
                reading = self.read_to_end(reader)
            self.expect_bodies(
                reading.records,
                self.bodies(first, 30 - first),
                what=f"from {start}",
                mend="begin with the first record whose time is not earlier; at the end if there is none",
            )

    def test_zero_timeout_does_not_wait(self) -> None:
        """A poll with a time-out of zero never waits, because one thread reads many queues in turn.

        Steps: read to the end, then poll five times with time-out zero and measure the time. Passes when all give nothing
        and the quickest took at most ``zero_timeout_limit``.
        """
        name = self.filled_queue(3)
        with self.opened(name) as reader:
            self.read(reader, 3)
            self.read_to_end(reader)
            seconds = [self._clocked(reader, _ZERO) for _ in range(5)]
        limit = self.zero_timeout_limit.total_seconds()
        expect(
            min(seconds) <= limit,
            expected=f"a poll with time-out zero returns within {limit * 1000:g} ms",
            found=f"{min(seconds) * 1000:.1f} ms at best",
            mend="pass the time-out on to the client library, and do not ask the server when it is zero",
        )

    def test_timeout_is_kept(self) -> None:
        """A poll waits no longer than its time-out.

        Steps: at the end of a queue poll three times with a time-out of 100 ms and measure the time. Passes when all give
        nothing and the quickest took less than 600 ms.
        """
        self._need_following()
        name = self.filled_queue(3)
        with self.opened(name) as reader:
            self.read(reader, 3)
            self.read_to_end(reader)
            seconds = [self._clocked(reader, timedelta(milliseconds=100)) for _ in range(3)]
        expect(
            min(seconds) < 0.6,
            expected="a return within about 100 ms",
            found=f"{min(seconds):.2f} s at best",
            mend="pass the time-out on to the call that waits",
        )

    def test_new_records_are_followed(self) -> None:
        """A reader at the end of a queue continues when records are appended.

        Steps: read 5 records; then poll once more, write 5 and read them, three times. Passes when all come in order.
        """
        self._need_following()
        name = self.filled_queue(5)
        with self.opened(name) as reader:
            found = self.read(reader, 5).records
            for turn in range(1, 4):
                reader.poll(10, _ZERO)
                self.write(name, self.bodies(turn * 5, 5))
                found += self.read(reader, 5).records
        self.expect_bodies(found, self.bodies(0, 20), what="in four parts", mend="look for new records at each poll")

    def test_bodies_are_unchanged(self) -> None:
        """Bodies come back byte for byte: only the codec decodes them.

        Steps: write the ``odd_bodies`` and read them. Passes when they are equal. For sources that give bodies.
        """
        name = self.filled_queue(1)
        self.need_bodies(name)
        with self.opened(name) as reader:
            self.read(reader, 1)
            self.write(name, self.odd_bodies)
            reading = self.read(reader, len(self.odd_bodies))
        self.expect_bodies(
            reading.records,
            self.odd_bodies,
            what="odd bodies",
            mend="do not decode, strip or cut bodies; see odd_bodies",
        )

    def test_position_behind_the_end_is_refused(self) -> None:
        """A position after the end of the queue (it was truncated or created again) is an error; the reader must not wait.

        Steps: write 5 records; open and poll at the offset ``latest`` + 1000. Passes when DataError is raised.
        """
        name = self.filled_queue(5)
        with self.opened(name) as reader:
            self.read(reader, 5)
            behind = reader.latest + 1000
        self._expect_lost(name, ReadPosition(behind))

    def test_forgotten_position_is_refused(self) -> None:
        """A position whose records retention has deleted is an error with both offsets: nothing is skipped silently.

        Steps: write 30 records, read 5, let the queue delete the first 20 (``forget``), open and poll at the old position.
        Passes when DataError is raised with the position's offset and the earliest offset.
        """
        self.need("forget")
        name = self.filled_queue(30)
        with self.opened(name) as reader:
            self.read(reader, 5)
            position = as_checkpointed(reader.position)
            self.read(reader, 15)
            before = reader.position.offset
        self.forget(name, before)
        text = self._expect_lost(name, position)
        with self.opened(name) as reader:
            earliest = reader.earliest
        expect(
            str(position.offset) in text and str(earliest) in text,
            expected=f"an error with both offsets, {position.offset} and {earliest}",
            found=shortened(text),
            mend="the error must say which offset was requested and which is the earliest",
        )

    def test_forgotten_records_are_not_skipped_by_an_open_reader(self) -> None:
        """If retention deletes records that an open reader has not read yet, the reader raises an error and skips nothing.

        Steps: write 30 records, read 5, let the queue delete the first 20 (``forget``), continue with the same reader. Passes
        when all 30 records come (the reader had them already), or DataError is raised.
        """
        self.need("forget")
        name = self.filled_queue(30)
        with self.opened(name) as other:
            self.read(other, 20)
            before = other.position.offset
        mend = "compare the position with the earliest offset at each poll, and raise DataError with both"
        found: list[object] = []
        with self.opened(name) as reader:
            begun = self.read(reader, 5)
            self.forget(name, before)
            deadline = time.monotonic() + self.patience.total_seconds()
            try:
                while len(found) < 25 and reader.position.offset < reader.latest and time.monotonic() < deadline:
                    raw = reader.poll(10, timedelta(milliseconds=100))
                    if raw is not None:
                        reading = Reading()
                        reading.add(raw)
                        found += reading.records
            except DataError:
                return
        self.expect_bodies(
            [*begun.records, *found], self.bodies(0, 30), what="DataError, or all records as before", mend=mend
        )

    def _expect_lost(self, name: str, position: ReadPosition) -> str:
        __tracebackhide__ = True
        mend = "compare the position with earliest and latest in open, and raise DataError with the offsets"
        try:
            with self.opened(name, position) as reader:
                raw = reader.poll(10, timedelta(seconds=1))
        except DataError as error:
            return str(error)
        found = "no error, and no records" if raw is None else f"records came, from {raw.offsets[:1]}"
        violated(expected=f"DataError for {position}", found=found, mend=mend)

    def _need_following(self) -> None:
        if self.make_source().bounded:
            pytest.skip("not checked: the source is bounded")

    def _clocked(self, reader: Reader, timeout: timedelta) -> float:
        """Return the seconds that a poll takes. It runs in a new thread, so that a poll that waits for ever fails the check."""
        __tracebackhide__ = True
        took: list[float] = []
        came: list[RawBatch | None] = []

        def poll() -> None:
            begun = time.monotonic()
            came.append(reader.poll(10, timeout))
            took.append(time.monotonic() - begun)

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        thread.join(self.patience.total_seconds())
        if not took:
            violated(
                expected=f"poll returns after {timeout}",
                found=f"no return within {self.patience}, or an error in it",
                mend="pass the time-out on to the call that waits",
            )
        expect(
            came[0] is None or not len(came[0]),
            expected="nothing at the end of the queue",
            found=f"{came[0]!r}",
            mend="return None when nothing came within the time-out",
        )
        return took[0]
