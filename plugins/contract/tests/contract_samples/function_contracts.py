"""The contracts of the sample functions, as their author would write them."""

from __future__ import annotations

from typing import Any, ClassVar

from headrace_contract import AggregateFunctionContract, FunctionContract, TableFunctionContract

from contract_samples.functions import Mean, ratio, shout, words


class ShoutContract(FunctionContract):
    """Row by row."""

    cases: ClassVar[Any] = [(("hey",), "HEY!"), (("",), "!"), ((None,), None), (("grüße",), "GRÜSSE!")]

    def make_function(self) -> Any:
        return shout


class RatioContract(FunctionContract):
    """Vectorized."""

    cases: ClassVar[Any] = [((1, 2), 0.5), ((3, 4), 0.75), ((1, 0), None), ((0, 7), 0.0)]

    def make_function(self) -> Any:
        return ratio


class WordsContract(TableFunctionContract):
    """A table function."""

    cases: ClassVar[Any] = [
        (("one three",), [{"word": "one", "length": 3}, {"word": "three", "length": 5}]),
        (("",), []),
        ((None,), []),
        (("x",), [{"word": "x", "length": 1}]),
    ]

    def make_function(self) -> Any:
        return words


class MeanContract(AggregateFunctionContract):
    """An aggregate function."""

    cases: ClassVar[Any] = [
        ([(1.0,), (2.0,), (6.0,)], 3.0),
        ([], None),
        ([(None,), (4.5,)], 4.5),
        ([(0.1,), (0.2,), (0.3,)], 0.2),
    ]

    def make_function(self) -> Any:
        return Mean
