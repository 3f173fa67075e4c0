"""User functions in expressions: what they are given, which rows they fail for, where they are not called."""

from __future__ import annotations

import datetime
from typing import Any

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError, FunctionError, JobError, RetriableError
from headrace.interfaces.functions import AggregateFunction, ScalarFunction, TableFunction
from headrace_columnar.expressions import UserFunction, compile_expression, compile_predicate, evaluate, evaluate_all

SCHEMA = Schema({"a": pl.Int64(), "s": pl.String()})
FRAME = pl.DataFrame({"a": [1, 2, None, 4], "s": ["x", None, "z", "bad"]}, schema=dict(SCHEMA))


def scalar(name: str, function: Any, return_type: pl.DataType, **options: Any) -> dict[str, UserFunction]:
    return {name: ScalarFunction(name, function, return_type, **options)}


def test_a_row_function_is_given_python_values_and_none_for_null() -> None:
    seen: list[tuple[Any, ...]] = []

    def both(a: int | None, s: str | None) -> str:
        seen.append((a, s))
        return f"{a}{s}"

    compiled = compile_expression("upper(BOTH(a + 1, s))", SCHEMA, scalar("Both", both, pl.String()))
    series, failures = evaluate(compiled, FRAME)
    assert series.to_list() == ["2X", "3NONE", "NONEZ", "5BAD"]
    assert failures == []
    assert seen == [(2, "x"), (3, None), (None, "z"), (5, "bad")]
    assert compiled.columns == {"a", "s"}
    assert compiled.can_fail


def test_an_exception_belongs_to_its_row() -> None:
    def parse(s: str | None) -> int:
        if s == "bad":
            raise ValueError("no such thing")
        return len(s or "")

    compiled = compile_expression("parse(s) + a", SCHEMA, scalar("parse", parse, pl.Int64()))
    series, failures = evaluate(compiled, FRAME)
    assert series.to_list() == [2, 2, None, None]
    assert [(row, str(error)) for row, error in failures] == [(3, "no such thing")]


def test_a_result_of_the_wrong_type_belongs_to_its_row() -> None:
    compiled = compile_expression("f(a)", SCHEMA, scalar("f", lambda a: "text" if a == 2 else a, pl.Int64()))
    series, failures = evaluate(compiled, FRAME)
    assert series.to_list() == [1, None, None, 4]
    ((row, error),) = failures
    assert row == 1
    assert isinstance(error, FunctionError)
    assert "returned 'text' (str), not Int64" in str(error)


def test_a_vectorized_function_is_called_once_and_its_bad_rows_are_found() -> None:
    sizes: list[int] = []

    def root(values: pl.Series) -> pl.Series:
        sizes.append(len(values))
        if (values == 2).any():
            raise ValueError("two")
        return values * 10

    functions = scalar("root", root, pl.Int64(), vectorized=True)
    compiled = compile_expression("root(a)", SCHEMA, functions)
    assert evaluate(compiled, FRAME[2:])[0].to_list() == [None, 40]
    assert sizes == [2]
    series, failures = evaluate(compiled, FRAME)
    assert series.to_list() == [10, None, None, 40]
    assert [(row, str(error)) for row, error in failures] == [(1, "two")]


def test_a_vectorized_function_of_another_length_fails_every_row() -> None:
    functions = scalar("f", lambda values: values[:1].append(values), pl.Int64(), vectorized=True)
    series, failures = evaluate(compile_expression("f(a)", SCHEMA, functions), FRAME)
    assert series.to_list() == [None] * 4
    assert [row for row, _ in failures] == [0, 1, 2, 3]
    assert "returned 2 values for 1 rows" in str(failures[0][1])


@pytest.mark.parametrize("error", [RetriableError("the model server is busy"), JobError("wrong"), MemoryError()])
@pytest.mark.parametrize("vectorized", [False, True])
def test_an_outside_fault_is_no_rows_fault(vectorized: bool, error: Exception) -> None:
    def fail(value: Any) -> Any:
        raise error

    compiled = compile_expression("fail(a)", SCHEMA, scalar("fail", fail, pl.Int64(), vectorized=vectorized))
    with pytest.raises(type(error)):
        evaluate(compiled, FRAME)


@pytest.mark.parametrize(
    ("sql", "called_with"),
    [
        ("CASE WHEN a > 1 THEN f(a) ELSE 0 END", [2, 4]),
        ("IF(a = 1, 0, f(a))", [2, None, 4]),
        ("a IS NOT NULL AND f(a) > 0", [1, 2, 4]),
        ("a = 1 OR f(a) > 0", [2, None, 4]),
        ("COALESCE(a, f(7))", [7]),
        ("FALSE AND f(a) > 0", []),
    ],
)
def test_a_function_is_not_called_for_rows_that_do_not_need_it(sql: str, called_with: list[int | None]) -> None:
    seen: list[int | None] = []

    def f(a: int | None) -> int:
        seen.append(a)
        return a or 0

    evaluate(compile_expression(sql, SCHEMA, scalar("f", f, pl.Int64())), FRAME)
    assert seen == called_with


def test_nested_and_repeated_calls() -> None:
    seen: list[int | None] = []

    def f(a: int | None) -> int | None:
        seen.append(a)
        return None if a is None else a + 1

    compiled = compile_expression("f(f(a)) + f(a)", SCHEMA, scalar("f", f, pl.Int64()))
    assert evaluate(compiled, FRAME)[0].to_list() == [5, 7, None, 11]
    assert len(seen) == 8, "f(a) is called once per row though it stands there twice"


def test_a_function_of_chance_is_called_each_time() -> None:
    numbers = iter(range(100))
    functions = scalar("draw", lambda: next(numbers), pl.Int64(), deterministic=False)
    compiled = compile_expression("draw() = draw()", SCHEMA, functions)
    assert not compiled.deterministic
    assert evaluate(compiled, FRAME)[0].to_list() == [False] * 4


def test_a_user_function_goes_before_one_of_the_table() -> None:
    noon = datetime.datetime(2024, 5, 6, 12, tzinfo=datetime.UTC)
    functions = scalar("now", lambda: noon, pl.Datetime("us", "UTC"))
    compiled = compile_expression("NOW()", SCHEMA, functions)
    assert evaluate(compiled, FRAME)[0].to_list() == [noon] * 4


def test_a_nested_result_in_a_branch() -> None:
    functions = scalar("pair", lambda a: [a, a], pl.List(pl.Int64()))
    compiled = compile_expression("CASE WHEN a > 1 THEN pair(a) END", SCHEMA, functions)
    assert evaluate(compiled, FRAME)[0].to_list() == [None, [2, 2], None, [4, 4]]


def test_the_expression_alone_raises_what_the_function_raises() -> None:
    def f(a: int | None) -> int:
        if a == 4:
            raise KeyError("four")
        return a or 0

    compiled = compile_expression("f(a) * 2", SCHEMA, scalar("f", f, pl.Int64()))
    assert FRAME[:3].select(compiled.expression.alias("x"))["x"].to_list() == [2, 4, 0]
    with pytest.raises(KeyError):
        FRAME.select(compiled.expression)


def test_no_rows_and_only_rows_that_do_not_need_it() -> None:
    functions = scalar("f", lambda a: 1, pl.Int64())
    assert len(evaluate(compile_expression("f(a)", SCHEMA, functions), FRAME.clear())[0]) == 0
    compiled = compile_expression("CASE WHEN a > 100 THEN f(a) END", SCHEMA, functions)
    assert evaluate(compiled, FRAME)[0].to_list() == [None] * 4


def test_several_expressions_at_once_name_a_failed_row_once() -> None:
    def f(a: int | None) -> int:
        raise ValueError("never")

    functions = scalar("f", f, pl.Int64())
    compiled = [compile_expression(sql, SCHEMA, functions) for sql in ("f(a)", "CAST(s AS INT)", "a")]
    frame, failures = evaluate_all(compiled, FRAME, ["x", "y", "z"])
    assert frame.columns == ["x", "y", "z"]
    assert [row for row, _ in failures] == [0, 1, 2, 3]
    assert all(str(error) == "never" for _, error in failures)


def test_a_predicate_with_a_function() -> None:
    compiled = compile_predicate(
        "long_enough(s)", SCHEMA, scalar("long_enough", lambda s: s and len(s) > 1, pl.Boolean())
    )
    series, failures = evaluate(compiled, FRAME)
    assert series.to_list() == [False, False, False, True]
    assert failures == []


def test_times_outside_of_pythons_calendar_are_given_as_null() -> None:
    frame = pl.DataFrame({"t": pl.Series([2**62, 0]).cast(pl.Datetime("us", "UTC"))})
    functions = scalar("f", lambda t: t is None, pl.Boolean())
    assert evaluate(compile_expression("f(t)", Schema(dict(frame.schema)), functions), frame)[0].to_list() == [
        True,
        False,
    ]


def test_what_does_not_fit_is_found_when_the_job_is_built() -> None:
    def f(a: int, b: int = 0) -> int:
        return a + b

    functions = scalar("f", f, pl.Int64())
    compile_expression("f(a)", SCHEMA, functions)
    compile_expression("f(a, 1)", SCHEMA, functions)
    with pytest.raises(ExpressionError, match="cannot be called so: too many positional arguments"):
        compile_expression("f(a, 1, 2)", SCHEMA, functions)
    with pytest.raises(ExpressionError, match="missing a required argument: 'a'"):
        compile_expression("f()", SCHEMA, functions)
    with pytest.raises(ExpressionError, match="needs numbers, not string"):
        compile_expression("g(a) + 1", SCHEMA, scalar("g", f, pl.String()))
    with pytest.raises(ExpressionError, match=r"unknown function 'scor_of'(.|\n)*did you mean 'score_of'"):
        compile_expression("scor_of(a)", SCHEMA, scalar("score_of", f, pl.Int64()))


def test_table_and_aggregate_functions_are_refused() -> None:
    functions: dict[str, Any] = {
        "pieces": TableFunction("pieces", lambda a: [a], Schema({"x": pl.Int64()})),
        "total": AggregateFunction("total", object, pl.Int64()),
    }
    with pytest.raises(ExpressionError, match="pieces is a table function"):
        compile_expression("pieces(a)", SCHEMA, functions)
    with pytest.raises(ExpressionError, match="total is an aggregate function"):
        compile_expression("total(a)", SCHEMA, functions)


def test_each_of_several_expressions_has_its_own_calls() -> None:
    """Also nested calls, equal ones, one in a branch, and expressions without calls between them."""
    functions = {
        "next": ScalarFunction("next", lambda value: None if value is None else value + 1, pl.Int64()),
        "text": ScalarFunction("text", lambda value: f"<{value}>", pl.String()),
        "minus": ScalarFunction("minus", lambda values: -values, pl.Int64(), vectorized=True),
    }
    frame = pl.DataFrame({"a": [1, 2, None], "b": [10, 20, 30]})
    schema = Schema(dict(frame.schema))
    texts = {
        "one": "next(a)", "two": "next(b)", "plain": "a + b", "three": "text(b)", "four": "minus(a) + next(minus(b))",
        "again": "next(a)", "branch": "CASE WHEN a = 1 THEN next(b) ELSE minus(b) END",
    }  # fmt: skip
    compiled = [compile_expression(text, schema, functions) for text in texts.values()]
    found, failures = evaluate_all(compiled, frame, list(texts))
    assert not failures
    assert found.to_dict(as_series=False) == {
        "one": [2, 3, None], "two": [11, 21, 31], "plain": [11, 22, None], "three": ["<10>", "<20>", "<30>"],
        "four": [-1 - 9, -2 - 19, None], "again": [2, 3, None], "branch": [11, -20, -30],
    }  # fmt: skip


def test_a_row_that_fails_in_one_of_several_calls_is_blank_in_all() -> None:
    def picky(value: int) -> int:
        if value == 2:
            raise ValueError("two")
        return value

    functions = {"picky": ScalarFunction("picky", picky, pl.Int64())}
    frame = pl.DataFrame({"a": [1, 2, 3], "b": [2, 1, 3]})
    compiled = [compile_expression(f"picky({name})", Schema(dict(frame.schema)), functions) for name in ("a", "b")]
    found, failures = evaluate_all(compiled, frame, ["x", "y"])
    assert [(row, str(error)) for row, error in failures] == [(0, "two"), (1, "two")]
    assert found.to_dict(as_series=False) == {"x": [None, None, 3], "y": [None, None, 3]}
