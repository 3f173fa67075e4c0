"""Changelogs of random changes against a dict and a counter."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
from headrace.flow.changelog import collapsed, netted, signs
from headrace.flow.messages import CHANGE, ChangeKind
from hypothesis import given
from hypothesis import strategies as st

KIND = st.sampled_from([ChangeKind.INSERT, ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER, ChangeKind.DELETE])
ROWS = st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), st.integers(0, 3), KIND), max_size=30)


def frame_of(rows: list[tuple[Any, int, int]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"k": pl.Int64(), "v": pl.Int64(), CHANGE: pl.Int8()}, orient="row")


@given(ROWS)
def test_collapsed_is_the_last_change_of_each_key(rows: list[tuple[Any, int, int]]) -> None:
    last = {key: (value, kind) for key, value, kind in rows}
    found = collapsed(frame_of(rows), ["k"])
    gone = (ChangeKind.DELETE, ChangeKind.UPDATE_BEFORE)
    assert sorted(found.upserts.select("k", "v").rows(), key=repr) == sorted(
        ((key, value) for key, (value, kind) in last.items() if kind not in gone), key=repr
    )
    assert set(found.deletes["k"].to_list()) == {key for key, (_, kind) in last.items() if kind in gone}


def test_one_key_for_everything() -> None:
    found = collapsed(frame_of([(1, 1, ChangeKind.INSERT), (2, 2, ChangeKind.UPDATE_AFTER)]), [])
    assert found.upserts["v"].to_list() == [2]


def test_rows_without_kind_are_upserts() -> None:
    found = collapsed(frame_of([(1, 1, 0), (1, 2, 0)]).drop(CHANGE), ["k"])
    assert found.upserts.rows() == [(1, 2)]
    assert found.deletes.height == 0


@given(ROWS)
def test_netted_is_the_same_difference(rows: list[tuple[Any, int, int]]) -> None:
    frame = frame_of(rows)
    plain: Counter[Any] = Counter()
    for (key, value, _), sign in zip(rows, signs(frame).tolist(), strict=True):
        plain[key, value] += sign
    places, net = netted(frame, ["k", "v"], signs(frame))
    found: Counter[Any] = Counter()
    for place, sign in zip(places.tolist(), net.tolist(), strict=True):
        found[rows[place][:2]] += sign
    assert {row: count for row, count in found.items() if count} == {
        row: count for row, count in plain.items() if count
    }
    assert sum(abs(count) for count in plain.values()) == len(places) or all(sign > 0 for sign in net)
    assert places.tolist() == sorted(places.tolist())
