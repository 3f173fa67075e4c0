"""Checks whether the sender of a request may send. Each error has the status of the answer."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from headrace_http.protocols import RefusedRequestError
from headrace_http.signatures import PREFIX, signature_of
from headrace_http.source_settings import HttpSourceSettings


def check_sender(settings: HttpSourceSettings, headers: Mapping[str, str]) -> None:
    """Raise RefusedRequestError unless the request has the required token. The check takes the same time for every
    wrong token.
    """
    if settings.token is None:
        return
    scheme, _, given = headers.get("authorization", "").partition(" ")
    wanted = settings.token.reveal().encode()
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), wanted):
        raise RefusedRequestError(401, "the bearer token is missing or wrong")


def check_signature(settings: HttpSourceSettings, headers: Mapping[str, str], body: bytes) -> None:
    """Raise RefusedRequestError unless the body is signed with the required key."""
    if settings.signature_key is None:
        return
    # Some senders leave the prefix out.
    given = PREFIX + headers.get(settings.signature_header.lower(), "").removeprefix(PREFIX)
    wanted = signature_of(settings.signature_key.reveal().encode(), body)
    if not hmac.compare_digest(given.encode(), wanted.encode()):
        raise RefusedRequestError(403, f"the signature in {settings.signature_header} is missing or wrong")
