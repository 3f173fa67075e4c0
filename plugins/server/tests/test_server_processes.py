"""A real server with real runners: kills, upgrades, rows counted."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from headrace.foundation.errors import JobError
from headrace_server.serving import HeadraceServer, ServerOptions
from server_processes import ServerProcess

from tests.eventually import eventually


def test_a_runner_that_is_killed_goes_on_from_its_checkpoint(server: ServerProcess) -> None:
    server.write_copy()
    server.add_events(0, 1000)
    server.start()
    pid = server.wait_for_state("running")["job"]["pid"]
    server.wait_for_rows(1000)
    os.kill(pid, signal.SIGKILL)
    server.add_events(1000, 2000)
    server.wait_for_rows(2000)
    found = server.wait_for_state("running")
    assert found["job"]["pid"] != pid
    assert [run["outcome"] for run in found["runs"]] == [None, "killed"]
    assert "SIGKILL" in found["runs"][1]["reason"]
    assert server.stop() == 0
    assert not psutil.pid_exists(found["job"]["pid"])


def test_runners_outlive_a_server_that_is_killed_and_are_found_again(server: ServerProcess) -> None:
    server.write_copy()
    server.start()
    pid = server.wait_for_state("running")["job"]["pid"]
    server.kill()
    server.add_events(0, 500)
    server.wait_for_rows(500)  # nobody supervises it
    server.start()
    found = server.wait_for_state("running")
    assert found["job"]["pid"] == pid
    assert len(found["runs"]) == 1
    os.kill(pid, signal.SIGKILL)  # and it is supervised again, though it is no child of this server
    eventually(lambda: server.job()["job"]["pid"] not in (None, pid), "a new runner", shown=server.log)
    server.add_events(500, 1000)
    server.wait_for_rows(1000)


@pytest.mark.slow  # in every run test_new_headrace.py has it, with another headrace as the next server
def test_a_server_can_leave_its_runners_for_the_next_one(server: ServerProcess) -> None:
    server.write_copy()
    server.start("--on-stop", "leave")
    pid = server.wait_for_state("running")["job"]["pid"]
    assert server.stop() == 0
    assert psutil.pid_exists(pid)
    server.start()
    assert server.wait_for_state("running")["job"]["pid"] == pid


def test_versions_are_refused_rolled_out_and_rolled_back_and_each_row_is_there_once(server: ServerProcess) -> None:
    server.write_copy()
    server.add_events(0, 100)
    server.start()
    server.wait_for_state("running", version=1)
    server.write_copy(where="unknown >= 0")
    eventually(lambda: server.job()["job"]["problem"], "version 2 is refused", shown=server.log)
    found = server.job()
    assert (found["job"]["state"], found["job"]["version"], found["versions"][0]["state"]) == ("running", 1, "refused")
    assert "unknown column 'unknown'" in found["job"]["problem"]
    server.add_events(100, 200)
    server.write_copy(where="n > -5")
    server.wait_for_state("running", version=3)
    server.add_events(200, 300)
    server.wait_for_rows(300)
    begun = server.client.ask("POST", "/v1/jobs/copy/rollback", {"version": 1})
    operation = eventually(
        lambda: (found := server.client.ask("GET", f"/v1/operations/{begun['id']}"))["state"] != "running" and found,
        "the rollback ends",
    )
    assert operation["state"] == "done", operation
    server.add_events(300, 400)
    server.wait_for_rows(400)
    assert server.wait_for_state("running", version=1)["job"]["problem"] is None


@pytest.mark.slow
def test_an_upgrade_that_cannot_start_falls_back_to_the_version_before(server: ServerProcess) -> None:
    server.write_copy()
    server.add_events(0, 100)
    server.start()
    server.wait_for_state("running", version=1)
    server.wait_for_rows(100)
    # It plans: the sink looks at its directory only when the job starts.
    blocked = server.root / "blocked"
    blocked.write_text("a file where the sink wants a directory")
    text = (server.jobs / "copy.py").read_text().replace(repr(str(server.out)), repr(str(blocked)))
    (server.jobs / "copy.py").write_text(text)
    eventually(lambda: server.job()["versions"][0]["state"] == "fell_back", "it falls back", shown=server.log)
    found = server.wait_for_state("running", version=1)
    assert "version 2 was not healthy and was taken back" in found["job"]["problem"]
    server.add_events(100, 200)
    server.wait_for_rows(200)


def test_jobs_of_a_group_run_in_one_process_with_helpers_of_the_same_name(server: ServerProcess) -> None:
    for folder, limit in (("small", 10), ("large", 1000)):
        place = server.jobs / folder
        place.mkdir()
        (place / "_limits.py").write_text(f"LIMIT = {limit}\n")
        (place / "job.yaml").write_text("group: shared\n")
        (place / "copy.py").write_text(
            "import headrace as hr\nfrom _limits import LIMIT\n"
            f"job = (hr.stream('test', {folder!r}).from_file({str(server.events)!r}, format='json', schema={{'n': 'int64'}})\n"
            f"       .where(f'n < {{LIMIT}}').to_file({str(server.root / folder)!r}, format='json'))\n"
        )
    server.add_events(0, 100)
    server.start()
    eventually(
        lambda: [each["state"] for each in server.client.ask("GET", "/v1/jobs")] == ["running", "running"], "both run",
        shown=server.log,
    )  # fmt: skip
    jobs = {each["name"]: each for each in server.client.ask("GET", "/v1/jobs")}
    assert jobs["small/copy"]["pid"] == jobs["large/copy"]["pid"]
    for folder, count in (("small", 10), ("large", 100)):
        place = server.root / folder

        def rows(place: Path = place) -> int:
            return sum(len(each.read_text().splitlines()) for each in place.glob("*.json"))

        eventually(partial(_reaches, rows, count), f"rows of {folder}", shown=server.log)
        assert rows() == count


def _reaches(count: Callable[[], int], wanted: int) -> bool:
    return count() >= wanted


def test_sockets_files_and_directories_are_for_this_user_and_this_server_only(server: ServerProcess) -> None:
    server.write_copy()
    server.start()
    server.wait_for_state("running")
    sockets = [Path(run["socket"]) for run in server.job()["runs"]]
    assert len(sockets) == 1
    for path in (*sockets, server.data / "token", server.data / "jobs" / "copy" / "logs" / "job.log"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for path in (server.data, sockets[0].parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    with pytest.raises(JobError, match="a server runs with the data directory"):
        HeadraceServer(ServerOptions(jobs=server.jobs, data=server.data, port=0))
