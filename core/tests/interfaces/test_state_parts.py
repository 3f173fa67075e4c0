"""Versions in parts: what is written is read, what is damaged is refused, and what is asked for is fetched once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from headrace.foundation.errors import CheckpointError, RetriableError
from headrace.interfaces.state_parts import Restore, bits_for, pack_parts, part_numbers, unpack_first, unpack_ranges

RANGES = [{"a": b"1", "b": b""}, {"a": b"2", "b": b"3"}, {}, {"b": b"4"}]


class Recorder:
    """Stands for an operator: notes which parts it was given, with which pages."""

    def __init__(self) -> None:
        self.given: list[tuple[list[tuple[int, bytes]], list[int]]] = []
        self.ended = 0

    def put_parts(self, contents: Sequence[tuple[int, bytes]], pages: Any) -> None:
        self.given.append((sorted(contents), np.flatnonzero(pages).tolist()))

    def end_restore(self) -> None:
        self.ended += 1


class Store:
    """Versions 5 (8 parts) and 7 (2 parts), whose contents say where they are from."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.missing = 0
        self.parts = {
            number: pack_parts({}, [{"op": b"%d/%d" % (number, place)} for place in range(count)])
            for number, count in ((5, 8), (7, 2))
        }

    def fetch(self, wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
        found = [(number, part) for number, ranges in wanted.items() for each in ranges for part in each]
        self.asked += found
        for number, part in found[self.missing :]:
            yield number, part, self.parts[number][part]


def hashes(*pages: int) -> Any:
    """Return a hash of each of 8 pages."""
    return np.array(pages, dtype=np.uint64) << np.uint64(61)


def test_parts_are_one_map_and_each_can_be_read_alone() -> None:
    parts = pack_parts({"rows": 3}, RANGES)
    about = unpack_first(parts[0])
    assert (about["rows"], about["bits"]) == (3, 2)
    whole = msgspec.msgpack.decode(b"".join(parts))
    assert whole["format"] == 2
    assert unpack_ranges(whole) == [{"a": b"1"}, {"a": b"2", "b": b"3"}, {}, {"b": b"4"}]


@pytest.mark.parametrize(
    "first", [b"", b"\x00" * 9, b"nonsense", pack_parts({}, RANGES)[0][:-1], pack_parts({}, RANGES[:3])[0]]
)
def test_a_damaged_first_part_is_refused(first: bytes) -> None:
    with pytest.raises(CheckpointError, match="damaged"):
        unpack_first(first)


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    good = pack_parts({"rows": 3, "watermark_us": 17, "upstreams": [("q", "in", 0, [5, 1], 9, False)]}, RANGES, "a1b2")
    for number, part in enumerate(good):
        for place in range(len(part) * 8):
            damaged = bytearray(part)
            damaged[place // 8] ^= 1 << place % 8
            with pytest.raises((CheckpointError, RetriableError)):
                restored([*good[:number], bytes(damaged), *good[number + 1 :]])


def test_a_part_of_another_version_or_place_is_noticed() -> None:
    one, other = pack_parts({}, RANGES, "one"), pack_parts({}, RANGES, "other")
    assert restored(one) == restored(other)
    for wrong in ([*one[:2], other[2], *one[3:]], [one[0], one[2], one[1], *one[3:]]):
        with pytest.raises(CheckpointError, match="of another version"):
            restored(wrong)


def restored(parts: Sequence[bytes]) -> Any:
    """Return what operators are given of a version's parts."""
    about = unpack_first(parts[0])

    def fetch(wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
        return ((1, number, parts[number]) for ranges in wanted.values() for each in ranges for number in each)

    operators = {name: Recorder() for name in "ab"}
    Restore([(1, about["bits"])], 8, fetch, operators, {1: about.get("token")}).need_all()  # type: ignore[arg-type]
    return [each.given for each in operators.values()]


def test_a_newer_format_is_refused_by_its_number() -> None:
    first = pack_parts({}, RANGES)[0].replace(b"\xa6format\x02", b"\xa6format\x03")
    with pytest.raises(CheckpointError, match=r"newer version of headrace \(format 3\)"):
        unpack_first(first)


def test_small_deltas_are_one_part_and_large_states_not_too_many() -> None:
    assert [bits_for(rows) for rows in (0, 1_000, 1_024, 10_000, 1_000_000, 10**10)] == [0, 0, 1, 4, 10, 12]
    values = np.array([0, 2**61 - 1, 2**61, 2**64 - 1], dtype=np.uint64)
    assert part_numbers(values, 3).tolist() == [0, 0, 1, 7]
    assert part_numbers(values, 0).tolist() == [0, 0, 0, 0]


def test_each_part_is_fetched_once_and_a_page_has_all_versions() -> None:
    store, operator = Store(), Recorder()
    restore = Restore([(5, 3), (7, 1)], 8, store.fetch, {"op": operator})  # type: ignore[dict-item]
    restore.need(hashes(6, 1, 6))
    assert operator.given == [([(0, b"5/1"), (0, b"5/6"), (1, b"7/0"), (1, b"7/1")], [1, 6])]
    restore.need(hashes(1, 6))
    assert len(operator.given) == 1
    restore.need(hashes(2))
    assert operator.given[1:] == [([(0, b"5/2")], [2])]
    assert (restore.done, operator.ended) == (False, 0)
    restore.need_all()
    assert (restore.done, operator.ended) == (True, 1)
    assert sorted(store.asked) == [*((5, part) for part in range(1, 9)), (7, 1), (7, 2)]
    assert sorted(page for _, pages in operator.given for page in pages) == list(range(8))


def test_what_is_not_given_is_asked_for_again() -> None:
    store, operator = Store(), Recorder()
    restore = Restore([(5, 3), (7, 1)], 10**9, store.fetch, {"op": operator})  # type: ignore[dict-item]
    store.missing = 1
    with pytest.raises(RetriableError, match="not the requested ones"):
        restore.step()
    assert operator.given == []
    store.missing = 0
    restore.step()
    assert operator.given == [([(0, b"5/0"), (1, b"7/0")], [0])]
