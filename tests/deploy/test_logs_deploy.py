"""deploy/logs: the manifests fit the schemas of Kubernetes, and their job reads logs of containers that are restarted and rotated."""

from __future__ import annotations

import gzip
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import elasticsearch
import pytest
import yaml

from tests.servers.elasticsearch import ElasticsearchServer

LOGS = Path(__file__).resolve().parents[2] / "deploy" / "logs"
SCHEMAS = "1.37.0"
URL = "http://elasticsearch.streams.svc:9200"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((LOGS / "daemonset.yaml").read_text()))


def pod() -> dict[str, Any]:
    [found] = [each["spec"]["template"]["spec"] for each in documents() if each["kind"] == "DaemonSet"]
    made: dict[str, Any] = found
    return made


def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for each in documents():
        validate(each, SCHEMAS, strict=True)


def test_what_the_job_is_told_is_mounted() -> None:
    kustomization = yaml.safe_load((LOGS / "kustomization.yaml").read_text())
    [generated] = kustomization["configMapGenerator"]
    assert generated["files"] == ["pods.py"]
    assert all((LOGS / name).is_file() for name in [*kustomization["resources"], *generated["files"]])
    [container] = pod()["containers"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod()["volumes"]}
    assert {each["name"] for each in mounts.values()} == set(volumes)
    assert volumes["jobs"]["configMap"]["name"] == generated["name"]
    assert mounts["/var/log/pods"]["readOnly"]
    assert container["args"][1] == "/jobs/pods.py"
    [checkpoint] = [each for each in container["args"] if each.startswith("--checkpoint=")]
    assert checkpoint.split("=")[1].startswith("/data/")


class Container:
    """Writes the log of a container as containerd does, is started again, and is rotated by kubelet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lines: list[str] = []
        self.restarts = 0
        directory.mkdir(parents=True)

    @property
    def log(self) -> Path:
        return self.directory / f"{self.restarts}.log"

    def write(self, count: int) -> None:
        with self.log.open("a") as file:
            for _ in range(count):
                text = f"line {len(self.lines)}"
                self.lines.append(text)
                at = f"2026-01-31T10:{len(self.lines) // 60:02}:{len(self.lines) % 60:02}.5Z"
                file.write(f"{at} stdout P {text[:3]}\n{at} stdout F {text[3:]}\n")

    def rotate(self, number: int) -> None:
        for rotated in self.directory.glob(f"{self.log.name}.*"):
            if rotated.suffix != ".gz":
                rotated.with_name(f"{rotated.name}.gz").write_bytes(gzip.compress(rotated.read_bytes()))
                rotated.unlink()
        os.rename(self.log, self.log.with_name(f"{self.log.name}.20260131-{number:06}"))
        self.log.touch()

    def restart(self) -> None:
        """kubelet keeps the logs of the container before."""
        self.restarts += 1
        for old in self.directory.glob(f"{self.restarts - 2}.log*"):
            old.unlink()


@pytest.mark.servers
def test_each_line_is_there_once(elasticsearch_server: ElasticsearchServer, index_name: str, tmp_path: Path) -> None:
    container = Container(tmp_path / "pods" / "shop_web-7d4f_0b1f22aa" / "nginx")
    [given] = pod()["containers"]
    # As the pod is started, in places of this test, and to the end of what is there.
    told = shlex.join(given["args"]).replace("/jobs/", f"{LOGS}/").replace("/data/", f"{tmp_path}/data/")
    told = told.replace("--until=never", "--until=end").replace(URL, elasticsearch_server.url)
    own = [f"--set=index={index_name}", f"--set=logs={tmp_path}/pods"]
    command: list[str] = [str(Path(sys.executable).with_name("headrace")), *shlex.split(told), *own]
    (tmp_path / "data").mkdir()

    def run() -> None:
        done = subprocess.run(command, cwd=tmp_path / "data", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    container.write(3)
    run()
    for number in range(3):  # while the job is down
        container.write(2)
        container.rotate(number)
    container.write(1)
    run()
    container.restart()
    container.write(4)
    container.rotate(9)
    container.write(1)
    run()
    with elasticsearch.Elasticsearch(elasticsearch_server.url, request_timeout=60) as client:
        client.indices.refresh(index=f"{index_name}*")
        found = [each["_source"] for each in client.search(index=f"{index_name}-2026*", size=1000)["hits"]["hits"]]
        client.indices.delete(index=f"{index_name}*")
        client.options(ignore_status=404).indices.delete_index_template(name=f"headrace-{index_name}*")
    assert Counter(each["message"] for each in found) == Counter(container.lines)
    assert {(each["namespace"], each["pod"], each["container"]) for each in found} == {("shop", "web-7d4f", "nginx")}
    assert {each["restart_count"] for each in found} == {0, 1}
