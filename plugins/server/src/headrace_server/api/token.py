"""The bearer token of a server: who has it may do everything. The one place that knows it; ``access`` may replace it."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path

from headrace.foundation.durable_files import replace_durably
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

#: Paths that a supervisor of processes asks without a token. They tell nothing about jobs.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})


def token_of(file: Path) -> str:
    """Return the token in a file that only this user can read; make one at the first start. Raises OSError."""
    try:
        found = file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        found = ""
    if not found:
        found = secrets.token_urlsafe(32)
        replace_durably(file, found.encode() + b"\n")
    return found


@dataclass(frozen=True)
class TokenHolder:
    """Whoever has the token."""

    name: str = "token"
    role: str = "author"


class TokenMiddleware:
    """Sets the principal of a request that has the token. The endpoints refuse requests without a principal."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
            if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), self._token):
                scope.setdefault("state", {})["principal"] = TokenHolder()
        await self._app(scope, receive, send)
