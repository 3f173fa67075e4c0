"""Jobs whose rows go from stage to stage in files: where they lie, who may read them, when they go, and what happens without them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from blob_program import EXPECTED, lay_out
from spark_parts import DatabaseSink

from tests.eventually import eventually

pytestmark = pytest.mark.spark
PROGRAM = Path(__file__).with_name("blob_program.py")
ROOT = PROGRAM.parents[3]


def start(place: Path, master: str = "local[2]", *checkpoint: str) -> subprocess.Popen[str]:
    """Start the program with a temporary directory of its own."""
    (place / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(place / "tmp"), "PYTHONPATH": f"{ROOT}{os.pathsep}{PROGRAM.parent}"}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(place), master, *checkpoint],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place, env=environment, start_new_session=True,
    )  # fmt: skip


def ended_well(program: subprocess.Popen[str]) -> None:
    _, errors = program.communicate(timeout=280)
    assert program.returncode == 0, errors


def counted(sink: DatabaseSink) -> Counter[int]:
    return Counter(n for _, n in sink.stored())


def seen(place: Path) -> list[Path]:
    """Return the files that were there when a worker looked first."""
    return [Path(each) for each in json.loads((place / "seen.json").read_text(encoding="utf-8"))]


def left_in(place: Path) -> list[Path]:
    """Return what lies in the program's temporary directory, but for files that Java may leave."""
    return list((place / "tmp").glob("headrace-*"))


@pytest.mark.slow
def test_files_are_there_while_a_micro_batch_runs_and_no_longer(tmp_path: Path) -> None:
    sink = lay_out(tmp_path)
    ended_well(start(tmp_path))
    assert len(seen(tmp_path)) >= 2, "of each shard one"
    assert {path.parent.name for path in seen(tmp_path)} == {"0"}, "the first micro-batch with rows"
    assert left_in(tmp_path) == []
    assert counted(sink) == EXPECTED


@pytest.mark.parametrize(
    "checkpoint",
    [pytest.param([], marks=pytest.mark.slow, id="without-checkpoint"), pytest.param(["state"], id="with-checkpoint")],
)
@pytest.mark.slow
def test_a_killed_driver_leaves_files_that_only_its_user_may_read_and_the_next_removes(
    checkpoint: list[str], tmp_path: Path
) -> None:
    sink = lay_out(tmp_path)
    (tmp_path / "hold").touch()
    program = start(tmp_path, "local[2]", *checkpoint)
    eventually(
        lambda: (tmp_path / "seen.json").exists() or program.poll() is not None, "a worker has looked at the files"
    )
    assert program.poll() is None, program.communicate()
    program.kill()
    program.communicate()
    files = seen(tmp_path)
    assert files
    for path in files:
        assert path.stat().st_size > 64 * 1024
        run = path.parents[2]
        assert run.parent == tmp_path / "tmp"
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
    (tmp_path / "hold").unlink()
    ended_well(start(tmp_path, "local[2]", *checkpoint))
    assert not any(path.exists() for path in files)
    assert left_in(tmp_path) == []
    assert counted(sink) == EXPECTED


@pytest.mark.slow
def test_files_that_are_lost_fail_the_job_which_then_continues_from_its_checkpoint(tmp_path: Path) -> None:
    """With one core the second shard looks for its rows when the first one has removed them."""
    sink = lay_out(tmp_path)
    (tmp_path / "lose").touch()
    program = start(tmp_path, "local[1]", "state")
    _, errors = program.communicate(timeout=280)
    assert program.returncode == 1
    assert "rows of a micro-batch that is not completed cannot be read from" in errors
    assert "do not remove files from the temporary directory while a job runs" in errors
    assert counted(sink) != EXPECTED
    (tmp_path / "lose").unlink()
    ended_well(start(tmp_path, "local[1]", "state"))
    assert left_in(tmp_path) == []
    assert counted(sink) == EXPECTED


@pytest.mark.slow
def test_executors_of_their_own_get_rows_through_java(tmp_path: Path) -> None:
    """They may be on other machines, whatever the master's name says."""
    sink = lay_out(tmp_path)
    ended_well(start(tmp_path, "local-cluster[2,1,1024]", "state"))
    assert seen(tmp_path) == []
    assert counted(sink) == EXPECTED
