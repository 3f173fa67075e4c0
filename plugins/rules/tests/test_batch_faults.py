"""A batch that polars cannot take as a whole: each rule is asked by itself, and gives what it gives row by row."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from headrace.foundation.errors import DataError
from headrace_columnar.expressions import evaluate_all
from headrace_rules import verification
from headrace_rules.trigger_plan import TriggerPlan
from rules_world import SCHEMA, engine_of, of_engine, plainly

TEXTS = [
    "a LIKE '%foo%' AND b LIKE '%bar%'",
    "a LIKE '%foo%' AND length(b) > 3",
    "n = 1 AND a RLIKE 'fo+'",
    "length(a) > 3",
    "n <> 1",
]
FRAME = pl.DataFrame(
    [
        {"a": "a foo", "b": "a bar", "n": 1},
        {"a": "foo", "b": None, "n": 1},
        {"a": None, "b": "bar", "n": 2},
        {"a": "foobar", "b": "foobar", "n": None},
    ],
    schema={"a": pl.String, "b": pl.String, "n": pl.Int64},
)
for name, data_type in SCHEMA.items():
    if name not in FRAME.columns:
        FRAME = FRAME.with_columns(pl.lit(None, dtype=data_type).alias(name))
FRAME = FRAME.select(list(SCHEMA))


@pytest.mark.parametrize("place", ["_evaluate_together", "_places", "candidates"])
def test_a_panic_in_what_rules_share(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def panics(*arguments: Any) -> Any:
        called.append(place)
        raise pl.exceptions.PanicException("index out of bounds")

    wanted = plainly(TEXTS, FRAME)
    monkeypatch.setattr(TriggerPlan if place == "candidates" else verification, place, panics)
    engine = engine_of(TEXTS, FRAME)
    engine.use_triggers()  # not those that a handful of rows would choose
    assert of_engine(engine, FRAME) == wanted
    assert called


def test_a_row_that_one_rule_cannot_take_is_still_matched_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules without a trigger are evaluated together; a row that fails there comes back blank."""

    def fails_at_the_first_row(compiled: Any, frame: pl.DataFrame) -> Any:
        found, _ = evaluate_all(compiled, frame)
        is_first = pl.int_range(pl.len()) == 0
        return found.with_columns(pl.when(is_first).then(False).otherwise(pl.all()).name.keep()), [
            (0, DataError("panic"))
        ]

    wanted = plainly(TEXTS, FRAME)
    monkeypatch.setattr(verification, "evaluate_all", fails_at_the_first_row)
    assert of_engine(engine_of(TEXTS, FRAME), FRAME) == wanted
