"""Jobs of 180 seeds: nothing differs. More: ``make fuzz SEEDS=10000``."""

from __future__ import annotations

import pytest

from tests.differential import sql_family
from tests.differential.choices import Choices
from tests.differential.comparing import difference, row_of
from tests.differential.families import families, problem_of
from tests.differential.kinds import FLOAT, INTS, KEY, MAP, ROW, SMALLINT, TEXT_KEY, TEXTS, TIME, TINYINT
from tests.differential.shrinking import shrunk
from tests.differential.tree import (
    Call,
    LateralQuery,
    Over,
    Quantified,
    ScalarQuery,
    Select,
    SetOperation,
    TopN,
    parts_of,
)
from tests.effort import examples

SEEDS, PART = examples(180), 15


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_nothing_differs(first: int) -> None:
    for seed in range(first, min(first + PART, SEEDS)):
        problem = problem_of(Choices.of_seed(seed))
        assert problem is None, f"seed {seed}\n{problem}\n\nmake fuzz SEEDS=={seed} shrinks it"


@pytest.mark.parametrize("name", sorted(families()))
def test_equal_choices_make_equal_cases(name: str) -> None:
    family = families()[name]
    for seed in range(20):
        choices = Choices.of_seed(seed)
        case = family.generate(choices)
        assert family.describe(case) == family.describe(family.generate(Choices.of_list(choices.made)))


def test_a_failing_case_is_shrunk() -> None:
    """Of the rows of a table, with one that is wrong, the wrong one is left."""

    def problem(choices: Choices) -> str | None:
        rows = [choices.integer(0, 1000) for _ in choices.repeat(0, 20, 90)]
        return f"rows {rows}\n\nwrong" if any(row >= 117 for row in rows) else None

    seed = next(seed for seed in range(100) if problem(Choices.of_seed(seed)))
    choices = Choices.of_seed(seed)
    problem(choices)
    made, text = shrunk(choices.made, problem)
    assert text == "rows [117]\n\nwrong", (made, text)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ((1.0,), (1,), True), ((0.0,), (-0.0,), True), ((float("nan"),), (float("nan"),), True), ((None,), (0,), False),
        ((True,), (1,), False), (("",), (None,), False), ((0.1 + 0.2,), (0.3,), True), ((0.30001,), (0.3,), False),
        ((2**63 - 1,), (2**63 - 2,), False), ((float("inf"),), (float("-inf"),), False),
    ],
)  # fmt: skip
def test_rules_of_comparing(one: tuple[object, ...], other: tuple[object, ...], equal: bool) -> None:
    from collections import Counter

    assert (difference(Counter([row_of(one)]), Counter([row_of(other)])) == "") == equal


def test_generators_make_what_they_say() -> None:
    """Each kind of column, of relation and of subquery is there in a few hundred seeds."""
    cases = [sql_family.generate(Choices.of_seed(seed)) for seed in range(600)]
    kinds = {column.kind for case in cases for table in case.tables for column in table.columns}
    assert {TINYINT, SMALLINT, FLOAT, TIME, INTS, TEXTS, KEY, TEXT_KEY, ROW, MAP} <= kinds
    parts = [part for case in cases for part in parts_of(case.query)]
    assert {Over, Quantified, TopN, SetOperation, LateralQuery, ScalarQuery} <= {type(part) for part in parts}
    selects = [part for part in parts if isinstance(part, Select)]
    assert {"", "ROLLUP", "CUBE", "GROUPING SETS"} == {select.grouping for select in selects}
    forms = {part.form for part in parts if isinstance(part, Call)}
    assert {"element", "size", "value of map", "v_minus", "float to double", "field x", "value of key"} <= forms
    frames = {part.frame for part in parts if isinstance(part, Over)}
    assert any("ROWS" in frame for frame in frames)
    assert any("RANGE" in frame for frame in frames)
