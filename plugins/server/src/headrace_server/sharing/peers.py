"""Requests of one server to another for a client: the client's identity is signed with a secret of the registry's servers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec
from headrace.foundation.clock import Clock, SystemClock

from headrace_server.access.roles import Kind, Principal, Role

#: The scheme of ``Authorization`` between servers.
SCHEME = "headrace-peer"
#: Clocks of servers may differ by this much.
_VALID_SECONDS = 60.0


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    role: int
    kind: Kind
    csrf_token: str | None
    method: str
    path: str
    at: float


class PeerKey:
    """Signs requests to other servers, and checks theirs. A request holds for one method and path, for a minute.

    Whoever can read the registry has the secret: such a person can also make tokens. The body is not signed: servers speak TLS
    with each other, or over the loopback of one machine.
    """

    def __init__(self, secret: str, clock: Clock | None = None) -> None:
        self._secret = secret.encode()
        self._clock = clock or SystemClock()

    def signed(self, principal: Principal, csrf_token: str | None, method: str, path: str) -> str:
        """Return the value of ``Authorization`` for a request on behalf of a client who is allowed to make it here."""
        asked = _Asked(
            name=principal.name, role=int(principal.role), kind=principal.kind, csrf_token=csrf_token, method=method, path=path,
            at=self._clock.now(),
        )  # fmt: skip
        text = base64.urlsafe_b64encode(msgspec.json.encode(asked)).decode()
        return f"{SCHEME} {text}.{self._mac(text)}"

    def principal_of(self, given: str, method: str, path: str) -> tuple[Principal, str | None] | None:
        """Return on whose behalf another server asks, and their CSRF token; None if it is not signed for this request, or too old."""
        text, _, mac = given.partition(".")
        if not hmac.compare_digest(mac.encode(), self._mac(text).encode()):
            return None
        try:
            asked = msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Asked)
            role = Role(asked.role)
        except (binascii.Error, msgspec.MsgspecError, ValueError):
            return None
        if (asked.method, asked.path) != (method, path) or abs(self._clock.now() - asked.at) > _VALID_SECONDS:
            return None
        return Principal(asked.name, role, asked.kind), asked.csrf_token

    def _mac(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()
