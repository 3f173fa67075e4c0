"""How an endpoint of the API is declared, and how a request gets to its function and back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from headrace.foundation.errors import HeadraceError, MissingPluginError, RetriableError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace_server.access.roles import Role

logger = logging.getLogger(__name__)
BODY_MAX_BYTES = 32 * 1024 * 1024


class Principal(Protocol):
    """Who asks: what the middleware in front of the API sets as ``scope["state"]["principal"]``."""

    @property
    def name(self) -> str:
        """Return the name for logs and versions."""
        ...

    @property
    def role(self) -> str:
        """Return ``viewer``, ``operator`` or ``author``."""
        ...


@dataclass(frozen=True)
class Asked:
    """A request, as the function of an endpoint gets it."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    principal: Principal

    @property
    def job(self) -> str:
        """Return the name of the job in the path, where ``:`` stands for the slash of a name."""
        return self.path["job"].replace(":", "/")


@dataclass(frozen=True)
class Endpoint:
    """One operation of the API. ``answer`` runs in a thread and returns what is encoded as JSON, or a Response."""

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


class Refusal(msgspec.Struct, frozen=True):
    """What an error is for a client."""

    error: str
    hint: str | None = None


def route_of(endpoint: Endpoint) -> Route:
    """Return the route of an endpoint. The role is checked here, for every endpoint, before its body is read."""

    async def handle(request: Request) -> Response:
        principal = request.scope.get("state", {}).get("principal")
        if principal is None:
            return _json(Refusal("who are you?", "send the header Authorization: Bearer TOKEN"), 401)
        if Role[str(principal.role).upper()] < endpoint.role:
            needed = endpoint.role.name.lower()
            return _json(Refusal(f"{principal.name} is {principal.role}; this needs the role {needed}"), 403)
        try:
            body = await _body(request, endpoint.body)
            asked = Asked(request.path_params, request.query_params, body, principal)
            found = await (endpoint.answer(asked) if endpoint.streams else run_in_threadpool(endpoint.answer, asked))
        except HeadraceError as error:
            return _json(Refusal(error.message, error.hint), _status_of(error))
        except msgspec.ValidationError as error:
            return _json(Refusal(f"the body does not fit: {error}", "see /v1/openapi.json"), 422)
        except msgspec.DecodeError as error:
            return _json(Refusal(f"the body is no JSON: {error}"), 400)
        except TimeoutError as error:
            return _json(Refusal(str(error)), 504)
        return found if isinstance(found, Response) else _json(found, endpoint.status)

    return Route(endpoint.path, handle, methods=[endpoint.method])


async def _body(request: Request, kind: type | None) -> Any:
    if kind is None:
        return None
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > BODY_MAX_BYTES:
            raise msgspec.DecodeError(f"it is larger than {BODY_MAX_BYTES:,} bytes")
    return msgspec.json.decode(bytes(content) or b"{}", type=kind)


def _status_of(error: HeadraceError) -> int:
    if isinstance(error, NotThereError):
        return 404
    if isinstance(error, RetriableError):
        return 503
    return 501 if isinstance(error, MissingPluginError) else 409


class NotThereError(HeadraceError):
    """What a path names does not exist."""


def _json(value: Any, status: int) -> Response:
    return Response(msgspec.json.encode(value, enc_hook=str), status, media_type="application/json")


def openapi_of(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """Return the OpenAPI document of the endpoints: their bodies and answers are the types that the code uses."""
    kinds = [kind for each in endpoints for kind in (each.body, each.returns) if kind is not None]
    schemas, components = msgspec.json.schema_components([*kinds, Refusal], ref_template="#/components/schemas/{name}")
    by_kind = dict(zip(map(repr, kinds), schemas, strict=False))
    refusal = {"content": {"application/json": {"schema": schemas[-1]}}, "description": "refused, and why"}
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
