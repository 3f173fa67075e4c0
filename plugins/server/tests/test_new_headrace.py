"""headrace itself is upgraded: another server takes the jobs over while they run, and moves them to its own environment. Real processes."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from server_processes import ServerProcess, make_environment

from tests.eventually import eventually

#: The process of a job ends when a file is there: a headrace that does not work.
FAILS = """
import os, pathlib, sys, threading
def _watch():
    while not pathlib.Path({marker!r}).exists():
        threading.Event().wait(0.02)
    os._exit(3)
if "headrace_server.runner" in sys.orig_argv:
    threading.Thread(target=_watch, daemon=True).start()
"""


def interpreter(server: ServerProcess) -> str:
    return psutil.Process(server.job()["job"]["pid"]).cmdline()[0]


def replaced(server: ServerProcess, python: str) -> None:
    """Replace the server by another one, while its job runs."""
    server.stop()
    server.python = python
    server.start("--on-stop", "leave")
    server.wait_for_state("running")


def test_a_job_goes_on_while_headrace_is_replaced_and_is_moved_to_the_new_one(
    server: ServerProcess, tmp_path: Path
) -> None:
    new = make_environment(tmp_path / "new")
    server.write_copy()
    server.add_events(0, 100)
    server.start("--on-stop", "leave")
    pid = server.wait_for_state("running")["job"]["pid"]
    server.wait_for_rows(100)
    assert not server.job()["job"]["has_earlier_headrace"]
    refused = server.command("upgrade", "copy")
    assert "version 1 is the current version" in refused.stderr

    replaced(server, new)
    assert server.job()["job"]["pid"] == pid
    assert server.job()["job"]["has_earlier_headrace"]
    assert "headrace of an earlier server" in server.command("status", "copy").stdout
    server.add_events(100, 200)
    done = server.command("upgrade", "--all")
    assert done.returncode == 0, done.stderr
    assert "copy: version 1," in done.stdout
    found = server.wait_for_state("running", version=1)
    assert found["job"]["pid"] != pid
    assert not found["job"]["has_earlier_headrace"]
    assert found["versions"][0]["state"] == "accepted"
    assert interpreter(server) == new
    server.add_events(200, 300)
    server.wait_for_rows(300)
    assert "up to date" in server.command("upgrade", "--all").stdout
    assert server.command("upgrade", "copy", "--all").returncode == server.command("upgrade").returncode == 2


@pytest.mark.parametrize("server_dies", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_headrace_that_does_not_work_is_taken_back_with_its_old_environment(
    server: ServerProcess, tmp_path: Path, server_dies: bool
) -> None:
    marker = tmp_path / "marker"
    bad = make_environment(tmp_path / "bad", FAILS.format(marker=str(marker)))
    old = server.python
    server.write_copy()
    (server.jobs / "job.yaml").write_text("health_window: 10 min\n")
    server.add_events(0, 100)
    server.start("--on-stop", "leave")
    server.wait_for_state("running")
    server.wait_for_rows(100)
    replaced(server, bad)
    begun = server.client.ask("POST", "/v1/jobs/copy/upgrade", {})["id"]
    eventually(
        lambda: "watching it" in str(server.client.ask("GET", f"/v1/operations/{begun}")["step"]),
        "the window",
        shown=server.log,
    )
    if server_dies:
        server.kill()
        server.start("--on-stop", "leave")
    marker.touch()
    eventually(lambda: "was taken back" in str(server.job()["job"]["problem"]), "it is taken back", shown=server.log)
    found = server.wait_for_state("running", version=1)
    assert "the headrace of this server was not healthy" in found["job"]["problem"]
    assert found["job"]["has_earlier_headrace"]
    assert [each["state"] for each in found["versions"]] == ["accepted"]
    assert interpreter(server) == old
    server.add_events(100, 200)
    server.wait_for_rows(200)
