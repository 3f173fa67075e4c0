"""What the driver sees of the planning process through the directory of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from headrace_spark.transit.run_directory import RunDirectory

from tests.eventually import eventually


def process() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


def test_a_planner_has_ended_when_it_was_killed_waited_for_or_not(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert not run.planner_has_ended, "there was none"
    with process() as planner:
        run.put("planner", planner.pid)
        assert not run.planner_has_ended
        planner.kill()
        if sys.platform == "linux":
            eventually(lambda: run.planner_has_ended, "nobody has waited for it yet")
        planner.wait()
        assert run.planner_has_ended


def test_a_planner_that_is_waited_for_while_its_state_is_looked_up_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path)
    with process() as planner:
        run.put("planner", planner.pid)
        read = Path.read_text

        def late(path: Path, *args: str, **options: str) -> str:
            if path.name == "stat":
                planner.kill()
                planner.wait()
            return read(path, *args, **options)

        monkeypatch.setattr(Path, "read_text", late)
        assert run.planner_has_ended


def test_a_number_that_another_user_has_now_is_not_the_planner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(process_id: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    RunDirectory(tmp_path).put("planner", 1)
    assert RunDirectory(tmp_path).planner_has_ended


def test_what_a_query_tells_that_nobody_follows_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDirectory.at(None)
    run.note_planner()
    run.add_event("queues", added=[], gone=[])
    run.put("ends", 1)
    assert (run.find("ends"), list(run.new_events()), run.stop_asked, run.planner_has_ended) == (None, [], False, False)
    assert not list(tmp_path.iterdir())
