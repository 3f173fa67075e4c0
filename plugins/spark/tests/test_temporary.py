"""Directories of drivers: removed by their own process, or by the next one when it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from headrace_spark.processes import temporary

from tests.eventually import eventually

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


def test_a_directory_is_in_use_while_a_child_of_the_killed_process_lives(temporary_place: Path) -> None:
    """As Java, which ends some seconds after its driver."""
    child = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    directory = temporary.temporary_directory("run")
    with subprocess.Popen(child, stdin=subprocess.PIPE, pass_fds=[temporary.lock_of(directory)]) as process:
        for descriptor in temporary._locks.pop(directory):
            os.close(descriptor)
        assert temporary.remove_abandoned(("run",)) == []
        process.kill()
    assert temporary.remove_abandoned(("run",)) == [directory]


def test_a_directory_that_is_written_to_while_it_is_removed_does_not_stay(temporary_place: Path) -> None:
    directory = temporary.temporary_directory("run")
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            with contextlib.suppress(FileNotFoundError):
                (directory / str(number)).touch()
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        eventually((directory / "100").exists, "files come")
        temporary.remove(directory)
    finally:
        ended.set()
        writer.join()
    assert list(temporary_place.iterdir()) == []


def test_own_directory(temporary_place: Path) -> None:
    directory = temporary.temporary_directory("run")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert temporary.remove_abandoned(("run",)) == []
    temporary.remove(directory)
    temporary.remove(directory)
    assert not directory.exists()


def test_programs_that_remove_old_files_see_that_a_directory_is_in_use(temporary_place: Path) -> None:
    """As systemd-tmpfiles looks: it leaves out a directory that is locked."""
    directory = temporary.temporary_directory("run")
    found = os.open(directory, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        temporary.remove(directory)
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(found)


def test_what_is_not_ours_is_left_alone(temporary_place: Path) -> None:
    kept = temporary_place / "kept"
    kept.mkdir()
    (kept / ".lock").touch()
    (temporary_place / "headrace-run-link").symlink_to(kept)
    (temporary_place / "headrace-run-file").touch()
    (temporary_place / "headrace-run-fresh").mkdir()  # just made, not locked yet
    assert temporary.remove_abandoned(("run",)) == []
    assert len(list(temporary_place.iterdir())) == 4
