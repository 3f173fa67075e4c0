"""The model of a soak finds rows that are wrong, twice or missing."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from tests.soak.model import BEGIN, KEYS, Alerts, Documents, Pairs, Windows, WrongRowError, key, numbers_of, time_of

WINDOW = timedelta(seconds=10)


def windows(events: int) -> list[tuple[str, object, int, int]]:
    """Return the windows of events, by a plain loop."""
    numbers: dict[tuple[str, int], list[int]] = {}
    for number in range(events):
        numbers.setdefault((key(number), int((time_of(number) - BEGIN) / WINDOW)), []).append(number)
    return [
        (name, (BEGIN + window * WINDOW).replace(tzinfo=None), len(each), sum(each))
        for (name, window), each in numbers.items()
    ]


def test_windows() -> None:
    rows = windows(3000)
    assert Counter(number for name, *_ in rows[:KEYS] for number in numbers_of(name, 0)) == Counter(range(1000))
    check = Windows()
    check.check(rows[:100])  # type: ignore[arg-type]
    assert len(check.missing(3000)) == len(rows) - 100
    with pytest.raises(WrongRowError, match="come twice"):
        check.check(rows[99:101])  # type: ignore[arg-type]
    name, start, count, total = rows[150]
    with pytest.raises(WrongRowError, match=r"not 10 and|not 11 and"):
        check.check([(name, start, count, total + 1)])  # type: ignore[list-item]
    check.check(rows[100:])  # type: ignore[arg-type]
    assert check.missing(3000) == []
    assert check.count == len(rows)


def test_the_last_window_has_fewer_events() -> None:
    rows = windows(3050)
    check = Windows()
    check.check(rows[: 3 * KEYS])  # type: ignore[arg-type]
    assert len(check.missing(3050)) == 50
    check.events = 3050
    check.check(rows[3 * KEYS :])  # type: ignore[arg-type]
    assert check.missing(3050) == []


def test_pairs() -> None:
    check = Pairs()
    rows = [(key(n), n + KEYS * (n % 2), n + KEYS * (1 - n % 2)) for n in range(200)]
    check.check(rows)
    assert check.missing(200 + KEYS) == []
    assert check.missing(202 + KEYS) == [200, 201]
    with pytest.raises(WrongRowError, match="cannot be"):
        check.check([(key(0), 0, 3 * KEYS)])
    with pytest.raises(WrongRowError, match="come twice"):
        check.check(rows[:1])


def test_alerts() -> None:
    check = Alerts()
    check.check([(0, 0, 0, 1), (7, 1, 0, 1), (14, 0, 1, 2)], versions=2)
    assert (check.version, check.missing(21)) == (2, [])
    for row, reason in [
        ((21, 0, 2, 1), "went back"),
        ((21, 0, 2, 3), "version 3 of 2"),
        ((22, 0, 2, 2), "does not match"),
    ]:
        with pytest.raises(WrongRowError, match=reason):
            check.check([row], versions=2)
    with pytest.raises(WrongRowError, match="come twice"):
        check.check([(7, 1, 1, 2)], versions=2)


def test_documents() -> None:
    check = Documents()
    check.check([(0, 0, 0), (1, 0, 1), (3, 0, 3), (4, 0, 4), (4, 1, 4)])
    assert check.missing(5) == []
    assert check.missing(7) == [10, 12]
    for row in [(2, 0, 2), (0, 1, 0), (5, 0, 6)]:
        with pytest.raises(WrongRowError, match="cannot be"):
            check.check([row])
