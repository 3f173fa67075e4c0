"""Checks of a source that concern its set of queues and its environment: new and removed queues, outages, crashes."""

from __future__ import annotations

import threading
from datetime import timedelta

import headrace as hr
import pytest
from headrace.flow.messages import Batch, Queue, ReadPosition
from headrace.foundation.errors import BrokenQueueError, HeadraceError, JobError, RetriableError
from headrace.interfaces.source import EARLIEST
from headrace.runtime.lane import DEAD_LETTERS, Lane
from headrace.testing import MemorySink

from headrace_contract.contract import expect, shortened, violated
from headrace_contract.crash import Child, read_journal
from headrace_contract.options import raises_clearly
from headrace_contract.pickling import through_pickle
from headrace_contract.source_harness import Reading, SourceHarness, as_checkpointed, names
from headrace_contract.tasks import ReadTask

_BODY_SCHEMA = {"number": "int64", "text": "string"}


class SourceWorldChecks(SourceHarness):
    """Queues are added and removed, servers fail, processes are killed."""

    def test_every_queue_is_drained(self) -> None:
        """Every queue is listed and read to its end.

        Steps: make three queues with 20, 0 and 7 records; read each queue that ``queues`` lists. Passes when each gives
        its own records.
        """
        self._need_several()
        counts = {self.add_queue(): count for count in (20, 0, 7)}
        for number, (name, count) in enumerate(counts.items()):
            self.write(name, self.bodies(number * 1000, count))
        with self.source() as source:
            for number, (name, count) in enumerate(counts.items()):
                reader = source.open(self.queue(source, name), EARLIEST)
                reading = self.read_to_end(reader)
                reader.close()
                self.expect_bodies(
                    reading.records,
                    self.bodies(number * 1000, count),
                    what=f"queue {name!r}",
                    mend="read the queue that open() is given",
                )

    def test_queues_are_read_at_once(self) -> None:
        """Several queues may be open at once, in several threads.

        Steps: open three queues by one source and read each in its own thread, in polls of 3. Passes when each gives
        its own records.
        """
        self._need_several()
        queue_names = [self.add_queue() for _ in range(3)]
        for number, name in enumerate(queue_names):
            self.write(name, self.bodies(number * 1000, 40))
        results: dict[str, Reading | BaseException] = {}
        with self.source() as source:
            readers = {name: source.open(self.queue(source, name), EARLIEST) for name in queue_names}

            def read(name: str) -> None:
                try:
                    results[name] = self.read(readers[name], 40, per_poll=3)
                except BaseException as error:  # the thread of the check reports it
                    results[name] = error

            threads = [threading.Thread(target=read, args=(name,), daemon=True) for name in queue_names]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(2 * self.patience.total_seconds())
            for reader in readers.values():
                reader.close()
        mend = "readers must not share data that changes, or must lock it"
        for number, name in enumerate(queue_names):
            found = results.get(name, TimeoutError(f"queue {name!r} was not read in time"))
            if isinstance(found, BaseException):
                violated(expected="three queues read at once", found=f"{type(found).__name__}: {found}", mend=mend)
            self.expect_bodies(found.records, self.bodies(number * 1000, 40), what=f"queue {name!r}", mend=mend)

    def test_queue_names_are_stable(self) -> None:
        """A queue has the same name in every source object and at every time: checkpoints and sinks identify it by its name.

        Steps: list the queues twice, write, list by a new source. Passes when the names are the same, no two are equal,
        and ``source`` and ``branch`` are empty, because the runtime sets them.
        """
        queue_names = [self.add_queue() for _ in range(2 if self.several_queues else 1)]
        with self.source() as source:
            for name in queue_names:
                self.queue(source, name)
            first, second = list(source.queues()), list(source.queues())
        self.write(queue_names[0], self.bodies(0, 3))
        with self.source() as source:
            for name in queue_names:
                self.queue(source, name)
            third = list(source.queues())
        mend = "name a queue after the thing that it reads (topic and partition, path), never by its place in a list"
        for listed in (first, second, third):
            expect(
                names(listed) == names(first) and len(set(names(listed))) == len(listed),
                expected=f"the same names at each call, all different: {names(first)}",
                found=f"{names(listed)}",
                mend=mend,
            )
        filled = [queue for queue in third if queue.source or queue.branch]
        expect(
            not filled, expected="Queue(name) alone", found=f"{filled}", mend="leave source and branch to the runtime"
        )

    def test_new_queue_is_noticed(self) -> None:
        """A queue that is created while the job runs is listed, and read from its first record.

        Steps: list the queues, add one with 5 records, list again by the same source (at most for ``patience``), read.
        Passes when it is listed and gives its records.
        """
        self._need_several()
        self.add_queue()
        with self.source() as source:
            source.queues()
            name = self.add_queue()
            self.write(name, self.bodies(0, 5))
            reader = source.open(self.queue(source, name), EARLIEST)
            reading = self.read(reader, 5)
            reader.close()
        self.expect_bodies(
            reading.records, self.bodies(0, 5), what="the new queue", mend="list the queues again at each call"
        )

    def test_removed_queue_is_noticed(self) -> None:
        """A removed queue is no longer listed; the others stay.

        Steps: list two queues, remove one, list again by the same source (at most for ``patience``). Passes when only
        the other is listed.
        """
        self._need_several()
        self.need("remove_queue")
        stays, goes = self.add_queue(), self.add_queue()
        with self.source() as source:
            for name in (stays, goes):
                self.queue(source, name)
            self.remove_queue(goes)
            self.eventually(
                lambda: goes not in names(source.queues()),
                expected=f"queue {goes!r}, which was removed, is no longer listed",
                mend="at each call list the queues that exist now; keep no list in the source",
            )
            left = names(source.queues())
        expect(
            stays in left,
            expected=f"queue {stays!r} is still listed",
            found=f"{left}",
            mend="leave out only removed queues",
        )

    def test_bad_body_goes_to_dead_letters(self) -> None:
        """A body that cannot be decoded goes to the dead letters unchanged; the records around it are decoded.

        Steps: write 10 records, a bad body and 5 records; process what is read in a lane with the JSON codec. Passes when
        15 rows come out, and one dead letter with the bad record's offset, reason and bytes.
        """
        name = self.filled_queue(10)
        self.need_bodies(name)
        self.write(name, [self.bad_body()])
        self.write(name, self.bodies(11, 5))
        with self.source() as source:
            bad = MemorySink()
            job = (
                hr.stream("contract", "source")
                .from_(source, format="json", schema=_BODY_SCHEMA, name="source")
                .dead_letters(lambda letters: letters.to(bad, name="bad"))
                .to(MemorySink(), name="rows")
            )
            plan = job.plan()
            queue = self.queue(source, name)
            reader = source.open(queue, EARLIEST)
            lane = Lane(plan, plan.nodes["source"], Queue(name, "source"))
            rows: list[dict[str, object]] = []
            letters: list[Batch] = []
            offsets: list[int] = []
            while len(offsets) < 16:
                raw = reader.poll(1000, timedelta(milliseconds=100))
                if raw is None:
                    offsets += self.read(reader, 16 - len(offsets)).offsets
                    break
                offsets += raw.offsets.tolist()
                for delivery in lane.process(raw):
                    if delivery.target == DEAD_LETTERS:
                        letters.append(delivery.batch)
                    else:
                        rows += delivery.batch.user_frame().to_dicts()
            reader.close()
        numbers = [row["number"] for row in rows]
        good = [*range(10), *range(11, 16)]
        mend = "give bodies unchanged: the lane decodes them and handles bad ones"
        expect(numbers == good, expected=f"rows {good}", found=f"{numbers}", mend=mend)
        found = [letter for batch in letters for letter in batch.frame.to_dicts()]
        wanted = (offsets[10], self.bad_body())
        expect(
            len(found) == 1 and (found[0]["offset"], found[0]["body"]) == wanted and found[0]["reason"],
            expected=f"one dead letter, offset {wanted[0]}, body {wanted[1]!r}, with a reason",
            found=shortened(found),
            mend=mend,
        )

    def test_survives_pickle(self) -> None:
        """Backends send the source to their workers by cloudpickle before it is used.

        Steps: check a source, send it through cloudpickle, read with the copy. Passes when the records come.
        """
        name = self.filled_queue(5)
        with self.source() as source:
            copy = through_pickle(source, what="a source")
            reader = copy.open(self.queue(copy, name), EARLIEST)
            reading = self.read(reader, 5)
            reader.close()
            copy.close()
        self.expect_bodies(
            reading.records, self.bodies(0, 5), what="read by the copy", mend="keep everything in attributes"
        )

    def test_resume_after_kill(self) -> None:
        """A process that reads is killed; another continues from its last checkpoint without loss or repetition.

        Steps: a process gets the source by cloudpickle, reads 3 batches of 7 records, notes each position, and is killed
        (SIGKILL); a second one continues for 2 batches and is killed; then a new source reads the rest. Passes when the
        three parts together are all records, once.
        """
        name = self.filled_queue(60)
        with self.opened(name) as reader:
            whole = self.read(reader, 60).offsets
        journal = self.tmp_path.parent / f"journal-{self.unique_name}"
        offsets: list[int] = []
        position: ReadPosition | None = None
        for batches in (3, 2):
            source = self.make_source()
            source.check()
            patience = self.patience.total_seconds()
            journal.unlink(missing_ok=True)
            task = ReadTask(source, name, position, 7, batches, str(journal), patience)
            with Child(task, importable=(type(source), type(source.settings))) as child:
                child.wait_until_killed(patience_seconds=2 * patience)
            lines = read_journal(journal)
            offsets += [offset for line in lines for offset in line["offsets"]]
            position = ReadPosition.from_json(lines[-1]["next"])
        assert position is not None
        with self.opened(name, position) as reader:
            offsets += self.read_to_end(reader).offsets
        expect(
            offsets == whole,
            expected=f"{len(whole)} records, each once: {shortened(whole)}",
            found=shortened(offsets),
            mend="start exactly at the given position; do not depend on something that a killed process should have removed",
        )

    def test_outage_is_survived(self) -> None:
        """During an outage no queue counts as removed, and errors are RetriableError; after it reading continues.

        Steps: read 5 records; make the external system unreachable; list queues and poll; end the outage; write 5 and read.
        Passes when listing raises RetriableError or still has the queue, polling raises RetriableError or no error, after the
        outage ``latest`` is told before the next poll (a job that asks for it first would wait for ever), and the same reader gives the 5.
        """
        self.need("begin_outage", "end_outage")
        name = self.filled_queue(5)
        mend = (
            "turn connection errors into RetriableError; an unreachable server does not mean that there are no queues"
        )
        with self.source() as source:
            reader = source.open(self.queue(source, name), EARLIEST)
            found = self.read(reader, 5).records
            self.begin_outage()
            try:
                listed, polled = (
                    _attempt(lambda: names(source.queues())),
                    _attempt(lambda: reader.poll(5, timedelta(0))),
                )
            finally:
                self.end_outage()
            self.eventually(
                lambda: not isinstance(_attempt(lambda: reader.latest), Exception),
                expected="latest is told after the outage, before the next poll",
                mend="ask the server for it again, whatever the last poll has raised",
            )
            for what, result in (("queues()", listed), ("poll()", polled)):
                expect(
                    not isinstance(result, Exception) or isinstance(result, RetriableError),
                    expected=f"{what} raises RetriableError, or nothing",
                    found=f"{type(result).__name__}: {shortened(str(result))}",
                    mend=mend,
                )
            still = isinstance(listed, Exception) or (isinstance(listed, list) and name in listed)
            expect(still, expected=f"queue {name!r} is still listed", found=f"{listed}", mend=mend)
            self.write(name, self.bodies(5, 5))
            found += self.read(reader, 5, after_outage=True).records
            reader.close()
        self.expect_bodies(
            found, self.bodies(0, 10), what="before and after the outage", mend="connect again when necessary"
        )

    def test_broken_queue_stops_no_other(self) -> None:
        """A queue that cannot be read raises BrokenQueueError, so that runtimes set it aside and read the others.

        Steps: read two queues of 5 records by one source and break one. List the queues and poll the broken one (at
        most for ``patience``). Write 3 records to the other queue and read them. Repair the broken one
        (``mend_queue``), write 3 records and read them by a reader opened at the position. Passes when listing raises
        nothing, polling raises BrokenQueueError, and both queues give their 3.
        """
        self._need_several()
        self.need("break_queue", "mend_queue")
        breaks, other = self.filled_queue(5), self.filled_queue(5)
        mend = "raise BrokenQueueError for the broken queue, from open, poll, latest or position_after, and only there"
        with self.source() as source:
            readers = {name: source.open(self.queue(source, name), EARLIEST) for name in (breaks, other)}
            for reader in readers.values():
                self.read(reader, 5)
            self.break_queue(breaks)
            listed = _attempt(lambda: names(source.queues()))
            expect(
                isinstance(listed, list) and other in listed,
                expected=f"queues() lists {other!r}",
                found=shortened(listed),
                mend=mend,
            )
            self.eventually(
                lambda: isinstance(_attempt(lambda: readers[breaks].poll(5, timedelta(0))), BrokenQueueError),
                expected="poll() of the broken queue raises BrokenQueueError",
                mend=mend,
            )
            self.write(other, self.bodies(5, 3))
            self.expect_bodies(
                self.read(readers[other], 3).records, self.bodies(5, 3), what="the other queue", mend=mend
            )
            position = as_checkpointed(readers[breaks].position)
            readers[breaks].close()
            self.mend_queue(breaks)
            self.write(breaks, self.bodies(5, 3))
            reader = source.open(self.queue(source, breaks), position)
            found = self.read(reader, 3).records
            for each in (reader, readers[other]):
                each.close()
        self.expect_bodies(
            found, self.bodies(5, 3), what="the repaired queue", mend="continue at the position; give each record once"
        )

    def test_missing_thing_is_named(self) -> None:
        """A topic, table or directory that does not exist stops the job with a hint; it is not an empty stream.

        Steps: list the queues of the author's source that names something missing. Passes when a JobError with a hint
        is raised.
        """
        self.need("make_missing_source")
        source = self.make_missing_source()
        with raises_clearly(
            JobError,
            what="listing the queues of something that does not exist",
            mend="raise JobError with its name and a hint (the most similar name, or how to create it)",
        ):
            source.queues()
        source.close()

    def test_close_twice(self) -> None:
        """``close`` of a reader and of a source may be called twice, and on a source that was not used.

        Steps: close an unused source; read a record and close reader and source twice each. Passes when nothing raises.
        """
        name = self.filled_queue(1)
        try:
            self.make_source().close()
            source = self.make_source()
            reader = source.open(self.queue(source, name), EARLIEST)
            self.read(reader, 1)
            for thing in (reader, reader, source, source):
                thing.close()
        except (HeadraceError, OSError, RuntimeError, AttributeError, ValueError, TypeError) as error:
            violated(
                expected="close() raises nothing",
                found=f"{type(error).__name__}: {shortened(str(error))}",
                mend="let close do nothing if there is nothing to close, or nothing any more",
            )

    def _need_several(self) -> None:
        if not self.several_queues:
            pytest.skip("not checked: the source has one queue (several_queues = False)")


def _attempt(action: object) -> object:
    try:
        return action()  # type: ignore[operator]
    except Exception as error:  # the check looks at its type
        return error
