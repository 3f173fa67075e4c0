"""The REST API over runners that are no processes: what is answered, what is refused, and to whom."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from headrace_server.access import Role
from headrace_server.api.events import log_lines
from headrace_server.loop_watch import STALLED_SECONDS
from server_world import World

SITE = "http://127.0.0.1:8731"


class Api:
    """Asks the guarded application without a network, as the author unless another role is named."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.app = world.app()
        self.tokens = {role.name.lower(): world.authority.make_token(f"ci-{role.name.lower()}", role) for role in Role}

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        role: str = "author",
        token: str | None = None,
        **headers: str,
    ) -> httpx.Response:
        """Send a request; an empty token sends none. Names of headers have ``_`` for ``-``."""
        token = self.tokens[role] if token is None else token
        given = {"Authorization": f"Bearer {token}"} if token else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=SITE, headers=given) as client:
                content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
                return await client.request(method, path, content=content)

        return asyncio.run(ask())

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.send(method, path, body)
        assert answer.status_code < 300, answer.text
        return answer.json()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    world = World(tmp_path)
    world.write("team/orders")
    world.write("clicks")
    world.pass_time()
    yield Api(world)
    world.close()


def test_jobs_are_listed_with_their_figures(api: Api) -> None:
    clicks, orders = api.ask("GET", "/v1/jobs")
    assert (clicks["name"], orders["name"]) == ("clicks", "team/orders")
    assert orders["state"] == "running"
    assert (orders["records_read"], orders["rows_written"], orders["lag_records"], orders["version"]) == (10, 10, 0, 1)
    assert [each["name"] for each in api.ask("GET", "/v1/jobs?select=team/")] == ["team/orders"]


def test_a_job_in_a_folder_is_named_with_a_colon(api: Api) -> None:
    found = api.ask("GET", "/v1/jobs/team:orders")
    assert found["job"]["name"] == "team/orders"
    assert [each["number"] for each in found["versions"]] == [1]
    version = api.ask("GET", "/v1/jobs/team:orders/versions/1")
    assert version["plan"] == "the plan"
    assert list(version["files"]) == ["orders.py"]


def test_a_server_whose_supervision_hangs_is_not_alive(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = api.world.supervisor
    reached, released = threading.Event(), threading.Event()

    def hang() -> None:
        reached.set()
        released.wait()

    def live() -> tuple[int, str]:
        answer = api.send("GET", "/health/live", token="")
        return answer.status_code, answer.json()["status"]

    monkeypatch.setattr(supervisor, "step", hang)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        reached.wait()
        assert live() == (200, "ok")
        api.world.clock.advance(STALLED_SECONDS)
        assert live() == (503, "stalled")
    finally:
        supervisor.stop("leave")
        released.set()
        thread.join()
    assert live() == (200, "ok")


@pytest.mark.parametrize("token", ["", "wrong", "hrt_0123456789abcdef_" + "a" * 43])
def test_without_a_token_nothing_is_told(api: Api, token: str) -> None:
    checked = 0
    for method, path, _ in endpoints(api):
        assert api.send(method, path, token=token).status_code == 401, (method, path)
        checked += 1
    assert checked > 25
    assert api.send("GET", "/health/live", token="").json() == {"status": "ok"}
    assert api.send("GET", "/health/ready", token="").status_code == 503  # the loop of the server does not run


def endpoints(api: Api) -> list[tuple[str, str, str]]:
    document = api.ask("GET", "/v1/openapi.json")
    names = {"job": "clicks", "version": "1", "operation": "x", "user": "x", "token": "x"}
    return [
        (method.upper(), path.format(**names), each["description"])
        for path, operations in document["paths"].items()
        for method, each in operations.items()
    ]  # fmt: skip


def test_every_endpoint_refuses_lesser_roles(api: Api) -> None:
    roles = ["viewer", "operator", "author"]
    checked = 0
    for method, path, description in endpoints(api):
        needed = next(role for role in roles if role in description)
        for role in roles[: roles.index(needed)]:
            answer = api.send(method, path, role=role)
            assert answer.status_code == 403, (method, path, role)
            assert f"needs the role {needed}" in answer.json()["detail"]
            checked += 1
    assert checked >= 25


def test_every_endpoint_refuses_bodies_that_are_none(api: Api) -> None:
    """Also bodies that fit another endpoint: none is a fault of the server."""
    bodies: list[Any] = [
        b"",
        b"{",
        b"\xff\xfe",
        [],
        5,
        None,
        {"x": 1},
        {"text": 5},
        {"version": "1"},
        {"letters": {}},
        b"[" * 10_000,
    ]
    checked = 0
    for method, path, _ in endpoints(api):
        if method in ("PUT", "POST"):
            for body in bodies:
                answer = api.send(method, path, body)
                # Some have only fields that may be left out; then the request itself is refused or carried out.
                assert answer.status_code in (400, 404, 409, 422, 501, 202, 503), (method, path, body, answer.text)
                assert "the server failed to answer" not in answer.text
                checked += 1
    assert checked >= 100


def test_every_endpoint_that_changes_something_is_in_the_audit_log(api: Api) -> None:
    """Only trials change nothing; a new endpoint must be recorded or named here."""
    trials = {("POST", "/v1/sql/lint"), ("POST", "/v1/sql/sample"), ("POST", "/v1/jobs/clicks/rules/explain"),
              ("POST", "/v1/jobs/clicks/rules/test")}  # fmt: skip
    bodies: dict[str, Any] = {
        "/v1/actions": {"action": "stop", "select": "clicks"}, "/v1/jobs/clicks/file": {"suffix": ".py", "text": "# new"},
        "/v1/jobs/clicks/offsets": {"offsets": {"s/q": 1}}, "/v1/jobs/clicks/rules": {"text": "- id: a"},
        "/v1/jobs/clicks/dead-letters/replay": {"letters": ["a-1"]}, "/v1/users/x": {"role": "viewer", "password": "p" * 20},
        "/v1/tokens": {"name": "ci", "role": "viewer"},
    }  # fmt: skip
    recorded = set()
    for method, path, _ in endpoints(api):
        if method == "GET" or (method, path) in trials:
            continue
        before = len(api.world.audit.entries(count_max=1_000))
        api.send(method, path, bodies.get(path, {}))
        entries = api.world.audit.entries(count_max=1_000)
        assert len(entries) > before, (method, path)
        first = entries[len(entries) - before - 1]
        assert (first.who, first.role) == ("ci-author", "author")
        assert "p" * 20 not in first.difference
        recorded.add(first.action)
    assert recorded >= {"stop", "submit", "upgrade", "rollback", "savepoint", "offsets set", "offsets reset", "rules put", "replay",
                        "user put", "user remove", "token make", "token revoke"}  # fmt: skip


def test_the_audit_log_has_the_difference_and_what_was_refused(api: Api) -> None:
    api.ask("PUT", "/v1/jobs/clicks/file", {"suffix": ".py", "text": "password = 'hunter22'\nlimit = 2\n"})
    api.send("POST", "/v1/jobs/clicks/upgrade", {"version": 9})
    refused, asked, submitted = api.ask("GET", "/v1/audit?target=clicks")
    assert (submitted["action"], submitted["who"], submitted["role"]) == ("submit", "ci-author", "author")
    assert "-job = None  # one" in submitted["difference"]
    assert "+limit = 2" in submitted["difference"]
    assert "hunter22" not in submitted["difference"]
    assert (asked["action"], refused["action"]) == ("upgrade", "upgrade: refused")
    assert "no version 9" in refused["difference"]
    assert [each["number"] for each in api.ask("GET", f"/v1/audit?before={asked['number']}")] == [submitted["number"]]
    for wrong in ("limit=0", "limit=x", "before=-1", "limit=" + "9" * 40):
        assert api.send("GET", f"/v1/audit?{wrong}").status_code == 409


def test_a_change_that_cannot_be_recorded_is_not_made(api: Api) -> None:
    with api.world.registry.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE access_audit")
    answer = api.send("PUT", "/v1/jobs/clicks/file", {"suffix": ".py", "text": "# new"})
    assert (answer.status_code, "database" in answer.json()["detail"]) == (503, True)
    assert "access_audit" not in answer.text
    assert (api.world.jobs / "clicks.py").read_text() != "# new"


def test_a_version_is_by_whoever_has_submitted_it(api: Api) -> None:
    api.ask("PUT", "/v1/jobs/clicks/file", {"suffix": ".py", "text": "# two\n"})
    api.world.pass_time(20)
    api.world.write("clicks", "three")
    api.world.pass_time(20)
    third, second, first = api.ask("GET", "/v1/jobs/clicks")["versions"]
    assert (first["author"], second["author"], third["author"]) == (None, "ci-author", None)


def test_users_and_tokens_are_managed_and_their_secrets_shown_once(api: Api) -> None:
    made = api.ask("PUT", "/v1/users/ann", {"role": "operator", "password": "correct horse battery"})
    assert made["role"] == "operator"
    session = api.world.authority.log_in("ann", "correct horse battery", address="a")
    assert api.ask("PUT", "/v1/users/ann", {"role": "viewer"})["role"] == "viewer"
    assert api.world.authority.session_of(session.cookie) is None
    assert api.world.authority.log_in("ann", "correct horse battery", address="a").principal.role is Role.VIEWER
    assert api.send("PUT", "/v1/users/eve", {"role": "viewer"}).status_code == 409
    assert api.send("PUT", "/v1/users/eve", {"role": "viewer", "password": "short"}).status_code == 409
    assert [each["name"] for each in api.ask("GET", "/v1/users")] == ["ann"]
    token = api.ask("POST", "/v1/tokens", {"name": "grafana", "role": "viewer", "lifetime_seconds": 60})["token"]
    assert api.send("GET", "/v1/me", token=token).json() == {"name": "grafana", "role": "viewer", "kind": "token"}
    listed = api.send("GET", "/v1/tokens").text
    assert "grafana" in listed
    assert token.split("_", 2)[2] not in listed
    assert api.send("DELETE", f"/v1/tokens/{token.split('_')[1]}").status_code == 200
    assert api.send("GET", "/v1/me", token=token).status_code == 401
    assert api.send("DELETE", "/v1/users/ann").status_code == 200
    for path in ("/v1/users/ann", "/v1/tokens/none"):
        assert api.send("DELETE", path).status_code == 404
    everything = str(api.world.audit.entries())
    for secret in ("correct horse", token.split("_", 2)[2]):
        assert secret not in everything


def test_prometheus_can_read_the_figures_of_the_server(api: Api) -> None:
    """The fakes' runners give none of their own, so all are counted as without an answer."""
    text = api.send("GET", "/metrics", role="viewer").text
    assert 'headrace_server_jobs{state="running"} 2.0' in text
    assert 'headrace_server_job_failures{job="team/orders"} 0.0' in text
    assert "headrace_server_jobs_unanswered 2.0" in text
    assert "headrace_server_refused_files 0.0" in text
    assert api.send("GET", "/metrics", token="").status_code == 401


def test_unknown_paths_and_methods_are_problems_too(api: Api) -> None:
    for method, path, status in (("GET", "/v1/nothing", 404), ("DELETE", "/v1/jobs", 405)):
        answer = api.send(method, path)
        assert (answer.status_code, answer.json()["status"]) == (status, status)
        assert answer.headers["content-type"] == "application/problem+json"


def test_the_document_names_every_body_and_answer(api: Api) -> None:
    document = api.ask("GET", "/v1/openapi.json")
    assert document["openapi"].startswith("3.")
    text = json.dumps(document)
    for name in set(part.split('"')[0] for part in text.split("#/components/schemas/")[1:]):
        assert name in document["components"]["schemas"], name
    action = document["paths"]["/v1/actions"]["post"]
    assert action["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/ActionBody")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/v1/jobs/clickz", None, 404, "there is no job"),
        ("GET", "/v1/jobs/clicks/versions/9", None, 409, "no version 9"),
        ("GET", "/v1/operations/none", None, 404, "there is no operation"),
        ("POST", "/v1/actions", {"action": "explode", "select": "clicks"}, 422, "body is not valid"),
        ("POST", "/v1/actions", {"action": "stop", "select": "clickz"}, 409, "no job matches"),
        ("POST", "/v1/actions", b"{", 400, "not JSON"),
        ("POST", "/v1/jobs/clicks/rollback", {}, 409, "no earlier version"),
        ("POST", "/v1/jobs/clicks/upgrade", {}, 409, "the current version"),
        ("POST", "/v1/jobs/clicks/savepoints", {"name": "../x"}, 409, "cannot be the name"),
        ("PUT", "/v1/jobs/a:b:c/file", {"suffix": ".py", "text": ""}, 409, "cannot be the name of a job"),
        ("PUT", "/v1/jobs/..:x/file", {"suffix": ".py", "text": ""}, 409, "cannot be the name of a job"),
        ("PUT", "/v1/jobs/clicks/file", {"suffix": ".yaml", "text": ""}, 409, "the job is a .py file"),
        ("PUT", "/v1/jobs/job/file", {"suffix": ".yaml", "text": ""}, 409, "job.yaml is the name of the settings file"),
        ("PUT", "/v1/jobs/clicks/file", {"suffix": ".sh", "text": ""}, 422, "body is not valid"),
        ("PUT", "/v1/jobs/clicks/offsets", {"offsets": {"s/q": 1}}, 409, "only while the job is stopped"),
        ("DELETE", "/v1/jobs/clicks/offsets", None, 409, "only while the job is stopped"),
        ("GET", "/v1/jobs/clicks/logs?lines=-1", None, 400, "expected a number"),
        ("GET", "/v1/jobs/clicks/logs?lines=²", None, 400, "expected a number"),
        ("GET", "/v1/jobs/clicks/logs?lines=" + "9" * 5000, None, 400, "expected a number"),
        ("GET", "/v1/jobs/clicks/logs/events?lines=²", None, 400, "expected a number"),
        ("GET", "/v1/jobs/clicks/versions/²", None, 404, "not the number of a version"),
        ("GET", "/v1/jobs/clicks/versions/1_0", None, 404, "not the number of a version"),
        ("GET", "/v1/jobs/clicks/versions/" + "9" * 30, None, 404, "not the number of a version"),
        ("POST", "/v1/jobs/clicks/upgrade", {"version": 10**30}, 409, "no version 1000"),
        ("POST", "/v1/jobs/clicks/rollback", {"version": -1}, 409, "no version -1"),
        ("PUT", "/v1/jobs/clicks/offsets", {"offsets": {"s/q": 2**63}}, 422, "body is not valid"),
        ("PUT", "/v1/jobs/clicks/offsets", {"offsets": {"s/q": -1}}, 422, "body is not valid"),
        (
            "POST",
            "/v1/actions",
            {"action": "stop", "select": "clicks", "timeout_seconds": 1e300},
            409,
            "timeout_seconds",
        ),
        ("POST", "/v1/actions", {"action": "stop", "select": "clicks", "timeout_seconds": -1}, 409, "timeout_seconds"),
        ("GET", "/v1/operations/none/events", None, 404, "there is no operation"),
        ("GET", "/v1/events?select=clickz", None, 409, "no job matches"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(
    api: Api, method: str, path: str, body: Any, status: int, text: str
) -> None:
    answer = api.send(method, path, body)
    assert (answer.status_code, text in answer.json()["detail"]) == (status, True), answer.text


def carried_out(api: Api, begun: dict[str, Any]) -> dict[str, Any]:
    """Let the loop look until an operation has ended."""
    for _ in range(200):
        found: dict[str, Any] = api.ask("GET", f"/v1/operations/{begun['id']}")
        if found["state"] != "running":
            return found
        api.world.supervisor.step()
        api.world.supervisor.wait_for_roll_outs()
        threading.Event().wait(0.01)
    raise AssertionError(found)


def test_stop_pause_resume_and_start(api: Api) -> None:
    def act(action: str, select: str) -> dict[str, Any]:
        return carried_out(
            api, api.ask("POST", "/v1/actions", {"action": action, "select": select, "timeout_seconds": 1e9})
        )

    assert json.loads(act("stop", "clicks")["result"]) == {"clicks": "stopped"}
    assert json.loads(act("pause", "team/orders")["result"]) == {"team/orders": "paused"}
    assert json.loads(act("start", "--all")["result"]) == {"clicks": "running"}  # what is paused stays so
    assert json.loads(act("resume", "--all")["result"]) == {"team/orders": "running"}
    assert json.loads(act("restart", "clicks")["result"]) == {"clicks": "running"}
    assert len(api.world.registry.runs_of("clicks")) == 3


def test_a_submitted_file_becomes_a_version_and_can_be_rolled_back(api: Api) -> None:
    done = api.ask("PUT", "/v1/jobs/team:orders/file", {"suffix": ".py", "text": "# two\n"})
    assert Path(done["file"]) == api.world.jobs / "team" / "orders.py"
    api.world.pass_time(20)
    assert api.ask("GET", "/v1/jobs/team:orders")["job"]["version"] == 2
    begun = api.ask("POST", "/v1/jobs/team:orders/rollback", {})
    api.world.supervisor.wait_for_roll_outs()
    found = api.ask("GET", f"/v1/operations/{begun['id']}")
    assert (found["state"], json.loads(found["result"])["accepted"]) == ("done", {"team/orders": 1})
    assert json.loads(found["result"])["places"] == {"team/orders": {"checkpoint": 7, "offsets": {"s/q": 10}}}
    api.world.pass_time(10)
    assert api.ask("GET", "/v1/jobs/team:orders")["job"]["version"] == 1  # the file is not rolled out again


def test_a_reset_sets_the_checkpoint_aside(api: Api) -> None:
    begun = api.ask("POST", "/v1/actions", {"action": "stop", "select": "clicks", "timeout_seconds": 1e9})
    carried_out(api, begun)
    checkpoint = api.world.services.data.checkpoint("clicks")
    checkpoint.mkdir(parents=True)
    (checkpoint / "x").touch()
    api.ask("DELETE", "/v1/jobs/clicks/offsets")
    assert not checkpoint.exists()
    [aside] = checkpoint.parent.glob("checkpoint.*")
    assert (aside / "x").exists()


def test_the_end_of_a_log(api: Api) -> None:
    log = api.world.services.data.log("clicks", group=False)
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(50)))
    assert api.ask("GET", "/v1/jobs/clicks/logs?lines=2")["lines"] == ["line 48", "line 49"]


def test_followed_lines_come_once_and_whole_also_those_that_are_being_written(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("one\ntwo\nthr")

    async def follow() -> list[bytes]:
        lines = log_lines(log, 1, look_seconds=0)
        found = [await anext(lines)]
        with open(log, "a") as file:
            file.write("ee\nfour\nfi")
        found += [await anext(lines), await anext(lines)]
        log.rename(tmp_path / "job.log.1")
        log.write_text("six\n")
        found.append(await anext(lines))
        await lines.aclose()  # type: ignore[attr-defined]
        return found

    found = asyncio.run(follow())
    assert [line.split(b"data: ")[1].strip() for line in found] == [b'"two"', b'"three"', b'"four"', b'"six"']
