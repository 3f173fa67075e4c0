"""deploy/ names files that exist, the operator's file has fields that it knows, and the entry point starts what Spark asks for."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
#: Of the definition of SparkApplication v1beta2 in kubeflow's operator: the fields that our file may use.
SPEC_FIELDS = {"type", "pythonVersion", "mode", "image", "imagePullPolicy", "mainApplicationFile", "sparkVersion",
               "restartPolicy", "sparkConf", "driver", "executor", "arguments", "deps", "volumes"}  # fmt: skip
REQUIRED = {"type", "mainApplicationFile", "sparkVersion", "driver", "executor"}
POD_FIELDS = {
    "cores",
    "memory",
    "memoryOverhead",
    "serviceAccount",
    "envFrom",
    "env",
    "instances",
    "volumeMounts",
    "labels",
}
RESTART_FIELDS = {
    "type",
    "onFailureRetries",
    "onFailureRetryInterval",
    "onSubmissionFailureRetries",
    "onSubmissionFailureRetryInterval",
}


def documents(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((DEPLOY / name).read_text()) if each is not None]


def test_the_image_is_made_of_files_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (\S+) \S+$", text, re.MULTILINE)
    assert "deploy/entrypoint.sh" in copied
    for source in copied:
        if source not in ("dist", "${JOB}"):  # made by `make wheels`, chosen by the user
            assert (ROOT / source).exists(), source
    names = set(re.findall(r"\bheadrace-\w+", text.partition("RUN python")[2].partition("&&")[0]))
    projects = {
        path.parent.name
        for kind in ("plugins", "connectors", "contrib")
        for path in ROOT.glob(f"{kind}/*/pyproject.toml")
    }
    assert names
    assert {name.removeprefix("headrace-") for name in names} <= projects


def test_the_operators_file_has_fields_that_the_operator_knows() -> None:
    [application] = documents("spark-application.yaml")
    assert (application["apiVersion"], application["kind"]) == ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
    spec = application["spec"]
    assert REQUIRED <= set(spec) <= SPEC_FIELDS
    assert set(spec["driver"]) <= POD_FIELDS
    assert set(spec["executor"]) <= POD_FIELDS
    assert set(spec["restartPolicy"]) <= RESTART_FIELDS
    pinned = re.search(r"^pyspark==(.*)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned is not None
    assert spec["sparkVersion"] == pinned[1]


def test_the_driver_has_an_account_that_exists_and_may_make_executors() -> None:
    kinds = {each["kind"]: each for each in documents("rbac.yaml")}
    account = kinds["ServiceAccount"]["metadata"]
    [application] = documents("spark-application.yaml")
    assert application["spec"]["driver"]["serviceAccount"] == account["name"]
    assert application["metadata"]["namespace"] == account["namespace"] == kinds["Namespace"]["metadata"]["name"]
    assert kinds["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert kinds["RoleBinding"]["roleRef"]["name"] == kinds["Role"]["metadata"]["name"]
    [rule] = kinds["Role"]["rules"]
    assert {"pods", "services", "configmaps"} <= set(rule["resources"])
    script = (DEPLOY / "spark-submit-k8s.sh").read_text()
    assert f"serviceAccountName={account['name']}" in script
    [secret] = documents("secret.yaml")
    assert set(secret["stringData"].values()) == {"replace-me"}
    assert f"{secret['metadata']['name']}:AWS_SECRET_ACCESS_KEY" in script


@pytest.fixture
def entry_point(tmp_path: Path) -> Path:
    """Return the entry point without the init program of the image."""
    script = tmp_path / "entrypoint.sh"
    script.write_text((DEPLOY / "entrypoint.sh").read_text().replace("exec /usr/bin/tini -s -- ", "exec "))
    script.chmod(0o755)
    for program in ("java/bin/java", "spark/bin/spark-submit"):
        path = tmp_path / program
        path.parent.mkdir(parents=True)
        path.write_text('#!/bin/sh\necho "$0"\nfor each do echo "$each"; done\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return script


def started(script: Path, *arguments: str, **variables: str) -> list[str]:
    place = script.parent
    environment = {
        "PATH": os.environ["PATH"],
        "SPARK_HOME": f"{place}/spark",
        "JAVA_HOME": f"{place}/java",
        **variables,
    }
    done = subprocess.run([script, *arguments], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.replace(str(place), "").splitlines()


def test_the_image_starts_a_driver(entry_point: Path) -> None:
    given = ["driver", "--properties-file", "/conf/spark.properties", "local:///opt/job/job.py", "one argument"]
    found = started(entry_point, *given, SPARK_DRIVER_BIND_ADDRESS="10.0.0.7")
    assert found[0] == "/spark/bin/spark-submit"
    assert found[1:5] == [
        "--conf",
        "spark.driver.bindAddress=10.0.0.7",
        "--conf",
        "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.7",
    ]
    assert found[5:] == ["--deploy-mode", "client", *given[1:]]


def test_the_image_starts_an_executor(entry_point: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Doption={number} of a list" for number in range(12)}
    found = started(
        entry_point, "executor", **options, SPARK_EXECUTOR_MEMORY="2g", SPARK_DRIVER_URL="spark://driver:7078",
        SPARK_EXECUTOR_ID="3", SPARK_EXECUTOR_CORES="2", SPARK_APPLICATION_ID="spark-1", SPARK_EXECUTOR_POD_IP="10.0.0.8",
        SPARK_RESOURCE_PROFILE_ID="0", SPARK_EXECUTOR_POD_NAME="job-exec-3",
    )  # fmt: skip
    assert found[:15] == ["/java/bin/java", *options.values(), "-Xms2g", "-Xmx2g"]
    assert found[17] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert dict(zip(found[18::2], found[19::2], strict=True)) == {
        "--driver-url": "spark://driver:7078", "--executor-id": "3", "--cores": "2", "--app-id": "spark-1",
        "--hostname": "10.0.0.8", "--resourceProfileId": "0", "--podName": "job-exec-3",
    }  # fmt: skip


def test_other_commands_run_in_the_image_as_they_are(entry_point: Path) -> None:
    assert started(entry_point, "echo", "a b") == ["a b"]
