"""Answers senders of OTLP, in the encoding of their request, as the specification demands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from google.rpc.status_pb2 import Status
from headrace_http import Answer, RefusedRequestError, RequestProtocol
from headrace_http.protocols import content_type

from headrace_otlp.signals import BadRequestError, Signal, columns_of, is_json

PROTOBUF, JSON = "application/x-protobuf", "application/json"


class OtlpProtocol(RequestProtocol):
    """Requests of one signal: each body is one record of the buffer. A body that is no request is answered with 400."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal

    def records(self, headers: Mapping[str, str], body: bytes) -> Sequence[bytes]:
        kind = content_type(headers)
        if kind not in (PROTOBUF, JSON):
            raise RefusedRequestError(415, f"content type {kind!r} is not supported: send {PROTOBUF} or {JSON}")
        if kind == JSON:
            body = body.strip()  # so that the body begins with {, by which the format recognises JSON
        if is_json(body, "auto") != (kind == JSON):
            raise RefusedRequestError(400, f"the body does not match its content type, {kind}")
        try:
            found = columns_of(self._signal, body, "auto", ())
        except BadRequestError as error:
            raise RefusedRequestError(400, str(error)) from None
        return [body] if found.count else []

    def accepted(self, headers: Mapping[str, str], count: int) -> Answer:
        """Return an empty response: everything was accepted. Its bytes are the same for every signal."""
        if content_type(headers) == PROTOBUF:
            return Answer(200, b"", PROTOBUF)
        return Answer(200, b"{}", JSON)

    def refused(self, headers: Mapping[str, str], refused: RefusedRequestError) -> Answer:
        """Return a ``google.rpc.Status`` with the reason."""
        if content_type(headers) == PROTOBUF:
            return Answer(refused.status, Status(message=refused.reason).SerializeToString(), PROTOBUF)
        return Answer(refused.status, msgspec.json.encode({"message": refused.reason}), JSON)
