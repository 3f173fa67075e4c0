"""Bodies that are too large or too slow, also those that do not say their length."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.foundation.clock import Clock

from headrace_server.access.errors import AccessDeniedError
from headrace_server.access.limits import Limits
from headrace_server.access.messages import Headers, Receive


class GuardedBody:
    """Counts the bytes and the time of one request's body on its way to the application."""

    def __init__(self, receive: Receive, limits: Limits, clock: Clock) -> None:
        self._receive = receive
        self._limits = limits
        self._clock = clock
        #: Time that was waited for the client. What the application takes between two reads is not the client's.
        self._waited_seconds = 0.0
        self._bytes = 0
        self._ended = False
        #: Why the body was refused; the middleware answers with it, whatever the application makes of the error.
        self.refusal: AccessDeniedError | None = None

    def check_declared(self, headers: Headers) -> None:
        """Raise AccessDeniedError for a length that is too large or no number, and for two of them."""
        lengths = headers.get(b"content-length", [])
        if len(lengths) > 1 or (lengths and b"transfer-encoding" in headers):
            raise AccessDeniedError(400, "the request has several Content-Length headers")
        for length in lengths:
            if not (length.isascii() and length.isdigit()) or len(length) > 18:
                raise AccessDeniedError(400, "the length of the body is not a number")
            if int(length) > self._limits.body_bytes_max:
                raise self._too_large()

    async def receive(self) -> dict[str, Any]:
        """ASGI's ``receive``. Raises AccessDeniedError when a limit is passed."""
        if self._ended:
            return await self._receive()  # only http.disconnect may follow, after however long
        limit = self._limits.body_time_max.total_seconds()
        began = self._clock.monotonic()
        try:
            # A client that sends nothing at all is bounded by the loop's time, one that sends drops by the clock.
            message = await asyncio.wait_for(self._receive(), max(0.001, limit - self._waited_seconds))
        except TimeoutError:
            raise self._refuse(self._too_slow()) from None
        self._waited_seconds += self._clock.monotonic() - began
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._ended = not message.get("more_body", False)
            if self._bytes > self._limits.body_bytes_max:
                raise self._refuse(self._too_large())
            if self._waited_seconds > limit:
                raise self._refuse(self._too_slow())
        return message

    def _refuse(self, refusal: AccessDeniedError) -> AccessDeniedError:
        self.refusal = refusal
        return refusal

    def _too_large(self) -> AccessDeniedError:
        return AccessDeniedError(413, f"the body has more than {self._limits.body_bytes_max} bytes")

    def _too_slow(self) -> AccessDeniedError:
        seconds = self._limits.body_time_max.total_seconds()
        return AccessDeniedError(408, f"the body did not arrive within {seconds:g} s")
