"""The pipelines of logs in examples: their cases, that lint has nothing to say, and one of them run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import mmdb_writer
import netaddr
import pytest
from headrace.interfaces.language import language
from headrace_pipeline.testing import run_cases

from tests.examples.run import ROOT, run_example

EXAMPLES = ROOT / "examples"
#: The files, and how many cases each has.
PIPELINES = {"nginx_to_elasticsearch": 1, "ssh_guessing_to_webhook": 1, "kubernetes_audit_to_sqlite": 1}
EVENT = (
    '{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"%s","stage":"ResponseComplete","verb":"%s",'
    '"requestURI":"/","user":{"username":"ida"},"objectRef":{"resource":"secrets","namespace":"shop","name":"db"},'
    '"responseStatus":{"code":200},"stageTimestamp":"2026-01-15T10:23:45.000000Z"}\n'
)


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    writer = mmdb_writer.MMDBWriter(ip_version=6, ipv4_compatible=True)
    place = {"country": {"iso_code": "DE"}, "city": {"names": {"en": "Berlin"}}}
    writer.insert_network(netaddr.IPSet(["192.0.2.0/24"]), place)
    writer.to_db_file(str(tmp_path / "cities.mmdb"))
    return {
        "CITIES": str(tmp_path / "cities.mmdb"),
        "LOG": "some.log",
        "ELASTICSEARCH": "https://search.example.org:9200",
        "WEBHOOK": "https://hooks.example.org/alerts",
    }


@pytest.mark.parametrize("name", PIPELINES)
def test_cases(name: str, variables: dict[str, str]) -> None:
    results = run_cases(EXAMPLES / f"{name}.yaml", variables)
    assert [each.differences for each in results] == [()] * PIPELINES[name]


@pytest.mark.parametrize("name", PIPELINES)
def test_lint(name: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ES_PASSWORD", "of a test")
    monkeypatch.setenv("WEBHOOK_TOKEN", "of a test")
    assert language("yaml").lint(str(EXAMPLES / f"{name}.yaml"), variables) == []


def test_changes_of_a_cluster_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_text(EVENT % (1, "delete") + EVENT % (2, "get") + "no event\n")
    run_example("kubernetes_audit_to_sqlite.yaml", "light", tmp_path, {"LOG": tmp_path / "audit.log"}, {})
    with sqlite3.connect(tmp_path / "audit.db") as database:
        found = database.execute("SELECT user, verb, resource, namespace, name, status FROM changes").fetchall()
    assert found == [("ida", "delete", "secrets", "shop", "db", 200)]
    assert len(list((tmp_path / "bad-events").rglob("*.json"))) == 1
