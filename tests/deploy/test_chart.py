"""deploy/server/chart: what Helm makes of it fits the schemas of Kubernetes and starts the server as it can be started.

What Helm has made is kept in ``rendered/``, so that all of it is tested where Helm is not installed. Where it is, both are compared; with
HEADRACE_KEEP_CHART=1 it is kept anew. ``go install helm.sh/helm/v3/cmd/helm@latest`` installs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from headrace_server.commands.serving import serve_app
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "server" / "chart"
RENDERED = Path(__file__).parent / "rendered"
SCHEMAS = "1.37.0"
HELM = shutil.which(os.environ.get("HEADRACE_HELM", "helm"))
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not installed")
ONE = {
    "tls": {"existingSecret": "headrace-tls"},
    "jobs": {"files": {"job.yaml": "backend: light\n", "a.sql": "SELECT 1"}},
}
SEVERAL = {
    "replicas": 3,
    "tls": {"existingSecret": "headrace-tls", "hostNames": ["headrace.example.org"]},
    "registry": {"existingSecret": "headrace-registry"},
    "variables": {"existingSecret": "headrace-variables"},
    "jobs": {"existingClaim": "checkout"},
    "shared": {"storageClass": "nfs"},
    "serviceMonitor": {"enabled": True},
    "podAnnotations": {"example.org/team": "streams"},
    "tolerations": [{"key": "streams", "operator": "Exists"}],
    "extraArgs": ["--ext=/jobs/ext"],
}
CASES: dict[str, dict[str, Any]] = {"one": ONE, "several": SEVERAL}


def helm(tmp_path: Path, values: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    command = [str(HELM), *words, str(CHART), "--values", str(tmp_path / "values.yaml")]
    own = {"HELM_CACHE_HOME": str(tmp_path), "HELM_CONFIG_HOME": str(tmp_path), "HELM_DATA_HOME": str(tmp_path)}
    return subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)


def template(tmp_path: Path, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return helm(tmp_path, values, "template", "headrace", "--namespace", "streams", "--kube-version", "1.37.0")


def documents(case: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((RENDERED / f"{case}.yaml").read_text()) if each]


def of_kind(case: str, kind: str, name: str = "headrace") -> dict[str, Any]:
    [found] = [each for each in documents(case) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod(case: str) -> dict[str, Any]:
    found: dict[str, Any] = of_kind(case, "StatefulSet")["spec"]["template"]["spec"]
    return found


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_helm_makes_what_is_kept(tmp_path: Path, case: str) -> None:
    done = template(tmp_path, CASES[case])
    assert done.returncode == 0, done.stderr
    if os.environ.get("HEADRACE_KEEP_CHART"):
        RENDERED.mkdir(exist_ok=True)
        (RENDERED / f"{case}.yaml").write_text(done.stdout)
    made = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert made == documents(case)


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_helm_finds_nothing_wrong(tmp_path: Path, case: str) -> None:
    done = helm(tmp_path, CASES[case], "lint", "--strict")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_helm
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**ONE, "replicas": 2}, "more than one server need registry.existingSecret"),
        ({**ONE, "replicas": 0}, "replicas"),
        ({"jobs": ONE["jobs"]}, "existingSecret"),
        ({"tls": ONE["tls"]}, "give one of files, existingConfigMap and existingClaim"),
        ({**ONE, "jobs": {"existingClaim": "a", "existingConfigMap": "b"}}, "give one of files"),
        ({**ONE, "replica": 2}, "replica"),
        ({**ONE, "resource": {}}, "resource"),
    ],
)
def test_values_that_cannot_be_are_refused_with_the_reason(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    done = template(tmp_path, values)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize("case", CASES)
def test_the_manifests_fit_the_schemas_of_kubernetes(case: str) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    kinds = []
    for each in documents(case):
        kinds.append(each["kind"])
        if each["kind"] != "ServiceMonitor":  # of the Prometheus operator
            validate(each, SCHEMAS, strict=True)
        assert each["metadata"]["namespace"] == "streams"
    expected = {"ServiceAccount", "Service", "StatefulSet", "NetworkPolicy"}
    more = {"one": {"ConfigMap"}, "several": {"PersistentVolumeClaim", "PodDisruptionBudget", "ServiceMonitor"}}
    assert set(kinds) == expected | more[case]
    wrong = of_kind(case, "StatefulSet")
    wrong["spec"]["replica"] = 1
    with pytest.raises(Exception, match="replica"):
        validate(wrong, SCHEMAS, strict=True)


@pytest.mark.parametrize("case", CASES)
def test_the_server_knows_the_options_that_it_is_started_with(case: str) -> None:
    [container] = pod(case)["containers"]
    variables = {"$(POD_NAME)": "headrace-0"}
    words = ["--jobs", "/jobs", "--ext", "/ext", "--health-port", "8732"]
    for each in container["args"]:
        for name, value in variables.items():
            each = each.replace(name, value)
        words.append(each)
    given = get_command(serve_app).make_context("serve", words).params
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"] for each in pod(case)["volumes"]} | {"data"}
    assert set(mounts.values()) == volumes
    assert {"/data", "/jobs", "/tls", "/tmp"} <= mounts.keys()
    names = list(given["host_names"])
    assert "headrace.streams.svc" in names
    variables_of = {each["name"] for each in container["env"]}
    if case == "several":
        assert (given["name"], str(given["shared"])) == ("headrace-0", "/shared")
        assert names[0] == "headrace-0.headrace-peers.streams.svc"  # by which the others ask it
        assert "HEADRACE_REGISTRY" in variables_of
        assert "/shared" in mounts
        assert str(given["ext"]) == "/jobs/ext"
    else:
        assert (given["name"], given["shared"]) == (None, None)
        assert "HEADRACE_REGISTRY" not in variables_of
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"https": 8731, "health": 8732}


@pytest.mark.parametrize("case", CASES)
def test_services_policies_and_the_certificate_lead_to_the_pods(case: str) -> None:
    labels = of_kind(case, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    peers = of_kind(case, "Service", "headrace-peers")
    assert (of_kind(case, "StatefulSet")["spec"]["serviceName"], peers["spec"]["clusterIP"]) == (
        "headrace-peers",
        "None",
    )
    for selector in (
        of_kind(case, "Service")["spec"]["selector"], peers["spec"]["selector"],
        of_kind(case, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        of_kind(case, "StatefulSet")["spec"]["selector"]["matchLabels"],
    ):  # fmt: skip
        assert selector
        assert selector.items() <= labels.items()
    allowed = of_kind(case, "NetworkPolicy")["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert allowed.items() <= labels.items()  # servers ask each other
    [secret] = [each["secret"]["secretName"] for each in pod(case)["volumes"] if "secret" in each]
    assert secret == "headrace-tls"
    if case == "several":
        monitor = of_kind(case, "ServiceMonitor")["spec"]
        assert monitor["selector"]["matchLabels"].items() <= peers["metadata"]["labels"].items()
        assert not monitor["selector"]["matchLabels"].items() <= of_kind(case, "Service")["metadata"]["labels"].items()
        assert monitor["endpoints"][0]["tlsConfig"]["serverName"] == "headrace.streams.svc"
        claim = of_kind(case, "PersistentVolumeClaim", "headrace-shared")["spec"]
        assert claim["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize("case", CASES)
def test_pods_have_no_rights_and_the_time_to_drain(case: str) -> None:
    from headrace_server.service.description import STOP_TIMEOUT_SECONDS

    spec = pod(case)
    assert spec["terminationGracePeriodSeconds"] == STOP_TIMEOUT_SECONDS
    assert spec["securityContext"]["runAsNonRoot"]
    assert not spec["automountServiceAccountToken"]
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip


def test_a_changed_job_replaces_the_pods(tmp_path: Path) -> None:
    annotation = of_kind("one", "StatefulSet")["spec"]["template"]["metadata"]["annotations"]["headrace.example/jobs"]
    assert len(annotation) == 64
    if HELM is None:
        return
    done = template(tmp_path, {**ONE, "jobs": {"files": {"a.sql": "SELECT 2"}}})
    assert annotation not in done.stdout
