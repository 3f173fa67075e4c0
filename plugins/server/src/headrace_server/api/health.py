"""Health and readiness, also on a separate port: for supervisors of processes, without a token, a certificate or a name."""

from __future__ import annotations

import socket
import threading

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from headrace_server.supervision.supervisor import Supervisor

#: They tell nothing about jobs.
LIVE, READY = "/health/live", "/health/ready"
_STOP_SECONDS = 5.0


def health_routes(supervisor: Supervisor) -> list[Route]:
    """Return the two routes.

    Live: no loop of the server hangs. Ready: the jobs of a server before were found, the jobs directory was read, and the server does
    not end.
    """

    async def live(_: Request) -> JSONResponse:
        if supervisor.watch.stalled():
            return JSONResponse({"status": "stalled", "problem": "a loop of the server hangs: its log says where"}, 503)
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> JSONResponse:
        if supervisor.degraded is not None:  # the reason may have addresses, and this needs no token
            return JSONResponse({"status": "degraded", "problem": "the registry is away"}, 503)
        status = "stopping" if supervisor.ends else "ok" if supervisor.ready.is_set() else "starting"
        return JSONResponse({"status": status}, 200 if status == "ok" else 503)

    return [Route(LIVE, live), Route(READY, ready)]


class HealthPort:
    """Serves health and nothing else, by plain http, until the jobs have stopped. ``start`` is called once, then ``stop``."""

    def __init__(self, listening: socket.socket, supervisor: Supervisor) -> None:
        self._socket = listening
        config = uvicorn.Config(
            Starlette(routes=health_routes(supervisor)), log_config=None, access_log=False, server_header=False, ws="none",
            lifespan="off", limit_concurrency=64, timeout_keep_alive=5, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._http = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._http.run, kwargs={"sockets": [listening]}, name="health", daemon=True
        )

    @property
    def url(self) -> str:
        """Return its address."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Serve in a new thread."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._http.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)
        self._socket.close()
