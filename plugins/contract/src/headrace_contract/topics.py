"""The contract of ``Topics``: the topics on which a runtime of several instances keeps its shuffles and its state."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import ClassVar

import pytest
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from headrace.interfaces.source import EARLIEST, GroupSource, Reader
from headrace.interfaces.topics import Topics

from headrace_contract.contract import expect, shortened, violated
from headrace_contract.group_member import Member, RunningMember
from headrace_contract.outages import WithOutages
from headrace_contract.processes import Mends, run_and_kill

_POLL = timedelta(milliseconds=100)


class TopicsContract(WithOutages):
    """What every ``Topics`` must do. An author gives ``make_topics``.

    class TestMyTopics(TopicsContract):
        def make_topics(self):
            return MySource(MySettings(topic="t", servers=SERVERS)).topics()
    """

    #: False when a process cannot see what another one has written (a broker in memory).
    several_processes: ClassVar[bool] = True
    #: How many records ``test_many_records`` appends.
    many_records: ClassVar[int] = 20_000

    def make_topics(self) -> Topics | None:
        """Return a new object; within one check all use the same broker. Some checks call it in several threads."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------ topics

    def test_create_makes_just_so_many_queues(self) -> None:
        """Each shard has a queue: there must be exactly the requested number of queues, numbered from 0.

        Steps: create a topic of 5 queues, and another of one; list them by a source. Passes when the numbers of their
        queues are 0 to 4, and 0.
        """
        with self.topics() as topics:
            for topic, count in ((self.unique_name, 5), (f"{self.unique_name}_one", 1)):
                topics.create(topic, count)
                found = sorted(self._queues(topics, topic))
                expect(
                    found == list(range(count)),
                    expected=f"the queues of a new topic have the numbers {list(range(count))}",
                    found=str(found),
                    mend="create exactly the requested number of queues; number_of() must return the number that append() takes",
                )

    def test_create_twice_is_harmless(self) -> None:
        """Every instance creates the topics when it starts, and several start at once.

        Steps: five threads, each with its own object, create the same topic and append a record; create it once more; read.
        Passes when nothing is raised and the records are there.
        """
        errors: list[BaseException] = []

        def create() -> None:
            try:
                with self.topics() as topics:
                    topics.create(self.unique_name, 3)
                    topics.append(self.unique_name, 1, [threading.current_thread().name.encode()])
                    topics.flush()
            except BaseException as error:  # reported below
                errors.append(error)

        threads = [threading.Thread(target=create, name=f"instance {number}") for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect(
            not errors,
            expected="create() and the first append() work for five instances that start at once",
            found="; ".join(f"{type(error).__name__}: {error}" for error in errors),
            mend="accept an existing topic with that number of queues; return only when the topic can be written",
        )
        with self.topics() as topics:
            topics.create(self.unique_name, 3)
            found = self._read(topics, self.unique_name, 5)
        self._expect_queue(sorted(found[1]), [thread.name.encode() for thread in threads], "what five instances wrote")
        self._expect_queue(found[0] + found[2], [], "the queues that nobody wrote to")

    def test_another_number_of_queues_is_refused(self) -> None:
        """The number of shards is fixed: with another number, rows would go to shards without the state of their keys.

        Steps: create a topic of 3 queues, then again with 4 and with 2. Passes when both raise JobError.
        """
        with self.topics() as topics:
            topics.create(self.unique_name, 3)
            for count in (4, 2):
                try:
                    topics.create(self.unique_name, count)
                except JobError:
                    continue
                violated(
                    expected=f"create() of a topic of 3 queues with {count} raises JobError",
                    found="nothing is raised",
                    mend="check the number of queues of an existing topic",
                )

    # ----------------------------------------------------------------------------------------------- records

    def test_order_in_each_queue(self) -> None:
        """Records are read from the queue to which they were appended, in the order in which they were appended.

        Steps: append 300 records to three queues in turn, in runs of 1 to 7, with some flushes in between; read them by
        another object. Passes when each queue has its own records, in order, each once.
        """
        wanted: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        with self.topics() as topics:
            topics.create(self.unique_name, 3)
            number = 0
            while number < 300:
                queue, run = number % 3, 1 + number % 7
                bodies = [b"record %d" % each for each in range(number, number + run)]
                topics.append(self.unique_name, queue, bodies)
                wanted[queue] += bodies
                number += run
                if number % 5 == 0:
                    topics.flush()
            topics.flush()
            with self.topics() as other:
                found = self._read(other, self.unique_name, sum(map(len, wanted.values())))
        for queue, bodies in wanted.items():
            self._expect_queue(found[queue], bodies, f"queue {queue}")

    def test_bodies_are_unchanged(self) -> None:
        """Bodies are bytes: state and frames, not text.

        Steps: append bodies with every byte, newlines, and one that looks like JSON; read them. Passes when they are the
        same.
        """
        bodies = [bytes(range(256)), b"\n", b"\x00", b"two\r\nlines\n", b'{"a": 1}', b" ", os.urandom(100_000)]
        with self.topics() as topics:
            topics.create(self.unique_name, 1)
            topics.append(self.unique_name, 0, bodies)
            topics.flush()
            found = self._read(topics, self.unique_name, len(bodies))[0]
            self._expect_queue(found, bodies, "odd bodies")

    def test_many_records(self) -> None:
        """A shuffle sends many records between two flushes.

        Steps: append ``many_records`` records of 100 bytes to two queues, and flush once. Passes when all are read, in order.
        """
        half = self.many_records // 2
        with self.topics() as topics:
            topics.create(self.unique_name, 2)
            wanted = [[b"%099d." % (2 * number + queue) for number in range(half)] for queue in (0, 1)]
            for begin in range(0, half, 1000):
                for queue in (0, 1):
                    topics.append(self.unique_name, queue, wanted[queue][begin : begin + 1000])
            topics.flush()
            found = self._read(topics, self.unique_name, 2 * half)
        for queue in (0, 1):
            self._expect_queue(found[queue], wanted[queue], f"queue {queue}")

    def test_the_largest_records(self) -> None:
        """Callers divide larger data into records of ``max_record_bytes``: these must be accepted, compressed or not.

        Steps: append five records of exactly that size that cannot be compressed, and flush; append one that is larger.
        Passes when the five can be read, and the sixth is refused with JobError.
        """
        with self.topics() as topics:
            topics.create(self.unique_name, 1)
            size = topics.max_record_bytes
            bodies = [os.urandom(size) for _ in range(5)]
            topics.append(self.unique_name, 0, bodies)
            topics.flush()
            found = self._read(topics, self.unique_name, len(bodies))[0]
            expect(
                found == bodies,
                expected=f"5 records of {size} bytes are read as they were written",
                found=f"{len(found)} records of {[len(body) for body in found]} bytes",
                mend="choose max_record_bytes so that there is room for the bytes that the broker adds",
            )
            try:
                topics.append(self.unique_name, 0, [b"x" * (size + 1)])
                topics.flush()
            except JobError:
                return
        violated(
            expected=f"a record of {size + 1} bytes is refused with JobError",
            found="nothing is raised",
            mend="compare with max_record_bytes in append()",
        )

    # -------------------------------------------------------------------------------------------- durability

    def test_flush_makes_durable(self) -> None:
        """Other objects can read flushed records, also if the object that wrote them is not closed.

        Steps: append and flush; without a close, read by another object; append by that one, flush, and read by a third.
        Passes when both records are read, in that order.
        """
        with self.topics() as first, self.topics() as second, self.topics() as third:
            first.create(self.unique_name, 1)
            first.append(self.unique_name, 0, [b"first"])
            first.flush()
            self._expect_queue(self._read(second, self.unique_name, 1)[0], [b"first"], "what another object reads")
            second.append(self.unique_name, 0, [b"second"])
            second.flush()
            first.flush()
            found = self._read(third, self.unique_name, 2)[0]
        self._expect_queue(found, [b"first", b"second"], "what two objects wrote one after the other")

    def test_close_flushes(self) -> None:
        """``close`` flushes the appended records, and may be called twice.

        Steps: append, close twice; close an object that was never used; read by another. Passes when the record is read.
        """
        with self.topics() as topics:
            topics.create(self.unique_name, 1)
            topics.append(self.unique_name, 0, [b"last"])
            topics.close()
            topics.close()
        with self.topics() as unused:
            unused.close()
        with self.topics() as topics:
            self._expect_queue(self._read(topics, self.unique_name, 1)[0], [b"last"], "what close() has flushed")

    def test_a_kill_loses_nothing_flushed(self) -> None:
        """If a process is killed, all records up to its last flush are there.

        Steps: a process appends records and flushes, and notes each flush in a file, until it is killed with SIGKILL. Passes
        when all noted records can be read, in order.
        """
        if not self.several_processes:
            pytest.skip("not checked: other processes cannot see the records (several_processes = False)")
        notes, topic, make = self.tmp_path / "notes", self.unique_name, self.make_topics

        def write_for_ever() -> None:
            topics = make()
            assert topics is not None
            topics.create(topic, 1)
            with open(notes, "ab", buffering=0) as file:
                number = 0
                while True:
                    number += 1
                    topics.append(topic, 0, [b"%d" % (2 * number - 1), b"%d" % (2 * number)])
                    topics.flush()
                    file.write(b"%d\n" % (2 * number))

        run_and_kill(
            self, write_for_ever, notes, what="the topics' contract", does="appends and flushes",
            mend=Mends(
                slow="flush() must return when everything is stored",
                ended="append() and flush() must not fail while the broker is available",
            ),
        )  # fmt: skip
        noted = int(notes.read_bytes().split()[-1])
        with self.topics() as topics:
            topics.create(topic, 1)
            found = self._read(topics, topic, noted)[0]
        wanted = [b"%d" % number for number in range(1, max(noted, len(found)) + 1)]
        self._expect_queue(found, wanted, f"the {noted} records that were flushed, and perhaps more")

    def test_an_outage_loses_nothing(self) -> None:
        """An outage of the broker costs time, but no records: appended records are sent when the broker is available again.

        Steps: append and flush; begin the outage; append, flush (RetriableError), append more, create (RetriableError);
        end the outage; flush until it works; read. Passes when every record is read; runs of records may be there twice.
        """
        self.need("begin_outage", "end_outage")
        topic = self.unique_name
        with self.topics() as topics:
            topics.create(topic, 1)
            topics.append(topic, 0, [b"0", b"1"])
            topics.flush()
            self.begin_outage()
            try:
                topics.append(topic, 0, [b"2", b"3"])
                self._expect_retriable(topics.flush, "flush()")
                topics.append(topic, 0, [b"4"])
                self._expect_retriable(lambda: topics.create(f"{topic}_other", 1), "create()")
            finally:
                self.end_outage()
            self._retried(topics.flush, "flush() works when the broker is available again")
            topics.append(topic, 0, [b"5"])
            self._retried(topics.flush, "flush() works when the broker is available again")
            found = self._read(topics, topic, 6)[0]
        first_places = sorted(set(found), key=found.index)
        self._expect_queue(first_places, [b"%d" % number for number in range(6)], "each record, at its first position")

    # ----------------------------------------------------------------------------------------------- reading

    def test_a_group_shares_the_queues(self) -> None:
        """The instances of a job share a topic's queues in a group.

        Steps: append 10 records to each of four queues; let a source of the topic join a group; then a second; append 10
        more. Passes when the first reads everything, then both share the queues, and together read all records.
        """
        topic, group = self.unique_name, f"{self.unique_name}_group"
        with self.topics() as topics:
            topics.create(topic, 4)
            self._append_numbers(topics, topic, 0)
            with self._running(topics.source(topic, group)) as first:
                self._until([first], lambda: self._has_all(topics, [first], 10), "the first member reads everything")
                with self._running(topics.source(topic, group)) as second:
                    both = [first, second]
                    self._until(
                        both,
                        lambda: (
                            all(each.member.held for each in both) and sum(len(each.member.held) for each in both) == 4
                        ),
                        "two members share four queues",
                    )
                    self._append_numbers(topics, topic, 10)
                    self._until(both, lambda: self._has_all(topics, both, 20), "the members read everything")

    def test_a_source_goes_on_where_another_was(self) -> None:
        """Offsets are the same for every source of the topic: state is read from a stored offset on.

        Steps: append 20 records; read 7 by one source, and continue from its position by a source of another object. Passes
        when that gives the other 13.
        """
        topic = self.unique_name
        with self.topics() as topics, self.topics() as other:
            topics.create(topic, 2)
            bodies = [b"%d" % number for number in range(20)]
            topics.append(topic, 1, bodies)
            topics.flush()
            with self._source(topics, topic) as source:
                queue = self._queues_of(topics, source)[1]
                reader = source.open(queue, EARLIEST)
                found: list[bytes] = []

                def read_seven() -> bool:
                    found.extend(self._poll(reader, 7 - len(found)))
                    return len(found) == 7

                self.eventually(
                    read_seven,
                    expected="seven records can be read",
                    mend="poll must give the records that were flushed",
                )
                position = ReadPosition.from_json(reader.position.to_json())
                reader.close()
            rest = self._read(other, topic, 13, {1: position})[1]
        self._expect_queue(rest, bodies[7:], "the records from a position on")

    def test_trim_is_harmless(self) -> None:
        """``trim`` removes old records if the broker can do this; the records from the offset on stay.

        Steps: append 10 records to each of two queues; trim one before 0, and twice before its sixth record; append one
        more. Passes when the last five and the new one are read, and the other queue is complete.
        """
        topic = self.unique_name
        bodies = [b"%d" % number for number in range(10)]
        with self.topics() as topics:
            topics.create(topic, 2)
            for queue in (0, 1):
                topics.append(topic, queue, bodies)
            topics.flush()
            with self._source(topics, topic) as source:
                reader = source.open(self._queues_of(topics, source)[0], EARLIEST)
                earliest = reader.earliest
                reader.close()
            for before in (0, earliest + 5, earliest + 5):
                topics.trim(topic, 0, before)
            topics.append(topic, 0, [b"new"])
            topics.flush()
            found = self._read(topics, topic, 16)
        self._expect_queue(found[0][-6:], [*bodies[5:], b"new"], "the records from the offset on")
        self._expect_queue(found[1], bodies, "the queue that was not trimmed")

    # ------------------------------------------------------------------------------------------------ inside

    @contextmanager
    def topics(self) -> Iterator[Topics]:
        """Give a new ``Topics`` object; close it at the end."""
        made = self.make_topics()
        if made is None:
            violated(expected="make_topics() returns a Topics", found="None", mend="return topics() of the source")
        try:
            yield made
        finally:
            made.close()

    @contextmanager
    def _source(self, topics: Topics, topic: str) -> Iterator[GroupSource]:
        source = topics.source(topic, f"{self.unique_name}_reader")
        try:
            yield source
        finally:
            source.close()

    def _queues_of(self, topics: Topics, source: GroupSource) -> dict[int, Queue]:
        return {topics.number_of(queue): queue for queue in source.queues()}

    def _queues(self, topics: Topics, topic: str) -> dict[int, Queue]:
        with self._source(topics, topic) as source:
            return self._queues_of(topics, source)

    @staticmethod
    def _poll(reader: Reader, count: int) -> list[bytes]:
        raw = reader.poll(count, _POLL)
        return [] if raw is None or raw.bodies is None else list(raw.bodies)

    def _read(
        self, topics: Topics, topic: str, count: int, positions: dict[int, ReadPosition] | None = None
    ) -> dict[int, list[bytes]]:
        """Return the records of each queue, from EARLIEST to its end; with ``positions``, only of these queues, from there on.

        Waits, at most for ``patience``, until there are ``count`` records in all: with some brokers they are visible later.
        """
        found: dict[int, list[bytes]] = {}
        with self._source(topics, topic) as source:
            readers = {
                number: source.open(queue, EARLIEST if positions is None else positions[number])
                for number, queue in self._queues_of(topics, source).items()
                if positions is None or number in positions
            }
            found = {number: [] for number in readers}
            deadline = time.monotonic() + self.patience.total_seconds()
            while time.monotonic() < deadline:
                for number, reader in readers.items():
                    found[number] += self._poll(reader, 5000)
                if sum(map(len, found.values())) >= count and all(
                    reader.position.offset >= reader.latest for reader in readers.values()
                ):
                    break
            for reader in readers.values():
                reader.close()
        return found

    def _expect_queue(self, found: Sequence[bytes], wanted: Sequence[bytes], what: str) -> None:
        __tracebackhide__ = True
        if list(found) == list(wanted):
            return
        at = next((i for i, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(found), len(wanted)) if at is None else at
        violated(
            expected=f"{what}: {len(wanted)} records, record {at}: {shortened(list(wanted[at : at + 1]), 100)}",
            found=f"{len(found)} records, record {at}: {shortened(list(found[at : at + 1]), 100)}",
            mend="append only to the given queue, in order; flush must store everything once, and then return",
        )

    def _expect_retriable(self, call: Callable[[], None], what: str) -> None:
        __tracebackhide__ = True
        try:
            call()
        except RetriableError:
            return
        except HeadraceError as error:
            found = f"{type(error).__name__}: {error}"
        else:
            found = "nothing is raised"
        violated(
            expected=f"{what} raises RetriableError during the outage",
            found=found,
            mend="wait for the broker's confirmation, a few seconds at most, and keep the records that it has not confirmed",
        )

    def _retried(self, call: Callable[[], None], what: str) -> None:
        __tracebackhide__ = True

        def probe() -> bool:
            try:
                call()
            except RetriableError:
                return False
            return True

        self.eventually(probe, expected=what, mend="connect again, and send again the records that were not confirmed")

    def _append_numbers(self, topics: Topics, topic: str, first: int) -> None:
        for queue in range(4):
            topics.append(topic, queue, [b"%d" % (1000 * queue + number) for number in range(first, first + 10)])
        topics.flush()

    @contextmanager
    def _running(self, source: GroupSource) -> Iterator[RunningMember]:
        running = RunningMember(Member(source))
        try:
            yield running
        finally:
            running.stop(self.patience)

    def _has_all(self, topics: Topics, members: Sequence[RunningMember], count: int) -> bool:
        found = [body for each in members for records in each.member.records.values() for body in records]
        return {b"%d" % (1000 * queue + number) for queue in range(4) for number in range(count)} <= set(found)

    def _until(self, members: Sequence[RunningMember], condition: Callable[[], bool], what: str) -> None:
        __tracebackhide__ = True

        def probe() -> bool:
            for member in members:
                member.check()
            return condition()

        self.eventually(
            probe,
            expected=what,
            mend="source() must return a group source of the topic that passes GroupSourceContract",
        )
