"""What specs compile against columns is kept."""

from __future__ import annotations

import copy
import pickle

import polars as pl
import pytest
from headrace.flow.schema import Schema, per_schema


class Counting:
    """Counts how often it compiles."""

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.calls: list[Schema] = []

    @per_schema
    def compiled(self, schema: Schema) -> int:
        self.calls.append(schema)
        return len(schema) * self.factor


ONE = Schema({"a": pl.Int64()})
OTHER = Schema({"a": pl.Int32(), "b": pl.String()})


def test_what_a_spec_compiles_is_made_once_for_each_schema() -> None:
    spec = Counting(3)
    assert [spec.compiled(schema) for schema in (ONE, OTHER, ONE, Schema({"a": pl.Int64()}))] == [3, 6, 3, 3]
    assert spec.calls == [ONE, OTHER]
    assert spec.compiled(dict(OTHER)) == 6  # type: ignore[arg-type]


def test_copies_of_a_spec_compile_for_themselves() -> None:
    spec = Counting(3)
    spec.compiled(ONE)
    changed = copy.copy(spec)
    changed.factor = 5
    assert (spec.compiled(ONE), changed.compiled(ONE)) == (3, 5)


def test_what_is_compiled_does_not_travel_with_a_spec() -> None:
    spec = Counting(3)
    size = len(pickle.dumps(spec))
    spec.compiled(ONE)
    spec.calls.clear()
    assert len(pickle.dumps(spec)) == size


def test_kept_results_are_bounded() -> None:
    spec = Counting(1)
    for width in range(100):
        spec.compiled(Schema({f"c{number}": pl.Int64() for number in range(width)}))
    assert spec.compiled(Schema({})) == 0
    assert len(spec.calls) == 101


def test_a_part_has_its_columns_in_order_under_other_names() -> None:
    whole = Schema.of({"a": "int64", "b": "json", "c": "string", "d": "json"})
    part = whole.part(["d", "a", "b"], {"b": "x"})
    assert list(part.items()) == [("d", pl.String()), ("a", pl.Int64()), ("x", pl.String())]
    assert part.json_columns == {"d", "x"}
    assert whole.part(whole) == whole
    with pytest.raises(KeyError):
        whole.part(["e"])
