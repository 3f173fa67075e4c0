"""Aggregates: each function against plain Python, and partials that do not depend on where rows are cut."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import DataError, ExpressionError, JobFailedError, OptionError, RetriableError
from headrace.runtime.waiting import Waiting, waiting
from headrace_stateful.aggregates.aggregates import SIGN, AggregatePlan, compile_aggregates
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

SCHEMA = Schema.of(
    {
        "k": "string",
        "v": "float64",
        "i": "int64",
        "u": "string",
        "d": "decimal(10, 2)",
        "w": "decimal(38, 2)",
        "b": "boolean",
    }
)


class Mean:
    def create(self) -> list[float]:
        return [0, 0]

    def add(self, state: list[float], value: float | None) -> list[float]:
        return state if value is None else [state[0] + value, state[1] + 1]

    def merge(self, state: list[float], other: list[float]) -> list[float]:
        return [state[0] + other[0], state[1] + other[1]]

    def result(self, state: list[float]) -> float | None:
        return state[0] / state[1] if state[1] else None


MEAN = hr.udaf(returns="float64", name="test_mean")(Mean)
FUNCTIONS = {"test_mean": MEAN}
#: A busy machine may be slow, and a plan takes a while to compile.
FEW = settings(max_examples=examples(50), deadline=None)


@functools.cache
def compiled(expression: str, **options: Any) -> AggregatePlan:
    return compile_aggregates({"x": expression}, SCHEMA, keys=["k"], functions=FUNCTIONS, **options)


def run(expression: str, rows: list[dict[str, Any]], cuts: list[int] | None = None, **options: Any) -> dict[Any, Any]:
    """Return the result per key; the rows are cut into partials at ``cuts``."""
    frame = pl.DataFrame(rows, schema=dict(SCHEMA))
    plan = compiled(expression, **options)
    inputs, failures = plan.inputs(frame)
    assert not failures
    inputs = pl.concat([frame.select("k"), inputs], how="horizontal")
    borders = [0, *sorted(cuts or []), frame.height]
    parts = [plan.partial(inputs[a:b], ["k"]) for a, b in itertools.pairwise(borders) if a < b]
    merged = plan.merge(pl.concat(parts), ["k"])
    assert dict(merged.drop("k").schema) == plan.partial_schema
    finished, failures = plan.finish(merged)
    assert not failures
    assert finished.schema["x"] == plan.schema["x"]
    return dict(zip(merged["k"].to_list(), finished["x"].to_list(), strict=True))


def rows_of(column: str, *values: Any) -> list[dict[str, Any]]:
    return [{"k": "a", column: value} for value in values]


@pytest.mark.parametrize(
    ("expression", "rows", "expected"),
    [
        ("count(*)", rows_of("v", 1.0, None), 2),
        ("count(v)", rows_of("v", 1.0, None), 1),
        ("count(i, u)", [{"i": 1, "u": "x"}, {"i": 1}, {"u": "y"}], 1),
        ("count(DISTINCT u)", rows_of("u", "x", "y", None, "x"), 2),
        ("count(DISTINCT i, u)", [{"i": 1, "u": "x"}, {"i": 1, "u": "x"}, {"i": 1}, {"i": 2, "u": "x"}], 2),
        ("sum(v)", rows_of("v", None, None), None),
        ("sum(v)", rows_of("v", 0.1, 0.2), 0.30000000000000004),
        ("sum(v)", rows_of("v", 1e300, 1e300, -1e300), 1e300),
        ("sum(v)", rows_of("v", 5e-324, 5e-324), 1e-323),
        ("sum(v)", rows_of("v", float("inf"), 1.0), float("inf")),
        ("sum(i)", rows_of("i", 1, None, 2), 3),
        ("sum(i)", rows_of("i", 2**63 - 1, 1), -(2**63)),
        ("sum(d)", rows_of("d", Decimal("0.10"), Decimal("0.20")), Decimal("0.30")),
        ("sum(w)", rows_of("w", Decimal("9" * 35 + ".00"), Decimal("0.99")), Decimal("9" * 35 + ".99")),
        ("sum(w)", rows_of("w", Decimal("9" * 36 + ".99"), Decimal("1.00")), None),
        ("sum(v) FILTER (WHERE i > 1)", [{"v": 1.0, "i": 1}, {"v": 2.0, "i": 2}, {"v": 4.0}], 2.0),
        ("count(*) FILTER (WHERE i > 1)", rows_of("i", 1, 2, None), 1),
        ("sum(DISTINCT i)", rows_of("i", 3, 3, 4), 7),
        ("avg(i)", rows_of("i", 1, 2, None), 1.5),
        ("avg(i)", rows_of("i", 2**63 - 1, 2**63 - 1), float(2**63)),
        ("avg(d)", rows_of("d", Decimal("0.01"), Decimal("0.02"), Decimal("0.02")), Decimal("0.016667")),
        ("avg(v)", rows_of("v", None), None),
        ("min(v)", rows_of("v", float("nan"), 2.0, None), 2.0),
        ("max(u)", rows_of("u", "b", "a", None), "b"),
        ("min(b)", rows_of("b", True, False), False),
        ("max(i) - min(i)", rows_of("i", 5, 2, 9), 7),
        ("first(u)", rows_of("u", None, "x", "y"), "x"),
        ("last_value(u)", rows_of("u", "x", "y", None), "y"),
        ("stddev_pop(i)", rows_of("i", 2, 4, 4, 4, 5, 5, 7, 9), 2.0),
        ("var_samp(i)", rows_of("i", 1), None),
        ("variance(v)", rows_of("v", 1e9 + 1, 1e9 + 2, 1e9 + 3), 1.0),
        ("bool_and(b)", rows_of("b", True, None), True),
        ("bool_or(b)", rows_of("b", None, None), None),
        ("collect(i)", rows_of("i", 2, None, 1, 2), [2, 1, 2]),
        ("collect(i)", rows_of("i", None), []),
        ("collect_set(i)", rows_of("i", 2, None, 1, 2), [2, 1]),
        ("array_agg(i)", rows_of("i", 2, None), [2, None]),
        ("array_agg(i) FILTER (WHERE i > 5)", rows_of("i", 2, None), None),
        ("listagg(u, '-')", rows_of("u", "x", None, "y"), "x-y"),
        ("string_agg(DISTINCT u)", rows_of("u", "x", "x", "y"), "x,y"),
        ("listagg(u)", rows_of("u", None), None),
        ("approx_count_distinct(i)", rows_of("i", 1, 1, 2, None), 2),
        ("test_mean(i)", rows_of("i", 1, None, 2), 1.5),
        ("test_mean(i) FILTER (WHERE i > 9)", rows_of("i", 1), None),
        ("upper(k) || CAST(count(*) AS STRING)", rows_of("i", 1), "A1"),
        ("COALESCE(sum(v), 0.0) + count(*) * 2", rows_of("v", None, None), 4.0),
    ],
)
def test_results(expression: str, rows: list[dict[str, Any]], expected: Any) -> None:
    rows = [{"k": "a", **row} for row in rows]
    for cuts in ([], [1], list(range(1, len(rows)))):
        assert run(expression, rows, cuts) == {"a": expected}


def test_nan_is_the_greatest_value() -> None:
    assert math.isnan(run("max(v)", rows_of("v", float("nan"), 2.0))["a"])
    assert math.isnan(run("min(v)", rows_of("v", float("nan")))["a"])


def test_average_of_integers_as_in_flink() -> None:
    assert run("avg(i)", rows_of("i", -3, -4), integer_average=True) == {"a": -3}


numbers = st.one_of(
    st.none(), st.floats(width=64, allow_nan=False, allow_infinity=False), st.sampled_from([0.1, 0.2, -0.3, 1e-9])
)


@FEW
@given(st.lists(numbers, max_size=20), st.data())
def test_sums_of_doubles_do_not_depend_on_cuts_and_order(values: list[float | None], data: st.DataObject) -> None:
    values = [value if value is None or 2.0**-60 < abs(value) < 2.0**60 else 1.5 for value in values] or [1.0]
    rows = rows_of("v", *values)
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3))
    shuffled = data.draw(st.permutations(rows))
    found = run("sum(v)", rows, cuts)["a"]
    assert found == run("sum(v)", shuffled)["a"]
    exact = [Fraction(value) for value in values if value is not None]
    if exact:
        assert abs(Fraction(found) - sum(exact)) <= Fraction(math.ulp(found))
    else:
        assert found is None


@FEW
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20), st.data())
def test_variance_is_that_of_exact_arithmetic(values: list[float], data: st.DataObject) -> None:
    # Below, squares are too small for exact sums.
    values = [value if abs(value) > 1e-6 else 0.0 for value in values]
    exact = float(statistics.variance(map(Fraction, values)))
    found = run("var_samp(v)", rows_of("v", *values))["a"]
    smallest = 2.0**-100 * sum(value * value for value in values)
    assert found == pytest.approx(exact, rel=1e-12, abs=smallest)
    assert found == 0 or len(set(values)) > 1
    shuffled = data.draw(st.permutations(values))
    assert found == run("var_samp(v)", rows_of("v", *shuffled), [len(values) // 2])["a"]


@pytest.mark.parametrize("value", [0.1, 1.1, 737223.7795165821, -3e9])
@pytest.mark.parametrize("count", [2, 3, 7, 1000])
def test_values_that_are_all_the_same_do_not_vary(value: float, count: int) -> None:
    assert run("stddev(v)", rows_of("v", *[value] * count))["a"] == 0.0


ORDERED = ["first(i)", "last(i)", "collect(i)", "array_agg(i)", "collect_set(i)", "listagg(u)", "count(DISTINCT i)",
           "approx_count_distinct(i)", "min(u)", "max(v)", "avg(d)", "test_mean(i)", "stddev(i)", "sum(DISTINCT v)"]  # fmt: skip
rows_strategy = st.lists(
    st.fixed_dictionaries({
        "k": st.sampled_from(["a", "", None]), "i": st.one_of(st.none(), st.integers(-5, 5)),
        "u": st.one_of(st.none(), st.text(max_size=2)), "v": st.one_of(st.none(), st.floats(width=32)),
        "d": st.one_of(st.none(), st.decimals(-100, 100, places=2)),
    }), min_size=1, max_size=15,
)  # fmt: skip


@pytest.mark.parametrize("expression", ORDERED)
@FEW
@given(rows=rows_strategy, data=st.data())
def test_partials_do_not_depend_on_cuts(expression: str, rows: list[dict[str, Any]], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4))
    assert repr(run(expression, rows, cuts)) == repr(run(expression, rows))


def test_sketch_of_many_values_is_near() -> None:
    found = run("approx_count_distinct(i)", rows_of("i", *range(50_000)), [10_000, 30_000])["a"]
    assert abs(found - 50_000) < 0.07 * 50_000  # four standard errors


def signed_partial(plan: AggregatePlan, rows: list[tuple[dict[str, Any], int]]) -> pl.DataFrame:
    frame = pl.DataFrame([row for row, _ in rows], schema=dict(SCHEMA))
    inputs, _ = plan.inputs(frame)
    signs = pl.Series(SIGN, [sign for _, sign in rows], dtype=pl.Int8)
    return plan.partial(inputs.with_columns(frame["k"], signs), ["k"], signed=True)


def test_rows_are_taken_back_without_a_trace() -> None:
    plan = compile_aggregates(
        {"n": "count(*)", "s": "sum(v)", "a": "avg(i)", "d": "sum(d)", "q": "stddev_pop(v)", "w": "sum(w)"},
        SCHEMA, retracts=True,
    )  # fmt: skip
    assert plan.takes_back_by_sign
    kept = {"k": "a", "v": 0.1, "i": 7, "d": Decimal("0.10"), "w": Decimal("0.10")}
    passing = [
        {"k": "a", "v": value, "i": 2**62, "d": Decimal("3.33"), "w": Decimal("9" * 36)}
        for value in (float("nan"), float("inf"), float("-inf"), 1e17, 0.7)
    ]
    parts = [signed_partial(plan, [(kept, 1), *((row, 1) for row in passing)])]
    parts.append(signed_partial(plan, [(row, -1) for row in passing]))
    merged = plan.merge(pl.concat(parts), ["k"])
    assert merged.equals(signed_partial(plan, [(kept, 1)]))
    finished, _ = plan.finish(merged)
    assert finished.row(0) == (1, 0.1, 7.0, Decimal("0.10"), 0.0, Decimal("0.10"))


def test_what_only_values_take_back() -> None:
    plan = compile_aggregates({"m": "max(i)", "n": "count(*)", "d": "sum(DISTINCT i)"}, SCHEMA)
    assert [call.retraction for call in plan.calls] == ["values", "sign", "values"]
    assert not plan.takes_back_by_sign


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("sums(v)", "did you mean 'sum'"),
        ("sum(vv)", "did you mean 'v'"),
        ("sum(V)", "case-sensitive"),
        ("v", "several values in a group"),
        ("sum(v) + i", "several values in a group"),
        ("sum(v) + nothing", "unknown column 'nothing'"),
        ("sum(sum(v))", "cannot contain another"),
        ("sum(u)", "needs numbers, not string"),
        ("sum(b)", "FILTER"),
        ("count()", "needs \\* or a column"),
        ("sum(*)", "only in count"),
        ("max(v, i)", "takes one argument, not 2"),
        ("listagg(u, u)", "must be a constant"),
        ("upper(k) FILTER (WHERE b)", "only an aggregate function can have FILTER"),
        ("sum(v) FILTER (WHERE i)", "must be boolean"),
        ("sum(v) OVER (PARTITION BY k)", "OVER is not supported"),
        ("test_mean(DISTINCT v)", "takes no DISTINCT"),
        ("sum(", "syntax"),
    ],
)
def test_mistakes_are_found_when_compiled(expression: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        compile_aggregates({"x": expression}, SCHEMA, keys=["k"], functions=FUNCTIONS)


def test_nothing_to_aggregate() -> None:
    with pytest.raises(OptionError, match="nothing to aggregate"):
        compile_aggregates({}, SCHEMA)


def test_failing_rows_and_results_are_told() -> None:
    plan = compile_aggregates({"x": "sum(10 / i)", "y": "count(*) / min(i)"}, SCHEMA)
    frame = pl.DataFrame({"i": [5, 0]}, schema={"i": pl.Int64}).with_columns(
        pl.lit(None, dtype=kind).alias(name) for name, kind in SCHEMA.items() if name != "i"
    )
    _, failures = plan.inputs(frame)
    assert [place for place, _ in failures] == [1]
    plan = compile_aggregates({"y": "count(*) / min(i)"}, SCHEMA)
    inputs, _ = plan.inputs(frame)
    _, failures = plan.finish(plan.partial(inputs, []))
    assert [place for place, _ in failures] == [0]


def test_the_same_column_may_be_given_twice() -> None:
    class Products(Mean):
        def add(self, state: Any, one: Any, other: Any) -> Any:  # type: ignore[override]
            return [state[0] + one * other, 1]

    functions = {"products": hr.udaf(returns="float64", name="products")(Products)}
    aggregates = {"x": "products(i, i)", "y": "count(DISTINCT i, i)", "z": "products(2, 2)"}
    plan = compile_aggregates(aggregates, SCHEMA, functions=functions)
    inputs, _ = plan.inputs(pl.DataFrame({"i": [3, 2, 3, 1]}))
    finished, failures = plan.finish(plan.partial(inputs, []))
    assert not failures
    assert finished.to_dicts() == [{"x": 23.0, "y": 3, "z": 16.0}]


def test_user_functions_of_one_name_have_states_of_their_own() -> None:
    class Tenfold(Mean):
        def add(self, state: Any, value: Any) -> Any:
            return [state[0] + 10 * value, state[1] + 1]

    one, ten = (hr.udaf(returns="float64", name="of_one_name")(each) for each in (Mean, Tenfold))
    plan = compile_aggregates({"x": "one(i)", "y": "ten(i)", "z": "one(i)"}, SCHEMA, functions={"one": one, "ten": ten})
    inputs, _ = plan.inputs(pl.DataFrame({"i": [1, 2, 3]}))
    finished, failures = plan.finish(plan.partial(inputs, []))
    assert not failures
    assert finished.to_dicts() == [{"x": 2.0, "y": 20.0, "z": 2.0}]


def test_user_function_that_fails_is_named() -> None:
    class Picky(Mean):
        def add(self, state: Any, value: Any) -> Any:
            raise ValueError("no")

    functions = {"picky": hr.udaf(returns="float64", name="picky")(Picky)}
    plan = compile_aggregates({"x": "picky(i)"}, SCHEMA, functions=functions)
    inputs, _ = plan.inputs(pl.DataFrame({"i": [5]}))
    with pytest.raises(DataError, match=r"'picky' failed in add\(5\): ValueError: no"):
        plan.partial(inputs, [])


class AtTimesAway(Mean):
    """Changes its state, and then finds its server away, in the first call of each kind that has these values."""

    def __init__(self) -> None:
        self.asked: set[tuple[Any, ...]] = set()
        self.calls = 0

    def _ask(self, *what: Any) -> None:
        self.calls += 1
        if what not in self.asked:
            self.asked.add(what)
            raise RetriableError("connection refused")

    def create(self) -> list[float]:
        self._ask("create")
        return [0, 0]

    def add(self, state: list[float], value: Any) -> list[float]:
        state[0] += value
        state[1] += 1
        self._ask("add", value)
        return state

    def merge(self, state: list[float], other: list[float]) -> list[float]:
        state[0] += other.pop(0)
        state[1] += other.pop()
        self._ask("merge", *state)
        return state

    def result(self, state: list[float]) -> float:
        state.append(0)
        self._ask("result", *state)
        return state[0] / state[1]


def test_a_call_that_finds_a_server_away_is_made_again_with_the_state_before_it() -> None:
    user = AtTimesAway()
    functions = {"away": hr.udaf(returns="float64", name="away")(user)}
    plan = compile_aggregates({"x": "away(i)"}, SCHEMA, functions=functions)
    outages: list[RetriableError] = []
    with waiting(Waiting(ManualClock(), 60, away=outages.append, back=lambda: None)):
        parts = [plan.partial(plan.inputs(pl.DataFrame({"i": part}))[0], []) for part in ([1, 2, 3], [4, 5], [2, 4])]
        finished, failures = plan.finish(plan.merge(pl.concat(parts), []))
    assert not failures
    assert finished.to_dicts() == [{"x": 3.0}]
    assert outages
    assert {what for what, *_ in user.asked} == {"create", "add", "merge", "result"}
    # Without outages no call is made twice.
    user.calls = 0
    with waiting(Waiting(ManualClock(), 60, away=outages.append, back=lambda: None)):
        plan.finish(plan.merge(pl.concat(parts), []))
    assert user.calls == 2 + 1


def test_a_server_that_stays_away_is_told_as_such() -> None:
    class Away(Mean):
        def add(self, state: Any, value: Any) -> Any:
            raise RetriableError("connection refused")

    functions = {"gone": hr.udaf(returns="float64", name="gone")(Away)}
    plan = compile_aggregates({"x": "gone(i)"}, SCHEMA, functions=functions)
    inputs, _ = plan.inputs(pl.DataFrame({"i": [5]}))
    with pytest.raises(RetriableError, match="refused"):
        plan.partial(inputs, [])
    with (
        waiting(Waiting(ManualClock(), 60, away=lambda error: None, back=lambda: None)),
        pytest.raises(JobFailedError, match=r"for 6\d s the server that an operator uses was not available"),
    ):
        plan.partial(inputs, [])
