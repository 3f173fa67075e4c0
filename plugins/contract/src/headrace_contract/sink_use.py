"""Checks of how a runtime uses a sink: from several threads, with errors in its own calls, with equal rows."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from headrace.flow.messages import Queue
from headrace.flow.schema import Schema
from headrace.interfaces.sink import Sink, TransactionalSink

from headrace_contract.contract import expect, shortened
from headrace_contract.handled_errors import Injection, Watched
from headrace_contract.sink_harness import SinkHarness, batch_of, sink_batch
from headrace_contract.values import counted

#: The largest number of errors that one check raises: each needs a new sink.
_INJECTIONS_MAX = 24


class SinkUseChecks(SinkHarness):
    """Threads, errors of drivers, rows that are equal, batches that other sinks get too."""

    def test_every_thread_may_call(self) -> None:
        """A sink is opened by one thread, and then called and closed by others, one at a time.

        Steps: open a sink here; let a new thread insert 5 rows, then another 5 more (and ask for ``last_offset``), then
        another close it. Passes when nothing is raised and a reader sees the rows.
        """
        sink = self.prepared_sink()
        sink.open()
        first, second = self.batches("q", 0, 10, 5)
        mend = (
            "connect so that any thread may use the connection (sqlite3: check_same_thread=False), or connect in the thread "
            "that needs it; calls never overlap unless the class says concurrent = True"
        )
        after = None
        for batch in (first, second):
            self.in_thread(
                lambda batch=batch, after=after: sink.batch_insert(sink_batch(batch, after)),  # type: ignore[misc]
                what="batch_insert works in another thread than open",
                mend=mend,
            )
            if isinstance(sink, TransactionalSink):
                after = self.in_thread(
                    lambda: sink.last_offset(Queue("q")), what="last_offset works in any thread", mend=mend
                )
        self.in_thread(sink.close, what="close works in another thread than open", mend=mend)
        self.expect_stored([first, second], mend=mend)

    def test_errors_are_not_swallowed(self) -> None:
        """When ``batch_insert`` returns, the rows are stored, also if an error was raised in it and caught.

        Steps: find the ``except`` clauses (and ``suppress``) in the sink's own code that an insert executes. For each type
        that they catch, raise such an error in the first, a middle and the last line that the clause covers, each time with
        a new sink and other rows. Passes when each call raises, or returns with its rows stored.
        """
        watched = Watched(type(self.make_sink()))
        sink = self._opened()
        with watched.noting():
            sink.batch_insert(sink_batch(self.batches("q", 0, 5)[0]))
        self._close_quietly(sink)
        injections = watched.injections()[:_INJECTIONS_MAX]
        if not injections:
            pytest.skip("not checked: the sink's own code that an insert executes has no except clause")
        returned: list[tuple[Injection, Any]] = []
        for number, injection in enumerate(injections, 1):
            batch = self.batches(f"q{number}", 0, 5)[0]  # a separate queue: earlier calls do not matter
            sink = self._opened()
            try:
                with watched.raising(injection) as struck:
                    sink.batch_insert(sink_batch(batch))
            except Exception:  # any error is right: the writer gets it
                continue
            finally:
                self._close_quietly(sink)
            if struck:
                returned.append((injection, batch))
        seen = counted(self.read_rows(), list(self.schema))
        for injection, batch in returned:
            rows = batch.user_frame().to_dicts()
            missing = counted(map(self.as_read, rows), list(rows[0])) - seen
            expect(
                not missing,
                expected="batch_insert raises an error, or returns with its rows stored",
                found=f"it returned although {injection} had been raised; {len(missing)} of 5 rows are missing",
                mend="do not catch such errors, or raise RetriableError from them if the same call may succeed later",
            )

    def test_equal_rows_are_all_stored(self) -> None:
        """Rows with the same values are different rows: their positions are different.

        Steps: write the same row (with different values in the columns of ``key``) five times in one batch, three times in
        another, and twice in another queue. Passes when a reader sees ten.
        """
        row = self.make_row(7)
        rows = [{**row, **{name: self.make_row(100 + n)[name] for name in self.key}} for n in range(10)]
        schema = Schema.of(self.schema)
        with self.writing() as writer:
            writer.write(batch_of(Queue("q"), [(offset, 0) for offset in range(5)], rows[:5], schema))
            writer.flush()
            writer.write(batch_of(Queue("q"), [(5, index) for index in range(3)], rows[5:8], schema))
            writer.write(batch_of(Queue("other"), [(0, 0), (1, 0)], rows[8:], schema))
        self.expect_rows(
            rows,
            mend="key rows by batch.ids(), which are made from their positions, not by their values; if the user chooses a "
            "key, say so in the contract: key = (...)",
        )

    def test_batch_is_left_as_it_is(self) -> None:
        """``batch_insert`` does not change the batch: it may be inserted again, and another sink may get it too.

        Steps: insert a batch and compare its frame with the frame before. Passes when columns and rows are the same.
        """
        sink = self._opened()
        batch = sink_batch(self.batches("q", 0, 10)[0])
        columns, rows = list(batch.frame.columns), batch.frame.rows()
        try:
            sink.batch_insert(batch)
        finally:
            self._close_quietly(sink)
        expect(
            batch.frame.columns == columns and batch.frame.rows() == rows,
            expected=f"the frame as it came in: {columns}",
            found=f"{batch.frame.columns}, {shortened(batch.frame.rows()[:1])}",
            mend="use methods that return a new frame (with_columns), not those that change it (insert_column)",
        )

    def test_close_ends_threads(self) -> None:
        """``close`` ends all threads of the sink: a process may open and close many sinks.

        Steps: note the threads of the process, write 5 rows, close. Passes when no new thread still runs.
        """
        before = set(threading.enumerate())
        batches = self.batches("q", 0, 5)
        with self.writing() as writer:
            writer.write(batches[0])
        expected = "no thread of the sink runs after close"
        mend = "end the sink's threads in close, and join them"
        self.eventually(
            lambda: not [thread for thread in threading.enumerate() if thread not in before],
            expected=expected,
            mend=mend,
        )
        self.expect_stored(batches, mend=mend)

    def _opened(self) -> Sink:
        sink = self.prepared_sink()
        sink.open()
        return sink

    @staticmethod
    def _close_quietly(sink: Sink) -> None:
        """Close a sink in which an error was raised; errors of ``close`` are ignored."""
        with contextlib.suppress(Exception):
            sink.close()
