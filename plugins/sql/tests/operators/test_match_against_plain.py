"""The compiled matcher gives what the plain one gives: random patterns, conditions and measures over random rows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, Tick, Watermark
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError
from headrace_sql.compiling.pattern_groups import program
from headrace_sql.operators import match_keys
from headrace_sql.operators.match_operator import MatchRecognize, PatternPart
from headrace_sql.operators.match_values import Node
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import examples, one_in
from tests.sql.plain_match import PlainMatch

QUEUE = Queue("q")
SCHEMA = Schema(
    {"k": pl.String(), "v": pl.Int64(), "f": pl.Float64(), "d": pl.Decimal(10, 2), "s": pl.String(), "b": pl.Boolean(),
     "n": pl.Int32(), "ts": pl.Datetime("us")}
)  # fmt: skip
ZERO = datetime(2024, 1, 1)
NUMBERS, TIMES = ("v", "f", "d", "n"), ("ts",)
COMPARED = (">", ">=", "<", "<=", "=", "<>")
AGGREGATES = ("LAST", "LAST", "LAST", "FIRST", "SUM", "AVG", "MIN", "MAX", "COUNT")
#: What a measure may be, and its type.
MEASURES: list[tuple[Node, pl.DataType]] = [
    (("FIRST", None, "v", 0), pl.Int64()), (("LAST", "A", "s", 1), pl.String()), (("COUNT", "B", None, 0), pl.Int64()),
    (("SUM", "B", "v", 0), pl.Int64()), (("AVG", "A", "f", 0), pl.Float64()), (("AVG", "A", "v", 0), pl.Int64()),
    (("MIN", None, "d", 0), pl.Decimal(10, 2)), (("AVG", None, "d", 0), pl.Decimal(38, 6)), (("LAST", "B", "ts", 0), pl.Datetime("us")),
    (("FIRST", "A", "ts", 0), pl.Datetime("us")), (("MAX", None, "ts", 0), pl.Datetime("us")), (("COUNT", "C", "f", 0), pl.Int64()),
    (("-", ("LAST", None, "v", 0), ("FIRST", "A", "v", 0)), pl.Int64()), (("SUM", "A", "d", 0), pl.Decimal(38, 2)),
    (("case", (">", ("COUNT", None, None, 0), ("value", 2)), ("value", "long"), ("value", "short")), pl.String()),
    (("case", ("null", ("LAST", "B", "d", 0)), ("value", 0), ("LAST", "B", "d", 0)), pl.Decimal(10, 2)),
    (("call", "a + b", {"a": pl.Int64(), "b": pl.Int64()}, ("FIRST", "A", "v", 0), ("LAST", "B", "v", 0)), pl.Int64()),
    (("and", ("null", ("LAST", "C", "v", 0)), ("LAST", None, "b", 0)), pl.Boolean()),
]  # fmt: skip


class Made:
    """A random query and random rows. ``variables`` may stand in conditions."""

    def __init__(self, seed: int, *, alone: bool = False) -> None:
        self.random = random.Random(seed)
        #: Whether conditions look at one row alone, and no time ends a match.
        self.alone = alone
        self.variables: list[str] = []

    def spec(self) -> MatchRecognize:
        choice = self.random.choice
        skips = [("PAST LAST ROW", ""), ("TO NEXT ROW", ""), ("TO FIRST", "B"), ("TO LAST", "B"), ("TO LAST", "A")]
        groups = program(self.text(), str, ValueError) if self.random.random() < 0.4 else None
        pattern = self.parts() if groups is None else tuple(PatternPart(each, 1, 1) for each in groups.variables)
        self.variables = [part.variable for part in pattern]
        measures = {
            f"m{number}": each for number, each in enumerate(self.random.sample(MEASURES, self.random.randrange(1, 6)))
        }
        defined = [name for name in self.variables if self.random.random() < 0.85]
        return MatchRecognize(
            keys=choice([("k",), ("k",), (), ("k", "b")]), on=choice(["ts", "ts", "ts", None]), order=choice([(), ("v",)]),
            pattern=pattern, definitions={name: self.condition(name, 3) for name in defined},
            measures={name: node for name, (node, _) in measures.items()}, types={name: kind for name, (_, kind) in measures.items()},
            skip=choice([each for each in skips if not each[1] or each[1] in self.variables]),
            within_us=None if self.alone else choice([None, None, 2_000_000, 5_000_000]), program=groups,
        )  # fmt: skip

    def parts(self) -> tuple[PatternPart, ...]:
        quantifiers = [(1, 1), (1, 1), (0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None), (0, 2)]
        made = []
        for name in "ABCD"[: self.random.randrange(1, 5)]:
            least, most = self.random.choice(quantifiers)
            greedy = (least, most) == (0, 1) or least == most or self.random.random() < 0.7
            made.append(PatternPart(name, least, most, greedy))
        if all(part.least == 0 for part in made):
            made[0] = PatternPart("A", 1, None, made[0].greedy)
        if made[-1].most is None and made[-1].greedy:
            made[-1] = PatternPart(made[-1].variable, 1, 1)
        return tuple(made)

    def text(self, depth: int = 3) -> str:
        """Return a pattern with groups that matches a row at least: "?" and "*" stand behind others only."""
        if depth == 0 or self.random.random() < 0.2:
            return self.random.choice("ABCD")
        several = [self.text(depth - 1) for _ in range(2)]
        if self.random.random() < 0.4:
            return f"({' | '.join(several)})"
        return f"({several[0]}{self.random.choice(['', '+', '{1,2}', '+?'])} {several[1]}{self.random.choice(['', '*', '?', '*?'])})"

    def condition(self, mine: str, depth: int) -> Node:
        pick = self.random.random()
        if depth and pick < 0.5:
            kind = self.random.choice(["and", "and", "or", "or", "not"])
            parts = [self.condition(mine, depth - 1) for _ in range(1 if kind == "not" else 2)]
            return (kind, *parts)
        if pick < 0.6:
            return ("null", self.leaf(mine, self.random.choice([*NUMBERS, "s", "ts"])))
        if pick < 0.66 and not self.alone:
            return ("LAST", self.random.choice([mine, "A", None]), "b", self.random.choice([0, 1]))
        compared = self.random.choice(COMPARED)
        if pick < 0.73:
            return (compared, self.plain(mine, "s"), self.random.choice([("value", "b"), self.plain(mine, "s")]))
        if pick < 0.78:
            return (compared, self.plain(mine, "ts"), self.plain(mine, "ts"))
        return (compared, self.number(mine, 1), self.number(mine, 1))

    def number(self, mine: str, depth: int) -> Node:
        pick = self.random.random()
        if depth and pick < 0.2:
            return (self.random.choice("+-*"), self.number(mine, depth - 1), self.number(mine, depth - 1))
        if depth and pick < 0.25:
            return ("/", self.number(mine, depth - 1), ("value", 2))
        if pick < 0.3:
            return ("call", "0.5", {})
        return ("value", self.random.randrange(10)) if pick < 0.5 else self.leaf(mine, self.random.choice(NUMBERS))

    def leaf(self, mine: str, column: str) -> Node:
        if self.alone:
            return self.plain(mine, column)
        kind = self.random.choice(AGGREGATES)
        if kind not in ("LAST", "FIRST"):
            if kind == "COUNT" and self.random.random() < 0.5:
                return (kind, self.random.choice([mine, *self.variables, None]), None, 0)
            if kind == "COUNT" or column in NUMBERS:
                return (kind, self.random.choice([mine, *self.variables, None]), column, 0)
        return self.plain(mine, column)

    def plain(self, mine: str, column: str) -> Node:
        if self.alone:
            return ("LAST", self.random.choice([mine, None]), column, 0)
        kind, variable = (
            self.random.choice(["LAST", "LAST", "FIRST"]),
            self.random.choice([mine, mine, *self.variables, None]),
        )
        return (kind, variable, column, self.random.choice([0, 0, 0, 1, 2]))

    def frame(self, size: int, now_s: int) -> tuple[pl.DataFrame, int]:
        rows = []
        for _ in range(size):
            now_s += self.random.choice([0, 0, 1, 1, 2, 4])
            early = self.random.choice([0, 0, 0, 1, 3])
            values: dict[str, list[Any]] = {
                "k": ["p", "p", "q", None], "v": [None, *range(9)], "f": [None, float("nan"), 0.5, 1.5, 4.0, 7.25],
                "d": [None, Decimal("0.50"), Decimal("4.00")], "s": [None, "a", "b", "c"], "b": [None, True, False],
                "n": [None, *range(5)], "ts": [ZERO + timedelta(seconds=now_s - early)],
            }  # fmt: skip
            rows.append({name: self.random.choice(each) for name, each in values.items()})
        mark = pl.lit(None, dtype=pl.Int64).alias(WATERMARK)
        return pl.DataFrame(rows, schema=dict(SCHEMA)).with_columns(mark), now_s


def told(results: Any) -> tuple[Counter[str], list[int], list[int]]:
    """Return the rows, the least watermark of each batch of results, and the watermarks that are passed on."""
    rows: Counter[str] = Counter()
    marks, passed = [], []
    for each in results:
        if isinstance(each, Watermark):
            passed.append(each.time_us)
            continue
        assert each.frame[WATERMARK].is_sorted() if WATERMARK in each.frame.columns else True
        marks.append(each.frame[WATERMARK].min() if WATERMARK in each.frame.columns else 0)
        rows.update(map(repr, each.frame.drop(WATERMARK, strict=False).rows()))
    return rows, marks, passed


def _given(operator: Any, message: Batch | Watermark | Tick | EndOfInput) -> Any:
    return operator.process(message) if isinstance(message, Batch) else operator.on_system(message)


def _expect_too_many_ways(operator: Any, message: Batch | Watermark | Tick | EndOfInput, alone: bool) -> None:
    if not alone:  # where ways are followed by their state, those in one state are one way
        with pytest.raises(DataError, match="in more than"):
            told(_given(operator, message))


def check(seed: int, *, alone: bool = False) -> int:
    """Compare both over the steps of one case; return the number of matches."""
    made = Made(seed, alone=alone)
    spec = made.spec()
    plain, operator = PlainMatch(spec, SCHEMA), spec.open(SCHEMA)
    restores, now_s, count = made.random.random() < 0.3, 10, 0
    for _ in range(made.random.randrange(1, 6)):
        frame, now_s = made.frame(made.random.choice([1, 1, 3, 8, 15]), now_s)
        time_us = int((ZERO + timedelta(seconds=now_s - 2) - datetime(1970, 1, 1)).total_seconds()) * 1_000_000
        mark = Watermark(QUEUE, time_us) if spec.on else Tick(time_us)
        for message in (Batch(QUEUE, frame), mark):
            try:
                wanted = told(_given(plain, message))
            except DataError:
                _expect_too_many_ways(operator, message, alone)
                return count
            found = told(_given(operator, message))
            assert found == wanted, (seed, spec.describe(), spec.definitions)
            count += wanted[0].total()
        if restores and spec.on:
            state = operator.snapshot()
            operator = spec.open(SCHEMA)
            operator.apply(state)
            operator._told = plain._told  # type: ignore[attr-defined]  # a job that starts again gives it again
    try:
        wanted = told(plain.on_system(EndOfInput()))
    except DataError:
        _expect_too_many_ways(operator, EndOfInput(), alone)
        return count
    found = told(operator.on_system(EndOfInput()))
    assert found == wanted, (seed, spec.describe(), spec.definitions)
    return count + wanted[0].total()


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**40))
@example(4866145)  # too many ways at the end of the input
@example(2960)  # conditions on a column with one value in all rows, which polars makes one row of
def test_what_is_given_is_that_of_the_plain_matcher(seed: int) -> None:
    check(seed)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_keys, "ROWS_WALKED_IN_VAIN", 1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("block", one_in(4, range(4)))
def test_states_that_lead_to_no_match_are_left_out(block: int) -> None:
    assert sum(check(seed, alone=True) > 0 for seed in range(block * 100, block * 100 + 100)) > 20


def test_the_random_cases_have_matches() -> None:
    assert sum(check(seed) > 0 for seed in range(60)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_random_cases(block: int) -> None:
    for seed in range(block * 1_000, block * 1_000 + 1_000):
        check(seed)
