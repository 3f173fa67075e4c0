"""Groups of the kernel are those of a plain loop, and aggregates are the same with and without it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from headrace_turbo.group_sums import faster_group_sums
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

faster = faster_group_sums()
pytestmark = pytest.mark.skipif(faster is None, reason="headrace-turbo was built without cargo: it has no kernel")

#: Up to twelve bytes are in a view of Arrow, longer texts are not. The long ones have the same beginning, length or end.
TEXTS = [*("", "a", "twelve bytes", "b" * 13), *(f"{n}{'x' * 30}{n % 2}{'y' * 7}" for n in range(4)), "x" * 38, "é\0"]
INT64 = st.integers(-(2**63), 2**63 - 1)
Row = tuple[str, int, int]
rows_of_keys = st.lists(st.tuples(st.sampled_from(TEXTS), st.integers(-2, 2), INT64), max_size=80)


def plainly(rows: Sequence[Row]) -> tuple[list[int], list[int], list[int]]:
    """Return the first row of each group, the sums and the numbers of rows."""
    firsts: dict[tuple[str, int], int] = {}
    sums: dict[tuple[str, int], int] = {}
    counts: dict[tuple[str, int], int] = {}
    for place, (text, number, value) in enumerate(rows):
        key = text, number
        firsts.setdefault(key, place)
        sums[key] = (sums.get(key, 0) + value + 2**63) % 2**64 - 2**63
        counts[key] = counts.get(key, 0) + 1
    return list(firsts.values()), list(sums.values()), list(counts.values())


@settings(max_examples=examples(200), deadline=None)
@given(rows=rows_of_keys.filter(bool), times=st.sampled_from([1, 70]), begin=st.integers(0, 3), chunks=st.booleans())
def test_groups_are_those_of_a_plain_loop(rows: list[Row], times: int, begin: int, chunks: bool) -> None:
    assert faster is not None
    rows = rows * times + rows[:begin]
    schema = {"text": pl.String, "number": pl.Int64, "value": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")[min(begin, len(rows) - 1) :]
    rows = rows[len(rows) - frame.height :]
    if chunks:
        frame = pl.concat([frame[:2], frame[2:]], rechunk=False)
    made = faster([frame["text"], frame["number"]], [frame["value"], None])
    assert made is not None
    firsts, (sums, counts) = made
    assert (firsts.tolist(), sums.tolist(), counts.tolist()) == plainly(rows)


def test_more_groups_than_the_first_table_has_slots() -> None:
    assert faster is not None
    numbers = pl.Series(np.arange(100_000) % 40_000)
    texts = numbers.cast(pl.String) + pl.Series(["", " and more than twelve bytes"]).gather(numbers % 2)
    made = faster([texts], [numbers])
    assert made is not None
    firsts, (sums,) = made
    assert firsts.tolist() == list(range(40_000))
    assert sums.tolist() == [n * (3 if n < 20_000 else 2) for n in range(40_000)]


def test_no_numbers_and_no_rows() -> None:
    assert faster is not None
    made = faster([pl.Series(["a", "b", "a"])], [])
    assert made is not None
    assert (made[0].tolist(), made[1]) == ([0, 1], [])
    made = faster([pl.Series([], dtype=pl.String)], [None])
    assert made is not None
    assert (made[0].tolist(), made[1][0].tolist()) == ([], [])


def test_columns_of_different_lengths_are_refused() -> None:
    assert faster is not None
    with pytest.raises(ValueError, match="not of one length"):
        faster([pl.Series(["a", "b"])], [pl.Series([1])])


@pytest.mark.parametrize(
    ("plain", "module"), [("", "headrace_turbo.group_sums"), ("plain", "headrace_stateful.aggregates.grouping")]
)
def test_aggregates_use_it_unless_the_environment_says_otherwise(plain: str, module: str) -> None:
    program = "from headrace_stateful.aggregates import grouping; print(grouping.group_sums().__module__)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"HEADRACE_DECODERS": plain}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == module
