"""The REST API over runners that are no processes: what is answered, what is refused, and to whom."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from headrace_server.api.app import make_app
from headrace_server.api.token import TokenMiddleware, token_of
from server_world import World
from starlette.types import ASGIApp, Receive, Scope, Send

TOKEN = "a-token-of-tests"


@dataclass(frozen=True)
class Somebody:
    name: str
    role: str


class As:
    """A middleware that lets everybody be somebody."""

    def __init__(self, app: ASGIApp, role: str) -> None:
        self.app, self.role = app, role

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["principal"] = Somebody("eve", self.role)
        await self.app(scope, receive, send)


class Api:
    """Asks the application without a network."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.app = make_app(world.supervisor)

    def send(
        self, method: str, path: str, body: Any = None, *, app: ASGIApp | None = None, token: str = TOKEN
    ) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app or TokenMiddleware(self.app, TOKEN))
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
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


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", "é"])
def test_without_the_token_nothing_is_told(api: Api, token: str) -> None:
    for method, path in (
        ("GET", "/v1/jobs"),
        ("POST", "/v1/actions"),
        ("GET", "/v1/jobs/clicks/logs"),
        ("GET", "/v1/events"),
    ):
        header = token if token.isascii() else ""
        assert api.send(method, path, token=header).status_code == 401
    assert api.send("GET", "/healthz", token="").json() == {"status": "ok"}


def endpoints(api: Api) -> list[tuple[str, str, str]]:
    document = api.ask("GET", "/v1/openapi.json")
    return [
        (method.upper(), path.replace("{job}", "clicks").replace("{version}", "1").replace("{operation}", "x"), each["description"])
        for path, operations in document["paths"].items()
        for method, each in operations.items()
    ]  # fmt: skip


def test_every_endpoint_refuses_lesser_roles(api: Api) -> None:
    roles = ["viewer", "operator", "author"]
    checked = 0
    for method, path, description in endpoints(api):
        needed = next(role for role in roles if role in description)
        for role in roles[: roles.index(needed)]:
            answer = api.send(method, path, app=As(api.app, role))
            assert answer.status_code == 403, (method, path, role)
            assert needed in answer.json()["error"]
            checked += 1
    assert checked >= 10


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
        ("POST", "/v1/actions", {"action": "explode", "select": "clicks"}, 422, "body does not fit"),
        ("POST", "/v1/actions", {"action": "stop", "select": "clickz"}, 409, "no job is meant"),
        ("POST", "/v1/actions", b"{", 400, "no JSON"),
        ("POST", "/v1/jobs/clicks/rollback", {}, 409, "no earlier version"),
        ("POST", "/v1/jobs/clicks/upgrade", {}, 409, "the present one"),
        ("POST", "/v1/jobs/clicks/savepoints", {"name": "../x"}, 409, "cannot be the name"),
        ("PUT", "/v1/jobs/a:b:c/file", {"suffix": ".py", "text": ""}, 409, "cannot be the name of a job"),
        ("PUT", "/v1/jobs/..:x/file", {"suffix": ".py", "text": ""}, 409, "cannot be the name of a job"),
        ("PUT", "/v1/jobs/clicks/file", {"suffix": ".sh", "text": ""}, 422, "body does not fit"),
        ("PUT", "/v1/jobs/clicks/offsets", {"offsets": {"s/q": 1}}, 409, "needs a job that is stopped"),
        ("DELETE", "/v1/jobs/clicks/offsets", None, 409, "needs a job that is stopped"),
        ("GET", "/v1/jobs/clicks/logs?lines=-1", None, 409, "expected a number"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(
    api: Api, method: str, path: str, body: Any, status: int, text: str
) -> None:
    answer = api.send(method, path, body)
    assert (answer.status_code, text in answer.json()["error"]) == (status, True), answer.text


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


def test_a_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    first = token_of(tmp_path / "token")
    assert len(first) >= 32
    assert token_of(tmp_path / "token") == first
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0
