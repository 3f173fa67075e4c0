"""Second opinions on the outermost operation of an expression, given the values of its operands.

``expression_references`` says in plain Python what many operations mean; DuckDB computes those that it has with the same
meaning. Neither shares code with headrace-columnar.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import duckdb
import polars as pl
from headrace_columnar.expressions import compile_expression, evaluate

from tests.differential.expression_checks import Difference, Outcome
from tests.differential.expression_references import FAILS, REFERENCES, SKIP
from tests.differential.expression_trees import SCHEMA, Part
from tests.differential.oracle import _connection

#: Calls that mean the same in DuckDB: text with ``?`` for the operands, and the types of these.
_DOUBLE, _TEXT, _DATE = ("DOUBLE",), ("VARCHAR",), ("DATE",)
DUCKDB: dict[str, tuple[str, tuple[str, ...]]] = {
    **{name: (f"{name}(?)", _DOUBLE) for name in ("cbrt", "exp", "atan", "sinh", "cosh", "tanh", "degrees", "radians")},
    "sqrt": ("CASE WHEN ? < 0 THEN 'NaN'::DOUBLE ELSE sqrt(?) END", _DOUBLE),
    "upper": ("upper(?)", _TEXT), "lower": ("lower(?)", _TEXT), "md5": ("md5(?)", _TEXT), "sha256": ("sha256(?)", _TEXT),
    "length": ("length(?)", _TEXT), "last_day": ("last_day(?)", _DATE), "year": ("year(?)", _DATE), "month": ("month(?)", _DATE),
    "quarter": ("quarter(?)", _DATE), "dayofyear": ("dayofyear(?)", _DATE), "dayofmonth": ("day(?)", _DATE),
    "datediff": ("-date_diff('day', ?, ?)", ("DATE", "DATE")), "bit_count": ("bit_count(?)", ("BIGINT",)),
    "atan2": ("atan2(?, ?)", ("DOUBLE", "DOUBLE")), "starts_with": ("starts_with(?, ?)", ("VARCHAR", "VARCHAR")),
    "to_base64": ("to_base64(encode(?))", _TEXT),
}  # fmt: skip
_POLARS_TYPES = {"DOUBLE": pl.Float64, "VARCHAR": pl.String, "DATE": pl.Date, "BIGINT": pl.Int64}


def check(part: Part, frame: pl.DataFrame, outcomes: Sequence[Outcome]) -> None:
    """Compare the outcomes with what the oracles say. Raises Difference."""
    if part.operation in REFERENCES:
        _by_reference(part, frame, outcomes)
    if part.operation in DUCKDB:
        _by_duckdb(part, frame, outcomes)


def _operands(part: Part, frame: pl.DataFrame) -> tuple[list[list[Any]], set[int], list[pl.DataType]] | None:
    """Return the columns of the operands, the rows in which one of them fails, and their types."""
    columns: list[list[Any]] = []
    failed: set[int] = set()
    kinds: list[pl.DataType] = []
    for argument in part.arguments:
        if isinstance(argument, str):
            if argument == "NULL":
                return None
            constant = argument[1:-1] if argument.startswith("'") else _number(argument)
            columns.append([constant] * frame.height)
            kinds.append(pl.String() if argument.startswith("'") else pl.Null())
            continue
        compiled = compile_expression(argument.text(), SCHEMA)
        if not compiled.deterministic:
            return None
        values, failures = evaluate(compiled, frame)
        columns.append(values.to_list())
        failed |= {row for row, _ in failures}
        kinds.append(compiled.data_type)
    return columns, failed, kinds


def _number(text: str) -> Any:
    return {"true": True, "false": False}[text] if text in ("true", "false") else int(text)


def _by_reference(part: Part, frame: pl.DataFrame, outcomes: Sequence[Outcome]) -> None:
    found = _operands(part, frame)
    if found is None:
        return
    columns, failed, kinds = found
    reference = REFERENCES[part.operation]
    for row, outcome in enumerate(outcomes):
        if row in failed:
            continue
        wanted = reference(kinds, part.data_type, *(column[row] for column in columns))
        if wanted is SKIP:
            continue
        if wanted is FAILS:
            same = outcome[0] == "fails"
        else:
            same = outcome == ("value", repr(wanted)) or (outcome[0] == "value" and _equal(wanted, outcome[1]))
        if not same:
            shown = "fails" if wanted is FAILS else repr(wanted)
            raise Difference("plain Python", part.text(), [frame.row(row, named=True)], str(outcome), shown)


def _equal(wanted: Any, found: str) -> bool:
    """Decimals are equal whatever their scale, and 0.0 is -0.0 here."""
    if isinstance(wanted, float):
        return found == repr(wanted + 0.0)
    if hasattr(wanted, "as_tuple"):
        return found.startswith("Decimal") and type(wanted)(found[9:-2]) == wanted
    return False


def _by_duckdb(part: Part, frame: pl.DataFrame, outcomes: Sequence[Outcome]) -> None:
    text, kinds = DUCKDB[part.operation]
    found = _operands(part, frame)
    if found is None or [type(kind) for kind in found[2]] != [_POLARS_TYPES[kind] for kind in kinds]:
        return
    columns, failed, _ = found
    for row, outcome in enumerate(outcomes):
        given = [column[row] for column in columns]
        if row in failed or None in given or any(isinstance(one, float) and not math.isfinite(one) for one in given):
            continue
        if part.operation in ("upper", "lower") and not given[0].isascii():
            continue  # other rules of Unicode for letters that become several
        parameters = given * (text.count("?") // len(given))
        casts = text
        for kind in kinds * (text.count("?") // len(given)):
            casts = casts.replace("?", f"CAST($ AS {kind})", 1)
        for number in range(1, len(parameters) + 1):
            casts = casts.replace("$ ", f"${number} ", 1)
        try:
            answer = _connection().execute(f"SELECT {casts}", parameters).fetchall()[0][0]
        except duckdb.OutOfRangeException:
            continue
        if outcome[0] != "value" or not _near(outcome[1], answer):
            raise Difference("DuckDB", part.text(), [frame.row(row, named=True)], str(outcome), repr(answer))


def _near(found: str, wanted: Any) -> bool:
    if isinstance(wanted, float):
        made = (
            {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}.get(found)
            if found.isalpha() or found == "-inf"
            else float(found)
        )
        assert made is not None
        return made == wanted or (made != made and wanted != wanted) or math.isclose(made, wanted, rel_tol=1e-12)
    return found == repr(wanted)
