"""Which transactions the chunks of a snapshot have seen, compared with the same question asked one by one."""

from __future__ import annotations

import numpy as np
from headrace_postgres.chunks import Ranges, Seen
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def seen_by_chunks(draw: st.DrawFn) -> list[Seen]:
    begin = draw(st.sampled_from([5, 2**32 - 4, 3 * 2**32 + 7]))
    made = []
    for _ in range(draw(st.integers(1, 4))):
        low = begin + draw(st.integers(0, 6))
        high = low + draw(st.integers(0, 6))
        running = draw(st.frozensets(st.integers(low, max(low, high - 1)), max_size=3)) if high > low else frozenset()
        made.append(Seen(low, high, running))
    return made


@given(seen_by_chunks(), st.data())
def test_transactions_that_chunks_have_seen(seen: list[Seen], data: st.DataObject) -> None:
    first = min(each.low for each in seen) - 3
    rows = data.draw(
        st.lists(st.tuples(st.integers(first, first + 20), st.integers(0, len(seen) - 1)), min_size=1, max_size=30)
    )
    whole = [number for number, _ in rows]
    chunks = np.array([chunk for _, chunk in rows], dtype=np.int64)
    ends = [(str(number),) for number in range(len(seen) - 1)]
    # The log has 32 bits of a number.
    numbers = np.array([number & 0xFFFFFFFF for number in whole], dtype=np.int64)
    found = Ranges((), ends, seen).seen(numbers, lambda some: chunks[some])
    wanted = [
        number < seen[chunk].high and number not in seen[chunk].running
        for number, chunk in zip(whole, chunks, strict=True)
    ]
    assert found.tolist() == wanted
