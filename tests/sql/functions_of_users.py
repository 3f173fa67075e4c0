"""Functions as users of Blink and PyFlink write them, named by texts of the tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple


class Texts:
    """A class whose methods are functions."""

    def shout(self, text: str | None, mark: str = "!", times: int = 1) -> str | None:
        return None if text is None else text.upper() + mark * times


class Prefix:
    """Opened once in each process that calls it: it writes down where."""

    def open(self, context: Any) -> None:
        self._prefix = context.get_job_parameter("PREFIX_OF_TESTS", "p-")
        place = context.get_job_parameter("OPENED_OF_TESTS", "")
        if place:
            with open(os.path.join(place, f"{os.getpid()}"), "a") as log:
                log.write("open\n")

    def eval(self, text: str | None) -> str | None:
        return None if text is None else self._prefix + text


class Word(NamedTuple):
    word: str
    size: int


class Words:
    """A table function."""

    def eval(self, text: str | None, least: int = 0) -> Iterator[Word]:
        for each in (text or "").split():
            if len(each) >= least:
                yield Word(each, len(each))


class Total:
    """An aggregate whose state holds decimals, a set and a time."""

    def create_accumulator(self) -> dict[str, Any]:
        return {"sum": Decimal("0.00"), "seen": set(), "last": None}

    def accumulate(self, state: dict[str, Any], amount: Decimal | None, who: str | None) -> None:
        if amount is not None:
            state["sum"] += amount
            state["seen"].add(who)

    def retract(self, state: dict[str, Any], amount: Decimal | None, who: str | None) -> None:
        raise AssertionError("values are taken back by making the state anew")

    def merge(self, state: dict[str, Any], others: Any) -> None:
        for other in others:
            assert isinstance(other["sum"], Decimal)
            assert isinstance(other["seen"], set)
            state["sum"] += other["sum"]
            state["seen"] |= other["seen"]

    def get_value(self, state: dict[str, Any]) -> str:
        return f"{state['sum']} of {len(state['seen'])}"


class Best:
    """A table aggregate: the two greatest values, with their rank."""

    def create_accumulator(self) -> list[int]:
        return []

    def accumulate(self, state: list[int], value: int) -> None:
        state[:] = sorted([*state, value], reverse=True)[:2]

    def merge(self, state: list[int], others: Any) -> None:
        for other in others:
            for value in other:
                self.accumulate(state, value)

    def emit_value(self, state: list[int]) -> Iterator[tuple[int, int]]:
        for rank, value in enumerate(state, 1):
            yield value, rank


class _Wrapped:
    """What PyFlink's decorators make, by its attributes (PyFlink 2.3: pyflink/table/udf.py)."""

    def __init__(self, function: Any, kind: str = "general", **more: Any) -> None:
        self._func, self._func_type, self._name, self._deterministic = function, kind, "wrapped", True
        self.__dict__.update(more)


def _described(row: Any, counts: Any) -> str:
    return json.dumps([row.name, row[1], dict(sorted(counts.items()))])


described = _Wrapped(_described, _result_type="STRING")
half = _Wrapped(lambda values: values / 2, kind="pandas", _result_type="DOUBLE")
spread = _Wrapped(
    lambda values: values.max() - values.min(), kind="pandas", _result_type="BIGINT", _is_table_aggregate=False
)
