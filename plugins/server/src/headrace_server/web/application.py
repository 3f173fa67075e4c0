"""The whole application: the REST API, the pages, and the guard in front of both."""

from __future__ import annotations

import os

from starlette.types import ASGIApp

from headrace_server.access import AccessMiddleware, AuditLog, Authority, Limits, Origins, RoleTable
from headrace_server.access.client_tls import client_tls_context
from headrace_server.api.access_endpoints import AccessHandlers
from headrace_server.api.app import endpoints_of, make_app, roles_of
from headrace_server.api.endpoints import Elsewhere, Endpoint, nowhere_else
from headrace_server.api.handlers import Handlers
from headrace_server.api.shadow_endpoints import ShadowHandlers
from headrace_server.sharing.peers import PeerKey
from headrace_server.supervision.processes import environment_of_jobs
from headrace_server.supervision.supervisor import Supervisor
from headrace_server.trials.process import Trials
from headrace_server.web.endpoints import WebHandlers
from headrace_server.web.pages import Pages


def guarded_app(
    supervisor: Supervisor,
    authority: Authority,
    audit: AuditLog,
    *,
    origins: Origins | None = None,
    limits: Limits | None = None,
    trials: Trials | None = None,
    key: PeerKey | None = None,
) -> ASGIApp:
    """Return the application of a server, as it may be open to a network: nobody reaches a route without its role."""
    origins = origins or Origins()
    trials = trials or Trials(environment_of_jobs(os.environ, {}, {}))
    handlers, web = Handlers(supervisor), WebHandlers(supervisor, trials)
    endpoints: list[Endpoint] = [
        *endpoints_of(handlers),
        *web.endpoints(),
        *ShadowHandlers(supervisor, trials).endpoints(),
        *AccessHandlers(authority, audit).endpoints(),
    ]
    elsewhere: Elsewhere = nowhere_else
    member = supervisor.services.member
    if member is not None and key is not None:
        # Only a server among others asks them.
        from headrace_server.api.forwarding import Forwarding

        elsewhere = Forwarding(supervisor, member, key, verify=client_tls_context()).elsewhere
    pages = Pages(handlers, web, authority, audit, secure=origins.secure, elsewhere=elsewhere)
    app = make_app(supervisor, endpoints, audit, pages=pages.routes(), elsewhere=elsewhere)
    roles = RoleTable([*roles_of(endpoints), *pages.roles()])
    guarded: ASGIApp = AccessMiddleware(  # type: ignore[assignment]  # its messages are dicts, those of starlette are mutable mappings
        app,  # type: ignore[arg-type]
        authority, roles, origins=origins, limits=limits, clock=supervisor.services.clock,
        peers=None if key is None else key.principal_of,
    )  # fmt: skip
    return guarded
