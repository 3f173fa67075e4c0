"""A broken sink for each check of use by a runtime: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from datetime import timedelta
from typing import Any

import headrace as hr
import polars as pl
from headrace.interfaces.sink import SinkBatch

from contract_samples.broken_sink_kinds import Line, Table
from contract_samples.sinks import LineSink, TableSink


class BrokenOwnThread(Table):
    """Keeps the connection of the thread that opened it."""

    breaks = "test_every_thread_may_call"
    also = frozenset({"test_outage_is_retried", "test_queues_are_written_at_once"})

    class kind(TableSink):
        held: sqlite3.Connection | None = None

        def open(self) -> None:
            self.held = self._connect()

        def __getstate__(self) -> dict[str, Any]:
            return {**self.__dict__, "held": None}

        def batch_insert(self, batch: SinkBatch) -> None:
            assert self.held is not None
            try:
                with self.held:
                    self._insert(self.held, batch)
            except sqlite3.OperationalError as error:
                self.held.close()
                self.held = self._connect()
                raise hr.RetriableError(str(error)) from error

        def close(self) -> None:
            if self.held is not None:
                self.held.close()
                self.held = None


class BrokenPasses(Line):
    """``except Exception: pass`` around the writing."""

    breaks = "test_errors_are_not_swallowed"

    class kind(LineSink):
        def batch_insert(self, batch: SinkBatch) -> None:
            try:
                lines = self.to_lines(self.rows_of(batch))
                with self.path().open("ab", buffering=0) as file:
                    file.write(lines)
            except Exception:
                pass


class BrokenReturns(Table):
    """``except sqlite3.OperationalError: return``: takes an outage for done."""

    breaks = "test_errors_are_not_swallowed"
    also = frozenset({"test_outage_is_retried"})

    class kind(TableSink):
        def batch_insert(self, batch: SinkBatch) -> None:
            try:
                super().batch_insert(batch)
            except hr.RetriableError:
                return


class BrokenSuppresses(Line):
    breaks = "test_errors_are_not_swallowed"

    class kind(LineSink):
        def batch_insert(self, batch: SinkBatch) -> None:
            with contextlib.suppress(OSError):
                super().batch_insert(batch)


class BrokenKeyOfContent(Table):
    """A key made of what the row holds."""

    breaks = "test_equal_rows_are_all_stored"

    class kind(TableSink):
        def ids(self, batch: SinkBatch) -> list[str]:
            return [f"{self.writer_name} {batch.queue.id} {row!r}" for row in batch.rows()]


class BrokenCutsLater(Line):
    breaks = "test_longest_text"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            return super().to_lines([
                {name: value[:150_000] if isinstance(value, str) else value for name, value in row.items()} for row in rows
            ])  # fmt: skip


class BrokenMarksBatch(Line):
    breaks = "test_batch_is_left_as_it_is"
    also = frozenset({"test_every_thread_may_call"})

    class kind(LineSink):
        def rows_of(self, batch: SinkBatch) -> list[dict[str, Any]]:
            rows = super().rows_of(batch)
            if "seen" not in batch.frame.columns:
                batch.frame.insert_column(batch.frame.width, pl.Series("seen", [True] * len(batch)))
            return rows


class BrokenLeavesThread(Line):
    breaks = "test_close_ends_threads"
    patience = timedelta(seconds=2)

    class kind(LineSink):
        def open(self) -> None:
            threading.Thread(target=threading.Event().wait, daemon=True).start()


class BrokenOwnQueue(Line):
    """Hands rows to a thread of its own, which writes them a little later and keeps what goes wrong to itself."""

    breaks = "test_checkpoint_stores_what_waits"

    class kind(LineSink):
        waiting: list[bytes]
        thread: threading.Thread | None = None

        def open(self) -> None:
            self.waiting, self.ended = [], threading.Event()
            self.thread = threading.Thread(target=self._write)
            self.thread.start()

        def batch_insert(self, batch: SinkBatch) -> None:
            self.waiting.append(self.to_lines(self.rows_of(batch)))

        def _write(self) -> None:
            while not self.ended.wait(2.0):
                self._write_waiting()
            self._write_waiting()

        def _write_waiting(self) -> None:
            with contextlib.suppress(OSError), self.path().open("ab", buffering=0) as file:
                while self.waiting:
                    file.write(self.waiting.pop(0))

        def close(self) -> None:
            if self.thread is not None:
                self.ended.set()
                self.thread.join()
                self.thread = None
