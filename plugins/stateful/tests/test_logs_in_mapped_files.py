"""Logs of windows with a limit for memory: what a checkpoint takes is written to mapped files once."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from headrace.interfaces.mapped_memory import MappedMemory
from headrace_stateful.windows.partial_log import END, PartialLog
from headrace_stateful.windows.session_log import SessionLog
from headrace_stateful.windows.window_shape import START

SCHEMA = {"k": pl.Int64(), START: pl.Int64(), END: pl.Int64()}
ROWS = pl.DataFrame({"k": range(100), START: range(100), END: range(1, 101)}, schema=SCHEMA)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", ["partials", "sessions"])
def test_what_a_checkpoint_takes_is_written_once(kind: str, whole: bool, tmp_path: Path) -> None:
    log = (
        PartialLog(SCHEMA, lambda frame: frame) if kind == "partials" else SessionLog(SCHEMA, ["k"], lambda rows: rows)
    )
    memory = MappedMemory(tmp_path, 1, file_bytes=1 << 20)
    log.use_mapped(memory)
    log.append(ROWS)
    changes = log.unstored if isinstance(log, PartialLog) else lambda: log.delta()["rows"]
    with mock.patch.object(memory, "frame", wraps=memory.frame) as written:
        taken = log.whole() if whole else changes()
    assert taken.equals(ROWS)
    assert written.call_count == 1
    assert log.whole().equals(ROWS)  # they are in the log as before
