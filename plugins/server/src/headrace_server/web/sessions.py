"""Sessions of browsers: a cookie for whoever has shown the token, and a token against forged requests."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from headrace.foundation.clock import Clock
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace_server.api.endpoints import Principal
from headrace_server.api.token import TokenHolder

COOKIE = "headrace_session"
_LIFETIME_SECONDS = 12 * 3600.0
_SESSIONS_MAX = 200
#: Wrong tokens that are looked at in a minute, from everybody together.
_FAILURES_MAX, _FAILURE_WINDOW_SECONDS = 10, 60.0
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Session:
    """A browser that is logged in. ``csrf_token`` goes with each request that changes something."""

    principal: Principal
    csrf_token: str
    ends_seconds: float


class Sessions:
    """The sessions of a server, in memory: a restart ends them. May be used from any thread."""

    def __init__(self, token: str, clock: Clock) -> None:
        self._token = token.encode()
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._failures: list[float] = []

    def log_in(self, token: str) -> str | None:
        """Return the cookie of a new session; None for a wrong token, and while too many wrong ones come."""
        now = self._clock.monotonic()
        with self._lock:
            self._failures = [each for each in self._failures if now - each < _FAILURE_WINDOW_SECONDS]
            if len(self._failures) >= _FAILURES_MAX:
                return None
            if not hmac.compare_digest(token.strip().encode(), self._token):
                self._failures.append(now)
                return None
            cookie = secrets.token_urlsafe(32)
            living = {key: each for key, each in self._sessions.items() if each.ends_seconds > now}
            newest = sorted(living.items(), key=lambda each: each[1].ends_seconds)[-_SESSIONS_MAX + 1 :]
            self._sessions = dict(newest)
            self._sessions[_digest(cookie)] = Session(TokenHolder(), secrets.token_urlsafe(32), now + _LIFETIME_SECONDS)
            return cookie

    def log_out(self, cookie: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_digest(cookie), None)

    def session_of(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if there is none or it has ended."""
        with self._lock:
            found = self._sessions.get(_digest(cookie))
        return found if found is not None and found.ends_seconds > self._clock.monotonic() else None


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


def cookie_of(headers: Headers) -> str:
    """Return the session's cookie of a request, or an empty text."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


class SessionMiddleware:
    """Sets principal and CSRF token of requests that have a session. A request with a bearer token passes as it is.

    A request of a session must name this machine as its host, and one that changes something needs ``X-CSRF-Token`` and must not come
    from a page of another origin.
    """

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            session = self._sessions.session_of(cookie_of(headers)) if "authorization" not in headers else None
            if session is not None:
                problem = _problem(scope["method"], headers, session)
                if problem is not None:
                    await JSONResponse({"error": problem, "hint": "load the page again"}, 403)(scope, receive, send)
                    return
                # A copy: the state of ASGI is shared by all requests.
                state = {**scope.get("state", {}), "principal": session.principal, "csrf_token": session.csrf_token}
                scope = {**scope, "state": state}
        await self._app(scope, receive, send)


def _problem(method: str, headers: Headers, session: Session) -> str | None:
    if not is_known_host(headers):
        return "the server is not known by this name"
    if method in _SAFE_METHODS:
        return None
    if not is_own_origin(headers):
        return "the request comes from a page of another origin"
    given = headers.get("x-csrf-token", "")
    if not hmac.compare_digest(given.encode(), session.csrf_token.encode()):
        return "the request has no valid X-CSRF-Token"
    return None


def is_known_host(headers: Headers) -> bool:
    """Return whether a request names this machine: another name may be one that a foreign site lets point to it."""
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname in _LOOPBACK
    except ValueError:
        return False


def is_own_origin(headers: Headers) -> bool:
    """Return whether a request may come from our own page, or from no page at all."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    return site in ("same-origin", "none") and (origin is None or urlsplit(origin).netloc == headers.get("host"))
