"""The expected and the actual results of a case, as lines for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace_pipeline.document import Section

_EXAMPLES_MAX = 20
_LENGTH_MAX = 500


def row_differences(sink: str, expected: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> list[str]:
    """Return what differs between the rows that a sink should get and those that it got; nothing if they are equal. Order does not count.

    Values are equal if they have the same type and value; NaN equals NaN.
    """
    missing, surplus = _only(expected, found), _only(found, expected)
    if not missing and not surplus:
        return []
    said = [f"{_count(missing)} missing"] if missing else []
    said += [f"{_count(surplus)} not expected"] if surplus else []
    lines = [f"sink {sink}: {', '.join(said)}"]
    left = list(surplus)
    for row in missing[:_EXAMPLES_MAX]:
        lines.append(f"  - {shown(row)}")
        nearest = max(left, key=lambda other: _same_values(row, other), default=None)
        if nearest is not None and 2 * _same_values(row, nearest) >= len(row):
            left.remove(nearest)
            lines.append(f"  + {shown(nearest)}")
            lines += [
                f"      {column}: expected {shown(row[column])}, found {shown(nearest[column])}"
                for column in row
                if _key(row[column]) != _key(nearest[column])
            ]
    lines += [f"  + {shown(row)}" for row in left[:_EXAMPLES_MAX]]
    hidden = max(0, len(missing) - _EXAMPLES_MAX) + max(0, len(left) - _EXAMPLES_MAX)
    return [*lines, f"  … and {hidden} more"] if hidden else lines


def letter_differences(expected: Sequence[Section] | int, found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what differs between the dead letters that are expected and those that there are; nothing if they fit each other."""
    if isinstance(expected, int):
        if expected == len(found):
            return []
        many = (
            f"{len(found)} dead letters, expected {expected}"
            if expected
            else f"{len(found)} dead letters, none expected"
        )
        return [
            many.replace("1 dead letters", "1 dead letter", 1) if len(found) == 1 else many,
            *map(_letter, found[:_EXAMPLES_MAX]),
        ]
    wanted = [each.plain() for each in expected]
    pairs = _pairs(len(wanted), len(found), lambda one, other: _fits(wanted[one], found[other]))
    missing = [each for number, each in enumerate(wanted) if number not in pairs]
    surplus = [each for number, each in enumerate(found) if number not in pairs.values()]
    if not missing and not surplus:
        return []
    lines = [f"  - {shown(each)}" for each in missing[:_EXAMPLES_MAX]] + [
        _letter(each) for each in surplus[:_EXAMPLES_MAX]
    ]
    return [f"dead letters: {len(missing)} missing, {len(surplus)} not expected", *lines]


def shown(value: Any) -> str:
    """Return a value as JSON, as it may be written into the case."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LENGTH_MAX else text[: _LENGTH_MAX - 1] + "…"


def line_of(letter: Mapping[str, Any]) -> str | None:
    """Return the record of a dead letter as text; None if it was decoded."""
    body = letter["body"]
    return None if body is None else bytes(body).decode("utf-8", "replace")


def _letter(letter: Mapping[str, Any]) -> str:
    record = line_of(letter) if letter["body"] is not None else letter["row"]
    return f"  + {letter['origin']}: {letter['error']}: {letter['reason']}: {record}"[:_LENGTH_MAX]


def _fits(wanted: Mapping[str, Any], letter: Mapping[str, Any]) -> bool:
    for key, value in wanted.items():
        if key == "reason":
            if str(value) not in letter["reason"]:
                return False
        elif key == "line":
            if value != line_of(letter):
                return False
        elif key == "row":
            row = {} if letter["row"] is None else json.loads(letter["row"])
            if not isinstance(value, Mapping) or any(
                column not in row or row[column] != each for column, each in value.items()
            ):
                return False
        elif letter[key] != value:
            return False
    return True


def _pairs(count: int, others: int, fit: Callable[[int, int], bool]) -> dict[int, int]:
    """Return as many pairs that fit as there can be: a letter that two expectations fit goes to the one that has no other."""
    taken: dict[int, int] = {}

    def find(one: int, seen: set[int]) -> bool:
        for other in range(others):
            if other not in seen and fit(one, other):
                seen.add(other)
                if other not in taken or find(taken[other], seen):
                    taken[other] = one
                    return True
        return False

    for one in range(count):
        find(one, set())
    return {one: other for other, one in taken.items()}


def _only(rows: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    left = Counter(map(_key, others))
    found = []
    for row in rows:
        if left[_key(row)]:
            left[_key(row)] -= 1
        else:
            found.append(row)
    return found


def _key(value: Any) -> str:
    return repr(value)


def _same_values(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    return sum(_key(one[column]) == _key(other.get(column)) for column in one)


def _count(rows: Sequence[Any]) -> str:
    return f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
