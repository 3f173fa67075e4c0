"""Throttled rows: one at once, then one in each interval, and none is lost from the count."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Batch, EndOfInput, Queue, Tick
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError, PlanError
from headrace.interfaces.operator import Changes, StatefulOperator, StatefulSpec
from headrace.testing import MemorySink, MemorySource
from headrace_contract import StatefulOperatorContract
from headrace_detection.throttle import Throttle

from tests.effort import one_in

SECOND_US = 1_000_000
SCHEMA = Schema.of({"key": "string", "n": "int64"})


class TestThrottle(StatefulOperatorContract):
    schema: ClassVar[Mapping[str, Any]] = {"key": "string", "n": "int64", "tags": "list<string>"}

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        chances = [random.Random(number) for number in range(first, first + count)]
        return [
            {"key": chance.choice([None, "a", "b", "c"]), "n": number, "tags": ["x"] * (number % 3)}
            for number, chance in enumerate(chances, first)
        ]

    def make_spec(self) -> StatefulSpec:
        return Throttle(("key",), "10 s")

    def test_results_do_not_depend_on_batch_cuts(self) -> None:
        pytest.skip(
            "not checked: the contract's clock goes on with each entry, and which rows are given depends on the clock"
        )


def given(operator: StatefulOperator, seconds: int | None, *rows: tuple[str, int]) -> list[tuple[Any, ...]]:
    """Return what an entry gives: a tick, and rows if there are any; without a time the end of input."""
    found = list(operator.on_system(EndOfInput() if seconds is None else Tick(seconds * SECOND_US)))
    if rows:
        found += list(operator.process(Batch(Queue("0"), pl.DataFrame(rows, schema=dict(SCHEMA), orient="row"))))
    return [row for each in found if isinstance(each, Batch) for row in each.frame.rows()]


def test_first_at_once_then_one_in_each_interval_with_the_number_left_out() -> None:
    operator = Throttle(("key",), "10 s").open(SCHEMA)
    assert given(operator, 100, ("a", 1), ("a", 2), ("b", 3), ("a", 4)) == [("a", 1, 0), ("b", 3, 0)]
    assert given(operator, 105, ("a", 5), ("c", 6)) == [("c", 6, 0)]
    assert given(operator, 109) == []
    assert given(operator, 110) == [("a", 5, 2)], "2 and 4 were left out, 5 is given"
    assert given(operator, 111, ("b", 7), ("a", 8)) == [("b", 7, 0)], "nothing of b had waited: it begins anew"
    assert given(operator, 120, ("a", 9)) == [("a", 8, 0)]
    assert given(operator, 125) == []
    assert given(operator, None) == [("a", 9, 0)]


@pytest.mark.parametrize("seed", one_in(3, range(10)))
def test_no_row_is_lost_from_the_count_whatever_is_restored(seed: int) -> None:
    chance = random.Random(seed)
    spec, came, told, times = Throttle(("key",), "7 s"), Counter[str](), Counter[str](), dict[str, list[int]]()
    operator = spec.open(SCHEMA)
    stored: list[bytes] = []
    now = 0
    for _ in range(60):
        now += chance.randrange(4)
        rows = [(chance.choice("ab"), chance.randrange(100)) for _ in range(chance.randrange(4))]
        came.update(key for key, _ in rows)
        for key, _, left_out in given(operator, now, *rows):
            told[key] += 1 + left_out
            times.setdefault(key, []).append(now)
        if chance.random() < 0.5:
            stored = [operator.snapshot()] if chance.random() < 0.3 else [*stored, operator.delta()]
            operator = spec.open(SCHEMA)
            for state in stored:
                if state:
                    operator.apply(state)
    for key, _, left_out in given(operator, None):
        told[key] += 1 + left_out
    assert told == came
    for listed in times.values():
        assert all(later - earlier >= 7 for earlier, later in itertools.pairwise(listed)), listed


def test_a_job_and_what_is_wrong() -> None:
    bodies = [json.dumps({"key": key, "n": number}).encode() for number, key in enumerate("aabab")]
    sink = MemorySink()
    stream = hr.stream("test", "throttle").from_(MemorySource({"q": bodies}), format="json", schema=dict(SCHEMA))
    stream.key_by("key").throttle("1 h").to(sink).run("light")
    assert sorted((row["key"], row["n"], row["suppressed_count"]) for row in sink.rows) == [
        ("a", 0, 0), ("a", 3, 1), ("b", 2, 0), ("b", 4, 0),
    ]  # fmt: skip
    with pytest.raises(OptionError, match="not an interval"):
        stream.key_by("key").throttle("0 s")
    with pytest.raises(PlanError, match="already"):
        stream.rename(n="suppressed_count").key_by("key").throttle("1 h")
    with pytest.raises(PlanError, match="key_by"):
        stream.apply(Throttle(("key",), "1 h"))
    with pytest.raises(PlanError, match="only added"):
        Throttle(("key",), "1 h").changes(Changes(None))
