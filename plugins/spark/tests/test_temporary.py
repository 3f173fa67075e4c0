"""Directories of drivers: removed by their own process, or by the next one when it was killed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_spark.processes import temporary

MAKES_ONE = """
import sys
from headrace_spark.processes.temporary import temporary_directory
print(temporary_directory("run"), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def other_process(place: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES_ONE],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(place)},
    )  # fmt: skip
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_directory_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(temporary_place: Path) -> None:
    with (killed := other_process(temporary_place))[0] as process:
        directory = killed[1]
        (directory / "events.jsonl").write_text("{}")
        assert temporary.remove_abandoned(("run",)) == []
        assert directory.exists()
        process.kill()
    assert temporary.remove_abandoned(("spark",)) == []
    assert temporary.remove_abandoned(("spark", "run")) == [directory]
    assert not directory.exists()


def test_own_directory(temporary_place: Path) -> None:
    directory = temporary.temporary_directory("run")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert temporary.remove_abandoned(("run",)) == []
    temporary.remove(directory)
    temporary.remove(directory)
    assert not directory.exists()


def test_what_is_not_ours_is_left_alone(temporary_place: Path) -> None:
    kept = temporary_place / "kept"
    kept.mkdir()
    (kept / ".lock").touch()
    (temporary_place / "headrace-run-link").symlink_to(kept)
    (temporary_place / "headrace-run-file").touch()
    (temporary_place / "headrace-run-fresh").mkdir()  # just made, not locked yet
    assert temporary.remove_abandoned(("run",)) == []
    assert len(list(temporary_place.iterdir())) == 4
