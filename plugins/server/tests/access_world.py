"""An application behind the middleware, and a client that sends whatever an attacker would: no library makes it polite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import argon2
import sqlalchemy as sa
from headrace.foundation.clock import ManualClock
from headrace_server.access import PUBLIC, AccessMiddleware, Authority, Limits, Origins, Role, RoleTable, metadata

ROLES = RoleTable(
    [
        ("GET", "/health", PUBLIC),
        ("POST", "/v1/login", PUBLIC),
        ("GET", "/v1/jobs", Role.VIEWER),
        ("GET", "/v1/jobs/{name:path}", Role.VIEWER),
        ("POST", "/v1/jobs/{name:path}/start", Role.OPERATOR),
        ("PUT", "/v1/jobs/{name:path}", Role.AUTHOR),
    ]
)
#: Quick, for tests.
HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
PASSWORD = "correct horse battery"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def detail(self) -> str:
        return str(json.loads(self.body)["detail"])


class World:
    def __init__(self, place: Path) -> None:
        self.clock = ManualClock(1_000_000.0)
        self.engine = sa.create_engine(f"sqlite:///{place / 'registry.sqlite'}")
        metadata.create_all(self.engine)
        self.authority = Authority(self.engine, self.clock, hasher=HASHER)
        #: What reached the application: method, path, principal, body.
        self.reached: list[tuple[str, str, Any, bytes]] = []
        self.states: list[dict[str, Any]] = []
        self.answer_headers: list[tuple[bytes, bytes]] = [(b"content-type", b"text/plain")]
        self.swallows_errors = False
        self.guard()

    def guard(self, *, origins: Origins | None = None, limits: Limits | None = None) -> None:
        self.app = AccessMiddleware(
            self.application, self.authority, ROLES, origins=origins, limits=limits, clock=self.clock
        )

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        try:
            while more:
                message = await receive()
                body += message.get("body", b"")
                more = message.get("more_body", False)
        except Exception:
            if not self.swallows_errors:
                raise
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b"failed"})
            return
        self.states.append(scope["state"])
        self.reached.append((scope["method"], scope["path"], scope["state"]["principal"], body))
        await send({"type": "http.response.start", "status": 200, "headers": self.answer_headers})
        await send({"type": "http.response.body", "body": b"done"})

    def ask(
        self,
        method: str,
        path: str,
        *headers: tuple[str, str],
        query: str = "",
        raw_path: bytes | None = None,
        body: Iterable[bytes] = (b"",),
        seconds_per_part: float = 0.0,
        host: str | None = "localhost:8700",
        address: str = "127.0.0.1",
        server: tuple[str, int | None] | None = None,
    ) -> Answer:
        lines = [(b"host", host.encode("latin-1"))] if host is not None else []
        lines += [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode() if raw_path is None else raw_path,
            "query_string": query.encode(), "headers": lines, "client": (address, 50_000), "server": server, "state": {"shared": True},
        }  # fmt: skip
        parts = list(body)

        async def receive() -> dict[str, Any]:
            self.clock.advance(seconds_per_part)
            if not parts:
                await asyncio.Event().wait()  # the client sends nothing more
            return {
                "type": "http.request",
                "body": parts.pop(0),
                "more_body": bool(parts) or scope.get("never_ends", False),
            }

        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        assert sent[0]["type"] == "http.response.start"
        assert [each["type"] for each in sent].count("http.response.start") == 1
        given = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], given, b"".join(each.get("body", b"") for each in sent[1:]))

    def bearer(self, role: Role = Role.AUTHOR) -> tuple[str, str]:
        return "Authorization", f"Bearer {self.authority.make_token(role.name.lower(), role)}"

    def session(self, role: Role = Role.AUTHOR) -> tuple[tuple[str, str], tuple[str, str], tuple[str, str]]:
        """Log in; return the headers of cookie, CSRF token and origin."""
        name = f"user-{role.name.lower()}"
        self.authority.put_user(name, PASSWORD, role)
        begun = self.authority.log_in(name, PASSWORD, address="127.0.0.1")
        cookie = ("Cookie", f"headrace_session={begun.cookie}")
        return cookie, ("X-CSRF-Token", begun.csrf_token), ("Origin", "http://localhost:8700")

    def close(self) -> None:
        self.engine.dispose()
