"""How an endpoint of the API is declared, and how a request gets to its function and back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from headrace.foundation.errors import HeadraceError, JobError, MissingPluginError, RetriableError
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace_server.access.audit import AuditLog
from headrace_server.access.errors import AccessDeniedError
from headrace_server.access.messages import PROBLEM_TYPE, Problem, problem
from headrace_server.access.roles import Principal, Role, check_role

logger = logging.getLogger(__name__)
_DIGITS_MAX = 19


@dataclass(frozen=True)
class Asked:
    """A request, as the function of an endpoint gets it."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    principal: Principal

    @property
    def job(self) -> str:
        """Return the name of the job in the path, in which ``:`` replaces the slash of a name."""
        return self.path["job"].replace(":", "/")


@dataclass(frozen=True)
class Change:
    """What the audit log keeps of a request that changes something. All functions run before the change is made."""

    action: str | Callable[[Asked], str]
    #: What is changed: the job of the path, unless it is said here.
    target: Callable[[Asked], str] = lambda asked: asked.job
    before: Callable[[Asked], Any] = lambda asked: None
    after: Callable[[Asked], Any] = lambda asked: msgspec.to_builtins(asked.body)

    def action_of(self, asked: Asked) -> str:
        """Return the action in one or two words."""
        return self.action if isinstance(self.action, str) else self.action(asked)


@dataclass(frozen=True)
class Endpoint:
    """One operation of the API. ``answer`` runs in a thread and returns a value to encode as JSON, or a Response."""

    method: str
    path: str
    role: Role
    summary: str
    answer: Callable[[Asked], Any]
    body: type | None = None
    returns: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    #: The answer is an async function that is given the request and returns a stream.
    streams: bool = False
    #: What is kept of it in the audit log. None only for what changes nothing.
    change: Change | None = None
    #: Which of several servers answers: any, the one that has the job of the path, or the one that reads the jobs directory.
    where: Literal["anywhere", "job", "jobs directory"] = "anywhere"


#: Gives the answer of the server that has to answer a request; None: it is this one.
Elsewhere = Callable[[Request, str], Awaitable[Response | None]]


async def nowhere_else(request: Request, where: str) -> Response | None:
    """Tell that this server answers all, as it is alone on its registry."""
    return None


def route_of(endpoint: Endpoint, audit: AuditLog, elsewhere: Elsewhere = nowhere_else) -> Route:
    """Return the route of an endpoint.

    The middleware in front has checked the role by the path. It is checked here once more for the endpoint that is really called, so
    that two opinions about a path open nothing.
    """

    async def handle(request: Request) -> Response:
        principal = request.scope.get("state", {}).get("principal")
        check_role(principal, endpoint.role)
        try:
            if endpoint.where != "anywhere" and (answer := await elsewhere(request, endpoint.where)) is not None:
                return answer
            body = await _body(request, endpoint.body)
            asked = Asked(request.path_params, request.query_params, body, principal)
            if endpoint.streams:
                found = await endpoint.answer(asked)
            else:
                found = await run_in_threadpool(_answered, endpoint, asked, audit)
        except Exception as error:
            return _refusal_of(error, f"{endpoint.method} {endpoint.path}")
        return found if isinstance(found, Response) else _json(found, endpoint.status)

    return Route(endpoint.path, handle, methods=[endpoint.method])


def _answered(endpoint: Endpoint, asked: Asked, audit: AuditLog) -> Any:
    """Record a change in the audit log and make it. A failed change gets a second entry; the first one records the request."""
    change = endpoint.change
    if change is None:
        return endpoint.answer(asked)
    action, target = change.action_of(asked), change.target(asked)
    audit.record(asked.principal, action, target, before=change.before(asked), after=change.after(asked))
    try:
        return endpoint.answer(asked)
    except Exception as error:
        reason = error.message if isinstance(error, HeadraceError) else type(error).__name__
        audit.record(asked.principal, f"{action}: refused", target, after=reason)
        raise


async def _body(request: Request, kind: type | None) -> Any:
    """Decode the body. The middleware has bounded its length and the time it takes."""
    return None if kind is None else msgspec.json.decode(await request.body() or b"{}", type=kind)


def _refusal_of(error: Exception, asked: str) -> Response:
    if isinstance(error, AccessDeniedError):
        return refused(error.status, error.message, error.hint)
    if isinstance(error, HeadraceError):
        return refused(_status_of(error), error.message, error.hint)
    if isinstance(error, msgspec.ValidationError):
        return refused(422, f"the body is not valid for this request: {error}", "see /v1/openapi.json")
    if isinstance(error, msgspec.DecodeError):
        return refused(400, f"the body is not JSON: {error}")
    if isinstance(error, TimeoutError):
        return refused(504, str(error) or "it took too long")
    # What the texts of these errors hold is for the log only: statements, paths, addresses.
    logger.error("%s has failed", asked, exc_info=error)
    if isinstance(error, SQLAlchemyError):
        return refused(
            503, "the registry's database refused a statement or does not answer", "the server's log has the reason"
        )
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
        return refused(503, f"the server cannot read or write a file: {reason}", "the server's log has its name")
    return refused(500, "the server failed to answer the request", "the server's log has the traceback")


def _status_of(error: HeadraceError) -> int:
    if isinstance(error, NotThereError):
        return 404
    if isinstance(error, RetriableError):
        return 503
    return 501 if isinstance(error, MissingPluginError) else 409


def check_number(option: str, value: int, most: int) -> None:
    """Raise JobError unless a number is from 1 to ``most``."""
    if not 1 <= value <= most:
        raise JobError(f"{option}={value}: expected a number from 1 to {most:,}", option=option)


def number_of(asked: Asked, option: str, most: int) -> int | None:
    """Return a number of the query, None if it is left out. Raises JobError for a text that is not a number from 1 to ``most``."""
    text = asked.query.get(option)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise JobError(f"{option}={text[:30]}: expected a number from 1 to {most:,}", option=option)
    check_number(option, int(text), most)
    return int(text)


class NotThereError(HeadraceError):
    """What a path names does not exist."""


def refused(status: int, message: str, hint: str | None = None) -> Response:
    """Return an answer with the error."""
    return Response(problem(status, message, hint), status, media_type=PROBLEM_TYPE)


def _json(value: Any, status: int) -> Response:
    return Response(msgspec.json.encode(value, enc_hook=str), status, media_type="application/json")


def openapi_of(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """Return the OpenAPI document of the endpoints: their bodies and answers are the types that the code uses."""
    kinds = [kind for each in endpoints for kind in (each.body, each.returns) if kind is not None]
    schemas, components = msgspec.json.schema_components([*kinds, Problem], ref_template="#/components/schemas/{name}")
    by_kind = dict(zip(map(repr, kinds), schemas, strict=False))
    refusal = {"content": {PROBLEM_TYPE: {"schema": schemas[-1]}}, "description": "refused, and why"}
    paths: dict[str, dict[str, Any]] = {}
    for each in endpoints:
        names = [part[1:-1] for part in each.path.split("/") if part.startswith("{")]
        parameters = [_parameter(name, "path", "of the job, with : for /" if name == "job" else name) for name in names]
        parameters += [_parameter(name, "query", text) for name, text in each.query.items()]
        content = {"application/json": {"schema": by_kind[repr(each.returns)]}} if each.returns is not None else {}
        operation: dict[str, Any] = {
            "summary": each.summary,
            "description": f"Needs the role {each.role.name.lower()}.",
            "parameters": parameters,
            "responses": {str(each.status): {"description": "done", "content": content}, "default": refusal},
        }
        if each.body is not None:
            operation["requestBody"] = {"content": {"application/json": {"schema": by_kind[repr(each.body)]}}}
        paths.setdefault(each.path, {})[each.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "headrace-server", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _parameter(name: str, place: str, description: str) -> dict[str, Any]:
    return {
        "name": name, "in": place, "required": place == "path", "description": description, "schema": {"type": "string"},
    }  # fmt: skip
