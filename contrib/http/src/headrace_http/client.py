"""Sends requests, and converts their failures to errors of headrace."""

from __future__ import annotations

import base64
import gzip
import math
import ssl
import time
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit, urlunsplit

import urllib3
from headrace.foundation.errors import HeadraceError, JobError, RetriableError
from headrace.interfaces.connection_options import client_tls_context

from headrace_http.settings import RequestSinkSettings
from headrace_http.signatures import signature_of

#: At most this much of an answer is read, because it is only quoted in errors.
_ANSWER_BYTES_MAX = 64 * 1024
_QUOTED_CHARACTERS = 300
#: A slow answer is abandoned after this many times the time-out of one read.
_TIMEOUTS_MAX = 2
_CONNECTIONS = 16
#: Parts of the texts of TLS errors that are permanent, unlike a connection that is cut in the handshake.
_TLS_FAULTS = ("CERTIFICATE", "certificate", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "ALERT")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server."""

    status: int
    text: str
    #: How long the server asks to wait before the next request; None if it does not ask.
    retry_after: timedelta | None = None
    #: The beginning of its body, as it was sent.
    content: bytes = b""


class Client:
    """A pool of connections to one address. Several threads may use it; do not pickle it or use it after a fork.

    Raises OptionError if a secret is missing, JobError for certificates that cannot be used.
    """

    def __init__(self, settings: RequestSinkSettings, *, method: str = "POST", compress: bool = False) -> None:
        self._settings = settings
        self._method = method
        self._compress = compress
        self._secrets: list[str] = []
        self._target = self._address()
        parts = urlsplit(settings.url)
        #: The address for messages, without parts that may be secret.
        self.where = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        self._headers = self._fixed_headers()
        self._signature_key = b""
        if settings.signature_key is not None:
            self._signature_key = settings.signature_key.reveal().encode()
            self._secrets.append(settings.signature_key.reveal())
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=max(settings.parallel_requests, _CONNECTIONS),
            block=True,
            retries=False,
            timeout=urllib3.Timeout(settings.request_timeout.total_seconds()),
            ssl_context=_tls_context(settings) if parts.scheme == "https" else None,
        )

    def send(self, body: bytes, headers: dict[str, str]) -> Answer:
        """Send a request and return the answer, whatever its status. If there is no answer, raises RetriableError or
        JobError.
        """
        sent = {**self._headers, **headers}
        if self._compress:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            sent["content-encoding"] = "gzip"
        if self._signature_key:
            sent[self._settings.signature_header] = signature_of(self._signature_key, body)
        try:
            response = self._pool.request(
                self._method, self._target, body=body, headers=sent, redirect=False, preload_content=False
            )
            content = self._content_of(response)
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(error) from error
        return Answer(response.status, self._quoted(content), self._retry_after(response), content)

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self._pool.clear()

    def _address(self) -> str:
        if self._settings.secret_path is None:
            return self._settings.url
        secret = self._settings.secret_path.reveal()
        self._secrets += [secret, secret.strip("/")]
        return f"{self._settings.url.rstrip('/')}/{secret.lstrip('/')}"

    def _fixed_headers(self) -> dict[str, str]:
        settings = self._settings
        headers = {"user-agent": "headrace", "accept-encoding": "identity", **settings.headers}
        if settings.token is not None:
            headers["authorization"] = f"Bearer {self._revealed('token')}"
        if settings.password is not None:
            login = f"{settings.user}:{self._revealed('password')}"
            headers["authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        if settings.api_key is not None:
            headers[settings.key_header] = self._revealed("api_key")
        return headers

    def _revealed(self, option: str) -> str:
        secret: str = getattr(self._settings, option).reveal()
        if option != "password" and not (secret.isascii() and secret.isprintable()):
            raise JobError(
                "the secret has characters that are not allowed in a header", plugin=self._settings.plugin_name, option=option,
                hint="check whether its file or variable ends with a line break",
            )  # fmt: skip
        self._secrets.append(secret)
        return secret

    def _content_of(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """Return the beginning of an answer. If the answer is longer, the connection is closed."""
        until = time.monotonic() + _TIMEOUTS_MAX * self._settings.request_timeout.total_seconds()
        content = b""
        try:
            while piece := response.read1(_ANSWER_BYTES_MAX):  # each read of the socket has a time-out
                content += piece
                if len(content) >= _ANSWER_BYTES_MAX or time.monotonic() > until:
                    response.close()
                    return content
        except BaseException:
            response.close()
            raise
        response.release_conn()
        return content

    def _quoted(self, content: bytes) -> str:
        text = " ".join(content[: 4 * _QUOTED_CHARACTERS].decode("utf-8", "replace").split())
        for secret in self._secrets:
            if secret:
                text = text.replace(secret, "***")
        return text[:_QUOTED_CHARACTERS]

    def _retry_after(self, response: urllib3.BaseHTTPResponse) -> timedelta | None:
        text = response.headers.get("retry-after", "").strip()
        seconds: float
        if text.isdecimal() and text.isascii():
            seconds = float(text[:12])
        else:
            try:
                # The time is from the server's clock, which may differ from the clock of this machine.
                begin = parsedate_to_datetime(response.headers.get("date", "")).timestamp()
            except ValueError:
                begin = time.time()
            try:
                seconds = math.ceil(parsedate_to_datetime(text).timestamp() - begin)
            except (ValueError, OverflowError):
                return None
        return max(timedelta(0), min(timedelta(seconds=seconds), self._settings.retry_after_max))

    def _unreachable(self, error: urllib3.exceptions.HTTPError) -> HeadraceError:
        reason = str(error)
        for secret in self._secrets:
            reason = reason.replace(secret, "***") if secret else reason
        text = f"{self.where}: {reason}"
        if isinstance(error, urllib3.exceptions.SSLError) and any(sign in reason for sign in _TLS_FAULTS):
            hint = "check the certificates, the name in the address, and that the server has TLS"
            return JobError(text, plugin=self._settings.plugin_name, option="ssl_ca", hint=hint)
        hint = "is the server running, and is the address right (http or https, host, port)?"
        return RetriableError(text, plugin=self._settings.plugin_name, option="url", hint=hint)


def _tls_context(settings: RequestSinkSettings) -> ssl.SSLContext:
    if not settings.ssl_verify:
        # The user has chosen this, so there is no warning for each connection.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return client_tls_context(settings, plugin=settings.plugin_name, verify=settings.ssl_verify)
