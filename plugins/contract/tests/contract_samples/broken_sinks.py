"""A broken sink for each check: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

import headrace as hr
import msgspec
import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError
from headrace.interfaces.sink import SinkBatch
from headrace_contract import Moment

from contract_samples.broken import Fault
from contract_samples.sink_contracts import LedgerContract, LineContract, TableContract
from contract_samples.sinks import LedgerSink, LineSettings, LineSink, TableSink

S = TypeVar("S", bound=hr.Sink)


class Line(Fault, LineContract):
    """The contract of a broken LineSink."""

    crash_moments: ClassVar[tuple[Moment, ...]] = ()

    def make_sink(self) -> LineSink:
        return with_small_batches(super().make_sink())


class Table(Fault, TableContract):
    """The contract of a broken TableSink."""

    crash_moments: ClassVar[tuple[Moment, ...]] = ()

    def make_sink(self) -> TableSink:
        return with_small_batches(super().make_sink())


class Ledger(Fault, LedgerContract):
    """The contract of a broken LedgerSink."""

    crash_moments: ClassVar[tuple[Moment, ...]] = ()

    def make_sink(self) -> TableSink:
        return with_small_batches(super().make_sink())


def with_small_batches(sink: S) -> S:
    """Return the sink with a batch_size that makes the check of full batches quick."""
    sink.settings = msgspec.structs.replace(sink.settings, batch_size=600)
    return sink


# ------------------------------------------------------------------------------------------------------ options


class BareSettings(LineSettings, frozen=True, kw_only=True):
    colour: str = "blue"


class LenientSettings(LineSettings, frozen=True, kw_only=True):
    @classmethod
    def of(cls, options: Any, *, plugin: str | None = None) -> Self:
        known = set(cls.__struct_fields__)
        return super().of({name: value for name, value in options.items() if name in known}, plugin=plugin)


class OpenSettings(LineSettings, frozen=True, kw_only=True):
    api_token: Annotated[str, hr.option("a token, for all to see")] = ""


class BrokenUndescribed(Line):
    breaks = "test_options_are_described"

    class kind(LineSink):
        Settings = BareSettings


class BrokenLenient(Line):
    breaks = "test_unknown_option_is_named"

    class kind(LineSink):
        Settings = LenientSettings

        def __init__(self, settings: LineSettings) -> None:
            self.settings = settings


class BrokenPlainToken(Line):
    breaks = "test_secrets_are_declared"

    class kind(LineSink):
        Settings = OpenSettings


class BrokenTalkative(Table):
    breaks = "test_secrets_stay_hidden"

    class kind(TableSink):
        def prepare(self, schema: Schema | None) -> None:
            try:
                super().prepare(schema)
            except JobError as error:
                password = self.settings.password
                shown = password.reveal() if password else ""
                raise JobError(f"cannot log in with {shown!r}", hint="look at the password") from error


# -------------------------------------------------------------------------------------------------------- values


class BrokenOffByOne(Line):
    breaks = "test_all_rows_are_stored"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            lines = b""
            for begin in range(0, max(1, len(rows) - 1), 24):
                lines += super().to_lines(rows[begin : begin + 24])
            return lines


class BrokenPublishesAtClose(Line):
    thorough = True
    breaks = "test_checkpoint_stores_what_waits"

    class kind(LineSink):
        def open(self) -> None:
            self.close()

        def path(self) -> Path:
            return Path(f"{self.settings.path}.waiting")

        def close(self) -> None:
            if self.path().exists():
                with Path(self.settings.path).open("ab") as file:
                    file.write(self.path().read_bytes())
                self.path().unlink()


class BrokenRollsBack(Line):
    """Takes what was not closed for unfinished, and removes it when it is opened again."""

    breaks = "test_kill_after_checkpoint_loses_nothing"

    class kind(LineSink):
        def open(self) -> None:
            done = Path(f"{self.settings.path}.done")
            size = int(done.read_text()) if done.exists() else 0
            with self.path().open("ab") as file:
                file.truncate(size)

        def close(self) -> None:
            Path(f"{self.settings.path}.done").write_text(
                str(self.path().stat().st_size if self.path().exists() else 0)
            )


class BrokenShortRequests(Line):
    breaks = "test_full_batch_is_stored"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            return super().to_lines(rows[:500])


class BrokenZeroForNull(Line):
    breaks = "test_null_values"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            return super().to_lines(
                [{**row, "amount": row["amount"] or 0.0} if "amount" in row else row for row in rows]
            )


class BrokenAsciiOnly(Line):
    breaks = "test_values_of_type"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            return super().to_lines(rows).decode().encode("ascii", "replace")


class BrokenCutsTexts(Line):
    breaks = "test_longest_text"

    class kind(LineSink):
        def to_lines(self, rows: list[dict[str, Any]]) -> bytes:
            return super().to_lines([
                {name: value[:65_535] if isinstance(value, str) else value for name, value in row.items()} for row in rows
            ])  # fmt: skip


class BrokenPackedRows(Line):
    breaks = "test_rows_of_unknown_columns"

    class kind(LineSink):
        def rows_of(self, batch: SinkBatch) -> list[dict[str, Any]]:
            return batch.frame.drop("__hr_offset", "__hr_index", "__hr_time", strict=False).to_dicts()


class BrokenMuteRefusal(Table):
    breaks = "test_rows_of_unknown_columns"

    class kind(TableSink):
        def check(self, schema: Schema | None) -> None:
            if schema is None:
                raise JobError("no")
            super().check(schema)


class BrokenTakesAnyColumns(Table):
    breaks = "test_columns_are_checked"

    class kind(TableSink):
        def check(self, schema: Schema | None) -> None:
            if schema is None:
                super().check(schema)


# ---------------------------------------------------------------------------------------------------- guarantees


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


# ------------------------------------------------------------------------------------------------------- crashes


class BrokenTwoTransactions(Ledger):
    """Commits the rows, and then their position."""

    breaks = "test_kill_keeps_the_guarantee"
    crash_moments = tuple(Moment(3, "inside", fraction / 10) for fraction in range(5, 10))

    class kind(LedgerSink):
        def store(self, connection: sqlite3.Connection, batch: SinkBatch, ids: Any) -> None:
            super().store(connection, batch, ids)
            connection.commit()
            told = 0
            for row in batch.rows():
                told += len(row)
            connection.execute("BEGIN IMMEDIATE")


class BrokenNotesFirst(Line):
    """Keeps its own note of what it has written, to skip what comes again; and takes the note before it writes."""

    breaks = "test_kill_keeps_the_guarantee"
    crash_moments = tuple(Moment(3, "inside", fraction / 10) for fraction in range(5, 10))

    class kind(LineSink):
        def batch_insert(self, batch: SinkBatch) -> None:
            note = Path(f"{self.settings.path}.notes")
            notes = json.loads(note.read_text()) if note.exists() else {}
            noted = notes.get(batch.queue.id, [-1, 0])
            rows = [
                row for place, row in zip(batch.positions(), self.rows_of(batch), strict=True) if list(place) > noted
            ]
            note.write_text(json.dumps({**notes, batch.queue.id: list(batch.last)}))
            with self.path().open("ab", buffering=0) as file:
                file.write(self.to_lines(rows))


class BrokenKeyOfProcess(Table):
    breaks = "test_paused_process_adds_nothing"

    class kind(TableSink):
        def ids(self, batch: SinkBatch) -> list[str]:
            return [f"{os.getpid()} {name}" for name in super().ids(batch)]


# ---------------------------------------------------------------------------------------------- used by a runtime


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
