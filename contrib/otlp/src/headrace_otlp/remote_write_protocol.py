"""Answers senders of Prometheus remote write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace_http import Answer, RefusedRequestError, RequestProtocol
from headrace_http.protocols import Decompress, content_type

from headrace_otlp.remote_write_decoder import BadWriteError, series_of
from headrace_otlp.snappy import NotSnappyError, TooLargeError, unsnappy

_PROTOBUF = "application/x-protobuf"
_FIRST_VERSION = "prometheus.WriteRequest"


class RemoteWriteProtocol(RequestProtocol):
    """Requests of remote write 1.0. A request of 2.0 is answered with status 415; senders then fall back to 1.0."""

    @property
    def encodings(self) -> Mapping[str, Decompress]:
        return {"snappy": _decompressed}

    def records(self, headers: Mapping[str, str], body: bytes) -> Sequence[bytes]:
        """Return the body, or nothing if there are no samples in it."""
        kind = content_type(headers)
        if kind != _PROTOBUF:
            raise RefusedRequestError(415, f"content type {kind!r} is not supported: send {_PROTOBUF}")
        message = _parameter(headers.get("content-type", ""), "proto")
        if message not in ("", _FIRST_VERSION):
            raise RefusedRequestError(
                415, f"messages {message!r} are not supported: send remote write 1.0, {_FIRST_VERSION}"
            )
        if headers.get("content-encoding", "").strip().lower() != "snappy":
            raise RefusedRequestError(415, "remote write is compressed with Snappy: send Content-Encoding: snappy")
        try:
            series = series_of(body)
        except BadWriteError as error:
            raise RefusedRequestError(400, str(error)) from None
        return [body] if any(each.samples for each in series) else []

    def accepted(self, headers: Mapping[str, str], count: int) -> Answer:
        """Return status 204 without a body: the samples are stored."""
        return Answer(204)

    def refused(self, headers: Mapping[str, str], refused: RefusedRequestError) -> Answer:
        """Return the reason as plain text. Prometheus writes it to its log."""
        return Answer(refused.status, refused.reason.encode(), "text/plain; charset=utf-8")


def _decompressed(body: bytes, bytes_max: int) -> bytes:
    try:
        return unsnappy(body, bytes_max)
    except TooLargeError as error:
        raise RefusedRequestError(413, str(error)) from None
    except NotSnappyError as error:
        raise RefusedRequestError(400, str(error)) from None


def _parameter(text: str, name: str) -> str:
    for part in text.split(";")[1:]:
        key, _, value = part.partition("=")
        if key.strip().lower() == name:
            return value.strip().strip('"')
    return ""
