"""Jobs on Spark under a real server: figures, upgrades and kills, each row once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from server_processes import ServerProcess
from shared_servers import SharedServers, database_url

from tests.eventually import eventually
from tests.servers.fixtures import StartSparkCluster
from tests.servers.spark_cluster import SparkClusterOptions

pytestmark = pytest.mark.spark
SETTINGS = "backend: spark\nhealth_window: 300 ms\nhealth_timeout: 170 s\nprepare_timeout: 170 s\n"


def write(server: ServerProcess, where: str) -> None:
    # The file is called copy.py, as a module of Python is: Spark's Python processes must start nevertheless.
    server.write_copy(where=where)
    (server.jobs / "job.yaml").write_text(SETTINGS)


def ended(server: ServerProcess, operation: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = server.client.ask("GET", f"/v1/operations/{operation}")
        return found if found["state"] != "running" else None

    return eventually(look, "the operation ends", shown=server.log) or {}


@pytest.mark.slow
def test_a_job_on_spark_is_shown_upgraded_killed_and_saved(server: ServerProcess) -> None:
    write(server, "n >= 0")
    server.add_events(0, 100)
    server.start()
    server.wait_for_state("running", version=1)
    server.wait_for_rows(100)
    token = (server.data / "token").read_text().strip()
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        text = client.get("/metrics").text
        assert 'headrace_source_records_total{backend="spark",job_name="test.copy"' in text
        assert client.get("/v1/jobs/copy/picture").headers["content-type"].startswith("image/svg+xml")
    write(server, "n > -7")
    server.wait_for_state("running", version=2)
    server.add_events(100, 200)
    server.wait_for_rows(200)
    ended_well = [each for each in server.client.ask("GET", "/v1/operations") if each["state"] == "done"]
    [upgrade] = [each for each in ended_well if json.loads(each["result"]).get("accepted") == {"copy": 2}]
    assert json.loads(upgrade["result"])["places"]["copy"]["offsets"]
    pid = server.job()["job"]["pid"]
    os.kill(pid, signal.SIGKILL)
    server.add_events(200, 300)
    server.wait_for_rows(300)
    found = server.wait_for_state("running")
    assert found["runs"][1]["outcome"] == "killed"
    saved = ended(server, server.client.ask("POST", "/v1/jobs/copy/savepoints", {"name": "one"})["id"])
    assert (saved["state"], Path(json.loads(saved["result"])["savepoint"]).is_dir()) == ("done", True)
    children = psutil.Process(found["job"]["pid"]).children(recursive=True)
    assert children
    assert server.stop() == 0
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def test_a_job_on_a_standalone_cluster_is_upgraded_and_goes_on_after_kills_of_its_driver_and_of_an_executor(
    server: ServerProcess, start_spark_cluster: StartSparkCluster
) -> None:
    cluster = start_spark_cluster(SparkClusterOptions(workers=2))
    server.write_copy()
    (server.root / "spark.conf").write_text("spark.executor.extraJavaOptions -Dof.the.file=1\n")
    settings = SETTINGS + (
        f"options:\n  master: '{cluster.master}'\n  conf: {{spark.executor.memory: 600m}}\n"
        f"  submit_arguments: [--properties-file, '{server.root / 'spark.conf'}']\n"
    )
    (server.jobs / "job.yaml").write_text(settings)
    server.add_events(0, 100)
    server.start()
    server.wait_for_state("running", version=1)
    server.wait_for_rows(100)
    executors = [each for each in cluster.executors() if each.is_running()]
    assert {"-Xmx600M", "-Dof.the.file=1"} <= set(executors[0].cmdline())
    executors[0].kill()
    server.add_events(100, 200)
    server.wait_for_rows(200)
    server.write_copy(where="n > -7")
    (server.jobs / "job.yaml").write_text(settings)
    server.wait_for_state("running", version=2)
    server.add_events(200, 300)
    server.wait_for_rows(300)
    os.kill(server.job()["job"]["pid"], signal.SIGKILL)
    server.add_events(300, 400)
    server.wait_for_rows(400)
    outcomes = [run["outcome"] for run in server.job()["runs"]]
    assert outcomes == [None, "killed", "stopped"]
    assert server.stop() == 0
    # Nothing of a job is left on the cluster when its server has stopped it.
    eventually(
        lambda: not [each for each in cluster.executors() if each.is_running()], "executors end", shown=server.log
    )


@pytest.fixture
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedServers]:
    """Servers on MariaDB, each on a machine of its own as far as they know."""
    made = SharedServers(tmp_path, database_url(request, "mysql"))
    yield made
    made.clean_up()


def owner_of_running_job(servers: SharedServers) -> str:
    """Start a job under two servers, wait for rows, and return which server runs it."""
    servers.write_job("one", SETTINGS)
    servers.add_events("one")
    for name in ("a", "b"):
        servers.add(name)
    servers.wait_for_rows()
    owner = servers.wait_for_owners(lambda by: "one" in by, "it runs")["one"]
    assert owner is not None
    return owner


@pytest.mark.servers
def test_a_job_on_spark_moves_with_its_checkpoint_from_a_machine_that_dies(servers: SharedServers) -> None:
    owner = owner_of_running_job(servers)
    servers.by_name.pop(owner).kill_machine()
    servers.add_events("one")
    servers.wait_for_owners(lambda by: by.get("one") not in (None, owner), "another server has it")
    servers.wait_for_rows()
    servers.add_events("one")
    servers.wait_for_rows()
    runs = servers.ask("/v1/jobs/one")["runs"]
    assert [run["outcome"] for run in runs] == [None, "killed"]


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(600)
@pytest.mark.parametrize("paused", ["all of it", "the driver's Python"])
def test_a_job_on_spark_moves_from_a_machine_that_is_paused_whose_driver_stores_nothing_when_it_wakes_up(
    servers: SharedServers, paused: str
) -> None:
    owner = owner_of_running_job(servers)
    lost = servers.by_name.pop(owner)
    drivers = lost.runner_pids()
    # With its Python alone, Java and the workers go on until they find the claim of the next run.
    lost.pause_machine(with_children=paused == "all of it")
    servers.add_events("one")
    servers.wait_for_owners(lambda by: by.get("one") not in (None, owner), "another server has it")
    servers.wait_for_rows()
    lost.continue_machine()
    servers.by_name[owner] = lost
    eventually(lambda: not set(drivers) & set(lost.runner_pids()), "the lost driver ends", shown=servers.logs)
    servers.add_events("one")
    servers.wait_for_rows()
    assert servers.owners()["one"] != owner
    assert [run["outcome"] for run in servers.ask("/v1/jobs/one")["runs"]] == [None, "killed"]


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stopped", ["its server", "the job, and then its machine dies"])
def test_a_job_on_spark_moves_at_a_checkpoint_from_a_server_that_stops(servers: SharedServers, stopped: str) -> None:
    owner = owner_of_running_job(servers)
    servers.add_events("one")
    lost = servers.by_name.pop(owner)
    if stopped == "its server":
        assert lost.stop() == 0
    else:
        lost.client.ask("POST", "/v1/actions", {"action": "stop", "select": "one"})
        eventually(lambda: servers.ask("/v1/jobs/one")["job"]["state"] == "stopped", "it stops", shown=servers.logs)
        lost.kill_machine()
        [other] = servers.by_name.values()
        other.client.ask("POST", "/v1/actions", {"action": "start", "select": "one"})
    servers.wait_for_owners(lambda by: by.get("one") not in (None, owner), "another server has it")
    servers.add_events("one")
    servers.wait_for_rows()
    assert [run["outcome"] for run in servers.ask("/v1/jobs/one")["runs"]] == [None, "stopped"]
