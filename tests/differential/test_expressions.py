"""720 random expressions: no value depends on other rows, no constant differs from its column, the oracles agree.

More: ``python -m tests.differential.expression_family --seeds 0:20000``.
"""

from __future__ import annotations

import random
from dataclasses import replace

import polars as pl
import pytest
from headrace_columnar.expressions import compile_expression

from tests.differential import expression_values as values
from tests.differential.expression_checks import Difference, check
from tests.differential.expression_family import EXPRESSIONS, case_of, differences, shrunk
from tests.differential.expression_references import REFERENCES
from tests.differential.expression_trees import SCHEMA, Part, column
from tests.effort import examples

SEEDS, PART = examples(60), 10


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_nothing_differs(first: int) -> None:
    for seed in range(first, first + PART):
        found = [str(each) for each in differences(case_of(random.Random(seed), seed, EXPRESSIONS))]
        assert found == [], f"seed {seed}\n" + "\n".join(found)


def test_a_wrong_answer_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REFERENCES, "length", lambda kinds, result, text: None if text is None else len(text) + 1)
    length = Part("length({s})", pl.Int64(), frozenset("s"), "length", (column("s"),), (column("s"),))
    whole = Part("abs(length({s}))", pl.Int64(), frozenset("s"), "abs", (length,), (length,))
    frame = values.rows(random.Random(1), 8, {"s"})
    found = shrunk(whole, frame, 1)
    assert found is not None
    assert (found.relation, found.text, len(found.rows)) == ("plain Python", "length(s)", 1)


def test_a_value_that_depends_on_other_rows_is_found() -> None:
    part = column("i")
    compiled = compile_expression("i + 0", SCHEMA)
    summed = replace(compiled, staged=compiled.staged.sum())
    with pytest.raises(Difference, match="row by row"):
        check(part, summed, values.rows(random.Random(1), 8, {"i"}), random.Random(1))
