"""Records of a shuffle's topic."""

from __future__ import annotations

import msgspec
import polars as pl
import pytest
from headrace.flow.messages import INDEX, OFFSET, Queue
from headrace.foundation.errors import DataError
from headrace.runtime.shuffle import ShardMessage
from headrace_light.shared.shuffle_records import FORMAT_VERSION, decoded, encoded

QUEUE = Queue("events-3", "kafka")


def rows(count: int, text: str = "x") -> pl.DataFrame:
    return pl.DataFrame(
        {OFFSET: range(count), INDEX: [0] * count, "a": [f"{text}{number}" for number in range(count)]},
        schema_overrides={OFFSET: pl.Int64, INDEX: pl.Int32},
    )


def test_messages_come_back_as_they_were() -> None:
    sent = [
        ShardMessage("added", QUEUE, 1),
        ShardMessage("rows", QUEUE, 1, rows(10)),
        ShardMessage("watermark", QUEUE, 1, time_us=-5),
        ShardMessage("idle", QUEUE),
        ShardMessage("removed", QUEUE),
    ]
    (record,) = encoded(sent, 123, 100_000)
    time_us, found = decoded(record)
    assert time_us == 123
    assert [(each.kind, each.queue, each.side, each.time_us) for each in found] == [
        (each.kind, each.queue, each.side, each.time_us) for each in sent
    ]
    assert found[1].frame is not None
    assert found[1].frame.equals(rows(10))


def test_a_record_without_messages_tells_the_time() -> None:
    (record,) = encoded([], 5, 100_000)
    assert decoded(record) == (5, [])


@pytest.mark.parametrize("count", [1, 2, 7])
def test_what_is_too_large_is_divided_in_order(count: int) -> None:
    import random

    chance = random.Random(3)
    frames = [rows(2_000, text=str(chance.random())) for _ in range(count)]
    records = encoded([ShardMessage("rows", QUEUE, 0, frame) for frame in frames], 1, 8_000)
    assert len(records) > count
    assert max(map(len, records)) <= 8_000
    found = [each.frame for record in records for each in decoded(record)[1] if each.frame is not None]
    assert pl.concat(found).equals(pl.concat(frames))


def test_many_small_messages_are_several_records() -> None:
    records = encoded([ShardMessage("watermark", QUEUE, 0, time_us=number) for number in range(1_000)], 1, 100_000)
    times = [each.time_us for record in records for each in decoded(record)[1]]
    assert times == [*range(1_000)]
    assert len(records) == 5


def test_a_row_that_no_record_can_hold_is_refused() -> None:
    huge = rows(1).with_columns(a=pl.lit("".join(map(chr, range(200, 6_000)))))
    with pytest.raises(DataError, match="larger than a record of the shuffle's topic may be"):
        encoded([ShardMessage("rows", QUEUE, 0, huge)], 1, 4_000)


@pytest.mark.parametrize(
    "record", [b"", b"{}", b"\x80", msgspec.msgpack.encode({"format": 1, "time_us": 1, "envelopes": [["rows"]]})]
)
def test_what_is_no_record_is_refused(record: bytes) -> None:
    with pytest.raises(DataError, match="was not written by headrace"):
        decoded(record)


def test_a_flipped_bit_anywhere_is_refused() -> None:
    [record] = encoded([ShardMessage("rows", QUEUE, 0, rows(3)), ShardMessage("added", QUEUE, 1)], 1_234, 1_000_000)
    assert decoded(record)[0] == 1_234
    for place in range(8 * len(record)):
        damaged = bytearray(record)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(DataError, match="damaged"):
            decoded(bytes(damaged))


def test_a_record_of_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="newer version of headrace"):
        decoded(msgspec.msgpack.encode({"format": FORMAT_VERSION + 1}))
