"""The server of the source: it receives requests in its own thread, and answers when the records are durable."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import timedelta
from typing import Any

import uvicorn
from headrace.foundation.errors import DataError, HeadraceError, JobError
from headrace_buffer import BufferFullError, Listener, RecordLog

from headrace_http.protocols import Answer, RefusedRequestError, RequestProtocol, decompressed, json_answer
from headrace_http.requests import check_sender, check_signature
from headrace_http.source_settings import HttpSourceSettings

logger = logging.getLogger(__name__)
#: A path that answers everybody; the answer only says that the server runs.
HEALTH_PATH = "/-/health"
_NO_TIME = timedelta(0)
#: After how many seconds a sender may repeat its request after 429 and 503.
_RETRY_AFTER_SECONDS = 5
_END_SECONDS_MAX = 10.0

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class HttpListener(Listener):
    """Listens from its creation until ``close``. Raises JobError if the port or the certificate cannot be used."""

    def __init__(self, log: RecordLog, settings: HttpSourceSettings, protocol: RequestProtocol) -> None:
        self._log = log
        self._protocol = protocol
        self._settings = settings
        self._socket = _listening(settings)
        try:
            self._server = uvicorn.Server(_config(self._answer, settings))
        except BaseException:
            self._socket.close()
            raise
        scheme = "https" if settings.ssl_certificate else "http"
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        #: The address on which it listens.
        self.url = f"{scheme}://{shown}:{self._socket.getsockname()[1]}{settings.path}"
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="headrace http source", daemon=True)
        self._thread.start()
        logger.info("records are accepted at %s", self.url)

    def check(self) -> None:
        if self._failure is not None or not self._thread.is_alive():
            raise JobError(f"the HTTP server of the source at {self.url} has stopped: {self._failure}", plugin="http")

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(_END_SECONDS_MAX)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        except BaseException as error:  # ``check`` raises it in the thread of the job
            self._failure = error

    # ---------------------------------------------------------------------------------------------------- requests

    async def _answer(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            answer = await self._taken(scope, headers, receive)
        except RefusedRequestError as error:
            answer = self._protocol.refused(headers, error)
        described = {"content-length": str(len(answer.body)), **answer.headers}
        if answer.status == 204:  # the answer has no body, so it has no length either
            del described["content-length"]
        if answer.content_type is not None:
            described["content-type"] = answer.content_type
        if answer.status in (429, 503):
            described["retry-after"] = str(_RETRY_AFTER_SECONDS)
        if answer.status == 401:
            described["www-authenticate"] = "Bearer"
        lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in described.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": lines})
        await send({"type": "http.response.body", "body": answer.body})

    async def _taken(self, scope: Mapping[str, Any], headers: Mapping[str, str], receive: Receive) -> Answer:
        """Store the records of a request and return the answer. Raises RefusedRequestError."""
        settings = self._settings
        if scope["path"] == HEALTH_PATH and scope["method"] in ("GET", "HEAD"):
            return json_answer(200, {"status": "ok"})
        if scope["path"] != settings.path:
            raise RefusedRequestError(404, f"records are accepted at {settings.path}")
        if scope["method"] not in ("POST", "PUT"):
            raise RefusedRequestError(405, "records are accepted only by POST")
        check_sender(settings, headers)
        body = await _body(headers, receive, settings.request_bytes)
        check_signature(settings, headers, body)
        plain = decompressed(self._protocol, headers, body, settings.request_bytes)
        records = self._protocol.records(headers, plain)
        try:
            appended = await asyncio.wrap_future(self._log.submit(records, timeout=_NO_TIME))
        except BufferFullError:
            raise RefusedRequestError(429, "the buffer is full: send the same again later") from None
        except DataError as error:
            raise RefusedRequestError(413, f"send fewer records at once: {error.message}") from None
        except HeadraceError as error:
            logger.warning("a request of %d records was answered with 503: %s", len(records), error)
            raise RefusedRequestError(503, "the records cannot be stored now: send the same again later") from None
        if appended.dropped:
            raise RefusedRequestError(429, "the buffer is full, and the records were not taken")
        return self._protocol.accepted(headers, appended.count)


async def _body(headers: Mapping[str, str], receive: Receive, bytes_max: int) -> bytes:
    """Read the body of a request. Raises RefusedRequestError if it is too large, or if the sender went away."""
    too_large = RefusedRequestError(413, f"the body has more than {bytes_max} bytes")
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > bytes_max:
        raise too_large
    found = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedRequestError(400, "the sender closed the connection in the middle of its request")
        found += message.get("body", b"")
        if len(found) > bytes_max:
            raise too_large
        if not message.get("more_body"):
            return bytes(found)


def _listening(settings: HttpSourceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        made = socket.create_server((settings.host, settings.port), family=family, backlog=512)
    except OSError as error:
        raise JobError(
            f"cannot listen on {settings.host} port {settings.port}: {error}", plugin="http", option="port",
            hint="another program probably uses the port: choose another port",
        ) from error  # fmt: skip
    # An answer is written in two parts. Without this option the kernel keeps the second part until the sender has
    # confirmed the first one, which may take 40 ms. Accepted sockets have the option from this one.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _config(answer: Any, settings: HttpSourceSettings) -> uvicorn.Config:
    secured: dict[str, Any] = {}
    if settings.ssl_certificate:
        secured = {
            "ssl_certfile": settings.ssl_certificate, "ssl_keyfile": settings.ssl_key, "ssl_ca_certs": settings.ssl_client_ca,
            "ssl_cert_reqs": ssl.CERT_REQUIRED if settings.ssl_client_ca else ssl.CERT_NONE,
        }  # fmt: skip
    config = uvicorn.Config(
        answer, interface="asgi3", log_config=None, access_log=False, lifespan="off", ws="none", server_header=False, date_header=False,
        proxy_headers=False, limit_concurrency=settings.max_connections, timeout_graceful_shutdown=5, **secured,
    )  # fmt: skip
    try:
        config.load()  # reads the certificates
    except (OSError, ssl.SSLError) as error:
        raise JobError(
            f"the certificate or its key cannot be used: {error}", plugin="http", option="ssl_certificate"
        ) from error
    return config
