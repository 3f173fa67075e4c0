"""Every example of the function table is run: on constants, and again on columns with other rows around it."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace_columnar import dialect, function_docs, registry
from headrace_columnar.expressions import compile_expression, evaluate
from headrace_columnar.registry import Function
from sqlglot import exp

EXAMPLES = [
    pytest.param(function, sql, answer, id=sql)
    for function in registry.load().values()
    for sql, answer in function.examples
]


def same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return isinstance(got, float) and got == pytest.approx(wanted)
    if isinstance(wanted, Decimal) or isinstance(got, Decimal):
        return got is not None and wanted is not None and Decimal(str(got)) == Decimal(str(wanted))
    return bool(got == wanted) and (got is None) == (wanted is None)


@pytest.mark.parametrize(("function", "sql", "answer"), EXAMPLES)
def test_example_on_constants(function: Function, sql: str, answer: Any) -> None:
    compiled = compile_expression(sql, Schema({}))
    series, failures = evaluate(compiled, pl.DataFrame({"other": [1, 2]}))

    assert failures == []
    assert series.dtype == compiled.data_type
    assert len(series) == 2
    assert all(same(value, answer) for value in series.to_list()), series.to_list()


def in_columns(function: Function, sql: str) -> tuple[str, dict[str, Any]] | None:
    """Put a column in the place of each text or number that need not be constant; None if there is none."""
    replaced: list[tuple[int, int, Any]] = []
    for node in dialect.parse(sql).find_all(exp.Literal):
        parent = node.parent
        if not isinstance(parent, exp.Anonymous | exp.Trim | exp.Substring | exp.StrPosition | exp.Overlay):
            continue
        if isinstance(parent, exp.Anonymous):
            declared = registry.find(str(parent.this))
            assert declared is not None
            index = next(place for place, one in enumerate(parent.expressions) if one is node)
            signatures = [one for one in declared.signatures if one.takes(len(parent.expressions))]
            if any(one.parameter(index).constant for one in signatures) or declared.name in (
                "json_object",
                "named_struct",
                "typeof",
            ):
                continue
            if declared.name == "array_join" and index == 2:
                continue
        value = node.this if node.is_string else (float(node.this) if "e" in node.this else Decimal(node.this))
        if isinstance(value, Decimal) and "." not in node.this:
            value = int(value)
        replaced.append((node.meta["start"], node.meta["end"] + 1, value))
    columns: dict[str, Any] = {}
    for start, end, value in sorted(replaced, reverse=True):
        name = f"c{start}"
        columns[name] = value
        sql = sql[:start] + name + sql[end:]
    return (sql, columns) if columns else None


@pytest.mark.parametrize(("function", "sql", "answer"), EXAMPLES)
def test_example_on_columns(function: Function, sql: str, answer: Any) -> None:
    """Constants and columns take different ways through many builders; both must give the answer, in every row."""
    found = in_columns(function, sql)
    if found is None:
        pytest.skip("nothing in it can be a column")
    text, columns = found
    frame = pl.DataFrame({name: pl.Series([value, None, value, None]) for name, value in columns.items()})

    compiled = compile_expression(text, Schema(dict(frame.schema)))
    series, failures = evaluate(compiled, frame)

    assert failures == []
    assert series.dtype == compiled.data_type
    values = series.to_list()
    assert same(values[0], answer), text
    assert same(values[2], answer), text
    assert evaluate(compiled, frame.clear())[0].to_list() == []
    for row in range(4):
        alone, _ = evaluate(compiled, frame[row : row + 1])
        if compiled.deterministic:
            assert alone.to_list() == values[row : row + 1], "the result depends on the other rows of the batch"


@pytest.mark.parametrize(("function", "sql", "answer"), EXAMPLES)
def test_null_in_null_out(function: Function, sql: str, answer: Any) -> None:
    found = in_columns(function, sql)
    called = [registry.find(str(node.this)) for node in dialect.parse(sql).find_all(exp.Anonymous)]
    answers = any(one is not None and one.answers_null for one in called)
    if found is None or answers or not function.deterministic:
        pytest.skip("has an answer for NULL, or no argument that can be NULL")
    text, columns = found
    for absent in columns:
        frame = pl.DataFrame(
            {name: pl.Series([value, None if name == absent else value]) for name, value in columns.items()}
        )
        compiled = compile_expression(text, Schema(dict(frame.schema)))
        series, _ = evaluate(compiled, frame)
        assert series[1] is None, f"{text} where {absent} is NULL"


def test_every_function_is_documented_with_an_example() -> None:
    for function in registry.load().values():
        assert function.summary.endswith("."), function.name
        assert function.examples, function.name
        assert function.name == function.name.lower()


def test_the_committed_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[4] / "docs" / "functions.md"
    assert function_docs.main([str(page), "--check"]) == 0, capsys.readouterr().err


def test_the_check_of_the_page_can_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "functions.md"
    assert function_docs.main([str(page)]) == 0
    assert function_docs.main([str(page), "--check"]) == 0
    page.write_text(page.read_text(encoding="utf-8").replace("lower", "lowr", 1), encoding="utf-8")
    assert function_docs.main([str(page), "--check"]) == 1
    assert "out of date" in capsys.readouterr().err


def test_a_function_can_be_declared_once_only() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        registry.function("lower", signature="text string -> string", summary="x.", examples=[])(lambda call: call[0])


@pytest.mark.parametrize("text", ["text strin -> string", "string", "a b c d -> string"])
def test_a_signature_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        registry.parse_signature(text)


def test_dates_come_back_as_declared() -> None:
    frame = pl.DataFrame({"d": [datetime.date(2024, 1, 31), None]})
    compiled = compile_expression("add_months(d, 1)", Schema({"d": pl.Date()}))
    assert evaluate(compiled, frame)[0].to_list() == [datetime.date(2024, 2, 29), None]
