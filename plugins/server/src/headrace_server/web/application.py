"""The whole application: the REST API, the pages, and the guards in front of both."""

from __future__ import annotations

from starlette.types import ASGIApp

from headrace_server.api.app import make_app
from headrace_server.api.handlers import Handlers
from headrace_server.api.token import TokenMiddleware
from headrace_server.supervision.supervisor import Supervisor
from headrace_server.trials.process import Trials
from headrace_server.web.endpoints import WebHandlers
from headrace_server.web.pages import Pages
from headrace_server.web.sessions import SessionMiddleware, Sessions


def app_with_pages(supervisor: Supervisor, token: str, *, trials: Trials | None = None) -> ASGIApp:
    """Return the application of a server: programs send the token, browsers log in with it and have a session."""
    sessions = Sessions(token, supervisor.services.clock)
    web = WebHandlers(supervisor, trials)
    pages = Pages(Handlers(supervisor), web, sessions)
    app = make_app(supervisor, further=web.endpoints(), pages=pages.routes())
    return SessionMiddleware(TokenMiddleware(app, token), sessions)
