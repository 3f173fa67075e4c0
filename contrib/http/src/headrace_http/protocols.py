"""Protocols of requests: which records a request contains, and how it is answered. This part of the source depends on
the sender.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import msgspec

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
_parts = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()

#: A function of a body and the maximum size after decompression. It raises RefusedRequestError.
Decompress = Callable[[bytes, int], bytes]


class RefusedRequestError(Exception):
    """A request is refused; ``status`` and ``reason`` are the answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a sender. ``headers`` are additional headers; the length of the body is added."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class RequestProtocol(ABC):
    """Defines the records of a request and the answers to its sender. A format provides its own by
    ``HasRequestProtocol``.

    The thread of the server calls its methods, for one request at a time, so they must not wait. Names of headers are
    in lower case. The source itself checks who may send and how large a request is, and writes the buffer.
    """

    @property
    def encodings(self) -> Mapping[str, Decompress]:
        """Return how bodies of each ``Content-Encoding`` are decompressed. Others are answered with 415."""
        return {"gzip": inflated, "deflate": inflated}

    @abstractmethod
    def records(self, headers: Mapping[str, str], body: bytes) -> Sequence[bytes]:
        """Return the records of a decompressed body. Raises RefusedRequestError for a request that the sender must not
        send again.
        """

    @abstractmethod
    def accepted(self, headers: Mapping[str, str], count: int) -> Answer:
        """Return the answer to a request whose ``count`` records are durable."""

    @abstractmethod
    def refused(self, headers: Mapping[str, str], refused: RefusedRequestError) -> Answer:
        """Return the answer to a request from which no record was stored, with ``refused.status``."""


@runtime_checkable
class HasRequestProtocol(Protocol):
    """A codec with its own protocol of requests. ``from_http`` then uses this protocol instead of JSON."""

    def request_protocol(self) -> RequestProtocol:
        """Return the protocol. The source calls it each time that it begins to listen."""


class JsonProtocol(RequestProtocol):
    """JSON and lines: the default protocol of ``from_http``."""

    def records(self, headers: Mapping[str, str], body: bytes) -> Sequence[bytes]:
        """Return the elements of a JSON array, one JSON value, or the lines that are not blank.

        Raises RefusedRequestError: 400 if the body is not JSON, 415 for another content type.
        """
        kind = content_type(headers)
        if kind in _LINES:
            return [line for line in body.replace(b"\r\n", b"\n").split(b"\n") if line.strip()]
        if kind not in _JSON and not kind.endswith("+json"):
            raise RefusedRequestError(
                415, f"content type {kind!r} is not supported: send application/json or application/x-ndjson"
            )
        try:
            if body.lstrip()[:1] == b"[":
                return [bytes(part) for part in _parts.decode(body)]
            _any.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedRequestError(400, f"the body is not JSON: {error}") from None
        return [body.strip()]

    def accepted(self, headers: Mapping[str, str], count: int) -> Answer:
        """Return an answer with the number of stored records."""
        return json_answer(200, {"records": count})

    def refused(self, headers: Mapping[str, str], refused: RefusedRequestError) -> Answer:
        """Return an answer with the reason."""
        return json_answer(refused.status, {"error": refused.reason})


def json_answer(status: int, told: Mapping[str, object]) -> Answer:
    """Return an answer whose body is a JSON object."""
    return Answer(status, msgspec.json.encode(told), "application/json")


def content_type(headers: Mapping[str, str]) -> str:
    """Return the content type of a request in lower case, without its parameters; empty if there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def decompressed(protocol: RequestProtocol, headers: Mapping[str, str], body: bytes, bytes_max: int) -> bytes:
    """Return the body as it was before ``Content-Encoding``. Raises RefusedRequestError (400, 413, 415)."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return body
    encodings = protocol.encodings
    if encoding not in encodings:
        raise RefusedRequestError(
            415, f"content encoding {encoding!r} is not supported: send {' or '.join(encodings)} or none"
        )
    return encodings[encoding](body, bytes_max)


def inflated(body: bytes, bytes_max: int) -> bytes:
    """Return the decompressed content of gzip (also of several members) or zlib. Raises RefusedRequestError (400,
    413).
    """
    found, rest = bytearray(), body
    try:
        while True:
            inflater = zlib.decompressobj(32 + zlib.MAX_WBITS)  # detects which of the two it is
            found += inflater.decompress(rest, bytes_max + 1 - len(found))
            if len(found) > bytes_max:
                raise RefusedRequestError(413, f"the body has more than {bytes_max} bytes after decompression")
            if not inflater.eof:
                raise RefusedRequestError(400, "the body ends in the middle of its gzip data")
            rest = inflater.unused_data
            if not rest:
                return bytes(found)
    except zlib.error as error:
        raise RefusedRequestError(400, f"the body is not gzip: {error}") from None
