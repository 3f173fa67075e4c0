"""The archive of Java's classes: who writes it, and when it is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from headrace.foundation.clock import ManualClock
from headrace_spark.processes.class_archive import ClassArchive
from headrace_spark.processes.java import JavaRuntime

FLAGS = ("-Xshare:auto",)
JAVA = JavaRuntime(Path("/usr/java"), 17)


class Processes:
    """Drivers of one user, each with another number."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.clock = ManualClock(1_000_000.0)
        self._monkeypatch = monkeypatch
        self._number = 0

    def begin(self, flags: tuple[str, ...] = FLAGS) -> ClassArchive:
        self._number += 1
        self._monkeypatch.setattr(os, "getpid", lambda number=self._number: number)
        return ClassArchive(self.place, JAVA, flags, self.clock)

    def write(self, flag: str) -> Path:
        """Do what Java does at its end."""
        file = Path(flag.removeprefix("-XX:ArchiveClassesAtExit="))
        file.write_bytes(b"classes")
        os.utime(file, (self.clock.now(), self.clock.now()))
        return file


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    return Processes(tmp_path, monkeypatch)


def java_of(archive: ClassArchive) -> list[int]:
    """Return the files that Java inherits; they are open as long as it runs."""
    inherited = [os.dup(each) for each in archive.kept_open()]
    archive.close()
    return inherited


def end(java: list[int]) -> None:
    for each in java:
        os.close(each)


def test_the_first_java_writes_and_later_ones_use_it(processes: Processes) -> None:
    first = processes.begin()
    [flag] = first.flags()
    assert first.is_written
    java = java_of(first)
    first.job_has_run()
    processes.write(flag)
    end(java)
    processes.clock.advance(31)
    second = processes.begin()
    [used] = second.flags()
    assert used.startswith("-XX:SharedArchiveFile=")
    assert Path(used.partition("=")[2]).read_bytes() == b"classes"
    assert not second.is_written
    assert sorted(each.suffix for each in processes.place.iterdir()) == [".jsa", ".lock"]


def test_one_java_at_a_time_writes(processes: Processes) -> None:
    first, second, third = processes.begin(), processes.begin(), processes.begin()
    assert len(first.flags()) == 1
    java = java_of(first)
    assert second.flags() == []
    assert (second.is_written, second.kept_open()) == (False, ())
    second.job_has_run()
    end(java)
    assert third.flags() != [], "the first was killed"
    third.close()


def test_a_java_that_runs_for_long_keeps_nobody_from_writing(processes: Processes) -> None:
    first = processes.begin()
    first.flags()
    java = java_of(first)
    processes.clock.advance(601)
    second, third = processes.begin(), processes.begin()
    assert second.flags() != []
    assert third.flags() == [], "the second has just begun to"
    second.close()
    end(java)


def test_a_file_that_was_just_written_to_may_not_be_whole(processes: Processes) -> None:
    first = processes.begin()
    [flag] = first.flags()
    first.job_has_run()
    first.close()
    processes.write(flag)
    processes.clock.advance(29)
    second = processes.begin()
    [written] = second.flags()
    assert written.startswith("-XX:ArchiveClassesAtExit=")
    second.close()


def test_what_a_job_that_did_not_end_left_is_not_used(processes: Processes) -> None:
    first = processes.begin()
    [flag] = first.flags()
    first.close()
    left = processes.write(flag)
    processes.clock.advance(31)
    second = processes.begin()
    assert second.flags() != []
    second.close()
    assert not left.exists()


def test_other_flags_have_another_archive(processes: Processes) -> None:
    one, other = processes.begin(), processes.begin(("-Xshare:auto", "-Xmx1g"))
    assert one.flags() != []
    assert other.flags() != []
    one.close()
    other.close()


def test_two_processes_that_take_what_was_written_at_one_moment_both_start(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = processes.begin()
    [flag] = first.flags()
    first.job_has_run()
    first.close()
    written = processes.write(flag)
    processes.clock.advance(31)
    replace = Path.replace

    def second_to_replace(file: Path, target: Path) -> Path:
        replace(file, target)
        return replace(file, target)

    monkeypatch.setattr(Path, "replace", second_to_replace)
    [used] = processes.begin().flags()
    assert used.startswith("-XX:SharedArchiveFile=")
    assert not written.exists()


@pytest.mark.parametrize("directory", ["is gone", "is there"])
def test_an_archive_that_cannot_be_written_keeps_no_job_from_running(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    if directory == "is gone":
        processes.place = processes.place / "gone"
        archive = processes.begin()
        assert archive.flags() == []
    else:
        archive = processes.begin()
        assert archive.flags() != []
        monkeypatch.setattr(Path, "touch", _no_space)
    archive.job_has_run()
    archive.close()


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_what_a_killed_java_left_is_not_taken_for_that_of_a_later_process_of_this_number(processes: Processes) -> None:
    first = processes.begin()
    first.flags()
    first.job_has_run()
    first.close()
    [good] = processes.place.glob("*.good")
    processes._number = 0
    again = processes.begin()
    assert again.flags() != []
    again.close()
    assert not good.exists()


def test_marks_of_jobs_whose_java_wrote_nothing_are_removed(processes: Processes) -> None:
    first = processes.begin()
    first.flags()
    first.job_has_run()
    first.close()
    [good] = processes.place.glob("*.good")
    for days, there in ((0.5, True), (1.1, False)):
        then = processes.clock.now() - days * 86_400
        os.utime(good, (then, then))
        later = processes.begin()
        later.flags()
        later.close()
        assert good.exists() is there
