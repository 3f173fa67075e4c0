"""Key slots and slot tables against a dict."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from headrace_stateful import slots as slots_module
from headrace_stateful.columns import SlotColumns
from headrace_stateful.slots import KeySlots, SlotTable
from hypothesis import given, settings
from hypothesis import strategies as st

TYPES: dict[str, tuple[pl.DataType, list[Any]]] = {
    "text": (pl.String(), [None, "", "a", "b", "ab", "ba", "é" * 50, "x" * 1000]),
    "integer": (pl.Int64(), [None, 0, 1, -1, 2**63 - 1, -(2**63)]),
    "float": (pl.Float64(), [None, 0.0, -0.0, math.nan, math.inf, 1.5, -1.5]),
    "flag": (pl.Boolean(), [None, True, False]),
    "decimal": (pl.Decimal(10, 2), [None, Decimal("0.00"), Decimal("1.10"), Decimal("-1.10")]),
    "list": (pl.List(pl.Int64()), [None, [], [1], [1, None]]),
}


def plain(value: Any) -> Any:
    """A value as a dict key that is equal when SQL's grouping says so."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return tuple(value) if isinstance(value, list) else value


def rows_of(names: list[str]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*(st.sampled_from(TYPES[name][1]) for name in names)), max_size=30)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, list[tuple[Any, ...]]]]]:
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3, unique=True))
    step = st.tuples(st.sampled_from(["insert", "insert", "find", "remove", "delta", "snapshot"]), rows_of(names))
    return names, draw(st.lists(step, max_size=12))


@given(histories(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_slot_table_is_a_dict(
    history: tuple[list[str], list[tuple[str, list[tuple[Any, ...]]]]], collide: bool
) -> None:
    names, steps = history
    schema = {name: TYPES[name][0] for name in names}
    hashes = slots_module.key_hashes
    if collide:
        slots_module.key_hashes = lambda frame, keys: hashes(frame, keys) & np.uint64(3)
    try:
        _run(schema, steps)
    finally:
        slots_module.key_hashes = hashes


def _run(schema: dict[str, pl.DataType], steps: list[tuple[str, list[tuple[Any, ...]]]]) -> None:
    values = {"v": pl.Int64(), "t": pl.String()}
    table, copy = SlotTable(schema, values), SlotTable(schema, values)
    model: dict[tuple[Any, ...], int] = {}
    clock = 0
    for what, rows in steps:
        keys = [tuple(plain(value) for value in row) for row in rows]
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        if what == "insert":
            slots, new_rows = table.find_or_insert(frame)
            firsts = [i for i, key in enumerate(keys) if key not in model and key not in keys[:i]]
            assert new_rows.tolist() == firsts
            for key in keys:
                clock += 1
                model[key] = clock
            last = {int(slot): model[key] for slot, key in zip(slots, keys, strict=True)}
            assert len(last) == len(set(keys))
            table.put(
                np.array(list(last), dtype=np.int64),
                pl.DataFrame({"v": list(last.values()), "t": [str(v) for v in last.values()]}, schema=values),
            )
        elif what == "remove":
            slots = table.find(frame)
            table.remove(np.unique(slots[slots >= 0]))
            for key in keys:
                model.pop(key, None)
        elif what == "delta":
            copy.apply(table.delta())
        elif what == "snapshot":
            copy = SlotTable(schema, values)
            copy.apply(table.snapshot())
        found = table.find(frame)
        assert [bool(slot >= 0) for slot in found] == [key in model for key in keys]
        there = found[found >= 0]
        wanted = [model[key] for key in keys if key in model]
        assert table.take(there)["v"].to_list() == wanted
        assert table.take(there)["t"].to_list() == [str(v) for v in wanted]
        assert len(table) == len(model)
    copy.apply(table.delta())
    slots = table.index.slots()
    assert copy.index.slots().tolist() == slots.tolist()
    assert copy.take(slots).equals(table.take(slots))
    assert copy.keys(slots).equals(table.keys(slots))
    assert sorted(copy.take(slots)["v"].to_list()) == sorted(model.values())


def test_table_grows_and_slots_are_used_again() -> None:
    table = KeySlots({"k": pl.String()})
    keys = pl.DataFrame({"k": [f"user-{number % 30_000}" for number in range(60_000)]})
    slots, new_rows = table.find_or_insert(keys)
    assert len(table) == 30_000
    assert new_rows.tolist() == list(range(30_000))
    assert (slots[:30_000] == slots[30_000:]).all()
    table.remove(slots[:20_000])
    others = pl.DataFrame({"k": [f"other-{number}" for number in range(20_000)]})
    again, _ = table.find_or_insert(others)
    assert table.end == 30_000
    assert sorted(again.tolist()) == sorted(slots[:20_000].tolist())
    assert (table.find(keys[:20_000]) == -1).all()
    assert (table.find(keys[20_000:30_000]) == slots[20_000:30_000]).all()
    assert table.keys(again).equals(others)


def test_many_rounds_of_removal_do_not_fill_the_table() -> None:
    table = KeySlots({"k": pl.Int64()})
    for begin in range(0, 200_000, 500):
        keys = pl.DataFrame({"k": np.arange(begin, begin + 500)})
        slots, _ = table.find_or_insert(keys)
        table.remove(slots)
    assert table.end == 500
    assert len(table._table) <= 4096


@pytest.mark.parametrize("name", sorted(TYPES))
def test_columns_keep_values(name: str) -> None:
    kind, values = TYPES[name]
    columns = SlotColumns({"v": kind})
    columns.reserve(5000)
    for begin in range(5):
        given_values = [values[(begin + place) % len(values)] for place in range(5000)]
        frame = pl.DataFrame({"v": given_values}, schema={"v": kind})
        columns.put(np.arange(5000), frame)
        assert columns.take(np.arange(5000)).equals(frame, null_equal=True)
        assert columns.equal(np.arange(5000), frame).all()
        assert columns.take(np.array([7, 3, 7])).equals(frame[[7, 3, 7]])
