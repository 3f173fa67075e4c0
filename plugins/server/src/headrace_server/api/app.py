"""The application: all endpoints, the OpenAPI document, health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

import headrace_server
from headrace_server.access.audit import AuditLog
from headrace_server.access.roles import PUBLIC, Role
from headrace_server.api import views
from headrace_server.api.endpoints import Change, Elsewhere, Endpoint, nowhere_else, openapi_of, refused, route_of
from headrace_server.api.handlers import Handlers
from headrace_server.api.health import LIVE, READY, health_routes
from headrace_server.registry.records import OperationRecord
from headrace_server.supervision.supervisor import Supervisor

_OPENAPI = "/v1/openapi.json"
_SELECT = {"select": "a name, FOLDER/, LABEL=VALUE, or --all"}
_LINES = {"lines": "how many of the last lines; 100 if it is left out"}


def endpoints_of(handlers: Handlers) -> list[Endpoint]:
    """Return the endpoints of the API. The middleware and the OpenAPI document see the same list."""
    return [*_reading(handlers), *_changing(handlers)]


def _reading(of: Handlers) -> list[Endpoint]:
    viewer = Role.VIEWER
    job, operation = "/v1/jobs/{job}", "/v1/operations/{operation}"
    return [
        Endpoint("GET", "/v1/server", viewer, "The server itself", of.server, returns=views.ServerView),
        Endpoint(
            "GET", "/v1/servers", viewer, "The servers of the registry", of.servers, returns=list[views.OtherServerView]
        ),
        Endpoint("GET", "/metrics", viewer, "The figures of the server and its jobs, for Prometheus", of.metrics),
        Endpoint("GET", "/v1/jobs", viewer, "List jobs", of.jobs, returns=list[views.JobView], query=_SELECT),
        Endpoint("GET", "/v1/events", viewer, "Follow the list of jobs", of.job_events, query=_SELECT, streams=True),
        Endpoint("GET", job, viewer, "All about a job", of.job, returns=views.JobDetail),
        Endpoint(
            "GET", job + "/versions/{version}", Role.OPERATOR, "A version: plan, settings, files", of.version,
            returns=views.VersionDetail,
        ),
        Endpoint("GET", job + "/logs", Role.OPERATOR, "The end of a job's log", of.logs, where="job", returns=views.LogView, query=_LINES),
        Endpoint(
            "GET", job + "/logs/events", Role.OPERATOR, "Follow a job's log", of.log_events, where="job", query=_LINES, streams=True
        ),
        Endpoint(
            "GET", job + "/schedule", viewer, "When a job is started next, and its last times", of.schedule,
            returns=views.ScheduleView,
        ),
        Endpoint("GET", job + "/offsets", viewer, "The next offset of each queue", of.offsets, where="job", returns=views.OffsetsView),
        Endpoint("GET", "/v1/operations", viewer, "The last operations", of.operations, returns=list[OperationRecord]),
        Endpoint("GET", operation, viewer, "How far an operation is", of.operation, returns=OperationRecord),
        Endpoint("GET", operation + "/events", viewer, "Follow an operation", of.operation_events, streams=True),
    ]  # fmt: skip


def _changing(of: Handlers) -> list[Endpoint]:
    operator, job, begun = Role.OPERATOR, "/v1/jobs/{job}", OperationRecord
    return [
        Endpoint(
            "POST", "/v1/actions", operator, "Start, stop, restart, pause or resume jobs", of.act,
            body=views.ActionBody, returns=begun, status=202,
            change=Change(lambda asked: asked.body.action, target=lambda asked: asked.body.select),
        ),
        Endpoint(
            "PUT", job + "/file", Role.AUTHOR, "Write a job's file into the jobs directory", of.submit, where="jobs directory",
            body=views.FileBody, returns=dict[str, str], status=202,
            change=Change("submit", before=of.text_of_file, after=lambda asked: asked.body.text),
        ),
        Endpoint(
            "POST", job + "/upgrade", operator, "Roll out the newest version, or another", of.upgrade, where="job",
            body=views.VersionBody, returns=begun, status=202, change=Change("upgrade", before=of.version_now),
        ),
        Endpoint(
            "POST", job + "/rollback", operator, "Roll out the version before the present one", of.roll_back, where="job",
            body=views.VersionBody, returns=begun, status=202, change=Change("rollback", before=of.version_now),
        ),
        Endpoint(
            "POST", job + "/savepoints", operator, "Write a savepoint", of.savepoint, where="job",
            body=views.SavepointBody, returns=begun, status=202, change=Change("savepoint"),
        ),
        Endpoint(
            "PUT", job + "/offsets", operator, "Let a stopped job continue at other offsets", of.set_offsets, where="job",
            body=views.OffsetsBody, returns=views.OffsetsView, change=Change("offsets set", before=of.offsets_now),
        ),
        Endpoint(
            "DELETE", job + "/offsets", operator, "Let a stopped job begin anew", of.reset_offsets, where="job",
            returns=views.OffsetsView, change=Change("offsets reset", before=of.offsets_now),
        ),
        Endpoint(
            "GET", job + "/rules/text", Role.VIEWER, "The rules that were put last", of.rules_text, where="job",
            returns=views.RulesText,
        ),
        Endpoint(
            "PUT", job + "/rules", operator, "Replace the rules of a running job", of.rules, where="job",
            body=views.RulesBody, returns=dict[str, Any],
            change=Change("rules put", before=of.rules_now, after=lambda asked: asked.body.text),
        ),
    ]  # fmt: skip


def make_app(
    supervisor: Supervisor,
    endpoints: Sequence[Endpoint],
    audit: AuditLog,
    *,
    pages: Sequence[BaseRoute] = (),
    elsewhere: Elsewhere = nowhere_else,
) -> Starlette:
    """Return the application without its guard: put ``AccessMiddleware`` around it, with the roles of ``roles_of``."""
    document = openapi_of(endpoints, headrace_server.__version__)

    async def openapi(_: Request) -> JSONResponse:
        return JSONResponse(document)

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return refused(error.status_code, f"{request.method} {request.url.path}: {error.detail}")

    return Starlette(
        routes=[
            *(route_of(each, audit, elsewhere) for each in endpoints),
            Route(_OPENAPI, openapi),
            *health_routes(supervisor),
            *pages,
        ],
        exception_handlers={HTTPException: unknown},
    )


def roles_of(endpoints: Sequence[Endpoint]) -> list[tuple[str, str, Role | Any]]:
    """Return the routes of the API, the document and health, with the role that each needs, for a ``RoleTable``."""
    of_endpoints: list[tuple[str, str, Role | Any]] = [(each.method, each.path, each.role) for each in endpoints]
    return [*of_endpoints, ("GET", _OPENAPI, Role.VIEWER), ("GET", LIVE, PUBLIC), ("GET", READY, PUBLIC)]
