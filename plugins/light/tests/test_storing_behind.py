"""A checkpoint that another thread stores: nothing is read later than it says, and its failure is that of the job."""

from __future__ import annotations

import threading

import pytest
from headrace_light.storing_behind import StoringBehind


def test_what_follows_is_called_by_settle() -> None:
    behind, gate, found = StoringBehind("job"), threading.Event(), list[int]()
    assert behind.settle(wait=True)

    def store() -> int:
        gate.wait(60)
        return 7

    behind.begin(store, found.append)
    assert not behind.settle(wait=False)
    assert not found
    gate.set()
    assert behind.settle(wait=True)
    assert found == [7]


def test_a_failure_is_raised_once() -> None:
    behind = StoringBehind("job")
    behind.begin(lambda: 1 // 0, print)
    with pytest.raises(ZeroDivisionError):
        behind.settle(wait=True)
    assert behind.settle(wait=True)


def test_close_waits_and_forgets() -> None:
    behind, stopping, found = StoringBehind("job"), threading.Event(), list[bool]()
    behind.begin(lambda: stopping.wait(60), found.append)
    behind.close(stopping)
    behind.close(stopping)
    assert behind.settle(wait=True)
    assert not found
