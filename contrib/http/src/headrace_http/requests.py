"""Requests to the source: who may send, and which records a body holds. Each fault has the status that is answered."""

from __future__ import annotations

import hmac
import zlib
from collections.abc import Mapping

import msgspec

from headrace_http.signatures import PREFIX, signature_of
from headrace_http.source_settings import HttpSourceSettings

_LINES = frozenset(
    {
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonlines",
        "application/json-lines",
        "text/plain",
    }
)
_JSON = frozenset({"application/json", ""})
_GZIP_BITS = 16 + zlib.MAX_WBITS
_parts = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()


class RefusedRequestError(Exception):
    """A request is not taken; ``status`` and ``reason`` are the answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def check_sender(settings: HttpSourceSettings, headers: Mapping[str, str]) -> None:
    """Raise RefusedRequestError unless the request has the token that is asked for. Takes the same time for every wrong one."""
    if settings.token is None:
        return
    scheme, _, given = headers.get("authorization", "").partition(" ")
    wanted = settings.token.reveal().encode()
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), wanted):
        raise RefusedRequestError(401, "the bearer token is missing or wrong")


def check_signature(settings: HttpSourceSettings, headers: Mapping[str, str], body: bytes) -> None:
    """Raise RefusedRequestError unless the body is signed with the key that is asked for."""
    if settings.signature_key is None:
        return
    # Some senders leave the prefix out.
    given = PREFIX + headers.get(settings.signature_header.lower(), "").removeprefix(PREFIX)
    wanted = signature_of(settings.signature_key.reveal().encode(), body)
    if not hmac.compare_digest(given.encode(), wanted.encode()):
        raise RefusedRequestError(403, f"the signature in {settings.signature_header} is missing or wrong")


def records_of(headers: Mapping[str, str], body: bytes, bytes_max: int) -> list[bytes]:
    """Return the records of a body: the elements of a JSON array, one JSON object, or the lines that are not blank.

    Raises RefusedRequestError: 400 for what is no JSON or no gzip, 413 for what is too large, 415 for another kind of content.
    """
    plain = _decompressed(headers.get("content-encoding", "").strip().lower(), body, bytes_max)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _LINES:
        return [line for line in plain.replace(b"\r\n", b"\n").split(b"\n") if line.strip()]
    if kind not in _JSON and not kind.endswith("+json"):
        raise RefusedRequestError(
            415, f"content type {kind!r} is not taken: send application/json or application/x-ndjson"
        )
    try:
        if plain.lstrip()[:1] == b"[":
            return [bytes(part) for part in _parts.decode(plain)]
        _any.decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedRequestError(400, f"the body is not JSON: {error}") from None
    return [plain.strip()]


def _decompressed(encoding: str, body: bytes, bytes_max: int) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise RefusedRequestError(415, f"content encoding {encoding!r} is not taken: send gzip or none")
    found, rest = bytearray(), body
    try:
        while rest:  # a body may be several members
            inflater = zlib.decompressobj(_GZIP_BITS)
            found += inflater.decompress(rest, bytes_max + 1 - len(found))
            if len(found) > bytes_max:
                raise RefusedRequestError(413, f"the body has more than {bytes_max} bytes after decompression")
            if not inflater.eof:
                raise RefusedRequestError(400, "the body ends in the middle of its gzip data")
            rest = inflater.unused_data
    except zlib.error as error:
        raise RefusedRequestError(400, f"the body is not gzip: {error}") from None
    return bytes(found)
