"""Lets another server answer a request: the one that has the job, or that reads the jobs directory."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator

import httpx
from headrace.foundation.errors import JobError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headrace_server.access.roles import Principal
from headrace_server.api.endpoints import refused
from headrace_server.registry.records import JobRecord, ServerRecord
from headrace_server.sharing.member import Member
from headrace_server.sharing.peers import SCHEME, PeerKey
from headrace_server.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)
_TIMEOUT = httpx.Timeout(10.0, read=330.0)
#: Headers kept of the other server's answer; the middleware sets the others again.
_HEADERS_KEPT = frozenset(
    (
        "content-type",
        "cache-control",
        "content-security-policy",
        "x-accel-buffering",
        "x-content-type-options",
        "referrer-policy",
    )
)


class Forwarding:
    """Asks other servers on behalf of clients. One for each server that shares its registry."""

    def __init__(
        self, supervisor: Supervisor, member: Member, key: PeerKey, *, verify: ssl.SSLContext | bool = True
    ) -> None:
        self._supervisor = supervisor
        self._member = member
        self._key = key
        self._http = httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False, verify=verify, follow_redirects=False)

    def owner(self, job: JobRecord) -> ServerRecord | None:
        """Return the other server that has a job; None: this one has it, or no server."""
        found = self._member.server_of(job.unit)
        return None if found is None or found.name == self._member.identity.name else found

    def reader(self) -> ServerRecord | None:
        """Return the other server that reads the jobs directory; None: this one does, or none."""
        found = self._member.reader()
        return None if found is None or found.name == self._member.identity.name else found

    async def elsewhere(self, request: Request, where: str) -> Response | None:
        """Return the answer of the server that has to answer; None: it is this one. What there is not, this one says."""
        if where == "jobs directory":
            server = self.reader()
            if server is None and not self._member.reads_jobs_now:
                return refused(
                    503, "no server reads the jobs directory at the moment", "headrace servers lists the servers"
                )
        else:
            name = request.path_params["job"].replace(":", "/")
            try:
                server = self.owner(await run_in_threadpool(self._supervisor.services.registry.job, name))
            except JobError:
                return None
        return None if server is None else await self.answer_of(server, request)

    async def answer_of(self, server: ServerRecord, request: Request) -> Response:
        """Return what another server answers. 503 if it does not live or cannot be reached."""
        if request.headers.get("authorization", "").lower().startswith(SCHEME):
            # The other server has meant this one a moment ago.
            return refused(503, f"the job is being moved to the server {server.name!r}", "try again in a moment")
        if not self._member.is_live(server.name) or server.url is None:
            return refused(
                503,
                f"the server {server.name!r}, which has the job, does not answer",
                "its jobs will soon move to another server; try again then",
            )
        state = request.scope["state"]
        principal: Principal = state["principal"]
        path = request.scope["path"]
        signed = self._key.signed(principal, state.get("csrf_token"), request.method, path)
        headers = {"Authorization": signed, "Content-Type": request.headers.get("content-type", "application/json")}
        asked = self._http.build_request(
            request.method,
            server.url + path,
            params=request.url.query.encode() or None,
            headers=headers,
            content=await request.body(),
        )
        try:
            answer = await self._http.send(asked, stream=True)
        except httpx.HTTPError as error:
            logger.warning("the server %s at %s does not answer: %r", server.name, server.url, error)
            return refused(
                503,
                f"the server {server.name!r} cannot be reached from this one",
                f"send the request to {server.url}",
            )
        kept = {name: value for name, value in answer.headers.items() if name in _HEADERS_KEPT}
        return StreamingResponse(_content(answer), answer.status_code, headers=kept)


async def _content(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for part in answer.aiter_bytes():
            yield part
    except httpx.HTTPError as error:
        logger.warning("the connection to another server was interrupted during its answer: %r", error)
        raise
    finally:
        await answer.aclose()
