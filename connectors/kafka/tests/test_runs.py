"""What the confluent driver makes of messages that came together: runs of one partition, and their offsets."""

from __future__ import annotations

import confluent_kafka as ck
import pytest
from headrace_kafka.driver_confluent import offsets_of, run_bounds


@pytest.mark.parametrize("offsets", [[7], [7, 8, 9], [7, 9], [0, 1, 2, 5, 6], [5, 6, 8, 9, 10]])
def test_offsets_with_and_without_gaps(offsets: list[int]) -> None:
    run = [ck.Message(topic="t", partition=0, offset=offset, value=b"x") for offset in offsets]
    found = offsets_of(run)
    assert found.tolist() == offsets
    assert found.dtype == "int64"


@pytest.mark.parametrize(
    ("numbers", "topics", "bounds"),
    [
        ([3, 3, 3], None, [(0, 3)]),
        ([3, 3, 1, 3], None, [(0, 2), (2, 3), (3, 4)]),
        ([0, 0, 0, 1], ["a", "a", "b", "b"], [(0, 2), (2, 3), (3, 4)]),
        ([0, 0], ["a", "a"], [(0, 2)]),
    ],
)
def test_runs_of_one_partition(numbers: list[int], topics: list[str] | None, bounds: list[tuple[int, int]]) -> None:
    assert run_bounds(numbers, topics) == bounds
