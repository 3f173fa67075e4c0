"""Records as drivers give them: cut, put together, with and without values."""

from __future__ import annotations

import numpy as np
import pytest
from headrace_kafka.driver import RECORD_BYTES, Fetched, Partition, joined


def fetched(first: int, values: list[bytes | None]) -> Fetched:
    count = len(values)
    offsets = np.arange(first, first + count)
    keys: list[bytes | None] = [b"k%d" % number for number in range(first, first + count)]
    return Fetched.of(Partition("t", 0), offsets, values, offsets * 10, keys, [{"n": key or b""} for key in keys])


def values_of(some: Fetched) -> list[bytes | None]:
    marks = [False] * len(some) if some.tombstones is None else some.tombstones.tolist()
    return [None if gone else body for gone, body in zip(marks, some.bodies, strict=True)]


VALUES: list[bytes | None] = [b"a", None, b"", b"two\nlines", b"\n", None, b"last"]


@pytest.mark.parametrize("begin", range(len(VALUES)))
@pytest.mark.parametrize("end", [1, 3, len(VALUES), None])
def test_a_part(begin: int, end: int | None) -> None:
    part = fetched(5, VALUES).slice(begin, end)
    wanted = VALUES[begin:end]
    assert values_of(part) == wanted
    assert part.bodies.joined() == b"\n".join(value or b"" for value in wanted)
    assert part.offsets.tolist() == list(range(5, 12))[begin:end]
    assert part.times is not None
    assert part.times.tolist() == [offset * 10 for offset in part.offsets]
    assert part.keys == [b"k%d" % offset for offset in part.offsets]
    assert part.headers == [{"n": key} for key in part.keys]
    newlines = max(len(wanted) - 1, 0)
    assert part.size() == sum(len(value or b"") for value in wanted) + newlines + RECORD_BYTES * len(wanted)


def test_parts_are_put_together() -> None:
    """Also those that were cut off, some with records that have no value and some without."""
    parts = [
        fetched(0, VALUES).slice(2, 5),
        fetched(10, [b"x", b"y"]),
        fetched(20, VALUES).slice(6),
        fetched(30, [None]),
    ]
    whole = joined(parts)
    assert values_of(whole) == [b"", b"two\nlines", b"\n", b"x", b"y", b"last", None]
    assert [whole.bodies[row] for row in range(6)] == [b"", b"two\nlines", b"\n", b"x", b"y", b"last"]
    assert whole.bodies.joined() == b"\ntwo\nlines\n\n\nx\ny\nlast\n"
    assert whole.offsets.tolist() == [2, 3, 4, 10, 11, 26, 30]
    assert whole.keys == [b"k%d" % offset for offset in whole.offsets]


def test_marks_are_there_only_where_a_value_is_missing() -> None:
    assert fetched(0, [b"a", b""]).tombstones is None
    assert joined([fetched(0, [b"a"]), fetched(1, [b"b"])]).tombstones is None
