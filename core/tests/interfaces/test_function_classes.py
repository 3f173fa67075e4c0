"""Functions as Blink and PyFlink users write them: classes, generators, aggregates; the objects of PyFlink by their attributes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple, TypedDict

import cloudpickle
import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import FunctionError
from headrace.interfaces.flink_types import map_type
from headrace.interfaces.function_results import RowValue
from headrace.interfaces.functions import AggregateFunction, ScalarFunction, TableFunction, resolve


class Texts:
    """Methods, each of which is a function."""

    def shout(self, text: str) -> str:
        return text.upper() + "!"

    def Repeat(self, text: str, times: int = 2) -> str:
        return text * times

    @staticmethod
    def plain(text: str) -> int:
        return len(text)


class Word(NamedTuple):
    word: str
    size: int


class Fields(TypedDict):
    b: float
    a: str | None


class Split:
    def eval(self, text: str) -> Iterator[Word]:
        for each in text.split():
            yield Word(each, len(each))


class Mean:
    def create_accumulator(self) -> list[float]:
        return [0.0, 0.0]

    def accumulate(self, state: list[float], value: float | None) -> None:
        state[0] += value or 0
        state[1] += value is not None

    def merge(self, state: list[float], others: Any) -> None:
        for other in others:
            state[0] += other[0]
            state[1] += other[1]

    def get_value(self, state: list[float]) -> float | None:
        return state[0] / state[1] if state[1] else None


class Greatest:
    """A table aggregate that cannot be merged."""

    def create_accumulator(self) -> list[int]:
        return []

    def accumulate(self, state: list[int], value: int) -> None:
        state[:] = sorted([*state, value], reverse=True)[:2]

    def emit_value(self, state: list[int]) -> Iterator[tuple[int, int]]:
        yield from ((value, rank + 1) for rank, value in enumerate(state))


def called(function: Any, *arguments: Any) -> Any:
    return list(function(*arguments)) if isinstance(function, TableFunction) else function(*arguments)


def folded(function: AggregateFunction, *parts: list[tuple[Any, ...]]) -> Any:
    """Return the result over parts that are added apart and merged."""
    made = function()
    states = []
    for part in parts:
        state = made.create()
        for row in part:
            state = made.add(state, *row)
        states.append(state)
    first, *others = states
    for other in others:
        first = made.merge(first, other)
    return made.result(first)


def test_a_method_is_chosen_by_the_name_of_the_function() -> None:
    shout = resolve(Texts, name="SHOUT")
    assert isinstance(shout, ScalarFunction)
    assert (shout("a"), shout.return_type) == ("A!", pl.String())
    assert called(resolve(Texts, name="repeat"), "ab") == "abab"
    assert called(resolve(Texts(), name="plain"), "abc") == 3
    with pytest.raises(FunctionError, match="neither callable nor has a method 'eval'") as caught:
        resolve(Texts, name="other")
    assert "shout" in str(caught.value.hint)
    assert "module:Class.method" in str(caught.value.hint)


def test_generators_and_classes_that_give_rows_are_table_functions() -> None:
    split = resolve(Split, name="split")
    assert isinstance(split, TableFunction)
    assert dict(split.schema) == {"word": pl.String(), "size": pl.Int64()}
    assert called(split, "a bb") == [("a", 1), ("bb", 2)]

    def pairs(text: str) -> Iterator[tuple[str, int]]:
        yield text, 1

    def dicts(text: str) -> Iterator[Fields]:
        yield {"a": text, "b": 1.5}

    def values(text: str) -> Iterator[int]:
        yield 7

    def returned(text: str) -> Iterator[int]:
        return iter([1, 2])

    assert dict(resolve(pairs).schema) == {"f0": pl.String(), "f1": pl.Int64()}  # type: ignore[union-attr]
    assert dict(resolve(dicts).schema) == {"b": pl.Float64(), "a": pl.String()}  # type: ignore[union-attr]
    assert called(resolve(dicts), "x") == [(1.5, "x")]
    assert called(resolve(values), "x") == [(7,)]
    assert called(resolve(returned), "x") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("reference", "place"),
    [
        (lambda: type("T", (), {"eval": lambda self, x: (yield x)}), "annotate it: -> Iterator"),
        (lambda: type("S", (), {"eval": lambda self, x: x}), "annotate it"),
        (
            lambda: type(
                "A",
                (),
                {"create_accumulator": lambda self: 0, "accumulate": lambda s, a, v: None, "get_value": lambda s, a: a},
            ),
            "annotate get_value",
        ),
    ],
)
def test_a_function_without_a_type_is_told_where_to_put_it(reference: Any, place: str) -> None:
    with pytest.raises(FunctionError, match="does not declare") as caught:
        resolve(reference(), name="f")
    assert place in str(caught.value.hint)


def test_types_may_be_said_by_the_class() -> None:
    made = type("S", (), {"eval": lambda self, x: {"a": 1}, "get_result_type": lambda self: "ROW<a INT>"})
    assert resolve(made, name="f").return_type == pl.Struct({"a": pl.Int32()})  # type: ignore[union-attr]
    rows = type("T", (), {"eval": lambda self, x: (yield x), "result_type": "ROW<a STRING, b BIGINT>"})
    assert resolve(rows, name="f").schema == Schema({"a": pl.String(), "b": pl.Int64()})  # type: ignore[union-attr]


def test_aggregates_are_merged_by_their_own_merge() -> None:
    mean = resolve(Mean, name="mean")
    assert isinstance(mean, AggregateFunction)
    assert mean.return_type == pl.Float64()
    assert folded(mean, [(1.0,), (2.0,)], [], [(None,), (6.0,)]) == 3.0
    assert folded(mean, []) is None
    assert not mean().keeps_all_values


def test_an_aggregate_without_merge_keeps_the_values() -> None:
    greatest = resolve(Greatest, name="greatest")
    assert isinstance(greatest, AggregateFunction)
    assert greatest.return_type == pl.List(pl.Struct({"f0": pl.Int64(), "f1": pl.Int64()}))
    assert folded(greatest, [(1,), (9,)], [(4,)]) == [{"f0": 9, "f1": 1}, {"f0": 4, "f1": 2}]
    assert greatest().keeps_all_values


def test_rows_may_be_given_to_a_collector() -> None:
    class Collecting(Greatest):
        def emit_value(self, state: list[int], out: Any) -> Any:  # type: ignore[override]
            for each in state:
                out.collect(each)

        def get_result_type(self) -> str:
            return "BIGINT"

    assert folded(resolve(Collecting, name="c"), [(3,), (5,)]) == [5, 3]  # type: ignore[arg-type]


LIFE = """
import cloudpickle
from headrace.interfaces.functions import resolve
class Life:
    def open(self, context):
        self.prefix = context.get_job_parameter("PREFIX", "-")
        print("open")
    def close(self):
        print("close")
    def eval(self, text: str) -> str:
        return self.prefix + text
function = resolve(Life, name="life")
copy = cloudpickle.loads(cloudpickle.dumps(function))
print(function("a"), function("b"))
print(copy("c"))
del copy
print("end")
"""


def test_open_is_called_before_the_first_use_and_close_when_it_is_let_go() -> None:
    done = subprocess.run([sys.executable, "-c", LIFE], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["open", "-a -b", "open", "-c", "close", "end", "close", ""]


def test_open_without_arguments_is_called_too() -> None:
    class Life:
        def open(self) -> None:
            self.ready = 1

        def eval(self, number: int) -> int:
            return number + self.ready

    assert called(resolve(Life, name="f"), 1) == 2


def test_async_functions_are_refused() -> None:
    class Slow:
        async def eval(self, text: str) -> str:
            return text

    with pytest.raises(FunctionError, match="is async"):
        resolve(Slow, name="slow")


class Wrapped:
    """What PyFlink's decorators make, by its attributes."""

    def __init__(self, function: Any, name: str = "f", kind: str = "general", **more: Any) -> None:
        self._func, self._func_type, self._name, self._deterministic = function, kind, name, True
        self.__dict__.update(more)


class Row(tuple[Any, ...]):
    """Like PyFlink's Row without names."""


def test_scalar_functions_of_pyflink() -> None:
    made = resolve(Wrapped(lambda row, m: Row((row.a + row[1], m["k"])), _result_type="ROW<s BIGINT, k STRING>"))
    assert isinstance(made, ScalarFunction)
    assert made.name == "f"
    assert made({"a": 1, "b": 2}, [{"key": "k", "value": "x"}]) == {"s": 3, "k": "x"}
    mapping = resolve(Wrapped(lambda x: {x: 1}, _result_type="MAP<STRING, INT>"), name="m")
    assert mapping.return_type == map_type(pl.String(), pl.Int32())  # type: ignore[union-attr]
    assert called(mapping, "a") == [{"key": "a", "value": 1}]
    copy = cloudpickle.loads(cloudpickle.dumps(mapping))
    assert copy("b") == [{"key": "b", "value": 1}]


def test_table_functions_of_pyflink() -> None:
    def twice(x: Any) -> Any:
        yield x, 1
        yield Row((x, 2))

    made = resolve(Wrapped(twice, _result_types=["STRING", "INT"]))
    assert isinstance(made, TableFunction)
    assert dict(made.schema) == {"f0": pl.String(), "f1": pl.Int32()}
    assert called(made, "a") == [("a", 1), ("a", 2)]
    named = resolve(Wrapped(twice, _result_types="ROW<word STRING, n BIGINT>"))
    assert list(named.schema) == ["word", "n"]  # type: ignore[union-attr]
    one = resolve(Wrapped(lambda x: range(x), _result_types=["BIGINT"]))
    assert called(one, 2) == [(0,), (1,)]


def test_aggregates_of_pyflink() -> None:
    made = resolve(Wrapped(Mean(), _result_type="DOUBLE", _is_table_aggregate=False))
    assert folded(made, [(2.0,)], [(4.0,)]) == 3.0  # type: ignore[arg-type]
    table = resolve(Wrapped(Greatest(), _result_type="ROW<v BIGINT, r BIGINT>", _is_table_aggregate=True))
    assert folded(table, [(2,)], [(4,)]) == [{"v": 4, "r": 1}, {"v": 2, "r": 2}]  # type: ignore[arg-type]


def test_pandas_functions_of_pyflink() -> None:
    pytest.importorskip("pandas")
    scalar = resolve(Wrapped(lambda a, b: a * b, kind="pandas", _result_type="BIGINT"))
    assert isinstance(scalar, ScalarFunction)
    assert scalar.vectorized
    result = scalar(pl.Series([1, None, 3]), pl.Series([2, 2, 2]))
    assert result.to_list() == [2, None, 6]
    assert result.dtype == pl.Int64()
    row = resolve(Wrapped(lambda frame: frame.a + frame.b, kind="pandas", _result_type="DOUBLE"))
    assert called(row, pl.Series([{"a": 1, "b": 2.5}])).to_list() == [3.5]
    mean = resolve(Wrapped(lambda v: v.mean(), kind="pandas", _result_type="DOUBLE", _is_table_aggregate=False))
    assert folded(mean, [(1.0,), (None,)], [(4.0,)]) == 2.5  # type: ignore[arg-type]
    assert folded(mean, []) is None  # type: ignore[arg-type]


def test_a_row_is_read_by_name_and_by_place() -> None:
    row = RowValue({"a": 1, "b": RowValue({"c": 2})})
    assert (row.a, row["a"], row[0], row.b.c, len(row), next(iter(row))) == (1, 1, 1, 2, 2, 1)
    with pytest.raises(AttributeError):
        _ = row.missing
    assert cloudpickle.loads(cloudpickle.dumps(row)).b.c == 2
