"""The wire format of requests and answers."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from headrace_rocketmq.errors import ProtocolError
from headrace_rocketmq.frame import Frame, FrameReader, Serialization, decode_payload, encode_frame
from hypothesis import given
from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
frames = st.builds(
    Frame,
    code=st.integers(-32768, 32767),
    opaque=st.integers(0, 2**31 - 1),
    flag=st.integers(0, 3),
    fields=st.dictionaries(texts.filter(bool), texts, max_size=8),
    remark=st.none() | texts.filter(bool),
    body=st.binary(max_size=200),
)


def encode(frame: Frame, serialization: Serialization) -> bytes:
    return encode_frame(
        frame.code,
        frame.opaque,
        frame.fields,
        frame.body,
        flag=frame.flag,
        remark=frame.remark,
        serialization=serialization,
    )


@given(frames, st.sampled_from(Serialization))
def test_round_trip(frame: Frame, serialization: Serialization) -> None:
    data = encode(frame, serialization)
    assert struct.unpack_from(">i", data)[0] == len(data) - 4
    assert decode_payload(data[4:]) == frame


@given(st.lists(st.tuples(frames, st.sampled_from(Serialization)), max_size=5), st.integers(1, 50))
def test_a_stream_cut_anywhere_gives_the_same_frames(sent: list[tuple[Frame, Serialization]], piece_bytes: int) -> None:
    stream = b"".join(encode(frame, serialization) for frame, serialization in sent)
    reader = FrameReader()
    received = [
        frame
        for at in range(0, len(stream), piece_bytes)
        for frame in reader.feed(memoryview(stream)[at : at + piece_bytes])
    ]
    assert received == [frame for frame, _ in sent]


def test_a_request_looks_as_brokers_expect() -> None:
    data = encode_frame(11, 7, {"topic": "t"}, b"body")
    total, kind = struct.unpack_from(">iI", data)
    header = json.loads(data[8 : 8 + kind])
    assert total == len(data) - 4
    assert header["code"] == 11
    assert header["opaque"] == 7
    assert header["flag"] == 0
    assert header["language"] == "PYTHON"
    assert header["version"] == 401
    assert header["serializeTypeCurrentRPC"] == "JSON"
    assert header["extFields"] == {"topic": "t"}
    assert data[8 + kind :] == b"body"


def test_a_binary_header_as_a_java_server_writes_it() -> None:
    # code 0, language 0 (Java), version 401, opaque 5, flag 1 (answer), remark "ok", one field
    fields = struct.pack(">h6si1s", 6, b"offset", 1, b"9")
    header = (
        struct.pack(">hbhii", 0, 0, 401, 5, 1) + struct.pack(">i2s", 2, b"ok") + struct.pack(">i", len(fields)) + fields
    )
    frame = decode_payload(struct.pack(">I", 1 << 24 | len(header)) + header + b"body")
    assert frame == Frame(code=0, opaque=5, flag=1, fields={"offset": "9"}, remark="ok", body=b"body")
    assert frame.is_response
    assert not frame.is_one_way


@given(st.binary(max_size=80))
def test_rubbish_is_a_protocol_error_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_payload(data)


@given(frames, st.sampled_from(Serialization), st.data())
def test_a_header_cut_short_is_a_protocol_error(
    frame: Frame, serialization: Serialization, data: st.DataObject
) -> None:
    frame.body = b""
    payload = encode(frame, serialization)[4:]
    with pytest.raises(ProtocolError):
        decode_payload(payload[: data.draw(st.integers(0, len(payload) - 1))])


@pytest.mark.parametrize("length", [-1, 3, 128 * 1024 * 1024 + 1, 0x48545450])  # the last is "HTTP"
def test_an_impossible_length_ends_the_stream_before_memory_is_taken(length: int) -> None:
    with pytest.raises(ProtocolError, match="the port of a RocketMQ"):
        list(FrameReader().feed(struct.pack(">i", length)))


def test_an_unknown_serialization_is_named() -> None:
    with pytest.raises(ProtocolError, match="serialization 9"):
        decode_payload(struct.pack(">I", 9 << 24) + b"")


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{}",
        b'{"code": "x", "opaque": 1}',
        b'{"code": 1e999, "opaque": 1}',
        b'{"code":0,"opaque":1,"extFields":[1]}',
        b'{"code":0,"opaque":1,"remark":[1]}',
        b"[" * 1_000_000,
        b"\xff",
    ],
    ids=lambda header: repr(header[:30]),
)
def test_json_that_is_no_header(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_payload(struct.pack(">I", len(header)) + header)
