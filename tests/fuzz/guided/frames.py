"""Targets: frames of protocols, as a peer may send them. Bytes that come in pieces give what they give at once."""

# ruff: noqa: E501  # inputs are not broken over lines
from __future__ import annotations

import struct

from headrace_rocketmq import fastjson
from headrace_rocketmq.batch import BatchDecoder
from headrace_rocketmq.errors import InvalidMessageError, ProtocolError
from headrace_rocketmq.frame import Frame, FrameReader, Serialization, encode_frame
from headrace_rocketmq.routes import MessageQueue
from headrace_syslog.framing import Framer, FramingError

from tests.fuzz.guided.target import Target

_QUEUE = MessageQueue("topic", "broker", 0)


def _pieces(data: bytes) -> list[bytes]:
    """Return the bytes cut at places that depend on them."""
    if len(data) < 4:
        return [data]
    first = data[0] % len(data)
    second = first + data[1] % (len(data) - first)
    return [data[:first], data[first:second], data[second:]]


def _frames_of(pieces: list[bytes]) -> tuple[list[Frame], bool]:
    reader = FrameReader(1 << 20)
    found: list[Frame] = []
    try:
        for piece in pieces:
            found += reader.feed(piece)
    except ProtocolError:
        return found, False
    return found, True


def _remoting_frames(data: bytes) -> None:
    assert _frames_of([data]) == _frames_of(_pieces(data))


def _messages(data: bytes) -> None:
    decoder = BatchDecoder(_QUEUE)
    decoder.add(data)
    batch = decoder.finish(next_offset=0)
    for row in range(len(batch.bodies)):
        assert isinstance(batch.properties(row), dict)
    assert len(batch.tags()) == len(batch.keys()) == len(batch.bodies)


def _syslog_of(pieces: list[bytes]) -> tuple[list[bytes], bool | None]:
    framer = Framer(64)
    found: list[bytes] = []
    try:
        for piece in pieces:
            found += list(framer.feed(piece))
        bodies, incomplete = framer.end()
    except FramingError as error:
        return [*found, *error.whole], None
    return [*found, *bodies], incomplete


def _syslog_frames(data: bytes) -> None:
    assert _syslog_of([data]) == _syslog_of(_pieces(data))


def _message(body: bytes, properties: bytes) -> bytes:
    """Return one message as a broker stores it, with addresses of IPv4."""
    layout = struct.Struct(">ii4x4xiq8xiq8xq8xi8xi")
    topic = b"topic"
    size = layout.size + len(body) + 1 + len(topic) + 2 + len(properties)
    head = layout.pack(size, -626843481, 0, 7, 0, 1, 2, 0, len(body))
    return head + body + bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties


_FRAMES = [
    encode_frame(11, 5, {"a": "b"}, b"body", serialization=kind, remark="r") for kind in (Serialization.JSON, Serialization.BINARY)
]  # fmt: skip

TARGETS = [
    Target("rocketmq-frames", _remoting_frames, [*_FRAMES, b"".join(_FRAMES)]),
    Target("rocketmq-messages", _messages, [_message(b"body", b"KEYS\x01k\x02TAGS\x01t\x02")], (ProtocolError, InvalidMessageError)),
    Target("rocketmq-json", fastjson.loads, [b'{0:"10.0.0.1:10911",-1:{"a":[1,2.5,null]}}', b'{"{1:":"\\"{2:"}'], (ProtocolError,)),
    Target("syslog-frames", _syslog_frames, [b"12 <13>1 - - -x\n9 <13>a b c", b"<13>a\n<14>b\r\n\n<15>c", b"<13>" + b"x" * 70 + b"\n<13>y\n"]),
]  # fmt: skip
