"""When datagrams that were read are appended."""

from __future__ import annotations

from headrace_syslog.appends import OVERHEAD_BYTES
from headrace_syslog.gathering import GATHER_DATAGRAMS, GATHER_SECONDS, Gathered

HEADERS = {"peer": b"127.0.0.1"}


def read(gathered: Gathered, count: int, now: float) -> None:
    gathered.begin_reading(now)
    for _ in range(count):
        gathered.add(b"message", HEADERS)


def test_few_are_appended_at_once() -> None:
    gathered = Gathered(1024**2)
    read(gathered, GATHER_DATAGRAMS - 1, now=10.0)
    assert gathered.is_due(10.0)


def test_nothing_is_never_due() -> None:
    gathered = Gathered(1024**2)
    read(gathered, 0, now=10.0)
    assert not gathered.is_due(99.0)


def test_many_wait_for_those_that_follow() -> None:
    gathered = Gathered(1024**2)
    read(gathered, GATHER_DATAGRAMS, now=10.0)
    assert not gathered.is_due(10.0)
    read(gathered, GATHER_DATAGRAMS, now=10.0 + GATHER_SECONDS / 2)
    assert not gathered.is_due(10.0 + GATHER_SECONDS / 2)
    assert gathered.is_due(10.0 + 1.01 * GATHER_SECONDS)
    assert gathered.take() == ([b"message"] * 2 * GATHER_DATAGRAMS, [HEADERS] * 2 * GATHER_DATAGRAMS)
    read(gathered, GATHER_DATAGRAMS, now=20.0)
    assert not gathered.is_due(20.0)


def test_the_last_of_many_do_not_wait() -> None:
    gathered = Gathered(1024**2)
    read(gathered, GATHER_DATAGRAMS, now=10.0)
    read(gathered, 0, now=10.001)
    assert gathered.is_due(10.001)


def test_as_much_as_an_append_takes_is_due() -> None:
    gathered = Gathered(2 * GATHER_DATAGRAMS * (OVERHEAD_BYTES + len(b"message")))
    read(gathered, 2 * GATHER_DATAGRAMS - 1, now=10.0)
    assert not gathered.is_full
    gathered.add(b"message", HEADERS)
    assert gathered.is_full
    assert gathered.is_due(10.0)
    gathered.take()
    assert not gathered.is_full
