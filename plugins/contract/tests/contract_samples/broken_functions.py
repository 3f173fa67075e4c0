"""A broken function for each check: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import polars as pl
from headrace.flow.schema import Schema, data_type
from headrace.interfaces.functions import AggregateFunction, ScalarFunction, TableFunction
from headrace_contract import FunctionContract

from contract_samples.broken import Fault
from contract_samples.function_contracts import MeanContract, RatioContract, ShoutContract, WordsContract
from contract_samples.functions import Mean

STRING, INT64, FLOAT64 = data_type("string"), data_type("int64"), data_type("float64")
WORDS = Schema.of({"word": "string", "length": "int64"})
_implementation: Any = Mean.implementation  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------------------------------- scalar


class BrokenAsks(Fault, ShoutContract):
    breaks = "test_results_are_right"

    def make_function(self) -> Any:
        return ScalarFunction("shout", lambda text: None if text is None else f"{text.upper()}?", STRING)


class BrokenSorts(Fault, FunctionContract):
    breaks = "test_arguments_are_not_changed"
    cases: ClassVar[Any] = [(([3, 1, 2],), 1), (([7],), 7)]

    def make_function(self) -> Any:
        def least(values: list[int] | None) -> int | None:
            if values is None:
                return None
            values.sort()
            return values[0]

        return ScalarFunction("least", least, INT64)


class BrokenHoldsLock(Fault, ShoutContract):
    breaks = "test_survives_pickle"
    also = frozenset({"test_same_results_elsewhere"})

    def make_function(self) -> Any:
        lock = threading.Lock()

        def shout(text: str | None) -> str | None:
            with lock:
                return None if text is None else f"{text.upper()}!"

        return ScalarFunction("shout", shout, STRING)


class BrokenHashes(Fault, FunctionContract):
    breaks = "test_same_results_elsewhere"
    cases: ClassVar[Any] = [((text,), hash(text) % 1_000_003) for text in ("a", "b", "grüße")]

    def make_function(self) -> Any:
        return ScalarFunction("bucket", lambda text: None if text is None else hash(text) % 1_000_003, INT64)


class BrokenCounts(Fault, FunctionContract):
    """Gives other results the second time."""

    breaks = "test_same_results_elsewhere"
    also = frozenset({"test_rows_are_treated_by_themselves"})
    cases: ClassVar[Any] = [((5,), 6), ((5,), 7)]

    def make_function(self) -> Any:
        calls: list[None] = []

        def counted(number: int | None) -> int | None:
            calls.append(None)
            return None if number is None else number + len(calls)

        return ScalarFunction("counted", counted, INT64)


class BrokenOddName(Fault, ShoutContract):
    breaks = "test_name_fits_sql"

    def make_function(self) -> Any:
        return ScalarFunction("my shout", lambda text: None if text is None else f"{text.upper()}!", STRING)


class BrokenCentres(Fault, RatioContract):
    breaks = "test_rows_are_treated_by_themselves"
    cases: ClassVar[Any] = [((1.0,), -1.0), ((2.0,), 0.0), ((3.0,), 1.0)]

    def make_function(self) -> Any:
        return ScalarFunction("centred", lambda values: values - values.mean(), FLOAT64, vectorized=True)


class BrokenStumblesOverNull(Fault, FunctionContract):
    breaks = "test_null_arguments"
    cases: ClassVar[Any] = [(("hey",), "HEY!")]

    def make_function(self) -> Any:
        return ScalarFunction("shout", lambda text: f"{text.upper()}!", STRING)


class BrokenTakesNullForText(Fault, FunctionContract):
    breaks = "test_null_arguments"
    cases: ClassVar[Any] = [(("hey",), "hey!")]

    def make_function(self) -> Any:
        return ScalarFunction("mark", lambda text: f"{text}!", STRING)


class BrokenOtherType(Fault, ShoutContract):
    breaks = "test_return_type_is_kept"

    def make_function(self) -> Any:
        return ScalarFunction("shout", lambda text: None if text is None else f"{text.upper()}!", INT64)


class BrokenOtherSeries(Fault, RatioContract):
    breaks = "test_return_type_is_kept"

    def make_function(self) -> Any:
        def ratio(part: pl.Series, whole: pl.Series) -> pl.Series:
            return part / whole.replace(0, None)

        return ScalarFunction("ratio", ratio, INT64, vectorized=True)


# --------------------------------------------------------------------------------------------------------- table


class BrokenExtraColumn(Fault, WordsContract):
    breaks = "test_rows_fit_the_schema"
    cases: ClassVar[Any] = [(("one",), [{"word": "one", "length": 3, "place": 0}])]

    def make_function(self) -> Any:
        def words(text: str | None) -> Iterator[dict[str, Any]]:
            for place, word in enumerate((text or "").split()):
                yield {"word": word, "length": len(word), "place": place}

        return TableFunction("words", words, WORDS)


class BrokenOtherValues(Fault, WordsContract):
    breaks = "test_rows_fit_the_schema"
    cases: ClassVar[Any] = [(("one",), [{"word": "one", "length": "3"}])]

    def make_function(self) -> Any:
        return TableFunction("words", lambda text: [(word, str(len(word))) for word in (text or "").split()], WORDS)


class BrokenLeavesRest(Fault, WordsContract):
    """Keeps the words of a call in one list, which is only empty again when the call is read to its end."""

    breaks = "test_calls_are_independent"

    def make_function(self) -> Any:
        waiting: list[str] = []

        def words(text: str | None) -> Iterator[tuple[str, int]]:
            waiting.extend((text or "").split())
            while waiting:
                yield waiting[0], len(waiting[0])
                del waiting[0]

        return TableFunction("words", words, WORDS)


# ----------------------------------------------------------------------------------------------------- aggregate


class Means(Fault, MeanContract):
    """The contract of a broken Mean."""

    mean: ClassVar[Any]

    def make_function(self) -> Any:
        return AggregateFunction("mean", self.mean, FLOAT64)


class BrokenMergesNothing(Means):
    breaks = "test_parts_merge_to_the_whole"

    class mean(_implementation):  # type: ignore[misc]
        def merge(self, state: Any, other: Any) -> Any:
            return state


class BrokenSetState(Means):
    breaks = "test_state_can_be_stored"

    class mean(_implementation):  # type: ignore[misc]
        def create(self) -> Any:
            return {"parts": set(), "sums": [0, 0.0]}

        def add(self, state: Any, value: float | None) -> Any:
            state["parts"].add(len(state["parts"]))
            super().add(state["sums"], value)
            return state

        def retract(self, state: Any, value: float | None) -> Any:
            super().retract(state["sums"], value)
            return state

        def merge(self, state: Any, other: Any) -> Any:
            return {"parts": state["parts"] | other["parts"], "sums": super().merge(state["sums"], other["sums"])}

        def result(self, state: Any) -> float | None:
            found: float | None = super().result(state["sums"])
            return found


class BrokenOneState(Means):
    """One state for all, made empty again by ``result``."""

    breaks = "test_groups_are_independent"

    class mean(_implementation):  # type: ignore[misc]
        state: ClassVar[list[Any]] = [0, 0.0]

        def create(self) -> Any:
            return self.state

        def result(self, state: Any) -> float | None:
            found: float | None = super().result(state)
            self.state[:] = [0, 0.0]
            return found


class BrokenRetractsNothing(Means):
    breaks = "test_retract_undoes_add"

    class mean(_implementation):  # type: ignore[misc]
        def retract(self, state: Any, value: float | None) -> Any:
            return state
