"""MATCH_RECOGNIZE against a plain reference: random patterns over random rows, in any batches, stored and restored at any place."""

# ruff: noqa: S608, E501  # texts are put together from constants

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import WATERMARK, Batch, EndOfInput, Queue, Watermark
from headrace.flow.schema import Schema
from headrace.plan.graph import OperatorNode
from headrace_sql.operators.match_operator import MatchRecognize
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

SCHEMA = Schema({"k": pl.String(), "v": pl.Int64(), "ts": pl.Datetime("us")})
QUEUE = Queue("q")
#: Conditions in SQL and in Python; ``rows`` are the rows of each variable so far, the row at hand the last of its own.
Rows = dict[str, list[int]]
CONDITIONS: dict[str, tuple[str, Callable[[str, Rows], bool | None]]] = {
    "high": ("{0}.v > 4", lambda mine, rows: rows[mine][-1] > 4),
    "low": ("{0}.v < 4", lambda mine, rows: rows[mine][-1] < 4),
    "above the first": ("{0}.v > A.v - 2", lambda mine, rows: rows[mine][-1] > rows["A"][-1] - 2),
    "below the first": ("{0}.v < A.v - 2", lambda mine, rows: rows[mine][-1] < rows["A"][-1] - 2),
    "rising": ("LAST({0}.v, 1) IS NULL OR {0}.v > LAST({0}.v, 1)", lambda mine, rows: len(rows[mine]) < 2 or rows[mine][-1] > rows[mine][-2]),
    "small sum": ("SUM({0}.v) < 12", lambda mine, rows: sum(rows[mine]) < 12),
}  # fmt: skip
QUANTIFIERS = {
    "": (1, 1, True), "*": (0, None, True), "+": (1, None, True), "?": (0, 1, True), "{2}": (2, 2, True), "{1,3}": (1, 3, True),
    "*?": (0, None, False), "+?": (1, None, False),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A pattern: for each variable its quantifier and condition (None: not defined, which is always true)."""

    quantifiers: tuple[str, ...]
    conditions: tuple[str | None, ...]
    skip: str
    within_s: int | None

    @property
    def variables(self) -> str:
        return "ABCD"[: len(self.quantifiers)]

    def text(self) -> str:
        """The query."""
        last = self.variables[-1]
        pattern = " ".join(name + quantifier for name, quantifier in zip(self.variables, self.quantifiers, strict=True))
        defined = zip(self.variables, self.conditions, strict=True)
        define = ", ".join(
            f"{name} AS {CONDITIONS[each][0].format(name)}" for name, each in defined if each is not None
        )
        within = f" WITHIN INTERVAL '{self.within_s}' SECOND" if self.within_s else ""
        measures = ", ".join(f"COUNT({name}.v) AS n{name}, SUM({name}.v) AS s{name}" for name in self.variables)
        skip = self.skip.replace("LAST X", f"LAST {last}").replace("FIRST X", f"FIRST {last}")
        return (
            f"SELECT * FROM m MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(A.ts) AS begin_ts, {measures} "
            f"AFTER MATCH SKIP {skip} PATTERN ({pattern}){within}{' DEFINE ' + define if define else ''})"
        )


Event = tuple[int, int]  # (seconds, value)
Match = list[tuple[str, int]]  # (variable, place of the row), in the order of the rows


def reference(case: Case, rows: Sequence[Event]) -> list[Match]:
    """Return the matches of one key: from each row on the first match that comes to its end, then the row after it or the skip."""
    found: list[Match] = []
    first_allowed = 0
    for start in range(len(rows)):
        if start < first_allowed:
            continue
        match, is_open = _first_match(case, rows, start)
        if is_open:
            return found  # what begins later waits for it, and it never ends
        if match is not None:
            found.append(match)
            first_allowed = max(start + 1, _next(case, match))
    return found


def _first_match(case: Case, rows: Sequence[Event], start: int) -> tuple[Match | None, bool]:
    """Return the match from a row on that is complete first, or whether one from there is under way for ever."""
    open_ones: list[Match] = [[]]
    for place in range(start, len(rows)):
        if case.within_s and rows[place][0] - rows[start][0] >= case.within_s:
            return None, False
        grown = [one for each in open_ones for one in _with_row(case, rows, each, place)]
        for each in grown:
            if _is_complete(case, each):
                return each, False
        open_ones = grown
        if not open_ones:
            return None, False
    return None, not case.within_s


def _with_row(case: Case, rows: Sequence[Event], match: Match, place: int) -> list[Match]:
    """Return the matches that a row makes of one: for the variable at hand, or one behind it that may follow."""
    at = case.variables.index(match[-1][0]) if match else 0
    made: list[Match] = []
    for index in range(at, len(case.variables)):
        name = case.variables[index]
        least, most, greedy = QUANTIFIERS[case.quantifiers[index]]
        count = sum(1 for each, _ in match if each == name)
        grown = [*match, (name, place)]
        fits = _fits(case, rows, grown)
        if fits and (most is None or count < most):
            made.append(grown)
        if fits and greedy and case.quantifiers[index] not in ("", "?", "{2}"):
            return made  # a greedy variable leaves nothing of what it can take
        if count < least:
            return made
    return made


def _fits(case: Case, rows: Sequence[Event], match: Match) -> bool:
    name = match[-1][0]
    condition = case.conditions[case.variables.index(name)]
    if condition is None:
        return True
    of_each = {other: [rows[place][1] for each, place in match if each == other] for other in case.variables}
    return CONDITIONS[condition][1](name, of_each) is True


def _is_complete(case: Case, match: Match) -> bool:
    at = case.variables.index(match[-1][0])
    least, most, greedy = QUANTIFIERS[case.quantifiers[at]]
    count = sum(1 for each, _ in match if each == match[-1][0])
    behind = [QUANTIFIERS[each][0] for each in case.quantifiers[at + 1 :]]
    if count < least or any(behind):
        return False
    return bool(behind) or not greedy or count == most


def _next(case: Case, match: Match) -> int:
    """Return the first row at which another match may begin."""
    if case.skip == "PAST LAST ROW":
        return match[-1][1] + 1
    places = [place for name, place in match if name == case.variables[-1]]
    if case.skip == "TO NEXT ROW" or not places:
        return match[0][1] + 1
    return places[0 if case.skip == "TO FIRST X" else -1]


def measured(case: Case, key: str, rows: Sequence[Event], match: Match) -> tuple[Any, ...]:
    """Return the row that a match gives."""
    row: list[Any] = [key, next((rows[place][0] for name, place in match if name == "A"), None)]
    for name in case.variables:
        values = [rows[place][1] for each, place in match if each == name]
        row += [len(values), sum(values) if values else None]
    return tuple(row)


def spec_of(case: Case) -> MatchRecognize:
    """Return the operator of the query, compiled."""
    nodes = hr.sql(case.text()).plan().of_kind(OperatorNode).values()
    return next(node.spec for node in nodes if isinstance(node.spec, MatchRecognize))


def driven(
    spec: MatchRecognize, rows: Sequence[tuple[str, int, int]], sizes: Sequence[int], restores: bool
) -> Counter[Any]:
    """Return what the operator gives for rows of (key, seconds, value) in batches; each row's time is the watermark behind it."""
    operator = spec.open(SCHEMA)
    stored: list[bytes] = []
    found: Counter[Any] = Counter()

    def take(results: Any) -> None:
        for batch in (each for each in results if not isinstance(each, Watermark)):
            frame = batch.frame.with_columns(pl.col("begin_ts").dt.epoch("s"))
            marks = batch.frame[WATERMARK].to_list()
            assert marks == sorted(marks)
            found.update(frame.drop(WATERMARK).rows())

    place, turn = 0, 0
    while place < len(rows):
        piece = rows[place : place + sizes[turn % len(sizes)]]
        place, turn = place + len(piece), turn + 1
        frame = pl.DataFrame(
            {"k": [k for k, _, _ in piece], "v": [v for _, _, v in piece], "ts": [s * 1_000_000 for _, s, _ in piece]},
            schema={"k": pl.String, "v": pl.Int64, "ts": pl.Int64},
        ).with_columns(pl.col("ts").cast(pl.Datetime("us")), pl.lit(None, dtype=pl.Int64).alias(WATERMARK))
        take(operator.process(Batch(QUEUE, frame)))
        take(operator.on_system(Watermark(QUEUE, piece[-1][1] * 1_000_000)))
        if restores:
            stored.append(operator.delta())
            operator = spec.open(SCHEMA)
            for state in stored:
                if state:
                    operator.apply(state)
    take(operator.on_system(EndOfInput()))
    return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    length = draw(st.integers(2, 4))
    last = draw(st.sampled_from(["", "?", "*?", "+?", "{2}"]))
    middle = draw(st.lists(st.sampled_from(sorted(QUANTIFIERS)), min_size=length - 1, max_size=length - 1))
    middle[0] = draw(st.sampled_from(["", "", "+", "{2}"]))  # a match has a first row
    names = st.sampled_from([None, *CONDITIONS])
    first = draw(st.sampled_from([None, "high", "low", "small sum"]))
    conditions = (first, *(draw(names) for _ in range(length - 1)))
    skips = ["PAST LAST ROW", "TO NEXT ROW", "TO LAST X", "TO FIRST X"]
    return Case((*middle, last), conditions, draw(st.sampled_from(skips)), draw(st.sampled_from([None, 2, 3, 5])))


ROWS = st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from([0, 0, 1, 1, 2, 4]), st.integers(1, 8)), max_size=25)


@pytest.fixture
def table(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("match") / "m.ndjson"
    path.write_text("")
    hr.sql(
        "CREATE TABLE m (k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', "
        f"'path' = '{path}', 'format' = 'json')"
    )


def check(case: Case, steps: Sequence[tuple[str, int, int]], sizes: Sequence[int], restores: bool) -> None:
    rows, now = [], 0
    for key, step, value in steps:
        now += step
        rows.append((key, now, value))
    expected: Counter[Any] = Counter()
    for key in "pq":
        own = [(second, value) for mine, second, value in rows if mine == key]
        expected.update(measured(case, key, own, match) for match in reference(case, own))
    assert driven(spec_of(case), rows, sizes, restores) == expected, case.text()


# Nexmark's third query for patterns, and others of which matches waited for one that had begun before and never ended.
DROP = (("", "*", ""), (None, "above the first", "below the first"))


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("skip", ["PAST LAST ROW", "TO NEXT ROW", "TO LAST X", "TO FIRST X"])
def test_a_match_is_given_when_the_one_before_it_ends_by_within(skip: str) -> None:
    case = Case(*DROP, skip, 5)
    steps = [("p", 0, 3), ("p", 1, 8), ("p", 1, 2), ("q", 100, 1)]
    check(case, steps, [1], False)
    check(case, steps[:3], [1], False)  # the end of the input ends it too
    assert sum(driven(spec_of(case), [("p", 0, 3), ("p", 1, 8), ("p", 2, 2)], [1], False).values()) == 1


@pytest.mark.usefixtures("table")
@given(case=cases(), steps=ROWS, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), restores=st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_any_pattern_gives_what_the_reference_gives(
    case: Case, steps: list[tuple[str, int, int]], sizes: list[int], restores: bool
) -> None:
    check(case, steps, sizes, restores)


@pytest.mark.usefixtures("table")
def test_keys_without_matches_under_way_are_forgotten() -> None:
    spec = spec_of(Case(*DROP, "PAST LAST ROW", 5))
    operator: Any = spec.open(SCHEMA)
    for number in range(50):
        frame = pl.DataFrame({"k": [f"k{number}"], "v": [3], "ts": [number * 1_000_000]}).with_columns(
            pl.col("ts").cast(pl.Datetime("us")), pl.lit(None, dtype=pl.Int64).alias(WATERMARK)
        )
        list(operator.process(Batch(QUEUE, frame)))
        list(operator.on_system(Watermark(QUEUE, number * 1_000_000)))
    assert operator.state_rows() < 12
