"""A broken sink for each check of what is written, once, and where: it fails that check, and no other but those in ``also``."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError
from headrace.interfaces.sink import SinkBatch

from contract_samples.broken_sink_kinds import Ledger, Line, Table
from contract_samples.sinks import LedgerSink, LineSettings, LineSink, TableSink


class BrokenKeyWithoutIndex(Table):
    thorough = True
    breaks = "test_replay_keeps_the_guarantee"
    also = frozenset({"test_equal_rows_are_all_stored"})

    class kind(TableSink):
        def ids(self, batch: SinkBatch) -> list[str]:
            return [name.rpartition(":")[0] for name in super().ids(batch)]


class BrokenNewKeys(Table):
    """Keys that are new with every sink object: a replay is stored again."""

    breaks = "test_replay_keeps_the_guarantee"
    also = frozenset({"test_paused_process_adds_nothing"})

    class kind(TableSink):
        def open(self) -> None:
            self.mark = os.urandom(4).hex()

        def ids(self, batch: SinkBatch) -> list[str]:
            return [f"{self.mark} {name}" for name in super().ids(batch)]


class BrokenStartsAtMinusOne(Ledger):
    thorough = True
    breaks = "test_last_offset_gives_what_was_stored"

    class kind(LedgerSink):
        def _stored(self, connection: sqlite3.Connection, queue: hr.Queue) -> hr.Position | None:
            return super()._stored(connection, queue) or hr.Position(-1)

        def expected(self, batch: SinkBatch) -> hr.Position | None:
            return batch.after or hr.Position(-1)


class BrokenSilentZombie(Ledger):
    thorough = True
    breaks = "test_stale_writer_is_refused"
    also = frozenset({"test_errors_are_not_swallowed"})

    class kind(LedgerSink):
        def _insert(self, connection: sqlite3.Connection, batch: SinkBatch) -> None:
            try:
                super()._insert(connection, batch)
            except hr.StaleWriterError:
                return


class BrokenCaseBlind(Ledger):
    breaks = "test_queues_are_kept_apart"

    class kind(LedgerSink):
        def key(self, queue: hr.Queue) -> str:
            return super().key(queue).lower()


class BrokenJobBlind(Ledger):
    breaks = "test_jobs_are_kept_apart"

    class kind(LedgerSink):
        def key(self, queue: hr.Queue) -> str:
            return queue.id


class BrokenSharedKeys(Table):
    breaks = "test_jobs_are_kept_apart"

    class kind(TableSink):
        def ids(self, batch: SinkBatch) -> Sequence[str]:
            return [f"{batch.queue.id}:{place.offset}:{place.index}" for place in batch.positions()]


class BrokenOneThread(Line):
    breaks = "test_queues_are_written_at_once"
    also = frozenset({"test_every_thread_may_call"})

    class kind(LineSink):
        concurrent = True

        def open(self) -> None:
            self.owner = threading.get_ident()

        def batch_insert(self, batch: SinkBatch) -> None:
            if threading.get_ident() != self.owner:
                raise RuntimeError("this connection belongs to another thread")
            super().batch_insert(batch)


class BrokenClosedHandles(Line):
    breaks = "test_queue_comes_back"

    class kind(LineSink):
        handles: dict[hr.Queue, Any]

        def open(self) -> None:
            self.handles = {}

        def batch_insert(self, batch: SinkBatch) -> None:
            if batch.queue not in self.handles:
                self.handles[batch.queue] = self.path().open("ab", buffering=0)
            self.handles[batch.queue].write(self.to_lines(self.rows_of(batch)))

        def queue_removed(self, queue: hr.Queue) -> None:
            self.handles[queue].close()

        def close(self) -> None:
            for handle in getattr(self, "handles", {}).values():
                handle.close()


class BrokenSkipsBadRows(Table):
    breaks = "test_bad_row_goes_to_dead_letters"

    class kind(TableSink):
        def refuse(self, rows: list[dict[str, Any]]) -> None:
            return


class BrokenStopsAtBadRows(Table):
    breaks = "test_bad_row_goes_to_dead_letters"

    class kind(TableSink):
        def refuse(self, rows: list[dict[str, Any]]) -> None:
            try:
                super().refuse(rows)
            except hr.DataError as error:
                raise JobError("a row is wrong", hint="mend it") from error


class BrokenRawErrors(Table):
    breaks = "test_outage_is_retried"

    class kind(TableSink):
        def batch_insert(self, batch: SinkBatch) -> None:
            try:
                super().batch_insert(batch)
            except hr.RetriableError as error:
                raise ConnectionError(str(error)) from error


class BrokenMakesTargets(Table):
    breaks = "test_missing_target_is_named"

    class kind(TableSink):
        def prepare(self, schema: Schema | None) -> None:
            Path(self.settings.database).parent.mkdir(exist_ok=True)
            super().prepare(schema)


class BrokenEmptiesTarget(Line):
    """Takes a target that was prepared twice without being opened for a failed start, and clears it."""

    breaks = "test_prepare_keeps_what_is_there"

    class kind(LineSink):
        def mark(self) -> Path:
            return Path(f"{self.settings.path}.mark")

        def prepare(self, schema: Schema | None) -> None:
            if self.mark().exists():
                self.path().unlink(missing_ok=True)
            self.mark().touch()

        def open(self) -> None:
            self.mark().unlink(missing_ok=True)


class BrokenHoldsLock(Line):
    breaks = "test_survives_pickle"
    also = frozenset({"test_kill_after_checkpoint_loses_nothing"})

    class kind(LineSink):
        def __init__(self, settings: LineSettings) -> None:
            super().__init__(settings)
            self.lock = threading.Lock()


class BrokenClosesOnce(Line):
    breaks = "test_close_twice"

    class kind(LineSink):
        closed = False

        def close(self) -> None:
            if self.closed:
                raise RuntimeError("closed already")
            self.closed = True
