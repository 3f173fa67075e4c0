"""A broken operator with state for each check: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import polars as pl
from headrace.flow.messages import OFFSET, Batch, EndOfInput, SystemMessage, Tick, Watermark
from headrace.flow.schema import Schema
from headrace.interfaces.key_shares import KeyShare
from headrace.interfaces.operator import RejectedRows, StatefulOperator, StatefulSpec
from headrace_contract import StatefulOperatorContract

from contract_samples.broken import Fault
from contract_samples.stateful_operators import PartedSumming, Summing, Sums

Results = Iterable[Batch | RejectedRows | Watermark]


class Spec(Sums):
    """The spec of a broken operator."""

    def __init__(self, operator: type[Summing]) -> None:
        self.operator = operator

    def open(self, schema: Schema | None) -> StatefulOperator:
        return self.operator()


class Operators(Fault, StatefulOperatorContract):
    """The contract of a broken Summing; ``operator`` is what runs."""

    schema: ClassVar[Any] = {"key": "string", "value": "int64"}
    operator: ClassVar[type[Summing]]

    def make_spec(self) -> StatefulSpec:
        return Spec(self.operator)

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        return [{"key": f"k{n * n % 7}", "value": n} for n in range(first, first + count)]


class BrokenDefinition(Operators):
    breaks = "test_says_what_its_state_is_of"

    class operator(Summing):
        pass

    def make_spec(self) -> StatefulSpec:
        return Nameless(self.operator)


class Nameless(Spec):
    """Its description is another one whenever it is asked for."""

    def describe(self) -> str:
        return f"{self.operator} {uuid.uuid4()}"


class BrokenCuts(Operators):
    breaks = "test_results_do_not_depend_on_batch_cuts"

    class operator(Summing):
        def process(self, batch: Batch) -> Results:
            for result in super().process(batch):
                assert isinstance(result, Batch)
                yield result.with_frame(result.frame.unique("key", keep="last", maintain_order=True))


class BrokenOrder(Operators):
    breaks = "test_the_same_entries_give_the_same_rows_in_the_same_order"

    class operator(Summing):
        def on_system(self, message: SystemMessage) -> Results:
            if isinstance(message, EndOfInput) and hasattr(self, "last"):
                # As a set gives them with another hash seed, which a few keys may have by chance; made sure of here.
                keys = sorted(self.sums, reverse=os.environ.get("PYTHONHASHSEED") == "271828")
                yield self.made(self.last, [(key, self.sums[key]) for key in keys])


class BrokenRestore(Operators):
    breaks = "test_a_restored_operator_goes_on_as_the_original"
    also = frozenset({"test_state_is_divided_by_key"})

    class operator(Summing):
        def apply(self, state: bytes) -> None:
            super().apply(state)
            self.sums.pop("k2", None)


class BrokenSaving(Operators):
    breaks = "test_saving_changes_nothing"
    also = frozenset({"test_a_restored_operator_goes_on_as_the_original"})

    class operator(Summing):
        def snapshot(self) -> bytes:
            state = super().snapshot()
            self.sums.pop("k4", None)
            return state


class BrokenShares(Operators):
    breaks = "test_state_is_divided_by_key"

    class operator(Summing):
        def share_of(self, states: Sequence[bytes], share: KeyShare) -> bytes:
            return super().share_of(states[:1], share)  # keys of the other shards are lost


class BrokenColumns(Operators):
    breaks = "test_rows_have_no_place_of_their_own"

    class operator(Summing):
        def made(self, batch: Batch, rows: list[tuple[str, int]]) -> Batch:
            made = super().made(batch, rows)
            return made.with_frame(made.frame.with_columns(pl.lit(7, dtype=pl.Int64).alias(OFFSET)))


class BrokenClock(Operators):
    breaks = "test_who_goes_by_the_clock_says_so"

    class operator(Summing):
        def on_system(self, message: SystemMessage) -> Results:
            if isinstance(message, Tick) and message.time_us > 1_750_000_000_000_000:
                self.sums.clear()
            return super().on_system(message)


class BrokenCount(Operators):
    breaks = "test_state_rows_are_counted"

    class operator(Summing):
        def state_rows(self) -> int:
            return len(self.sums) - 1


class BrokenRestoreBehind(Operators):
    breaks = "test_an_operator_restored_behind_goes_on_as_the_original"

    class operator(PartedSumming):
        def on_system(self, message: SystemMessage) -> Results:
            return Summing.on_system(self, message)  # all keys are looked at, and nobody has asked for them
