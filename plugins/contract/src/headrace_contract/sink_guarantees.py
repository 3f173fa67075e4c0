"""Checks of a sink's guarantee, as its base class states it, with other queues and jobs, and with errors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from headrace.flow.messages import Batch, Position, Queue, QueueRemoved
from headrace.flow.schema import Schema
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import JobError, JobFailedError, RetriableError
from headrace.interfaces.sink import Sink, StaleWriterError, TransactionalSink

from headrace_contract.contract import expect, shortened, violated
from headrace_contract.options import raises_clearly
from headrace_contract.pickling import through_pickle
from headrace_contract.sink_harness import SinkHarness, batch_of, patience_settings, sink_batch

#: Names of queues as real sources have them, and unusual names. The rows of all must be kept apart.
QUEUE_NAMES = (
    "events-0",
    "events-1",
    "/var/log/app one/access.log",
    "logs/grüße 漢字.ndjson",
    'it\'s "quoted" `so`\\ 100%_',
    "Events-0",
    "../../escape",
    "long-" + "x" * 230,
)


class SinkGuaranteeChecks(SinkHarness):
    """At least once, idempotent or exactly once; queues kept apart; errors of the right kind."""

    def test_replay_keeps_the_guarantee(self) -> None:
        """Rows that are written again after a restart keep the guarantee of the base class: no row is missing, and with
        IdempotentSink and TransactionalSink none is seen twice.

        Steps: write records 0–29 (two rows each); with a new sink, replay records 10 to 39 in batches with other limits.
        Passes when a reader sees all rows, each once if the class promises that.
        """
        first = self.batches("q", 0, 30, 10, rows_per_record=2)
        self._write_all(first, batch_size=7)
        again = self.batches("q", 10, 30, 8, rows_per_record=2)
        self._write_all(again, batch_size=5)
        everything = self.batches("q", 0, 40, rows_per_record=2)
        self.expect_stored(
            everything,
            once=self.exactly_once,
            mend="an IdempotentSink keys its writes by batch.ids() or a user key; a TransactionalSink stores batch.last "
            "with the rows and returns it from last_offset",
        )

    def test_last_offset_gives_what_was_stored(self) -> None:
        """``last_offset``, on which exactly once depends, is the (offset, index) of the last stored row of a queue.

        Steps: ask for a new queue; write two queues; ask this sink and a new one. Passes when it was None first and then
        the last position of each queue, with its index.
        """
        sink = self._transactional(self.prepared_sink())
        sink.open()
        unknown, ends = sink.last_offset(Queue("q1")), {"q1": Position(4, 2), "q2": Position(17, 2)}
        mend = "store batch.last under batch.queue.id in the transaction that stores the rows, and read it back"
        expect(unknown is None, expected="None for a queue without rows", found=repr(unknown), mend=mend)
        for name, end in ends.items():
            for batch in self.batches(name, end.offset - 1, 2, rows_per_record=3):
                sink.batch_insert(sink_batch(batch))
        new = self._transactional(self.prepared_sink())
        new.open()
        for which, asked in (("the same sink", sink), ("a new sink", new)):
            for name, end in ends.items():
                found = asked.last_offset(Queue(name))
                expect(found == end, expected=f"{which}: {end} for {name}", found=repr(found), mend=mend)
        sink.close()
        new.close()

    def test_stale_writer_is_refused(self) -> None:
        """A writer whose queue another writer has taken over (a zombie) must not add rows.

        Steps: A stores records 0–4, B stores 5–9 of the same queue; A, which still believes that 4 is the last, stores
        5–9; C, which believes that nothing is stored, stores 0–4. Passes when both get StaleWriterError, a reader sees
        each row once, and last_offset is 9.
        """
        a, b, c = (self._transactional(self.prepared_sink()) for _ in range(3))
        for sink in (a, b, c):
            sink.open()
        early, late = self.batches("q", 0, 5)[0], self.batches("q", 5, 5)[0]
        a.batch_insert(sink_batch(early))
        b.batch_insert(sink_batch(late, early.last))
        mend = "in the transaction, compare the stored position with batch.after, and raise StaleWriterError if they differ"
        for zombie, batch, after in ((a, late, early.last), (c, early, None)):
            try:
                zombie.batch_insert(sink_batch(batch, after))
            except StaleWriterError:
                continue
            violated(expected=f"StaleWriterError when rows after {after} are stored again", found="no error", mend=mend)
        found = b.last_offset(Queue("q"))
        for sink in (a, b, c):
            sink.close()
        expect(found == late.last, expected=f"last_offset is still {late.last}", found=repr(found), mend=mend)
        self.expect_stored([early, late], mend=mend)

    def test_queues_are_kept_apart(self) -> None:
        """Rows and positions of one queue do not mix with those of another, whatever the names of the queues.

        Steps: write the same offsets to eight queues with unusual names, in turn; then, with a new sink, write the next
        records of each. Passes when a reader sees all rows, each once.
        """
        batches = [self.batches(name, 0, 5)[0] for name in QUEUE_NAMES]
        more = [self.batches(name, 5, 3)[0] for name in QUEUE_NAMES]
        self._write_all(batches)
        self._write_all(more)
        self.expect_stored([*batches, *more], mend="store everything under the complete batch.queue.id, escaped")

    def test_jobs_are_kept_apart(self) -> None:
        """Two jobs that write to one target do not treat rows of the other job as replays of their own.

        Steps: one job writes records 0-9 of a queue; another, with its own ``writer_name``, writes other rows for records
        0-14 of a queue of the same name; the first continues to 14. Passes when a reader sees all rows, each once. For
        sinks that promise exactly once.
        """
        if not self.exactly_once:
            pytest.skip("not checked: a plain Sink does not recognise replayed rows")
        first, second = self.batches("q", 0, 15, 5), self.batches("q of another job", 0, 15, 5)
        second = [Batch(Queue("q"), batch.frame) for batch in second]
        self._write_all(first[:2])
        self._write_all(second, job="other")
        self._write_all(first[2:])
        self.expect_stored(
            [*first, *second], mend="store positions and row ids under self.writer_name and the queue's id"
        )

    def test_queues_are_written_at_once(self) -> None:
        """A sink with ``concurrent = True`` allows calls for different queues at the same time.

        Steps: insert rows of four queues into one sink, from four threads. Passes when all rows are seen, each once.
        """
        sink = self.prepared_sink(batch_size=5)
        if not sink.concurrent:
            pytest.skip("not checked: the sink is not concurrent")
        queues = [self.batches(f"q{number}", 0, 40, 10) for number in range(4)]
        failures: list[BaseException] = []
        sink.open()
        start = threading.Barrier(len(queues), timeout=self.patience.total_seconds())

        def write(batches: Sequence[Batch]) -> None:
            try:
                start.wait()
                after = None
                for batch in batches:
                    sink.batch_insert(sink_batch(batch, after))
                    after = batch.last if isinstance(sink, TransactionalSink) else None
            except BaseException as error:  # the thread of the check reports it
                failures.append(error)

        threads = [threading.Thread(target=write, args=(batches,), daemon=True) for batches in queues]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.patience.total_seconds())
        mend = "give each thread its own connection, or lock the data that they share; otherwise set concurrent = False"
        hanging = [thread for thread in threads if thread.is_alive()]
        if hanging and not failures:
            violated(expected="four queues written at once", found=f"{len(hanging)} threads still wait", mend=mend)
        sink.close()
        if failures:
            violated(expected="four queues written at once", found=shortened(failures[0]), mend=mend)
        self.expect_stored([batch for batches in queues for batch in batches], mend=mend)

    def test_queue_comes_back(self) -> None:
        """A queue that was removed (moved to another instance) can be assigned again.

        Steps: write a queue, send QueueRemoved, write its next records through the same writer. Passes when a reader
        sees all rows, each once.
        """
        first, second = self.batches("q", 0, 5)[0], self.batches("q", 5, 5)[0]
        with self.writing() as writer:
            writer.write(first)
            writer.on_system(QueueRemoved(Queue("q")))
            writer.write(second)
        self.expect_stored([first, second], mend="queue_removed must drop only what is in memory, not what is stored")

    def test_bad_row_goes_to_dead_letters(self) -> None:
        """If the target refuses one row, the other rows of the batch must still be stored.

        Steps: write 20 rows, one of them the author's bad row. Passes when only that row is a dead letter, with a reason,
        and a reader sees the others, each once (at least once for a plain Sink).
        """
        self.need("bad_row")
        schema = Schema.of(self.schema)
        rows = [self.make_row(number) for number in range(20)]
        good = [*rows[:7], *rows[8:]]
        rows[7] = self.bad_row()
        refused: list[Batch] = []
        mend = "raise an error for the whole call, after a rollback if the target has it; never leave out rows silently"
        try:
            with self.writing(dead_letters=refused) as writer:
                writer.write(batch_of(Queue("q"), [(offset, 0) for offset in range(20)], rows, schema))
        except (JobError, JobFailedError, RetriableError) as error:
            violated(
                expected="an error of the row (DataError or an error of the driver)",
                found=f"{type(error).__name__}: {shortened(str(error))}",
                mend="JobError stops the job and RetriableError repeats the call: raise none of them for the values of a row",
            )
        offsets = [row["offset"] for batch in refused for row in batch.frame.to_dicts()]
        expect(offsets == [7], expected="one dead letter: the row of offset 7", found=f"offsets {offsets}", mend=mend)
        reason = refused[0].frame["reason"][0]
        expect(
            bool(reason and reason.strip()),
            expected="the dead letter says why",
            found=f"reason {reason!r}",
            mend="give the exception a message",
        )
        self.expect_rows(good, once=isinstance(self.make_sink(), TransactionalSink) or self.exactly_once, mend=mend)

    def test_outage_is_retried(self) -> None:
        """During an outage of the target, calls raise RetriableError; after it, the same sink object continues.

        Steps: write 5 rows; make the target unreachable; write 5 more (the writer retries; the outage ends at its first
        wait); write 5 more. Passes when the writer had to retry, and a reader sees all rows.
        """
        self.need("begin_outage", "end_outage")
        batches = self.batches("q", 0, 15, 5)
        clock = _EndsOutage(self)
        sink = self.prepared_sink(**patience_settings(self.patience))
        mend = "turn connection errors of the driver into RetriableError, and connect again in the next call"
        refused: list[Batch] = []
        try:
            with self.writing(sink, clock=clock, dead_letters=refused) as writer:
                writer.write(batches[0])
                writer.flush()
                self.begin_outage()
                for batch in batches[1:]:
                    writer.write(batch)
                    writer.flush()
                retries = writer.counts.retries
        except (JobError, JobFailedError) as error:
            violated(expected="the writer continues after the outage", found=shortened(str(error)), mend=mend)
        finally:
            clock.end()
        if refused:
            reason = refused[0].frame.row(0, named=True)
            violated(
                expected="rows are not refused because of an outage",
                found=f"rows went to the dead letters: {reason['error']}: {reason['reason']}",
                mend=mend,
            )
        expect(retries > 0, expected="RetriableError during the outage", found="no error at all", mend=mend)
        self.expect_stored(batches, once=self.exactly_once, mend=mend)

    def test_missing_target_is_named(self) -> None:
        """A target that does not exist stops the job at its start, with a hint.

        Steps: prepare and open the author's sink that names something missing. Passes when a JobError with a hint is
        raised.
        """
        self.need("make_sink_without_target")
        sink = self.make_sink_without_target()
        with raises_clearly(
            JobError,
            what="starting with a target that does not exist",
            mend="look for it in prepare, and raise JobError with its name and a hint how to create it",
        ):
            sink.prepare(Schema.of(self.schema))
            sink.open()
        sink.close()

    def test_prepare_keeps_what_is_there(self) -> None:
        """``prepare`` runs at every start of the job: it must not empty the target.

        Steps: write 5 rows; check and prepare a new sink twice; write 5 more. Passes when a reader sees all ten.
        """
        first, second = self.batches("q", 0, 5)[0], self.batches("q", 5, 5)[0]
        self._write_all([first])
        self.prepared_sink()
        self._write_all([second])
        self.expect_stored([first, second], mend="prepare must create only what is missing, and keep what exists")

    def test_survives_pickle(self) -> None:
        """Backends send the sink to their workers by cloudpickle before it is opened.

        Steps: check and prepare a sink, send it through cloudpickle, write with the copy. Passes when a reader sees the rows.
        """
        sink = self.prepared_sink()
        copy = through_pickle(sink, what="a sink")
        batches = self.batches("q", 0, 5)
        with self.writing(copy) as writer:
            writer.write(batches[0])
        self.expect_stored(batches, mend="keep everything that the sink needs in its attributes")

    def test_close_twice(self) -> None:
        """``close`` may be called twice, and without ``open``.

        Steps: close a sink that was never opened; write with another and close it twice. Passes when nothing is raised
        and a reader sees the rows once.
        """
        batches = self.batches("q", 0, 5)
        sink = self.prepared_sink()
        mend = "let close do nothing if there is nothing to close, or nothing any more"
        try:
            self.make_sink().close()
            with self.writing(sink) as writer:
                writer.write(batches[0])
            sink.close()
        except Exception as error:
            violated(expected="close() raises nothing", found=f"{type(error).__name__}: {error}", mend=mend)
        self.expect_stored(batches, mend=mend)

    def _write_all(self, batches: Sequence[Batch], **settings: Any) -> None:
        with self.writing(self.prepared_sink(**settings)) as writer:
            for batch in batches:
                writer.write(batch)
                writer.flush()

    def _transactional(self, sink: Sink) -> TransactionalSink:
        if not isinstance(sink, TransactionalSink):
            pytest.skip("not checked: the sink is not a TransactionalSink")
        return sink


class _EndsOutage(SystemClock):
    """A clock that ends the outage when the writer first waits before a retry."""

    def __init__(self, contract: SinkHarness) -> None:
        self._contract = contract
        self._ended = False

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._contract.end_outage()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.end()
        return super().wait(event, seconds)
