"""The functions that programs name by their classes, in Python. What each does is told by the rows that programs expect of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import headrace as hr


class _LargerThanCount:
    def create(self) -> int:
        return 0

    def add(self, state: int, a: int | None, b: int | None) -> int:
        return state + (a is not None and b is not None and a > b)

    def merge(self, state: int, other: int) -> int:
        return state + other

    def result(self, state: int) -> int:
        return state


class _WeightedAverage:
    def create(self) -> list[int]:
        return [0, 0]

    def add(self, state: list[int], value: int | None, weight: int | None) -> list[int]:
        if value is None or weight is None:
            return state
        return [state[0] + value * weight, state[1] + weight]

    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return [state[0] + other[0], state[1] + other[1]]

    def result(self, state: list[int]) -> int | None:
        return None if state[1] == 0 else int(state[0] / state[1])


class _DistinctTexts:
    def create(self) -> list[str]:
        return []

    def add(self, state: list[str], value: str | None) -> list[str]:
        return state if value is None or value in state else [*state, value]

    def merge(self, state: list[str], other: list[str]) -> list[str]:
        return [*state, *(each for each in other if each not in state)]

    def result(self, state: list[str]) -> str | None:
        return "|".join(state) if state else None


class _SumOfAll:
    def create(self) -> int:
        return 0

    def add(self, state: int, *values: int | None) -> int:
        return state + sum(each for each in values if each is not None)

    def merge(self, state: int, other: int) -> int:
        return state + other

    def result(self, state: int) -> int:
        return state


class _Zero(_SumOfAll):
    """Its class adds up and gives 0, as programs expect it."""

    def result(self, state: int) -> int:
        return 0


@hr.udtf(returns={"f0": "string"}, name="published_split_at_hash")
def _split_at_hash(text: str | None, prefix: str = "") -> Iterator[tuple[str]]:
    if text is not None and "#" in text:
        for each in text.split("#"):
            yield (prefix + each,)


@hr.udtf(returns={"word": "string"}, name="published_split")
def _split(text: str | None, separator: str = ",") -> Iterator[tuple[str]]:
    if text is not None:
        for each in text.split(separator):
            yield (each,)


@hr.udf(returns="int64", name="published_plus_one")
def _plus_one(value: int | None) -> int | None:
    return None if value is None else value + 1


#: By the last part of the class's name.
FUNCTIONS: Mapping[str, Any] = {
    "LargerThanCount": hr.udaf(returns="int64", name="published_larger")(_LargerThanCount),
    "WeightedAvg": hr.udaf(returns="int64", name="published_average")(_WeightedAverage),
    "WeightedAvgWithMerge": hr.udaf(returns="int64", name="published_average_merged")(_WeightedAverage),
    "ConcatDistinctAggFunction": hr.udaf(returns="string", name="published_texts")(_DistinctTexts),
    "VarSum1AggFunction": hr.udaf(returns="int64", name="published_sum")(_SumOfAll),
    "VarSum2AggFunction": hr.udaf(returns="int64", name="published_zero")(_Zero),
    "TableFunc1": _split_at_hash,
    "StringSplit": _split,
    "AsyncStringSplit": _split,
    "JavaFunc0": _plus_one,
    "AsyncJavaFunc0": _plus_one,
}
