"""Who may use a real server: TLS, users, tokens and the audit log through the commands, as processes."""

from __future__ import annotations

import json

import httpx
import pytest
from headrace.foundation.errors import HeadraceError
from headrace_server.commands.client import Client
from server_processes import ServerProcess

from tests.eventually import eventually
from tests.servers.certificates import Certificates, make_certificates

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = make_certificates(tmp_path_factory.mktemp("certificates"))
    made.server_key.chmod(0o600)
    return made


def headrace(server: ServerProcess, *words: str, token: str | None = None, given: str = "") -> str:
    """Run a command beside the server; return what it prints. Fails with what it says."""
    found = server.command(*words, token=token, given=given)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_users_tokens_and_the_audit_log_by_commands(server: ServerProcess) -> None:
    server.write_copy()
    server.start()
    server.wait_for_state("running")
    assert "ann is operator" in headrace(server, "users", "put", "ann", "--role", "operator", given=PASSWORD + "\n")
    assert "ann" in headrace(server, "users", "list")
    viewer = headrace(server, "tokens", "make", "grafana", "--role", "viewer", "--days", "30").strip()
    assert "copy" in headrace(server, "jobs", token=viewer)
    with pytest.raises(AssertionError, match="this needs the role operator; grafana has viewer"):
        headrace(server, "stop", "copy", token=viewer)
    assert 'headrace_job_state{backend="light",job_name="test.copy",state="running"} 1.0' in httpx.get(
        server.url + "/metrics", headers={"Authorization": f"Bearer {viewer}"}
    ).text  # fmt: skip
    headrace(server, "stop", "copy")
    headrace(server, "start", "copy")
    [listed] = [each for each in json.loads(headrace(server, "tokens", "list", "--json")) if each["name"] == "grafana"]
    headrace(server, "tokens", "revoke", listed["id"])
    with pytest.raises(AssertionError, match="the token is unknown, was revoked or has expired"):
        headrace(server, "jobs", token=viewer)
    shown = headrace(server, "audit", "--diff")
    for change in ("local (author)  user put  ann", "token make  grafana", "stop  copy", "start  copy", "token revoke"):
        assert change in shown
    assert "jobs directory (author)  version  copy" in shown
    assert "+copy.py: " in shown
    for secret in (PASSWORD, viewer, viewer.split("_", 2)[2]):
        assert secret not in shown + server.log()
    assert server.stop() == 0


def test_sessions_and_tokens_outlive_the_server(server: ServerProcess) -> None:
    server.start()
    headrace(server, "users", "put", "ann", "--role", "viewer", given=PASSWORD + "\n")
    token = (server.data / "token").read_text()
    with httpx.Client(base_url=server.url) as browser:
        assert browser.post("/login", data={"name": "ann", "secret": PASSWORD}).status_code == 303
        cookie = browser.cookies["headrace_session"]
    server.kill()
    server.start()
    assert (server.data / "token").read_text() == token
    with httpx.Client(base_url=server.url, cookies={"headrace_session": cookie}) as browser:
        assert "ann (viewer)" in browser.get("/").text


def test_with_tls_clients_check_the_server_and_may_be_checked_by_it(
    server: ServerProcess, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_SERVER_AUTHORITY", str(certificates.authority))
    server.write_copy()
    tls = ("--tls-certificate", str(certificates.server), "--tls-key", str(certificates.server_key))
    server.start("--host", "0.0.0.0", *tls)
    assert server.url.startswith("https://localhost:")
    server.wait_for_state("running")
    assert "copy" in headrace(server, "jobs")
    token = (server.data / "token").read_text().strip()
    with httpx.Client(verify=certificates.client_context(), base_url=server.url) as browser:
        answer = browser.post("/login", data={"secret": token})
        assert answer.headers["set-cookie"].startswith("__Host-headrace=")
        assert "Secure" in answer.headers["set-cookie"]
        assert answer.headers["strict-transport-security"]
        assert browser.get("/", headers={"Host": "evil.example"}).status_code == 421
    monkeypatch.setenv("HEADRACE_SERVER_AUTHORITY", str(certificates.stranger_authority))
    with Client(server.url, token) as client, pytest.raises(HeadraceError, match=r"does not answer.*CERTIFICATE"):
        client.ask("GET", "/v1/jobs")
    with Client(server.url.replace("https", "http"), token) as client, pytest.raises(HeadraceError, match="not answer"):
        client.ask("GET", "/v1/jobs")
    assert server.stop() == 0
    monkeypatch.setenv("HEADRACE_SERVER_AUTHORITY", str(certificates.authority))
    server.start("--host", "0.0.0.0", *tls, "--tls-client-authority", str(certificates.authority))
    with pytest.raises(HeadraceError, match="does not answer"):
        server.client.ask("GET", "/v1/jobs")
    monkeypatch.setenv("HEADRACE_CLIENT_CERTIFICATE", str(certificates.client))
    monkeypatch.setenv("HEADRACE_CLIENT_KEY", str(certificates.client_key))
    with Client(server.url, token) as client:
        eventually(lambda: client.ask("GET", "/v1/jobs"), "the job is there", shown=server.log)
    assert server.stop() == 0


def test_behind_a_proxy_pages_are_those_of_its_name(server: ServerProcess) -> None:
    server.start("--behind-proxy", "--host-name", "headrace.example")
    token = (server.data / "token").read_text().strip()
    with httpx.Client(base_url=server.url) as browser:
        public = {"Host": "headrace.example", "Origin": "https://headrace.example", "X-Forwarded-For": "203.0.113.7"}
        answer = browser.post("/login", data={"secret": token}, headers=public)
        assert (answer.status_code, "__Host-headrace" in answer.headers["set-cookie"]) == (303, True)
        # Whoever guesses elsewhere is held up there only.
        for _ in range(6):
            found = browser.post("/login", data={"secret": "x"}, headers=public)
        assert found.status_code == 429
        other = {**public, "X-Forwarded-For": "203.0.113.8"}
        assert browser.post("/login", data={"secret": token}, headers=other).status_code == 303
        assert browser.post("/login", data={"secret": token}, headers={**public, "Host": "evil"}).status_code == 421


def test_without_a_proxy_nobody_says_where_he_is(server: ServerProcess) -> None:
    server.start()
    token = (server.data / "token").read_text().strip()
    with httpx.Client(base_url=server.url) as browser:
        for number in range(6):
            browser.post("/login", data={"secret": "x"}, headers={"X-Forwarded-For": f"203.0.113.{number}"})
        elsewhere = {"X-Forwarded-For": "203.0.113.99"}
        assert browser.post("/login", data={"secret": token}, headers=elsewhere).status_code == 429
