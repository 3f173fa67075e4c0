"""Row logs against a list, with compaction forced early and keys whose hashes are equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from headrace.flow.key_hashes import key_hashes
from headrace.foundation.errors import CheckpointError
from headrace_stateful.keys import columns as columns_module
from headrace_stateful.keys import row_log as row_log_module
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.state_bytes import pack, unpack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.effort import examples

SCHEMA = {"k": pl.String(), "n": pl.Int64()}
KEYS = [None, "", "a", "b", "ab", "c"]
ROW = st.tuples(st.sampled_from(KEYS), st.integers(0, 3))
STEP = st.tuples(
    st.sampled_from(["append", "append", "remove", "remove_equal", "mark", "delta", "snapshot", "frozen", "tidy"]),
    st.lists(ROW, max_size=8),
    st.randoms(use_true_random=False),
)


@pytest.fixture(autouse=True)
def _compact_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_log_module, "_LEAST_DEAD", 2)
    monkeypatch.setattr(columns_module, "_LEAST_DEAD", 2)


def contents(log: RowLog) -> list[tuple[Any, ...]]:
    places = log.places()
    marks = log.mark("m", places).tolist()
    return [(*row, mark) for row, mark in zip(log.take(places).rows(), marks, strict=True)]


@given(st.lists(STEP, max_size=30), st.booleans())
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_log_is_a_list(steps: list[Any], collide: bool) -> None:
    with mock.patch.object(row_log_module, "key_hashes", _of_two_values) if collide else nullcontext():
        run(steps)


def _of_two_values(frame: pl.DataFrame, keys: Sequence[str]) -> NDArray[np.uint64]:
    return key_hashes(frame, keys) & np.uint64(1)


def run(steps: list[Any]) -> None:
    log, copy = RowLog(SCHEMA, ("k",), ("m",)), RowLog(SCHEMA, ("k",), ("m",))
    model: list[list[Any]] = []
    on_their_way: list[Callable[[], dict[str, pl.DataFrame]]] = []
    for what, rows, random in steps:
        frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
        places = log.places()
        if what == "append":
            log.append(frame, m=np.arange(len(rows)))
            model += [[*row, number] for number, row in enumerate(rows)]
        elif what == "remove":
            chosen = sorted(random.sample(range(len(model)), min(len(model), len(rows))))
            log.remove(places[chosen])
            model = [row for at, row in enumerate(model) if at not in chosen]
        elif what == "remove_equal":
            found = log.find_equal(frame)
            log.remove(found[found >= 0])
            for row, place in zip(rows, found, strict=True):
                at = next((at for at, other in enumerate(model) if tuple(other[:2]) == row), None)
                assert (at is None) == (place < 0)
                if at is not None:
                    del model[at]
        elif what == "mark" and model:
            chosen = sorted(random.sample(range(len(model)), min(len(model), len(rows))))
            log.set_mark("m", places[chosen], np.array(chosen, dtype=np.int64) * 10)
            for at in chosen:
                model[at][2] = at * 10
        elif what == "frozen":
            on_their_way.append(log.frozen(whole=False)[0])
        elif what == "delta":
            apply_all(copy, on_their_way)
            copy.apply(log.delta())
        elif what == "snapshot":
            copy = RowLog(SCHEMA, ("k",), ("m",))
            on_their_way[:] = [log.frozen(whole=True)[0]]
        elif what == "tidy":
            log.tidy()
        assert contents(log) == [tuple(row) for row in model]
        assert len(log) == len(model)
        owners, matched = log.find(frame, ("k",))
        found_rows = [(owner, row) for owner, row in zip(owners.tolist(), log.take(matched).rows(), strict=True)]
        assert found_rows == [
            (owner, tuple(other[:2])) for owner, row in enumerate(rows) for other in model if other[0] == row[0]
        ]
    apply_all(copy, on_their_way)
    copy.apply(log.delta())
    assert contents(copy) == contents(log)
    assert log.delta() == {}


def apply_all(copy: RowLog, on_their_way: list[Callable[[], dict[str, pl.DataFrame]]]) -> None:
    """Make what was frozen before other things came, and take it."""
    for make in on_their_way:
        copy.apply(make())
    on_their_way.clear()


TURN = st.tuples(
    st.integers(0, 1),
    st.lists(st.tuples(st.sampled_from(["append", "last", "remove", "mark"]), st.integers(1, 5)), max_size=4),
    st.randoms(use_true_random=False),
)


@given(st.lists(TURN, max_size=25))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_copies_that_take_turns_are_one_list(turns: list[Any]) -> None:
    """As shards that are kept in several processes: each one catches up with what the others have stored before it goes on."""
    copies = [RowLog(SCHEMA, ("k",), ("m",)) for _ in range(2)]
    stored: list[Any] = []
    reached = [0, 0]
    model: list[list[Any]] = []
    count = 0
    for who, steps, random in turns:
        log = copies[who]
        for delta in stored[reached[who] :]:
            log.apply(delta)
        for what, number in steps:
            chosen = sorted(random.sample(range(len(model)), min(len(model), number)))
            if what == "append":
                rows = [(random.choice(KEYS), count + each) for each in range(number)]
                log.append(pl.DataFrame(rows, schema=SCHEMA, orient="row"), m=np.arange(number))
                model += [[*row, each] for each, row in enumerate(rows)]
                count += number
            elif what in ("remove", "last"):
                chosen = chosen if what == "remove" else list(range(max(0, len(model) - number), len(model)))
                log.remove(log.places()[chosen])
                model = [row for at, row in enumerate(model) if at not in chosen]
            elif chosen:
                log.set_mark("m", log.places()[chosen], np.array(chosen, dtype=np.int64) * 10)
                for at in chosen:
                    model[at][2] = at * 10
        stored.append(log.delta())
        reached[who] = len(stored)
        assert contents(log) == [tuple(row) for row in model]
        assert len(log) == len(model)


def test_a_row_that_nobody_else_has_known_leaves_no_trace() -> None:
    one, other = RowLog(SCHEMA, ("k",), ("m",)), RowLog(SCHEMA, ("k",), ("m",))
    one.append(frame_of(("a", 0), ("b", 1)))
    other.apply(one.delta())
    one.remove(one.append(frame_of(("gone", 2), ("gone", 3))))
    assert one.delta() == {}
    other.append(frame_of(("c", 4), ("d", 5), ("e", 6)))
    one.apply(other.delta())
    other.remove(other.places()[2:4])
    one.apply(other.delta())
    assert contents(one) == contents(other) == [("a", 0, 0), ("b", 1, 0), ("e", 6, 0)]
    assert len(one) == len(other) == 3


def frame_of(*rows: tuple[str, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


@pytest.mark.parametrize("later", [0, 1, 5])
def test_a_changed_row_whose_room_was_given_back_leaves_no_trace(later: int) -> None:
    log, copy = RowLog(SCHEMA, ("k",), ("m",)), RowLog(SCHEMA, ("k",), ("m",))
    places = log.append(frame_of(("a", 0), ("b", 1), ("c", 2), ("d", 3)))
    copy.apply(log.delta())
    log.set_mark("m", places[1:], np.array([10, 20, 30], dtype=np.int64))
    log.remove(places[1:])
    log.tidy()
    log.append(frame_of(*(("later", number) for number in range(later))), m=np.arange(later))
    delta = log.delta()
    assert "changed" not in delta, "the rows that were changed are gone, the others were not changed"
    copy.apply(delta)
    assert contents(copy) == contents(log) == [("a", 0, 0), *(("later", number, number) for number in range(later))]


def test_state_of_a_newer_version_is_refused() -> None:
    packed = pack("delta", {"a": pl.DataFrame({"x": [1]})}, {"v": 1})
    kind, frames, values = unpack(packed)
    assert (kind, frames["a"]["x"].to_list(), values) == ("delta", [1], {"v": 1})
    with pytest.raises(CheckpointError, match="newer version"):
        unpack(packed.replace(b"\xa6format\x01", b"\xa6format\x63"))
    with pytest.raises(CheckpointError, match="damaged"):
        unpack(packed[:-5])
    with pytest.raises(CheckpointError, match="damaged"):
        unpack(packed.replace(b"ARROW1", b"ARROW0"))
