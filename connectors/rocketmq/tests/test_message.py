"""Messages to send, as they are written."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

import pytest
from headrace_rocketmq import Message
from headrace_rocketmq.errors import InvalidMessageError
from headrace_rocketmq.message import UniqueIds, decode_properties, encode_batch_entry, encode_properties
from hypothesis import given
from hypothesis import strategies as st

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20)


@given(st.dictionaries(names.map(lambda name: "user-" + name), names, max_size=6), st.none() | names)
def test_properties_round_trip(properties: dict[str, str], tag: str | None) -> None:
    text = encode_properties(Message(b"x", tag=tag, properties=properties), "ID")
    expected = {"UNIQ_KEY": "ID", **({} if tag is None else {"TAGS": tag}), **properties}
    assert decode_properties(text.encode()) == expected


def test_reserved_properties_are_set_by_fields() -> None:
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert decode_properties(encode_properties(Message(b"x", keys=["a", "b"], delay_level=3), "I").encode()) == {
        "UNIQ_KEY": "I",
        "KEYS": "a b",
        "DELAY": "3",
    }
    assert "TIMER_DELAY_MS\x011500\x02" in encode_properties(Message(b"x", delay=timedelta(seconds=1.5)), "I")
    assert f"TIMER_DELIVER_MS\x01{1714564800000}\x02" in encode_properties(Message(b"x", deliver_at=moment), "I")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(b""), "body is empty"),
        (Message(b"x", tag=""), "empty"),
        (Message(b"x", tag="a\x02b"), "separators"),
        (Message(b"x", properties={"a\x01b": "c"}), "separators"),
        (Message(b"x", properties={"": "c"}), "empty"),
        (Message(b"x", properties={"c": ""}), "'c' has an empty"),
        (Message(b"x", properties={"TAGS": "a"}), "set it by the message's field"),
        (Message(b"x", properties={"TRAN_MSG": "true"}), "only brokers"),
        (Message(b"x", keys="two words"), "space"),
        (Message(b"x", keys=["two words"]), "space"),
        (Message(b"x", properties={"a": "ü" * 16384}), "32767"),
        (Message(b"x", delay_level=1, delay=timedelta(seconds=1)), "more than one"),
        (Message(b"x", delay_level=-1), "negative"),
        (Message(b"x", deliver_at=datetime(2024, 5, 1)), "time zone"),
    ],
)
def test_what_a_broker_would_drop_or_twist_is_refused(message: Message, reason: str) -> None:
    with pytest.raises(InvalidMessageError, match=reason):
        encode_properties(message, "ID")


def test_a_batch_entry_as_brokers_read_it() -> None:
    entry = encode_batch_entry(b"body", "TAGS\x01ä\x02", flag=7)
    size, magic, checksum, flag, body_length = struct.unpack_from(">iIIii", entry)
    assert (size, magic, checksum, flag, body_length) == (len(entry), 0, 0, 7, 4)
    assert entry[20:24] == b"body"
    assert struct.unpack_from(">H", entry, 24)[0] == len("TAGS\x01ä\x02".encode())
    assert entry[26:].decode() == "TAGS\x01ä\x02"


class TestUniqueIds:
    def test_they_are_unique_even_within_a_millisecond(self) -> None:
        ids = UniqueIds(lambda: 1_700_000_000.0)
        taken = [*ids.take(100_000), *ids.take(1), *ids.take(100_000)]
        assert len(set(taken)) == 200_001
        assert taken == sorted(taken)

    def test_they_stay_unique_when_the_clock_goes_back(self) -> None:
        times = iter([1_700_000_000.0, 1_699_999_000.0])
        ids = UniqueIds(lambda: next(times))
        assert ids.take(1) != ids.take(1)

    def test_tools_can_read_the_time_out_of_them(self) -> None:
        now = datetime(2024, 5, 3, 4, 5, 6, 789000, tzinfo=UTC)
        (unique_id,) = UniqueIds(now.timestamp).take(1)
        assert len(unique_id) == 32
        elapsed = timedelta(milliseconds=int(unique_id[20:28], 16))
        assert datetime(2024, 5, 1, tzinfo=UTC) + elapsed == now

    def test_a_new_month_begins_anew(self) -> None:
        moments = iter([datetime(2024, 1, 31, 23, 59, 59, tzinfo=UTC), datetime(2024, 2, 1, 0, 0, 1, tzinfo=UTC)])
        ids = UniqueIds(lambda: next(moments).timestamp())
        (january,), (february,) = ids.take(1), ids.take(1)
        assert int(january[20:28], 16) == 31 * 86_400_000 - 1000
        assert int(february[20:28], 16) == 1000

    def test_two_makers_differ(self) -> None:
        assert UniqueIds(lambda: 0.0).take(1) != UniqueIds(lambda: 0.0).take(1)
