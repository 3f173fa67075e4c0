"""Changes that meet: versions that come while a job is paused, groups, plug-ins, schedules, rollbacks, servers that die."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace_server.registry.records import Desired
from server_processes import COPY, ServerProcess
from server_world import World
from shared_servers import SharedServers, database_url
from test_plugins_of_jobs import JOB, make_wheel

from tests.eventually import eventually


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def versions(world: World) -> list[dict[str, int]]:
    """Return the jobs of each process that runs some, with their versions, by the first name."""
    found = [
        {each.name: each.version for each in runner.specification.jobs}
        for runner in world.launcher.alive
        if "running" in runner.phases.values()
    ]
    return sorted(found, key=min)


def want(world: World, desired: Desired, *jobs: str) -> None:
    world.supervisor.desire([world.registry.job(job) for job in jobs], desired)
    world.pass_time()


def test_a_version_that_comes_while_a_job_is_paused_runs_when_it_is_resumed(world: World) -> None:
    world.write("orders")
    world.pass_time()
    want(world, Desired.PAUSED, "orders")
    world.write("orders", "two")
    world.pass_time()
    assert (world.supervisor.phase("orders"), versions(world)) == ("paused", [])
    want(world, Desired.RUNNING, "orders")
    assert versions(world) == [{"orders": 2}]


def test_a_job_that_is_paused_while_its_version_is_watched_pauses_in_that_version(world: World) -> None:
    (world.jobs / "job.yaml").write_text("health_window: 60 s\n")
    world.write("orders")
    world.pass_time()
    world.write("orders", "two")
    world.supervisor.step()
    world.clock.advance(3)
    world.supervisor.step()
    want(world, Desired.PAUSED, "orders")
    world.pass_time(80)
    assert (world.supervisor.phase("orders"), world.registry.job("orders").current_version) == ("paused", 2)


def test_an_upgrade_of_one_job_of_a_group_neither_starts_what_is_paused_nor_what_has_finished(world: World) -> None:
    (world.jobs / "job.yaml").write_text("group: small\njobs: {done: {until: end}}\n")
    for name in ("done", "paused", "other"):
        world.write(name)
    world.pass_time()
    world.runner.phases["done"] = "finished"
    want(world, Desired.PAUSED, "paused")
    world.write("other", "two")
    world.write("paused", "two")
    world.pass_time()
    assert versions(world) == [{"other": 2}]
    assert [world.supervisor.phase(name) for name in ("done", "paused")] == ["finished", "paused"]
    want(world, Desired.RUNNING, "paused")
    assert versions(world)[-1] == {"other": 2, "paused": 2}


def test_a_rollback_in_a_group_takes_one_job_back(world: World) -> None:
    (world.jobs / "job.yaml").write_text("group: small\n")
    for name in ("a", "b"):
        world.write(name)
    world.pass_time()
    for name in ("a", "b"):
        world.write(name, "two")
    world.pass_time()
    world.supervisor.roll_out_later("rollback", {"a": 1})
    world.pass_time(20)
    assert versions(world) == [{"a": 1, "b": 2}]


def test_a_job_changes_its_group_while_it_is_stopped(world: World) -> None:
    for name in ("a", "b"):
        world.write(name)
    world.pass_time()
    (world.jobs / "job.yaml").write_text("jobs: {a: {group: small}, b: {group: small}}\n")
    world.write("c")
    world.pass_time()
    # Files of other jobs are taken meanwhile.
    assert versions(world) == [{"a": 1}, {"b": 1}, {"c": 1}]
    assert set(world.supervisor.refused_files) == {"a", "b"}
    assert "only while the job is stopped" in str(world.registry.job("b").problem)
    want(world, Desired.STOPPED, "a", "b")
    want(world, Desired.RUNNING, "a", "b")
    assert versions(world) == [{"a": 2, "b": 2}, {"c": 1}]
    assert (world.supervisor.refused_files, world.registry.job("b").problem) == ({}, None)


def test_a_group_that_is_taken_back_leaves_no_problem(world: World) -> None:
    world.write("a")
    world.pass_time()
    (world.jobs / "job.yaml").write_text("group: small\n")
    world.pass_time()
    assert world.registry.job("a").problem is not None
    (world.jobs / "job.yaml").unlink()
    world.pass_time()
    assert (world.registry.job("a").problem, versions(world)) == (None, [{"a": 1}])


# ------------------------------------------------------------------------------------------------- real processes


@pytest.mark.slow
def test_a_rollback_after_an_upgrade_of_a_plugin_runs_the_old_wheel_though_it_is_gone(server: ServerProcess) -> None:
    out, ext = server.root / "out.ndjson", server.root / "ext"

    def write(version: str) -> str:
        name = make_wheel(ext, version)
        (server.jobs / "job.yaml").write_text(json.dumps({"health_window": "300 ms", "plugins": [name]}))
        return name

    def add_and_wait(first: int, by: str) -> None:
        server.add_events(first, first + 10)
        eventually(lambda: len(out.read_text().splitlines()) == first + 10, "rows", shown=server.log)
        assert {json.loads(line)["version"] for line in out.read_text().splitlines()[first:]} == {by}

    (server.jobs / "copy.py").write_text(JOB.format(name="copy", events=str(server.events), out=str(out)))
    out.touch()
    old = write("1.0")
    server.start()
    server.wait_for_state("running", version=1)
    add_and_wait(0, "1.0")
    write("2.0")
    server.wait_for_state("running", version=2)
    add_and_wait(10, "2.0")
    (ext / old).unlink()
    done = server.command("rollback", "copy")
    assert done.returncode == 0, done.stdout + done.stderr
    server.wait_for_state("running", version=1)
    add_and_wait(20, "1.0")
    done = server.command("upgrade", "copy")
    assert done.returncode == 0, done.stdout + done.stderr
    server.wait_for_state("running", version=2)
    add_and_wait(30, "2.0")


@pytest.mark.slow
def test_jobs_of_a_group_are_upgraded_and_rolled_back_while_rows_flow_each_once(server: ServerProcess) -> None:
    outputs = {name: server.root / f"out-{name}" for name in ("one", "two")}

    def write(name: str, where: str) -> None:
        text = COPY.format(events=str(server.events), out=str(outputs[name]), where=where)
        (server.jobs / f"{name}.py").write_text(text.replace('"copy")', f'"{name}")'))

    def rows(name: str) -> Counter[int]:
        return Counter(
            json.loads(line)["n"] for part in outputs[name].glob("*.json") for line in part.read_text().splitlines()
        )

    (server.jobs / "job.yaml").write_text("group: small\nhealth_window: 300 ms\n")
    for name in outputs:
        write(name, "n >= 0")
    server.start()
    for name in outputs:
        server.wait_for_state("running", version=1, name=name)
    stopping, count = threading.Event(), 0

    def feed() -> None:
        nonlocal count
        while not stopping.wait(0.05):
            server.add_events(count, count + 20)
            count += 20

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        write("one", "n > -2")
        server.wait_for_state("running", version=2, name="one")
        write("two", "n > -3")
        server.wait_for_state("running", version=2, name="two")
        done = server.command("rollback", "one")
        assert done.returncode == 0, done.stdout + done.stderr
        found = {name: server.wait_for_state("running", name=name)["job"] for name in outputs}
    finally:
        stopping.set()
        feeder.join()
    assert {name: job["version"] for name, job in found.items()} == {"one": 1, "two": 2}
    assert found["one"]["pid"] == found["two"]["pid"]
    for name in outputs:
        eventually(lambda: sum(rows(name).values()) >= count, f"rows of {name}", shown=server.log)  # noqa: B023
        assert rows(name) == Counter(range(count))


@pytest.mark.slow
def test_a_scheduled_job_is_upgraded_and_rolled_back_between_its_runs_each_row_once(server: ServerProcess) -> None:
    server.write_copy()
    settings = "until: end\nschedule: {every: 1 s}\nhealth_window: 300 ms\n"
    (server.jobs / "job.yaml").write_text(settings)
    server.add_events(0, 100)
    server.start()
    server.wait_for_rows(100)
    server.write_copy(where="n > -2")
    (server.jobs / "job.yaml").write_text(settings)
    eventually(lambda: server.job()["job"]["version"] == 2, "version 2", shown=server.log)
    server.add_events(100, 200)
    server.wait_for_rows(200)
    done = server.command("rollback", "copy")
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: server.job()["job"]["version"] == 1, "version 1", shown=server.log)
    server.add_events(200, 300)
    server.wait_for_rows(300)
    assert {run["outcome"] for run in server.job()["runs"]} <= {"finished", None}, server.log()


@pytest.mark.slow
@pytest.mark.servers
def test_a_version_that_comes_while_the_machine_of_its_job_dies_is_rolled_out_by_the_next_server(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    servers = SharedServers(tmp_path, database_url(request, "postgresql"))
    try:
        servers.write_job("one")
        servers.add_events("one")
        for name in ("a", "b"):
            servers.add(name)
        servers.wait_for_rows()
        owner = str(servers.wait_for_owners(lambda by: "one" in by, "it runs")["one"])
        text = (servers.jobs / "one.py").read_text()
        (servers.jobs / "one.py").write_text(text.replace("n >= 0", "n > -2"))
        servers.by_name.pop(owner).kill_machine()
        servers.add_events("one")
        servers.wait_for_owners(lambda by: by.get("one") not in (None, owner), "another server has it")
        eventually(lambda: servers.ask("/v1/jobs/one")["job"]["version"] == 2, "version 2", shown=servers.logs)
        servers.add_events("one")
        servers.wait_for_rows()
    finally:
        servers.clean_up()
