"""INSERT OVERWRITE of a table or of one partition, killed at the worst places: its rows are there once, and other partitions stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import headrace as hr
import pytest
from headrace.foundation.faults import VARIABLE

from tests.chaos.test_mysql_changes import JOB

TABLES = """
CREATE TABLE source (id INT, k STRING) WITH ('connector' = 'filesystem', 'path' = '{place}/in.ndjson', 'format' = 'json');
CREATE TABLE target (id INT, k STRING) PARTITIONED BY (k)
  WITH ('connector' = 'filesystem', 'path' = '{place}/out', 'format' = 'json', 'batch-size' = '30');
"""
INSERT = "INSERT INTO target SELECT id, k FROM source"
OVERWRITE = "INSERT OVERWRITE target PARTITION (k = 'a') SELECT id + 1000 FROM source"
OVERWRITE_ALL = "INSERT OVERWRITE target SELECT id + 1000, k FROM source"
ROWS = 200
#: In their order: until a checkpoint is stored each start empties the partition anew, and none does afterwards.
PLACES = (
    "reader.after_poll:1", "sink.before_insert:1", "sink.after_insert:1", "sink.after_insert:2", "checkpoint.after_flush:1",
    "checkpoint.after_save:1", "lane.after_process:1", "sink.after_insert:1", "checkpoint.after_save:1",
)  # fmt: skip
FEW = ("sink.after_insert:2", "checkpoint.after_save:1", "sink.after_insert:1")


def killed_at(place: Path, checkpoint: Path, fault: str | None) -> int:
    """Run the text in a process; return its exit code."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if fault is not None:
        environment[VARIABLE] = f"{fault}:kill"
    command = [sys.executable, str(JOB), str(place / "job.sql"), str(checkpoint), "end", "20"]
    done = subprocess.run(
        command, cwd=place, env={**environment, "POLARS_MAX_THREADS": "1"}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
    return done.returncode


def ids_in(directory: Path) -> Counter[int]:
    parts = directory.glob("*.json")
    return Counter(json.loads(line)["id"] for part in parts for line in part.read_text().splitlines())


def rows_in(place: Path, partition: str) -> Counter[int]:
    return ids_in(place / "out" / f"k={partition}")


# One partition is overwritten under kills in every run by connectors/file/tests/test_sink_crashes.py.
@pytest.mark.slow
@pytest.mark.parametrize("places", [FEW, PLACES], ids=["few", "all"])
def test_an_overwritten_partition_has_its_rows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"id": number, "k": "ab"[number % 2]}) + "\n" for number in range(ROWS)]
    (tmp_path / "in.ndjson").write_text("".join(lines))
    hr.sql(TABLES.format(place=tmp_path) + INSERT).run("light", show_progress=False)
    (tmp_path / "job.sql").write_text(TABLES.format(place=tmp_path) + OVERWRITE)
    checkpoint = tmp_path / "checkpoint"
    for fault in places:
        assert killed_at(tmp_path, checkpoint, fault) == -signal.SIGKILL, f"{fault} was never passed"
    assert killed_at(tmp_path, checkpoint, None) == 0
    assert rows_in(tmp_path, "a") == Counter(range(1000, 1000 + ROWS))
    assert rows_in(tmp_path, "b") == Counter(range(1, ROWS, 2))
    # A later run goes on from the checkpoint and empties nothing.
    assert killed_at(tmp_path, checkpoint, None) == 0
    assert rows_in(tmp_path, "a") == Counter(range(1000, 1000 + ROWS))


@pytest.mark.slow
def test_an_overwritten_table_has_its_rows_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.ndjson").write_text("".join(json.dumps({"id": n, "k": "a"}) + "\n" for n in range(ROWS)))
    tables = TABLES.format(place=tmp_path).replace("PARTITIONED BY (k)", "")
    # What another job has written would not be removed.
    hr.sql(tables + INSERT, pipeline="changes").run("light", show_progress=False)
    (tmp_path / "job.sql").write_text(tables + OVERWRITE_ALL)
    checkpoint = tmp_path / "checkpoint"
    for fault in PLACES:
        assert killed_at(tmp_path, checkpoint, fault) == -signal.SIGKILL, f"{fault} was never passed"
    assert killed_at(tmp_path, checkpoint, None) == 0
    assert ids_in(tmp_path / "out") == Counter(range(1000, 1000 + ROWS))
