"""What must hold of every expression, without an oracle: a row's value, or its failure, is its own.

Each relation evaluates the same expression in another way over the same rows. ``Difference`` says which one does not hold.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar.expressions import CompiledExpression, compile_expression, evaluate

from tests.differential import expression_values as values
from tests.differential.expression_trees import SCHEMA, Part

#: What the compiler may say of constants that it may not say of columns.
_REFUSED_CONSTANTS = re.compile(
    "division by zero|cannot be read as|must not be NULL|takes too long|no group|regular expression|escape character"
    "|more than 38 digits|repetition|unclosed|look-around|is not a pattern|must be a constant|nothing to repeat|there is no part"
    "|regex|must be between|unrecognized|has no ']'|missing|is not a network"
)


@dataclass
class Difference(Exception):
    """A relation that does not hold, of the expression ``text`` over ``rows``."""

    relation: str
    text: str
    rows: list[dict[str, Any]]
    found: str
    wanted: str

    def __str__(self) -> str:
        shown = "\n".join(f"    {row}" for row in self.rows[:6])
        return f"{self.relation}: {self.text}\n  found  {self.found}\n  wanted {self.wanted}\n  rows\n{shown}"


#: A row's outcome: ``("value", …)`` in a form in which NaN equals itself and 0.0 is not -0.0, or ``("fails", reason)``.
Outcome = tuple[str, str]


def outcomes(compiled: CompiledExpression, frame: pl.DataFrame) -> list[Outcome]:
    """Evaluate, and check what holds of every result: its height, its type, NULL where a row failed."""
    series, failures = evaluate(compiled, frame)
    rows = frame.rows(named=True)
    if series.dtype != compiled.data_type:
        raise Difference("type", compiled.text, rows, str(series.dtype), str(compiled.data_type))
    if len(series) != frame.height:
        raise Difference("height", compiled.text, rows, str(len(series)), str(frame.height))
    made: list[Outcome] = [("value", repr(value)) for value in series.to_list()]
    for row, error in failures:
        if "this row cannot be evaluated" in str(error):
            raise Difference("raises within", compiled.text, [rows[row]], str(error), "a value")
        if made[row][1] != "None":
            raise Difference("failed rows are NULL", compiled.text, rows, made[row][1], "None")
        made[row] = ("fails", f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return made


def check(part: Part, compiled: CompiledExpression, frame: pl.DataFrame, chance: random.Random) -> list[Outcome]:
    """Check all relations; return the outcomes of the rows. Raises Difference."""
    whole = outcomes(compiled, frame)
    if not compiled.deterministic:
        return whole
    rows = frame.rows(named=True)

    def hold(relation: str, found: list[Outcome], wanted: list[Outcome], text: str = compiled.text) -> None:
        for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
            if one != other:
                raise Difference(relation, text, [rows[place % len(rows)]], str(one), str(other))

    alone = [outcomes(compiled, frame[row : row + 1])[0] for row in range(frame.height)]
    hold("row by row", alone, whole)
    again = outcomes(compile_expression(part.text(), SCHEMA), frame)
    hold("compiled twice", again, whole)
    order = list(range(frame.height))
    chance.shuffle(order)
    others = values.rows(chance, 5, set(frame.columns))
    mixed = outcomes(compiled, pl.concat([frame[order], others.select(frame.columns)]))
    hold("other order, other rows beside", [mixed[order.index(row)] for row in range(frame.height)], whole)
    outcomes(compiled, frame.clear())
    hold("within CASE", *_in_case(part, frame, whole, chance))
    for row in chance.sample(range(frame.height), min(3, frame.height)):
        _as_constants(part, compiled, frame, row, whole[row], chance)
    return whole


def _in_case(
    part: Part, frame: pl.DataFrame, whole: list[Outcome], chance: random.Random
) -> tuple[list[Outcome], list[Outcome]]:
    """The expression where a condition holds for some rows only: the others neither fail nor have its value."""
    asked = [chance.choice([True, False, None]) for _ in range(frame.height)]
    frame = frame.with_columns(pl.Series("asked", asked, dtype=pl.Boolean))
    schema = Schema({**SCHEMA, "asked": pl.Boolean()})
    text, null = part.text(), ("value", "None")
    forms: list[tuple[str, Callable[[bool | None, Outcome], Outcome]]] = [
        (f"CASE WHEN asked THEN {text} END", lambda given, out: out if given else null),
        (f"IF(NOT asked, NULL, {text})", lambda given, out: null if given is False else out),
    ]
    if isinstance(part.data_type, pl.Boolean):
        forms += [
            (f"asked AND {text}", functools.partial(_joined, False)),
            (f"asked OR {text}", functools.partial(_joined, True)),
        ]
    found: list[Outcome] = []
    wanted: list[Outcome] = []
    for form, meaning in forms:
        found += outcomes(compile_expression(form, schema), frame)
        wanted += [meaning(given, out) for given, out in zip(asked, whole, strict=True)]
    return found, wanted


def _joined(deciding: bool, given: bool | None, out: Outcome) -> Outcome:
    if given is deciding:
        return ("value", repr(deciding))
    if out[0] == "fails" or given is (not deciding) or out == ("value", repr(deciding)):
        return out
    return ("value", "None")


def _as_constants(
    part: Part, compiled: CompiledExpression, frame: pl.DataFrame, row: int, wanted: Outcome, chance: random.Random
) -> None:
    """The row's values as constants in the text, all of them or some: the same outcome, or refused when it is compiled."""
    given = frame.row(row, named=True)
    for share in (1.0, 0.5):
        put = {
            name: values.literal(given[name], values.SCHEMA[name]) for name in part.columns if chance.random() < share
        }
        text = part.text(put.get)
        try:
            made = compile_expression(text, SCHEMA)
        except ExpressionError as error:
            if wanted[0] == "fails" or _REFUSED_CONSTANTS.search(str(error)):
                continue
            raise Difference("constants are refused", text, [given], str(error), str(wanted)) from None
        if made.data_type != compiled.data_type:
            # A constant has the digits that it is written with, and the results of decimals theirs.
            if not {type(made.data_type), type(compiled.data_type)} & {pl.Decimal, pl.Null, pl.List, pl.Struct}:
                raise Difference("type with constants", text, [given], str(made.data_type), str(compiled.data_type))
            continue
        found = outcomes(made, frame[row : row + 1])[0]
        if "is not a pattern that a column may give" in wanted[1]:
            continue  # the job may give it
        if found != wanted and not (found[0] == wanted[0] == "fails"):
            raise Difference("as constants", text, [given], str(found), str(wanted))
