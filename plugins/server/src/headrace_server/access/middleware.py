"""What every request passes before the application sees it."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from headrace.foundation.clock import Clock, SystemClock
from sqlalchemy.exc import SQLAlchemyError

from headrace_server.access.audit import one_line
from headrace_server.access.authority import TOKEN_PREFIX, Authority, Session
from headrace_server.access.bodies import GuardedBody
from headrace_server.access.errors import AccessDeniedError
from headrace_server.access.limits import Limits, RequestRate
from headrace_server.access.messages import (
    Application,
    Headers,
    Receive,
    Scope,
    Send,
    checked_headers,
    cookies_of,
    headers_of,
    security_headers,
    send_refusal,
    session_cookie_name,
)
from headrace_server.access.origins import Origins
from headrace_server.access.roles import Principal, Role, RoleTable, check_role

logger = logging.getLogger(__name__)

#: Checks the signature of another server of the same registry: on whose behalf it asks, with their CSRF token.
PeerCheck = Callable[[str, str, str], "tuple[Principal, str | None] | None"]
_PEER_SCHEME = "headrace-peer"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN_PARAMETER = re.compile(r"token|secret|api_?key|password|passwd|authorization", re.IGNORECASE)
#: What servers and file systems read differently, in a path as it came: dots, slashes, backslashes and control characters.
_ODD_PATH = re.compile(rb"%2f|%5c|%00|%0[0-9a-f]|%1[0-9a-f]|%7f|\\|//|/(\.|%2e){1,2}(/|$)", re.IGNORECASE)
_PATH_LENGTH_MAX = 2000
#: A page has its own content policy. All other headers are set here, whatever the application sets.
_OF_PAGES = frozenset({b"content-security-policy", b"referrer-policy"})
_OURS = frozenset({name for name, _ in security_headers(secure=True)}) - _OF_PAGES


class AccessMiddleware:
    """ASGI: ``AccessMiddleware(app, authority, roles)`` in front of the server's application.

    Sets ``scope["state"]["principal"]`` (a Principal; None on a public route without one) and ``["csrf_token"]`` (for a session's page).
    A program sends ``Authorization: Bearer TOKEN``. A browser has the cookie of a session, and sends
    ``X-CSRF-Token`` with each method that changes something on a route that is not public. Refusals are answers of type
    application/problem+json.

    Does not check the content of bodies, nor roles for single jobs: a role is for the whole server.
    """

    def __init__(
        self,
        app: Application,
        authority: Authority,
        roles: RoleTable,
        *,
        origins: Origins | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        peers: PeerCheck | None = None,
    ) -> None:
        self._app = app
        self._peers = peers
        self._authority = authority
        self._roles = roles
        self._origins = origins or Origins()
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._rate = RequestRate(self._limits, self._clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})  # nothing here speaks it
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = GuardedBody(receive, self._limits, self._clock)
        answer = _Answer(send, body, security_headers(secure=self._origins.secure))
        try:
            principal, csrf_token = await self._admitted(scope, body)
            # A copy: the state of ASGI is shared by all requests.
            state = {**scope.get("state", {}), "principal": principal, "csrf_token": csrf_token}
            await self._app({**scope, "state": state}, body.receive, answer.send)
        except AccessDeniedError as error:
            logger.info("%s %s: %d %s", scope["method"], one_line(scope["path"]), error.status, error.message)
            await answer.refuse(error)
        except Exception:
            if body.refusal is None:
                raise
            await answer.refuse(body.refusal)  # an error of the application's that our refusal caused

    async def _admitted(self, scope: Scope, body: GuardedBody) -> tuple[Principal | None, str | None]:
        try:
            return await self._admit(scope, body)
        except SQLAlchemyError as error:
            # Without its text: it may have an address.
            logger.error("tokens and sessions cannot be read from the registry: %s", type(error).__name__)
            raise AccessDeniedError(
                503, "the registry's database does not answer", hint="the jobs continue; try again in a moment"
            ) from error

    async def _admit(self, scope: Scope, body: GuardedBody) -> tuple[Principal | None, str | None]:
        headers = headers_of(scope)
        self._rate.take(_address(scope))
        _check_path(scope)
        _check_query(scope["query_string"])
        body.check_declared(headers)
        method = scope["method"]
        # First: a page of another origin must not learn who is logged in, and must not log anybody in.
        address = _own_address(scope)
        self._origins.check(method, headers, by_session=False, address=address)
        # The path as applications see it; role and route must be chosen by the same text.
        needed = self._roles.role_of(method, scope["path"])
        peer = self._peer_of(headers, method, scope["path"])
        if peer is not None:
            if isinstance(needed, Role):
                check_role(peer[0], needed)
            return peer
        principal, session = await self._who(headers)
        if session is not None:
            self._origins.check(method, headers, by_session=True, address=address)
        if isinstance(needed, Role):
            check_role(principal, needed)
            # A public route is the form to log in, whose origin was checked; there may be an older session in the browser.
            if session is not None and method not in _SAFE_METHODS:
                _check_csrf(session, headers)
        return principal, session.csrf_token if session is not None else None

    def _peer_of(self, headers: Headers, method: str, path: str) -> tuple[Principal, str | None] | None:
        """Return on whose behalf another server asks; None: the asker is not a server. Raises AccessDeniedError for a wrong signature."""
        given = headers.get(b"authorization", [])
        scheme, _, signed = given[0].decode("latin-1").partition(" ") if len(given) == 1 else ("", "", "")
        if self._peers is None or scheme.lower() != _PEER_SCHEME:
            return None
        found = self._peers(signed.strip(), method, path)
        if found is None:
            raise AccessDeniedError(
                401,
                "the signature of another server's request does not fit the request, or the clocks of the servers differ",
            )
        return found

    async def _who(self, headers: Headers) -> tuple[Principal | None, Session | None]:
        given = headers.get(b"authorization", [])
        if given:
            if len(given) > 1:
                raise AccessDeniedError(400, "the request has several Authorization headers")
            scheme, _, token = given[0].decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                principal = await asyncio.to_thread(self._authority.principal_of_token, token.strip())
                if principal is not None:
                    return principal, None
            raise AccessDeniedError(401, "the token is unknown, was revoked or has expired")
        for cookie in cookies_of(headers, session_cookie_name(secure=self._origins.secure))[:3]:
            session = await asyncio.to_thread(self._authority.session_of, cookie)
            if session is not None:
                return session.principal, session
        return None, None


class _Answer:
    """Sends an answer with the server's headers; replaces it by a refusal if the body was refused in the meantime."""

    def __init__(self, send: Send, body: GuardedBody, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._body = body
        self._headers = headers
        self._started = False
        self._refused = False

    async def send(self, message: dict[str, Any]) -> None:
        if self._refused:
            return
        if message["type"] == "http.response.start":
            if self._body.refusal is not None:
                await self.refuse(self._body.refusal)
                return
            own = [pair for pair in checked_headers(message.get("headers", [])) if pair[0] not in _OURS]
            if not any(name == b"cache-control" for name, _ in own):
                own.append((b"cache-control", b"no-store"))
            named = {name for name, _ in own}
            ours = [pair for pair in self._headers if pair[0] not in named or pair[0] not in _OF_PAGES]
            message = {**message, "headers": [*own, *ours]}
            self._started = True
        await self._send(message)

    async def refuse(self, error: AccessDeniedError) -> None:
        if self._refused:
            return
        if self._started:
            raise error  # too late for an answer: the server closes the connection
        self._refused = True
        await send_refusal(self._send, error, self._headers)


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "local"


def _own_address(scope: Scope) -> str | None:
    """Return the address of this machine at which a connection came in; None for anything else, such as a name."""
    server = scope.get("server")
    try:
        return str(ipaddress.ip_address(str(server[0]).partition("%")[0])) if server else None
    except ValueError:
        return None


def _check_path(scope: Scope) -> None:
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    raw = raw.partition(b"?")[0]
    decoded = scope["path"]
    odd = _ODD_PATH.search(raw) or any(part in (".", "..") for part in decoded.split("/")) or "\\" in decoded
    if odd or not decoded.isprintable() or len(raw) > _PATH_LENGTH_MAX:
        raise AccessDeniedError(
            400, "the path of the request is not allowed", hint="names have no '..', '\\' or control characters"
        )


def _check_query(query: bytes) -> None:
    text = query.decode("latin-1")
    pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=None)
    if TOKEN_PREFIX in text or any(TOKEN_PREFIX in each for pair in pairs for each in pair) or any(
        _TOKEN_PARAMETER.search(name) for name, _ in pairs
    ):  # fmt: skip
        raise AccessDeniedError(
            400,
            "the address of the request contains a secret",
            hint="addresses are stored in logs and browser histories: revoke the secret, and send a token in the header Authorization: "
            "Bearer",
        )


def _check_csrf(session: Session, headers: Headers) -> None:
    given = headers.get(b"x-csrf-token", [])
    if len(given) != 1 or not hmac.compare_digest(given[0], session.csrf_token.encode()):
        raise AccessDeniedError(403, "the request has no valid X-CSRF-Token", hint="reload the page")
