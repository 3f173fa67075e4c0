"""Several servers on one registry: real processes that are killed, paused and stopped; each row is counted."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pymysql
import pytest
import sqlalchemy as sa
from headrace_lease.sql_store import TABLE
from shared_servers import SharedServers, database_url

from tests.eventually import eventually
from tests.servers.fixtures import StartMySQLServer

#: Most tests need one job on each of two servers. Each more is a process more, and another one when it moves.
JOBS = ("one", "two")
MANY_JOBS = (*JOBS, "three", "four")
ONE_EACH = {"a": 1, "b": 1}


def begin(servers: SharedServers, *names: str, jobs: tuple[str, ...] = JOBS) -> None:
    for job in jobs:
        servers.write_job(job)
        servers.add_events(job)
    for name in names:
        servers.add(name)


def test_jobs_are_spread_move_from_a_dead_machine_and_come_back_to_a_new_one(servers: SharedServers) -> None:
    servers.lease_for_long()
    begin(servers, "a", "b", jobs=MANY_JOBS)
    found = servers.wait_for_owners(lambda by: Counter(by.values()) == {"a": 2, "b": 2}, "two jobs on each server")
    servers.wait_for_rows()
    before, pids = runs_of(servers), {job["name"]: job["pid"] for job in servers.ask()}
    killed = servers.by_name["a"].kill_machine()
    for job in MANY_JOBS:
        servers.add_events(job)
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"b": 4}, "all jobs on the server that is left")
    servers.wait_for_rows()
    runs = runs_of(servers)
    restarted = {job for job in MANY_JOBS if runs[job] > before[job]}
    assert restarted == {job for job in MANY_JOBS if pids[job] in killed}, servers.logs()
    one_machine = servers.is_one_machine
    # On one machine a server may look after processes that another one has started.
    assert one_machine or restarted == {job for job, server in found.items() if server == "a"}
    servers.add("c")
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"b": 2, "c": 2}, "the new server has its share")
    for job in MANY_JOBS:
        servers.add_events(job)
    servers.wait_for_rows()
    # No more were stopped than needed: on one machine, none.
    assert sum(runs_of(servers).values()) - sum(runs.values()) == (0 if one_machine else 2), servers.logs()


def runs_of(servers: SharedServers) -> dict[str, int]:
    """Return how often each job was started."""
    return {job: len(servers.ask(f"/v1/jobs/{job}")["runs"]) for job in servers.counts}


@pytest.mark.slow
def test_a_server_that_stops_hands_its_jobs_over_at_a_checkpoint(servers: SharedServers) -> None:
    servers.lease_for_long()
    begin(servers, "a", "b")
    servers.wait_for_owners(lambda by: Counter(by.values()) == ONE_EACH, "a job on each server")
    before = {job["name"]: job["pid"] for job in servers.ask()}
    ended = servers.by_name.pop("a")
    # Without what a process has just forked to start a program.
    pids = set(ended.runner_pids()) & set(before.values())
    assert len(pids) >= 1
    assert ended.stop() == 0
    one_machine = servers.is_one_machine
    assert set(ended.runner_pids()) & pids == (pids if one_machine else set())
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"b": 2}, "all jobs on the other server")
    servers.wait_for_rows()
    outcomes = {run["outcome"] for job in JOBS for run in servers.ask(f"/v1/jobs/{job}")["runs"]}
    # On one machine the other server looks after the processes as they are.
    assert outcomes == ({None} if one_machine else {None, "stopped"})
    assert ({job["name"]: job["pid"] for job in servers.ask()} == before) == one_machine
    [only] = [each for each in servers.ask("/v1/servers") if each["state"] != "away"]
    assert (only["name"], only["jobs"], only["running"]) == ("b", 2, 2)


@pytest.mark.slow
def test_the_processes_of_a_killed_server_are_taken_over_by_another_one_of_the_machine(tmp_path: Path) -> None:
    servers = SharedServers(tmp_path, f"sqlite:///{tmp_path}/registry.sqlite")
    try:
        _killed_server(servers)
    finally:
        servers.clean_up()


def _killed_server(servers: SharedServers) -> None:
    servers.lease_for_long()
    begin(servers, "a", "b")
    servers.wait_for_owners(lambda by: Counter(by.values()) == ONE_EACH, "a job on each server")
    before = {job["name"]: job["pid"] for job in servers.ask()}
    servers.by_name["a"].kill()
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"b": 2}, "all jobs on the server that is left")
    assert {job["name"]: job["pid"] for job in servers.ask()} == before  # nothing was stopped
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_rows()
    servers.by_name["a"].begin()  # and it gets its share back
    servers.wait_for_owners(lambda by: Counter(by.values()) == ONE_EACH, "a job on each server")
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_rows()


@pytest.mark.slow
def test_a_process_that_is_paused_loses_its_job_and_spoils_nothing_when_it_wakes(servers: SharedServers) -> None:
    begin(servers, "a", "b")
    servers.wait_for_owners(lambda by: Counter(by.values()) == ONE_EACH, "a job on each server")
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
    # Killed, it is there until its parent has asked for its end.
    eventually(lambda: not alive(victim["pid"]), "the paused process was killed", shown=servers.logs)


@pytest.fixture
def two_machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedServers]:
    """Servers on MariaDB, each on a machine of its own as far as they know."""
    made = SharedServers(tmp_path, database_url(request, "mysql"))
    yield made
    made.clean_up()


@pytest.mark.servers
def test_a_machine_that_is_paused_loses_its_jobs_and_spoils_nothing_when_it_wakes(two_machines: SharedServers) -> None:
    servers = two_machines
    begin(servers, "a", "b")
    found = servers.wait_for_owners(lambda by: Counter(by.values()) == ONE_EACH, "a job on each server")
    servers.wait_for_rows()
    paused = servers.by_name["a"]
    pids = paused.runner_pids()
    assert len(pids) == 1
    paused.pause_machine()
    del servers.by_name["a"]
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_owners(lambda by: Counter(by.values()) == {"b": 2}, "all jobs on the server that runs")
    servers.wait_for_rows()
    for job, server in found.items():
        if server == "a":  # the processes that may wake up keep their directory, the new ones have another
            assert [each.name[:11] for each in (servers.shared / "jobs" / job).glob("checkpoint-*")] == ["checkpoint-"]
    servers.by_name["a"] = paused
    paused.continue_machine()
    for job in JOBS:
        servers.add_events(job)
    eventually(lambda: not any(map(alive, pids)), "the processes that have lost their jobs end", shown=servers.logs)
    servers.wait_for_owners(lambda by: Counter(by.values()) == ONE_EACH, "the server has its share again")
    for job in JOBS:
        servers.add_events(job)
    servers.wait_for_rows()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.servers
def test_a_clock_of_the_database_that_is_set_moves_no_job(two_machines: SharedServers) -> None:
    """Forward and back by an hour: what the database has stored is so much older or newer then."""
    servers = two_machines
    begin(servers, "a", "b")
    servers.wait_for_owners(lambda by: Counter(by.values()) == ONE_EACH, "a job on each server")
    before = {job["name"]: job["pid"] for job in servers.ask()}
    engine = sa.create_engine(servers.url)
    for hours in (1, -1):
        with engine.begin() as transaction:
            moved = TABLE.c.expires_at_ms - hours * 3_600_000
            transaction.execute(sa.update(TABLE).where(TABLE.c.expires_at_ms > 0).values(expires_at_ms=moved))
        for job in JOBS:
            servers.add_events(job)
        servers.wait_for_rows()
        _wait_for_renewals(engine, servers)
    engine.dispose()
    assert {job["name"]: job["pid"] for job in servers.ask()} == before
    assert set(runs_of(servers).values()) <= {1, 2}


def _wait_for_renewals(engine: sa.Engine, servers: SharedServers) -> None:
    """Wait until each lease of a unit was renewed several times, by the database's clock."""
    query = sa.select(TABLE.c.expires_at_ms).where(TABLE.c.name.startswith("headrace/unit/"))
    for _ in range(3):
        with engine.connect() as connection:
            before = set(connection.execute(query).scalars())

        def all_renewed(before: set[int] = before) -> bool:
            with engine.connect() as connection:
                return not before & set(connection.execute(query).scalars())

        eventually(all_renewed, "each lease is renewed", shown=servers.logs)


@pytest.mark.servers
def test_jobs_go_on_while_the_registry_restarts(start_mysql_server: StartMySQLServer, tmp_path: Path) -> None:
    database = start_mysql_server()
    with pymysql.connect(
        host=database.host, port=database.port, user=database.user, password=database.password
    ) as admin:
        admin.cursor().execute("CREATE DATABASE registry CHARACTER SET utf8mb4")
    url = f"mysql+pymysql://{database.user}:{database.password}@{database.host}:{database.port}/registry"
    # A duration that is longer than the restart: with a shorter one the processes stop, and start again afterwards.
    servers = SharedServers(tmp_path, url, "--lease-duration", "120 s")
    try:
        begin(servers, "a")
        servers.wait_for_owners(lambda by: len(by) == 2, "all jobs run")
        servers.wait_for_rows()
        before = {job["name"]: job["pid"] for job in servers.ask()}
        database.kill()
        for job in JOBS:
            servers.add_events(job)
        servers.wait_for_rows()  # without the registry
        health = f"{servers.by_name['a'].url}/health/ready"
        eventually(lambda: httpx.get(health).json()["status"] == "degraded", "it says so", shown=servers.logs)
        refused = httpx.get(f"{servers.by_name['a'].url}/v1/jobs", headers={"Authorization": "Bearer hrt_x"})
        assert refused.status_code in (401, 503)
        database.start()
        eventually(lambda: httpx.get(health).json()["status"] == "ok", "it is whole again", shown=servers.logs)
        servers.wait_for_owners(lambda by: len(by) == 2, "all jobs run")
        assert {job["name"]: job["pid"] for job in servers.ask()} == before
        os.kill(before["one"], signal.SIGKILL)  # and it is supervised again
        servers.add_events("one")
        servers.wait_for_rows()
    finally:
        servers.clean_up()


@pytest.mark.servers
def test_any_server_answers_for_all_jobs(two_machines: SharedServers) -> None:
    servers = two_machines
    begin(servers, "a", "b")
    owners = servers.wait_for_owners(lambda by: Counter(by.values()) == ONE_EACH, "a job on each server")
    servers.wait_for_rows()
    job = next(name for name, server in owners.items() if server == "b")
    client = servers.by_name["a"].client  # each request goes to the server that does not have the job
    eventually(lambda: client.ask("GET", f"/v1/jobs/{job}")["figures"], "its figures", shown=servers.logs)
    assert any("runner of" in line for line in client.ask("GET", f"/v1/jobs/{job}/logs")["lines"])
    assert client.ask("GET", f"/v1/jobs/{job}/offsets")["offsets"]
    begun = client.ask("POST", f"/v1/jobs/{job}/savepoints", {"name": "first"})
    ended = eventually(
        lambda: (found := client.ask("GET", f"/v1/operations/{begun['id']}"))["state"] != "running" and found,
        "the savepoint is written", shown=servers.logs,
    )  # fmt: skip
    assert ended["state"] == "done", ended
    assert (servers.shared / "jobs" / job / "savepoints" / "first").exists()
    # Stopped and started from here; the file is written where the jobs directory is read.
    for action, state in (("stop", "stopped"), ("start", "running")):
        client.ask("POST", "/v1/actions", {"action": action, "select": job})
        eventually(lambda: client.ask("GET", f"/v1/jobs/{job}")["job"]["state"] == state, state, shown=servers.logs)  # noqa: B023
    text = (servers.jobs / f"{job}.py").read_text().replace("n >= 0", "n > -7")
    client.ask("PUT", f"/v1/jobs/{job}/file", {"suffix": ".py", "text": text})
    servers.by_name["b"].wait_for_state("running", version=2, name=job)
    assert client.ask("GET", f"/v1/jobs/{job}")["versions"][0]["author"] == "local"
    assert "n > -7" in client.ask("GET", f"/v1/jobs/{job}/versions/2")["files"][f"{job}.py"]
    entries = client.ask("GET", "/v1/audit")
    assert {"submit", "savepoint"} <= {entry["action"] for entry in entries}
    client.ask("POST", f"/v1/jobs/{job}/rollback", {})
    servers.by_name["b"].wait_for_state("running", version=1, name=job)
    servers.add_events(job)
    servers.wait_for_rows()
    found = servers.by_name["a"].command("jobs")
    assert "server" in found.stdout, found
    assert {each["name"] for each in json.loads(servers.by_name["a"].command("servers", "--json").stdout)} == {"a", "b"}
    page = httpx.get(f"{servers.by_name['a'].url}/login")
    assert page.status_code == 200
