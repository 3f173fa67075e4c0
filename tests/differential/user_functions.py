"""User functions of each kind that the jobs call. What they mean in DuckDB is in ``forms``."""

from __future__ import annotations

from collections.abc import Iterator

import headrace as hr
import polars as pl


@hr.udf(name="u_next")
def next_number(value: int | None) -> int | None:
    return None if value is None else value + 1


@hr.udf(name="u_twice")
def twice(value: int | None) -> int:
    return -1 if value is None else 2 * value


@hr.udf(name="u_sum")
def sum_of_two(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


@hr.udf(name="u_tag")
def tagged(text: str | None) -> str:
    return "none" if text is None else f"<{text}>"


@hr.udf(name="u_end")
def ended(text: str | None) -> str | None:
    return None if text is None else f"{text}!"


@hr.udf(name="u_is_even")
def is_even(value: int | None) -> bool | None:
    return None if value is None else value % 2 == 0


@hr.udf(name="v_half", returns="float64", vectorized=True)
def half(values: pl.Series) -> pl.Series:
    return values / 2.0


@hr.udf(name="v_negative", returns="int64", vectorized=True)
def negative(values: pl.Series) -> pl.Series:
    return -values.cast(pl.Int64)


@hr.udf(name="v_length", returns="int64", vectorized=True)
def length(values: pl.Series) -> pl.Series:
    return values.str.len_chars().cast(pl.Int64)


@hr.udf(name="v_minus", returns="int64", vectorized=True)
def minus(one: pl.Series, other: pl.Series) -> pl.Series:
    return one.cast(pl.Int64) - other.cast(pl.Int64)


@hr.udf(name="v_place", returns="int64", vectorized=True)
def place(one: pl.Series, other: pl.Series, number: pl.Series) -> pl.Series:
    return one.str.len_chars().cast(pl.Int64) - other.str.len_chars().cast(pl.Int64) + number.cast(pl.Int64)


@hr.udtf(name="t_count", returns={"n": "int64", "twice": "int64"})
def count_up(value: int | None) -> Iterator[tuple[int, int]]:
    for number in range(abs(value) % 4 if value is not None else 0):
        yield number, 2 * number


@hr.udtf(name="t_parts", returns={"part": "string"})
def parts(text: str | None) -> Iterator[str]:
    if text is not None:
        yield from text.split(",")


@hr.udtf(name="t_twice", returns={"same": "string", "place": "int32"})
def same_twice(text: str | None) -> Iterator[tuple[str | None, int]]:
    yield text, 1
    yield text, 2


@hr.udaf(name="a_squares", returns="int64")
class SumOfSquares:
    def create(self) -> int:
        return 0

    def add(self, state: int, value: int | None) -> int:
        return state if value is None else state + value * value

    def merge(self, state: int, other: int) -> int:
        return state + other

    def result(self, state: int) -> int:
        return state


@hr.udaf(name="a_spread", returns="int64")
class Spread:
    def create(self) -> list[int | None]:
        return [None, None]

    def add(self, state: list[int | None], value: int | None) -> list[int | None]:
        return state if value is None else self.merge(state, [value, value])

    def merge(self, state: list[int | None], other: list[int | None]) -> list[int | None]:
        low = [each for each in (state[0], other[0]) if each is not None]
        high = [each for each in (state[1], other[1]) if each is not None]
        return [min(low, default=None), max(high, default=None)]

    def result(self, state: list[int | None]) -> int | None:
        return None if state[0] is None or state[1] is None else state[1] - state[0]


@hr.udaf(name="a_products", returns="int64")
class SumOfProducts:
    def create(self) -> list[int]:
        return [0]

    def add(self, state: list[int], one: int | None, other: int | None) -> list[int]:
        return state if one is None or other is None else [state[0] + one * other]

    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return [state[0] + other[0]]

    def retract(self, state: list[int], one: int | None, other: int | None) -> list[int]:
        return state if one is None or other is None else [state[0] - one * other]

    def result(self, state: list[int]) -> int:
        return state[0]
