"""Key slots and slot tables against a dict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from headrace.flow.key_hashes import key_hashes
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.state_parts import Restore, pack_parts
from headrace_stateful.keys import columns as columns_module
from headrace_stateful.keys import frozen_rows
from headrace_stateful.keys import slots as slots_module
from headrace_stateful.keys.columns import SlotColumns
from headrace_stateful.keys.slots import KeySlots, SlotTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

TYPES: dict[str, tuple[pl.DataType, list[Any]]] = {
    "text": (pl.String(), [None, "", "a", "b", "ab", "ba", "é" * 50, "x" * 1000]),
    "integer": (pl.Int64(), [None, 0, 1, -1, 2**63 - 1, -(2**63)]),
    "float": (pl.Float64(), [None, 0.0, -0.0, math.nan, math.inf, 1.5, -1.5]),
    "flag": (pl.Boolean(), [None, True, False]),
    "decimal": (pl.Decimal(10, 2), [None, Decimal("0.00"), Decimal("1.10"), Decimal("-1.10")]),
    "list": (pl.List(pl.Int64()), [None, [], [1], [1, None]]),
}


def hashes_cut_to(bits: int) -> AbstractContextManager[object]:
    """Within, hashes of keys have just these bits, so that many keys collide."""
    return mock.patch.object(slots_module, "key_hashes", lambda frame, keys: key_hashes(frame, keys) & np.uint64(bits))


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


@contextmanager
def little_tables() -> Iterator[None]:
    """Let tables of a few keys do what is for tables of millions: grow in place, move slots little by little, freeze rows."""
    with (
        mock.patch.multiple(slots_module, _LEAST_PLACES=4, _MOVED_FROM=4, _MOVED_PLACES=2, _FROZEN_FROM=0),
        mock.patch.object(columns_module, "_IN_PLACE_MIN", 16),
        mock.patch.object(frozen_rows, "_STEP", 3),
    ):
        yield


@given(histories(), st.booleans(), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_slot_table_is_a_dict(
    history: tuple[list[str], list[tuple[str, list[tuple[Any, ...]]]]], collide: bool, little: bool
) -> None:
    names, steps = history
    schema = {name: TYPES[name][0] for name in names}
    with hashes_cut_to(3) if collide else nullcontext(), little_tables() if little else nullcontext():
        _run(schema, steps)


def _run(schema: dict[str, pl.DataType], steps: list[tuple[str, list[tuple[Any, ...]]]]) -> None:
    values = {"v": pl.Int64(), "t": pl.String()}
    table, copy = SlotTable(schema, values), SlotTable(schema, values)
    model: dict[tuple[Any, ...], int] = {}
    clock = 0
    on_its_way: list[Callable[[], dict[str, pl.DataFrame]]] = []

    def settle() -> None:
        while on_its_way:
            copy.apply(on_its_way.pop()())

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
            settle()
            on_its_way.append(table.frozen(whole=False)[0])
        elif what == "snapshot":
            settle()
            copy = SlotTable(schema, values)
            on_its_way.append(table.frozen(whole=True)[0])
        found = table.find(frame)
        assert [bool(slot >= 0) for slot in found] == [key in model for key in keys]
        there = found[found >= 0]
        wanted = [model[key] for key in keys if key in model]
        assert table.take(there)["v"].to_list() == wanted
        assert table.take(there)["t"].to_list() == [str(v) for v in wanted]
        assert len(table) == len(model)
    settle()
    copy.apply(table.delta())
    slots = table.index.slots()
    assert copy.index.slots().tolist() == slots.tolist()
    assert copy.take(slots).equals(table.take(slots))
    assert copy.keys(slots).equals(table.keys(slots))
    assert sorted(copy.take(slots)["v"].to_list()) == sorted(model.values())


class Behind:
    """A table that is stored in parts, and moved: the next one begins without any of them."""

    def __init__(self, schema: dict[str, pl.DataType], values: dict[str, pl.DataType]) -> None:
        self._schema, self._values = schema, values
        self.table = SlotTable(schema, values)
        self._stored: list[list[bytes]] = []
        self._end = 0

    def store(self, bits: int, *, whole: bool) -> None:
        if whole:
            self._stored.clear()
        self._stored.append(pack_parts({}, [{"": part} for part in self.table.parts(bits, whole=whole)]))
        self._end = self.table.index.end

    def move(self) -> None:
        if not self._stored:
            return
        self.table = SlotTable(self._schema, self._values)
        versions = [(number, (len(parts) - 1).bit_length() - 1) for number, parts in enumerate(self._stored)]
        stored = list(self._stored)

        def fetch(wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
            for number, ranges in wanted.items():
                yield from ((number, part, stored[number][part]) for each in ranges for part in each)

        restore = Restore(versions, 8, fetch, {"": self.table})  # type: ignore[dict-item]
        self.table.begin_restore(self._end, 8, restore)

    def insert(self, frame: pl.DataFrame, clock: int) -> None:
        slots = np.unique(self.table.find_or_insert(frame)[0])
        values = {"v": [clock] * slots.size, "t": [str(clock)] * slots.size}
        self.table.put(slots, pl.DataFrame(values, schema=self._values))

    def remove(self, frame: pl.DataFrame) -> None:
        slots = self.table.find(frame)
        self.table.remove(np.unique(slots[slots >= 0]))

    def forget_below(self, bound: int) -> None:
        self.table.remove(self.table.slots_to_forget("v", bound))


@given(histories(), st.data(), st.booleans())
@settings(max_examples=examples(80), deadline=None)
def test_a_table_restored_behind_is_a_dict(
    history: tuple[list[str], list[tuple[str, list[tuple[Any, ...]]]]], data: st.DataObject, collide: bool
) -> None:
    names, steps = history
    schema = {name: TYPES[name][0] for name in names}
    with hashes_cut_to(3 << 62) if collide else nullcontext():
        behind = Behind(schema, {"v": pl.Int64(), "t": pl.String()})
        model: dict[tuple[Any, ...], int] = {}
        bound = 0
        for clock, (what, rows) in enumerate(steps):
            # As with a time to live: each entry begins with the time, and forgets what is old.
            bound = max(bound, data.draw(st.sampled_from([0, 0, clock - 1, clock])))
            behind.forget_below(bound)
            model = {key: value for key, value in model.items() if value >= bound}
            keys = [tuple(plain(value) for value in row) for row in rows]
            frame = pl.DataFrame(rows, schema=schema, orient="row")
            if what == "insert" and rows:
                behind.insert(frame, clock)
                model |= dict.fromkeys(keys, clock)
            elif what == "remove":
                behind.remove(frame)
                for key in keys:
                    model.pop(key, None)
            elif what in ("delta", "snapshot"):
                behind.store(data.draw(st.integers(0, 4)), whole=what == "snapshot" or clock == 0)
                if data.draw(st.booleans()):
                    behind.move()
                    behind.forget_below(bound)
            slots = behind.table.find(frame)
            assert [bool(slot >= 0) for slot in slots] == [key in model for key in keys]
            assert behind.table.take(slots[slots >= 0])["v"].to_list() == [model[key] for key in keys if key in model]
        behind.table.need_all()
        slots = behind.table.index.slots()
        found = zip(behind.table.keys(slots).rows(), behind.table.take(slots)["v"].to_list(), strict=True)
        assert {tuple(plain(value) for value in key): number for key, number in found} == model


def test_rows_whose_time_has_passed_are_forgotten_when_they_are_restored() -> None:
    behind = Behind({"k": pl.Int64()}, {"v": pl.Int64(), "t": pl.String()})
    for clock in range(4):
        behind.insert(pl.DataFrame({"k": range(clock * 20, clock * 20 + 20)}), clock)
    behind.store(4, whole=True)
    behind.move()
    behind.forget_below(1)
    assert (behind.table.find(pl.DataFrame({"k": [3, 19]})) < 0).all()
    behind.insert(pl.DataFrame({"k": [3]}), 5)
    behind.forget_below(3)
    assert (behind.table.find(pl.DataFrame({"k": [21, 59, 60, 3]})) >= 0).tolist() == [False, False, True, True]
    behind.table.need_all()
    assert sorted(behind.table.keys(behind.table.index.slots())["k"].to_list()) == [3, *range(60, 80)]
    # They are gone in the stored state, too.
    behind.store(2, whole=False)
    behind.move()
    behind.table.need_all()
    assert sorted(behind.table.keys(behind.table.index.slots())["k"].to_list()) == [3, *range(60, 80)]


def test_a_slot_of_two_keys_is_refused() -> None:
    table = SlotTable({"k": pl.Int64()}, {"v": pl.Int64()})
    rows = pl.DataFrame({"k": [1, 2], "v": [1, 2]})
    table.put(table.find_or_insert(rows)[0], rows)
    (part,) = table.parts(0, whole=True)
    other = SlotTable({"k": pl.Int64()}, {"v": pl.Int64()})
    other.begin_restore(2, 2, Restore([(0, 0)], 2, lambda wanted: iter(()), {}))
    other.put_parts([(0, part)], np.ones(1, dtype=bool))
    with pytest.raises(CheckpointError, match="assigns one slot to two keys"):
        other.put_parts([(1, part)], np.ones(1, dtype=bool))
    with pytest.raises(CheckpointError, match="damaged"):
        other.put_parts([(1, part[:-5])], np.ones(1, dtype=bool))


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


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("changed", [3, 600])
def test_frozen_rows_are_those_of_the_moment(whole: bool, changed: int) -> None:
    def put(table: SlotTable, keys: range, value: int) -> None:
        slots, _ = table.find_or_insert(pl.DataFrame({"k": [f"key {key}" for key in keys]}))
        table.put(slots, pl.DataFrame({"v": [value] * len(keys), "t": [f"text {value}"] * len(keys)}))

    types: dict[str, pl.DataType] = {"v": pl.Int64(), "t": pl.String()}
    table, other = SlotTable({"k": pl.String()}, types), SlotTable({"k": pl.String()}, types)
    put(table, range(1000), 1)
    other.apply(table.delta())
    put(table, range(changed), 2)
    table.remove(table.find(pl.DataFrame({"k": ["key 999", "key 998"]})))
    wanted = SlotTable({"k": pl.String()}, types)
    make, rows = table.frozen(whole=whole)
    put(table, range(500, 2000), 3)
    table.remove(table.find(pl.DataFrame({"k": ["key 1", "key 700"]})))
    frames = make()
    assert rows == (998 if whole else changed + 2)
    (wanted if whole else other).apply(frames)
    found = (wanted if whole else other).find(pl.DataFrame({"k": [f"key {key}" for key in range(1000)]}))
    values = (wanted if whole else other).take(found[:998])
    assert (found[998:] < 0).all()
    assert values["v"].to_list() == [2] * changed + [1] * (998 - changed)
    assert values["t"].to_list() == ["text 2"] * changed + ["text 1"] * (998 - changed)
    put(table, range(3), 4)
    assert table.delta()["set"].height == 1500 - 1 + 3  # what came behind is in the next delta: key 700 has gone again


def test_a_table_goes_on_while_another_thread_takes_out_what_is_frozen() -> None:
    types: dict[str, pl.DataType] = {"v": pl.Int64(), "t": pl.String()}
    table = SlotTable({"k": pl.Int64()}, types)
    random = np.random.default_rng(1)

    def put(keys: Any, value: int) -> None:
        slots, _ = table.find_or_insert(pl.DataFrame({"k": keys}))
        table.put(slots, pl.DataFrame({"v": np.full(len(keys), value), "t": [f"text {value}"] * len(keys)}))

    put(np.arange(150_000), 0)
    for step in range(1, 4):
        slots = table.index.slots()
        wanted = pl.concat([table.keys(slots), table.take(slots)], how="horizontal").sort("k")
        make, rows = table.frozen(whole=True)
        assert rows == len(table)
        with ThreadPoolExecutor(1) as pool, mock.patch.object(frozen_rows, "_STEP", 2000):
            made = pool.submit(make)
            for _ in range(20):
                put(random.choice(170_000, 5000, replace=False), step)
                there = table.find(pl.DataFrame({"k": random.choice(170_000, 2000, replace=False)}))
                table.remove(there[there >= 0])
            found = made.result()["set"]
        assert found[SlotTable.SLOT].n_unique() == found.height
        assert found.drop(SlotTable.SLOT).sort("k").equals(wanted)


def test_frozen_rows_that_nobody_asks_for_are_forgotten() -> None:
    table = SlotTable({"k": pl.Int64()}, {"v": pl.Int64()})
    with little_tables():
        for value in range(3):
            rows = pl.DataFrame({"k": [1, 2], "v": [value] * 2})
            table.put(table.find_or_insert(rows)[0], rows)
            make, _ = table.frozen(whole=False)
        assert make()["set"]["v"].to_list() == [2, 2]


def test_frozen_rows_that_are_dropped_are_not_copied_before_they_change() -> None:
    table = SlotTable({"k": pl.Int64()}, {"v": pl.Int64()})
    rows = pl.DataFrame({"k": [1, 2], "v": [0, 0]})
    with little_tables():
        slots, _ = table.find_or_insert(rows)
        table.put(slots, rows)
        table.frozen(whole=False)
        table.drop_frozen()
        with mock.patch.object(table, "_rows", side_effect=AssertionError("a row was copied")):
            table.put(slots, rows)
        assert table.delta()["set"]["k"].to_list() == [1, 2]
        assert table.delta() == {}


def test_slots_move_to_a_larger_table_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots_module, "_MOVED_FROM", 1 << 12)
    monkeypatch.setattr(slots_module, "_MOVED_PLACES", 1 << 8)
    index, count = KeySlots({"k": pl.Int64()}), 0
    while index._before is None:
        index.find_or_insert(pl.DataFrame({"k": np.arange(count, count + 200)}))
        count += 200
    assert count > 2000
    keys = pl.DataFrame({"k": np.arange(count)})
    slots = index.find(keys)
    assert np.unique(slots).size == count
    index.remove(slots[::2])
    assert (index.find(keys[1::2]) == slots[1::2]).all()
    assert (index.find(keys[::2]) == -1).all()
    assert index._before is not None
    while index._before is not None:
        index.find(keys[:1])
    assert (index.find(keys[1::2]) == slots[1::2]).all()
    assert (index.find(keys[::2]) == -1).all()
    again, new = index.find_or_insert(keys)
    assert new.size == count // 2
    assert np.unique(again).size == count
