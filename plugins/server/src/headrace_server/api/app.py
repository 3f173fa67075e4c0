"""The application: all endpoints, the OpenAPI document, health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

import headrace_server
from headrace_server.access.roles import Role
from headrace_server.api import views
from headrace_server.api.endpoints import Endpoint, openapi_of, route_of
from headrace_server.api.handlers import Handlers
from headrace_server.registry.records import OperationRecord
from headrace_server.supervision.supervisor import Supervisor

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
        Endpoint("GET", "/v1/jobs", viewer, "List jobs", of.jobs, returns=list[views.JobView], query=_SELECT),
        Endpoint("GET", "/v1/events", viewer, "Follow the list of jobs", of.job_events, query=_SELECT, streams=True),
        Endpoint("GET", job, viewer, "All about a job", of.job, returns=views.JobDetail),
        Endpoint(
            "GET", job + "/versions/{version}", Role.OPERATOR, "A version: plan, settings, files", of.version,
            returns=views.VersionDetail,
        ),
        Endpoint("GET", job + "/logs", Role.OPERATOR, "The end of a job's log", of.logs, returns=views.LogView, query=_LINES),
        Endpoint(
            "GET", job + "/logs/events", Role.OPERATOR, "Follow a job's log", of.log_events, query=_LINES, streams=True
        ),
        Endpoint("GET", job + "/offsets", viewer, "The next offset of each queue", of.offsets, returns=views.OffsetsView),
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
        ),
        Endpoint(
            "PUT", job + "/file", Role.AUTHOR, "Write a job's file into the jobs directory", of.submit,
            body=views.FileBody, returns=dict[str, str], status=202,
        ),
        Endpoint(
            "POST", job + "/upgrade", operator, "Roll out the newest version, or another", of.upgrade,
            body=views.VersionBody, returns=begun, status=202,
        ),
        Endpoint(
            "POST", job + "/rollback", operator, "Roll out the version before the present one", of.roll_back,
            body=views.VersionBody, returns=begun, status=202,
        ),
        Endpoint(
            "POST", job + "/savepoints", operator, "Write a savepoint", of.savepoint,
            body=views.SavepointBody, returns=begun, status=202,
        ),
        Endpoint(
            "PUT", job + "/offsets", operator, "Let a stopped job continue at other offsets", of.set_offsets,
            body=views.OffsetsBody, returns=views.OffsetsView,
        ),
        Endpoint(
            "DELETE", job + "/offsets", operator, "Let a stopped job begin anew", of.reset_offsets,
            returns=views.OffsetsView,
        ),
        Endpoint(
            "PUT", job + "/rules", operator, "Replace the rules of a running job", of.rules,
            body=views.RulesBody, returns=dict[str, Any],
        ),
    ]  # fmt: skip


def make_app(supervisor: Supervisor, *, further: Sequence[Endpoint] = (), pages: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application without its guard: put a middleware around it that sets the principal.

    ``further`` and ``pages`` are endpoints and routes of other rooms.
    """
    endpoints = [*endpoints_of(Handlers(supervisor)), *further]
    document = openapi_of(endpoints, headrace_server.__version__)

    async def openapi(_: Request) -> JSONResponse:
        return JSONResponse(document)

    async def healthy(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> JSONResponse:
        up = supervisor.ready.is_set()
        return JSONResponse({"status": "ok" if up else "starting"}, 200 if up else 503)

    return Starlette(
        routes=[
            *(route_of(each) for each in endpoints),
            Route("/v1/openapi.json", openapi),
            Route("/healthz", healthy),
            Route("/readyz", ready),
            *pages,
        ]
    )
