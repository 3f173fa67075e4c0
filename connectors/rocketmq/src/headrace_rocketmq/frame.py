"""Frames of the remoting protocol: one request or answer each.

    length of the rest   int32
    kind and length      8 bits serialization (0 JSON, 1 binary), 24 bits length of the header
    header               code, flag, opaque, remark, extension fields
    body                 the rest

Requests are written with a JSON header, which every broker reads and answers in the same way; this client reads both serializations.
Source: Apache RocketMQ, `remoting.protocol.RemotingCommand` and `RocketMQSerializable`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from headrace_rocketmq.codes import PROTOCOL_VERSION, FrameFlag
from headrace_rocketmq.errors import ProtocolError

FRAME_BYTES_MAX = 128 * 1024 * 1024
"""A larger length means that the peer uses another protocol."""

_LENGTHS = struct.Struct(">iI")
_BINARY_HEADER = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, length of the remark
_INT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_HEADER_LENGTH_MASK = 0xFFFFFF
_LANGUAGE_NAME = "PYTHON"
_LANGUAGE_NUMBER = 3


class Serialization(IntEnum):
    """How a header is written."""

    JSON = 0
    BINARY = 1


@dataclass(slots=True)
class Frame:
    """One request or answer."""

    code: int
    opaque: int
    flag: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    remark: str | None = None
    body: bytes = b""

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of ours."""
        return bool(self.flag & FrameFlag.RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether the sender does not wait for an answer."""
        return bool(self.flag & FrameFlag.ONE_WAY)


def encode_frame(
    code: int,
    opaque: int,
    fields: Mapping[str, str],
    body: bytes = b"",
    *,
    flag: int = 0,
    remark: str | None = None,
    serialization: Serialization = Serialization.JSON,
) -> bytes:
    """The bytes of a frame. All fields must be strings: brokers read numbers and booleans from text."""
    if serialization is Serialization.JSON:
        header = _json_header(code, opaque, fields, flag, remark)
    else:
        header = _binary_header(code, opaque, fields, flag, remark)
    if len(header) > _HEADER_LENGTH_MASK:
        raise ProtocolError(f"a header of {len(header)} bytes does not fit a frame")
    return _LENGTHS.pack(4 + len(header) + len(body), serialization << 24 | len(header)) + header + body


def _json_header(code: int, opaque: int, fields: Mapping[str, str], flag: int, remark: str | None) -> bytes:
    header: dict[str, object] = {
        "code": code,
        "language": _LANGUAGE_NAME,
        "version": PROTOCOL_VERSION,
        "opaque": opaque,
        "flag": flag,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": fields,
    }
    if remark is not None:
        header["remark"] = remark
    return json.dumps(header).encode()


def _binary_header(code: int, opaque: int, fields: Mapping[str, str], flag: int, remark: str | None) -> bytes:
    text = (remark or "").encode()
    parts = []
    for name, value in fields.items():
        name_bytes, value_bytes = name.encode(), value.encode()
        parts += [_INT16.pack(len(name_bytes)), name_bytes, _INT32.pack(len(value_bytes)), value_bytes]
    extension = b"".join(parts)
    fixed = _BINARY_HEADER.pack(code, _LANGUAGE_NUMBER, PROTOCOL_VERSION, opaque, flag, len(text))
    return fixed + text + _INT32.pack(len(extension)) + extension


def decode_payload(payload: bytes | memoryview) -> Frame:
    """The frame whose bytes after the leading length are `payload`. Raises ProtocolError."""
    try:
        (kind,) = struct.unpack_from(">I", payload)
        end = 4 + (kind & _HEADER_LENGTH_MASK)
        if end > len(payload):
            raise ProtocolError(f"a frame of {len(payload)} bytes claims a header of {end - 4}")
        header, body = bytes(payload[4:end]), bytes(payload[end:])
        match kind >> 24:
            case Serialization.JSON:
                return _decode_json_header(header, body)
            case Serialization.BINARY:
                return _decode_binary_header(header, body)
            case other:
                raise ProtocolError(f"unknown header serialization {other}")
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"not a frame of the remoting protocol: {error!r}: {bytes(payload[:80])!r}") from error


def _decode_json_header(header: bytes, body: bytes) -> Frame:
    # str() first: json would guess the encoding of bytes, which costs as much as parsing them.
    parsed = json.loads(str(header, "utf-8"))
    fields, remark = parsed.get("extFields") or {}, parsed.get("remark")
    if not isinstance(fields, dict):
        raise ProtocolError("the extension fields of a header are not a map")
    if remark is not None and not isinstance(remark, str):
        raise ProtocolError("the remark of a header is not a text")
    return Frame(
        code=int(parsed["code"]),
        opaque=int(parsed["opaque"]),
        flag=int(parsed.get("flag", 0)),
        fields=fields,
        remark=remark,
        body=body,
    )


def _decode_binary_header(header: bytes, body: bytes) -> Frame:
    code, _language, _version, opaque, flag, remark_length = _BINARY_HEADER.unpack_from(header)
    at = _BINARY_HEADER.size
    remark, at = _take(header, at, remark_length)
    (extension_length,) = _INT32.unpack_from(header, at)
    at += _INT32.size
    end = at + extension_length
    fields: dict[str, str] = {}
    while at < end:
        (length,) = _INT16.unpack_from(header, at)
        name, at = _take(header, at + _INT16.size, length)
        (length,) = _INT32.unpack_from(header, at)
        fields[name], at = _take(header, at + _INT32.size, length)
    if at != end or end > len(header):
        raise ProtocolError("the extension fields of a binary header do not fill their length")
    return Frame(code=code, opaque=opaque, flag=flag, fields=fields, remark=remark or None, body=body)


def _take(data: bytes, at: int, length: int) -> tuple[str, int]:
    end = at + length
    if length < 0 or end > len(data):
        raise ProtocolError("a string of a binary header runs over its end")
    return data[at:end].decode(), end


class FrameReader:
    """Cuts a byte stream into frames. Not thread safe; one per connection."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """Add received bytes; return the frames that are now complete, in order.

        Raises ProtocolError when the stream is not the remoting protocol; then it cannot be used any more.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _INT32.size:
                (length,) = _INT32.unpack_from(buffer, at)
                if not 4 <= length <= self._frame_bytes_max:
                    raise ProtocolError(
                        f"a frame of {length} bytes; check that this is the port of a RocketMQ name server or broker"
                    )
                end = at + _INT32.size + length
                if len(buffer) < end:
                    break
                with memoryview(buffer) as view, view[at + _INT32.size : end] as payload:
                    frame = decode_payload(payload)
                at = end
                yield frame
        finally:
            del buffer[:at]
