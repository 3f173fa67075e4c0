"""The rows of a running query."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import polars as pl
from headrace.flow.messages import CHANGE
from headrace_shell.views import View
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples


def write(place: Path, number: int, rows: list[tuple[int, int]]) -> None:
    frame = pl.DataFrame(rows, schema={"x": pl.Int64(), CHANGE: pl.Int8()}, orient="row")
    frame.write_ipc(place / f"{number:03d}.arrow")


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=5), st.data())
def test_a_view_has_the_rows_that_are_left(batches: list[list[int]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        place, view, left = Path(name), View("v", name, {"x": pl.Int64()}), Counter[int]()
        for number, batch in enumerate(batches):
            rows = []
            for value in batch:
                taken_back = left[value] > 0 and data.draw(st.booleans())
                rows.append((value, 3 if taken_back else 0))
                left[value] += -1 if taken_back else 1
            write(place, number, rows)
            assert view.refresh()
            assert not view.refresh()
            assert Counter(view.frame()["x"].to_list()) == +left
            assert not view.is_updating or view.height == sum(left.values())


def test_rows_that_are_only_added_are_kept_up_to_a_number(tmp_path: Path) -> None:
    view = View("v", str(tmp_path), {"x": pl.Int64()}, rows_max=5)
    for number in range(6):
        write(tmp_path, number, [(number * 3 + each, 0) for each in range(3)])
        view.refresh()
    assert view.height == 18
    assert view.frame(5)["x"].to_list() == [13, 14, 15, 16, 17]
    assert view.frame().height <= 10


def test_a_directory_that_is_not_there_yet_has_no_rows(tmp_path: Path) -> None:
    view = View("v", str(tmp_path / "later"), {"x": pl.Int64()})
    assert not view.refresh()
    assert view.frame().schema == {"x": pl.Int64()}
