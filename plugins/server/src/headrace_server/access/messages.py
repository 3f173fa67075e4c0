"""Requests and answers of ASGI: headers, cookies, and answers that refuse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any

import msgspec

from headrace_server.access.errors import AccessDeniedError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = dict[bytes, list[bytes]]


def headers_of(scope: Scope) -> Headers:
    """Return all values of each header by its name in lower case."""
    found: Headers = {}
    for name, value in scope["headers"]:
        found.setdefault(bytes(name).lower(), []).append(bytes(value))
    return found


def cookies_of(headers: Headers, name: str) -> list[str]:
    """Return every cookie of that name: a page of another port of this machine may have set one too."""
    pairs = [pair for line in headers.get(b"cookie", []) for pair in line.decode("latin-1").split(";")]
    parts = [pair.strip().partition("=") for pair in pairs]
    return [value for key, _, value in parts if key == name]


def session_cookie(value: str, *, secure: bool) -> tuple[bytes, bytes]:
    """Return the header that gives a browser its session; an empty value takes it away.

    Scripts cannot read it, and no request that another site causes brings it.
    """
    attributes = (
        "; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "") + ("" if value else "; Max-Age=0")
    )
    return b"set-cookie", f"{session_cookie_name(secure=secure)}={value}{attributes}".encode("ascii")


def session_cookie_name(*, secure: bool) -> str:
    """Return the name of the cookie. With TLS, its prefix makes browsers refuse one that another host or plain http has set."""
    return "__Host-headrace" if secure else "headrace_session"


def security_headers(*, secure: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers of every answer. The policy is that of an answer that is no page: it may load and start nothing."""
    policy = b"default-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; sandbox"
    headers = [
        (b"content-security-policy", policy),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    ]
    return [*headers, (b"strict-transport-security", b"max-age=31536000")] if secure else headers


def checked_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer. Raises ValueError for one that would begin another line."""
    given = [(bytes(name).lower(), bytes(value)) for name, value in headers]
    for name, value in given:
        if any(each in name + value for each in (b"\r", b"\n", b"\x00")):
            raise ValueError(f"the header {name[:40]!r} of an answer holds a line break")
    return given


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an error is for a client: a problem of RFC 9457. ``detail`` is the message, ``hint`` says how to mend it."""

    title: str
    status: int
    detail: str
    hint: str | None = None


#: The type of content of an error's answer.
PROBLEM_TYPE = "application/problem+json"


def problem(status: int, message: str, hint: str | None = None) -> bytes:
    """Return the body of an error's answer."""
    return msgspec.json.encode(Problem(HTTPStatus(status).phrase, status, message, hint))


async def send_refusal(send: Send, error: AccessDeniedError, headers: list[tuple[bytes, bytes]]) -> None:
    """Answer with an error."""
    body = problem(error.status, error.message, error.hint)
    more = [
        (b"content-type", PROBLEM_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if error.status == 401:
        more.append((b"www-authenticate", b'Bearer realm="headrace"'))
    if error.retry_after_seconds is not None:
        more.append((b"retry-after", str(error.retry_after_seconds).encode()))
    if error.status in (408, 413):
        more.append((b"connection", b"close"))  # the rest of the body is not read
    await send({"type": "http.response.start", "status": error.status, "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": body})
