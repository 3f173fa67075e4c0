"""Healthy state stores and operators with state pass every check."""

from __future__ import annotations

from typing import Any, ClassVar

from contract_samples.state_stores import LineStore, PartsStore, ReadableLineStore
from contract_samples.stateful_operators import PartedSums, Sums
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.state_store import KeyedStateStore, ReadableStateStore, StateStore
from headrace_contract import (
    KeyedStateStoreContract,
    ReadableStateStoreContract,
    StatefulOperatorContract,
    StateStoreContract,
)


class TestLineStore(StateStoreContract):
    """A store of files of lines."""

    def make_store(self) -> StateStore:
        return LineStore(self.tmp_path / "state")


class TestPartsStore(KeyedStateStoreContract):
    """A store of files of lines, which gives single parts."""

    def make_store(self) -> KeyedStateStore:
        return PartsStore(self.tmp_path / "state")


class TestReadableLineStore(ReadableStateStoreContract):
    """A store of files of lines, which another process may read."""

    def make_store(self) -> ReadableStateStore:
        return ReadableLineStore(self.tmp_path / "state")


class TestSums(StatefulOperatorContract):
    """A running sum."""

    schema: ClassVar[Any] = {"key": "string", "value": "int64"}

    def make_spec(self) -> StatefulSpec:
        return Sums()

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        return [{"key": f"k{n * n % 7}", "value": n} for n in range(first, first + count)]


class TestPartedSums(TestSums):
    """A running sum, whose keys can come in behind."""

    def make_spec(self) -> StatefulSpec:
        return PartedSums()
