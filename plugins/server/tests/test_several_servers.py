"""Several servers on one registry: real processes that are killed, paused and stopped; each row is counted."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from shared_servers import SharedServers

from tests.eventually import eventually

JOBS = ("one", "two", "three", "four")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[SharedServers]:
    made = SharedServers(tmp_path, f"sqlite:///{tmp_path}/registry.sqlite")
    yield made
    made.clean_up()


def begin(servers: SharedServers, *names: str) -> None:
    for job in JOBS:
        servers.write_job(job)
        servers.add_events(job)
    for name in names:
        servers.add(name)


def test_jobs_are_spread_move_from_a_dead_machine_and_come_back_to_a_new_one(servers: SharedServers) -> None:
    begin(servers, "a", "b")
    found = servers.wait_for_owners(lambda by: Counter(by.values()) == {"a": 2, "b": 2}, "two jobs on each server")
    servers.wait_for_rows()
    before = runs_of(servers)
    servers.by_name["a"].kill_machine()
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"b": 4}, "all jobs on the server that is left")
    servers.wait_for_rows()
    runs = runs_of(servers)
    assert {job for job in JOBS if runs[job] > before[job]} == {job for job, server in found.items() if server == "a"}
    servers.add("c")
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"b": 2, "c": 2}, "the new server has its share")
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_rows()
    assert sum(runs_of(servers).values()) - sum(runs.values()) == 2  # no more were stopped than needed


def runs_of(servers: SharedServers) -> dict[str, int]:
    """Return how often each job was started."""
    return {job: len(servers.ask(f"/v1/jobs/{job}")["runs"]) for job in JOBS}


def test_a_server_that_stops_hands_its_jobs_over_at_a_checkpoint(servers: SharedServers) -> None:
    begin(servers, "a", "b")
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"a": 2, "b": 2}, "two jobs on each server")
    assert servers.by_name["a"].stop() == 0
    assert servers.by_name["a"].runner_pids() == []
    del servers.by_name["a"]
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"b": 4}, "all jobs on the other server")
    servers.wait_for_rows()
    outcomes = {run["outcome"] for job in JOBS for run in servers.ask(f"/v1/jobs/{job}")["runs"]}
    assert outcomes == {None, "stopped"}
    [only] = [each for each in servers.ask("/v1/servers") if each["state"] != "away"]
    assert (only["name"], only["jobs"], only["running"]) == ("b", 4, 4)


def test_the_processes_of_a_killed_server_are_taken_over_by_another_one_of_the_machine(servers: SharedServers) -> None:
    begin(servers, "a", "b")
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"a": 2, "b": 2}, "two jobs on each server")
    before = {job["name"]: job["pid"] for job in servers.ask()}
    servers.by_name["a"].kill()
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"b": 4}, "all jobs on the server that is left")
    assert {job["name"]: job["pid"] for job in servers.ask()} == before  # nothing was stopped
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_rows()
    servers.by_name["a"].begin()  # and it gets its share back
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"a": 2, "b": 2}, "two jobs on each server")
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_rows()


def test_a_process_that_is_paused_loses_its_job_and_spoils_nothing_when_it_wakes(servers: SharedServers) -> None:
    begin(servers, "a", "b")
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"a": 2, "b": 2}, "two jobs on each server")
    victim = next(job for job in servers.ask() if job["server"] == "a")
    os.kill(victim["pid"], signal.SIGSTOP)
    servers.add_events(victim["name"])
    eventually(
        lambda: any(each["name"] == victim["name"] and each["pid"] not in (None, victim["pid"]) for each in servers.ask()),
        "another process has the job", shown=servers.logs,
    )  # fmt: skip
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_rows()
    assert not psutil.pid_exists(victim["pid"])
