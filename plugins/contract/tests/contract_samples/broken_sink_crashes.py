"""A broken sink for each check that kills or stops processes: it fails that check, and no other but those in ``also``."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

from headrace.interfaces.sink import SinkBatch
from headrace_contract import Moment

from contract_samples.broken_sink_kinds import Ledger, Line, Table
from contract_samples.sinks import LedgerSink, LineSink, TableSink


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
