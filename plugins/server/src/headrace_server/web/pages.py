"""The routes of the pages: what they show, and who may see it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jinja2
import msgspec
from headrace.foundation.errors import HeadraceError
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from headrace_server.access.audit import AuditLog
from headrace_server.access.authority import Authority, Session
from headrace_server.access.errors import AccessDeniedError
from headrace_server.access.messages import cookies_of, headers_of, session_cookie, session_cookie_name
from headrace_server.access.roles import PUBLIC, Role
from headrace_server.api.endpoints import Asked, Elsewhere, NotThereError, nowhere_else
from headrace_server.api.events import changes, event_stream, last_lines
from headrace_server.api.handlers import Handlers
from headrace_server.api.views import JobView
from headrace_server.web.differences import differences
from headrace_server.web.endpoints import WebHandlers
from headrace_server.web.letters import journal_of, read_letters
from headrace_server.web.rates import Rates

logger = logging.getLogger(__name__)
_HERE = Path(__file__).parent
#: Everything is our own; nothing is inline. A picture of a text being written is a blob.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # With no-referrer browsers send the form of the log-in with "Origin: null".
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_FORM_MAX_BYTES = 4_096
_LOG_LINES = 200
_AUDIT_ENTRIES = 50
_Show = Callable[[Request], Mapping[str, Any]]


def _time(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _path(name: str) -> str:
    return name.replace("/", ":")


class Pages:
    """The pages of one server."""

    def __init__(
        self,
        handlers: Handlers,
        web: WebHandlers,
        authority: Authority,
        audit: AuditLog,
        *,
        secure: bool,
        elsewhere: Elsewhere = nowhere_else,
    ) -> None:
        self._handlers = handlers
        self._web = web
        self._authority = authority
        self._audit_log = audit
        self._secure = secure
        self._elsewhere = elsewhere
        self._supervisor = web.supervisor
        self._services = web.supervisor.services
        self._rates = Rates(self._services.clock)
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined
        )
        self._templates.filters |= {"time": _time, "number": _number, "path": _path}

    def routes(self) -> list[BaseRoute]:
        """Return the routes of all pages."""
        viewer, operator, author = Role.VIEWER, Role.OPERATOR, Role.AUTHOR
        return [
            Route("/", self._page("jobs.html", viewer, self._jobs)),
            Route("/login", self._log_in, methods=["GET", "POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
            Route("/live/jobs", self._live_jobs),
            Route("/sql", self._page("sql.html", author, lambda _: {})),
            Route("/audit", self._page("audit.html", author, self._audit)),
            Route("/jobs/{job}", self._page("job.html", viewer, self._job)),
            Route("/jobs/{job}/versions", self._page("versions.html", operator, self._versions)),
            Route("/jobs/{job}/logs", self._page("logs.html", operator, self._logs)),
            Route("/jobs/{job}/dead-letters", self._page("dead_letters.html", operator, self._dead_letters)),
            Route("/jobs/{job}/rules", self._page("rules.html", operator, self._rules)),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ]

    def roles(self) -> list[tuple[str, str, Any]]:
        """Return the routes for the guard in front. Pages are open for it: each leads those who are not logged in to the log-in, and
        checks the role."""
        opened = [
            "/",
            "/login",
            "/live/jobs",
            "/sql",
            "/audit",
            "/jobs/{job}",
            "/jobs/{job}/{page}",
            "/static/{file:path}",
        ]
        return [
            *(("GET", path, PUBLIC) for path in opened),
            ("POST", "/login", PUBLIC),
            ("POST", "/logout", Role.VIEWER),
        ]

    # -------------------------------------------------------------------------------------------------------- pages

    def rows(self) -> list[dict[str, Any]]:
        """Return the table of jobs: what the API says of each, and its rate and the age of its checkpoint."""
        return [self._row(view) for view in self._handlers.views()]

    def _row(self, view: JobView) -> dict[str, Any]:
        stored = view.checkpoint_seconds
        age = None if stored is None else max(0.0, self._services.clock.now() - stored)
        rate = self._rates.rate(view.name, view.records_read)
        return {
            **msgspec.to_builtins(view),
            "records_per_second": None if rate is None else round(rate, 1),
            "checkpoint_age_seconds": None if age is None else round(age),
        }

    def _jobs(self, _: Request) -> Mapping[str, Any]:
        return {
            "jobs": self.rows(),
            "refused_files": self._handlers.refused_files(),
            "servers": self._handlers.servers_now(),
            "directory": str(self._supervisor.directory),
        }

    def _job(self, request: Request) -> Mapping[str, Any]:
        record = self._record(request)
        row = self._row(self._handlers.view(record))
        detail = self._handlers.job(_asked(request))
        may_see_plan = _role(request) >= Role.OPERATOR
        number = record.current_version
        plan = (
            self._services.registry.version(record.name, number).plan if number is not None and may_see_plan else None
        )
        scheduled = self._supervisor.schedules.of(record) is not None
        return {
            "job": row, "figures": detail.figures, "runs": detail.runs, "may_see_plan": may_see_plan, "plan": plan,
            "schedule": self._handlers.schedule(_asked(request)) if scheduled else None,
        }  # fmt: skip

    def _versions(self, request: Request) -> Mapping[str, Any]:
        record = self._record(request)
        versions = self._services.registry.versions(record.name)
        numbers = [each.number for each in versions]
        after = _chosen(request.query_params.get("after"), numbers, numbers[0] if numbers else None)
        earlier = [number for number in numbers if after is not None and number < after]
        before = _chosen(request.query_params.get("before"), numbers, earlier[0] if earlier else None)
        lines = None
        if before is not None and after is not None:
            contents = self._services.versions.contents
            lines = differences(contents(record.name, before), contents(record.name, after))
        return {
            "job": self._row(self._handlers.view(record)),
            "versions": versions,
            "before": before,
            "after": after,
            "lines": lines,
        }

    def _logs(self, request: Request) -> Mapping[str, Any]:
        record = self._record(request)
        log = self._services.data.log(record.unit, group=record.unit != record.name)
        return {
            "job": self._row(self._handlers.view(record)),
            "lines": last_lines(log, _LOG_LINES),
            "count": _LOG_LINES,
        }

    def _dead_letters(self, request: Request) -> Mapping[str, Any]:
        record = self._record(request)
        search = request.query_params.get("search", "")[:500]
        place = self._services.data.checkpoint(record.name) / "dead-letters"
        page = read_letters(place, journal_of(self._services.data.state_of_job(record.name)), search=search)
        figures = self._supervisor.statuses.figures(record) or {}
        return {
            "job": self._row(self._handlers.view(record)), "page": page, "search": search, "place": str(place),
            "places": figures.get("dead_letter_places", ()),
        }  # fmt: skip

    def _rules(self, request: Request) -> Mapping[str, Any]:
        record = self._record(request)
        rules, hits, problem = [], {}, None
        try:
            rules = self._web.rules_of(record)
            hits = self._web.hits_of(record) if self._supervisor.statuses.figures(record) is not None else {}
        except (HeadraceError, TimeoutError) as error:
            problem = str(error)
        return {"job": self._row(self._handlers.view(record)), "rules": rules, "hits": hits, "problem": problem}

    def _audit(self, request: Request) -> Mapping[str, Any]:
        target, before = request.query_params.get("target", "")[:500], request.query_params.get("before", "")
        number = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None
        entries = self._audit_log.entries(target=target or None, before=number, count_max=_AUDIT_ENTRIES + 1)
        return {"entries": entries[:_AUDIT_ENTRIES], "more": len(entries) > _AUDIT_ENTRIES, "target": target}

    # ---------------------------------------------------------------------------------------------------- log in, out

    async def _log_in(self, request: Request) -> Response:
        if request.method == "GET":
            return self._rendered(request, "login.html", {"problem": None})
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _FORM_MAX_BYTES:
                return self._rendered(request, "login.html", {"problem": "The form is too large."}, 413)
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)
        name, secret = (fields.get(field, [""])[0] for field in ("name", "secret"))
        try:
            session = await run_in_threadpool(self._begin_session, request, name.strip(), secret)
        except AccessDeniedError as error:
            wait = error.retry_after_seconds
            problem = f"{error.message[0].upper()}{error.message[1:]}." + (f" Wait {wait} s." if wait else "")
            answer = self._rendered(request, "login.html", {"problem": problem}, error.status)
            if wait:
                answer.headers["Retry-After"] = str(wait)
            return answer
        redirect = RedirectResponse("/", 303, headers=_HEADERS)
        redirect.raw_headers.append(session_cookie(session.cookie, secure=self._secure))
        return redirect

    def _begin_session(self, request: Request, name: str, secret: str) -> Session:
        address = request.client.host if request.client is not None else "local"
        old = next(iter(self._cookies(request)), None)
        if name:
            return self._authority.log_in(name, secret, address=address, old_cookie=old)
        return self._authority.log_in_by_token(secret.strip(), address=address, old_cookie=old)

    def _cookies(self, request: Request) -> list[str]:
        return cookies_of(headers_of(request.scope), session_cookie_name(secure=self._secure))

    async def _log_out(self, request: Request) -> Response:
        for cookie in self._cookies(request):
            await run_in_threadpool(self._authority.log_out, cookie)
        answer = Response(status_code=204, headers=_HEADERS)
        answer.raw_headers.append(session_cookie("", secure=self._secure))
        return answer

    async def _live_jobs(self, request: Request) -> Response:
        if request.scope.get("state", {}).get("principal") is None:
            return Response(status_code=401, headers=_HEADERS)
        return event_stream(changes("jobs", self.rows))

    # -------------------------------------------------------------------------------------------------------- inside

    def _page(self, template: str, role: Role, show: _Show) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if request.scope.get("state", {}).get("principal") is None:
                return RedirectResponse("/login", 303, headers=_HEADERS)
            if _role(request) < role:
                text = f"This page needs the role {role.name.lower()}."
                return self._rendered(request, "problem.html", {"problem": text}, 403)
            try:
                # All about a job but its versions, which are in the registry, is known to the server that has it.
                of_job = "job" in request.path_params and not request.url.path.endswith("/versions")
                if of_job and (answer := await self._elsewhere(request, "job")) is not None:
                    return answer
                found = await run_in_threadpool(show, request)
                return await run_in_threadpool(self._rendered, request, template, found)
            except NotThereError as error:
                return self._rendered(request, "problem.html", {"problem": str(error)}, 404)
            except HeadraceError as error:
                return self._rendered(request, "problem.html", {"problem": str(error)}, 409)
            except (SQLAlchemyError, OSError):
                logger.exception("the page %s has failed", request.url.path)
                text = "The server's database or disk has refused. The server's log has the reason."
                return self._rendered(request, "problem.html", {"problem": text}, 503)

        return answer

    def _rendered(self, request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        state = request.scope.get("state", {})
        principal = state.get("principal")
        shared = {
            "principal": principal,
            "role": _role(request) if principal is not None else 0,
            "csrf_token": state.get("csrf_token") or "",
            "here": request.url.path,
        }
        text = self._templates.get_template(template).render({**shared, **values})
        return Response(text, status, headers=_HEADERS, media_type="text/html")

    def _record(self, request: Request) -> Any:
        return self._web.job(request.path_params["job"].replace(":", "/"))


def _asked(request: Request) -> Asked:
    return Asked(request.path_params, request.query_params, None, request.scope["state"]["principal"])


def _role(request: Request) -> Role:
    role: Role = request.scope["state"]["principal"].role
    return role


def _chosen(text: str | None, numbers: list[int], default: int | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and int(text) in numbers else default
