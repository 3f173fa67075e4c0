"""Received messages, decoded into columns."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from headrace_rocketmq import Compression, MessageBatch, MessageQueue
from headrace_rocketmq.batch import BatchDecoder
from headrace_rocketmq.compression import compress
from headrace_rocketmq.errors import InvalidMessageError, ProtocolError
from headrace_rocketmq.message import encode_batch_entry
from hypothesis import given
from hypothesis import strategies as st

from .stored_messages import StoredMessage

QUEUE = MessageQueue("topic", "broker", 0)
hosts = st.sampled_from(["10.0.0.1", "2001:db8::7"])
int64 = st.integers(0, 2**63 - 1)
stored_messages = st.builds(
    StoredMessage,
    body=st.binary(min_size=0, max_size=60),
    topic=st.text("abc-_%", min_size=1, max_size=127),
    properties=st.binary(max_size=60),
    queue_id=st.integers(0, 100),
    flag=st.integers(-(2**31), 2**31 - 1),
    offset=int64,
    system_flag=st.sampled_from([0, 2, 8]),
    born_ms=int64,
    store_ms=int64,
    reconsume_times=st.integers(0, 16),
    born_host=hosts,
    store_host=hosts,
    has_long_topic=st.booleans(),
)


def decode(*answers: bytes, body_bytes_max: int = 1000) -> MessageBatch:
    decoder = BatchDecoder(QUEUE, body_bytes_max)
    for answer in answers:
        decoder.add(answer)
    return decoder.finish(next_offset=99, earliest_offset=1, latest_offset=100)


@given(st.lists(st.lists(stored_messages, max_size=4), max_size=4))
def test_every_column_of_every_message(answers: list[list[StoredMessage]]) -> None:
    batch = decode(*(b"".join(message.encode() for message in answer) for answer in answers))
    messages = [message for answer in answers for message in answer]
    assert len(batch) == len(messages)
    assert batch.bodies == [message.body for message in messages]
    assert batch.raw_properties == [message.properties for message in messages]
    assert batch.offsets.tolist() == [message.offset for message in messages]
    assert batch.born_timestamps_ms.tolist() == [message.born_ms for message in messages]
    assert batch.store_timestamps_ms.tolist() == [message.store_ms for message in messages]
    assert batch.reconsume_times.tolist() == [message.reconsume_times for message in messages]
    assert batch.flags.tolist() == [message.flag for message in messages]
    assert (batch.next_offset, batch.earliest_offset, batch.latest_offset) == (99, 1, 100)
    assert batch.errors == {}


@given(st.lists(stored_messages, min_size=1, max_size=3), st.data())
def test_cut_messages_are_a_protocol_error(messages: list[StoredMessage], data: st.DataObject) -> None:
    encoded = [message.encode() for message in messages]
    whole = b"".join(encoded)
    borders = {sum(map(len, encoded[:count])) for count in range(len(encoded) + 1)}
    cut = data.draw(st.integers(1, len(whole) - 1).filter(lambda at: at not in borders))
    with pytest.raises(ProtocolError):
        decode(whole[:cut])


@given(stored_messages, st.data())
def test_a_damaged_message_never_harms_more_than_itself(message: StoredMessage, data: st.DataObject) -> None:
    damaged = bytearray(message.encode())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError, InvalidMessageError):
        decode(bytes(damaged))


def test_something_else_than_messages_is_named() -> None:
    with pytest.raises(ProtocolError, match="that is not a message"):
        decode(bytes(200))


@pytest.mark.parametrize("kind", list(Compression))
def test_packed_bodies_come_unpacked(kind: Compression) -> None:
    packed = StoredMessage(body=compress(b"abc" * 100, kind), system_flag=kind.message_flag)
    plain = StoredMessage(body=b"plain")
    assert decode(packed.encode() + plain.encode()).bodies == [b"abc" * 100, b"plain"]


def test_a_body_that_cannot_be_unpacked_does_not_stop_the_others() -> None:
    good = StoredMessage(body=compress(b"good", Compression.ZLIB), system_flag=Compression.ZLIB.message_flag)
    bad = replace(good, body=b"rubbish")
    bomb = replace(good, body=compress(bytes(1001), Compression.ZLIB))
    batch = decode(good.encode() + bad.encode(), bomb.encode() + good.encode())
    assert [batch.bodies[0], batch.bodies[1], batch.bodies[3]] == [b"good", b"rubbish", b"good"]
    assert sorted(batch.errors) == [1, 2]
    assert "larger than 1000 bytes" in str(batch.errors[2])


def test_a_batch_stored_as_one_message_is_taken_apart() -> None:
    entries = [encode_batch_entry(b"a", "TAGS\x01x\x02", 1), encode_batch_entry(b"b", "", 2)]
    wrapped = StoredMessage(body=b"".join(entries), system_flag=64 | 128, offset=10, born_ms=5, store_ms=6)
    batch = decode(wrapped.encode() + StoredMessage(body=b"c", offset=12).encode())
    assert batch.bodies == [b"a", b"b", b"c"]
    assert batch.offsets.tolist() == [10, 11, 12]
    assert batch.flags.tolist() == [1, 2, 0]
    assert batch.born_timestamps_ms.tolist() == [5, 5, 0]
    assert batch.tags() == ["x", None, None]


def test_a_batch_that_cannot_be_unpacked_does_not_stop_the_others() -> None:
    flag = 64 | 128 | Compression.ZLIB.message_flag
    entries = encode_batch_entry(b"a", "", 1) + encode_batch_entry(b"b", "", 2)
    good = StoredMessage(body=compress(entries, Compression.ZLIB), system_flag=flag, offset=10)
    batch = decode(replace(good, body=b"rubbish", offset=7).encode() + good.encode())
    assert batch.bodies == [b"rubbish", b"a", b"b"]
    assert batch.offsets.tolist() == [7, 10, 11]
    assert sorted(batch.errors) == [0]


def test_one_property_of_all_messages() -> None:
    batch = decode(
        b"".join(
            StoredMessage(body=b"x", properties=properties).encode()
            for properties in (
                b"TAGS\x01a\x02KEYS\x01k1 k2\x02",
                b"XTAGS\x01wrong\x02KEYS\x01k3",
                b"KEYS\x01TAGS\x02TAGS\x01\xc3\xa4\x02",
                b"",
            )
        )
    )
    assert batch.tags() == ["a", None, "ä", None]
    assert batch.keys() == ["k1 k2", "k3", "TAGS", None]
    assert [batch.properties(row).get("TAGS") for row in range(4)] == batch.tags()


def test_some_rows() -> None:
    bad = StoredMessage(body=b"bad", system_flag=1, offset=3)
    batch = decode(*(StoredMessage(body=b"%d" % offset, offset=offset).encode() for offset in range(3)), bad.encode())
    chosen = batch.take([0, 3])
    assert chosen.bodies == [b"0", b"bad"]
    assert chosen.offsets.tolist() == [0, 3]
    assert list(chosen.errors) == [1]
    assert chosen.next_offset == batch.next_offset
    assert batch.take(slice(1, None)).offsets.tolist() == [1, 2, 3]


def test_bodies_are_not_in_the_repr() -> None:
    assert "secret" not in repr(decode(StoredMessage(body=b"secret", properties=b"A\x01secret\x02").encode()))


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(0, 30), st.integers(0, 30))
def test_offsets_grow_and_stay_within_bounds(offsets: list[int], start: int, end: int) -> None:
    batch = decode(*(StoredMessage(body=b"%d" % offset, offset=offset).encode() for offset in offsets))
    expected: list[int] = []
    greatest = start - 1
    for offset in offsets:
        if greatest < offset < end:
            expected.append(offset)
        greatest = max(greatest, offset)
    kept = batch.growing(start, end)
    assert kept.offsets.tolist() == expected
    assert kept.bodies == [b"%d" % offset for offset in expected]
