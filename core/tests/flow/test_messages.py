"""What batches of few rows do without a query of polars."""

from __future__ import annotations

import polars as pl
import pytest
from headrace.flow.messages import of_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples


@given(st.lists(st.sampled_from([True, False, None]), max_size=5))
@settings(max_examples=examples(100))
def test_rows_are_kept_where_the_column_is_true_as_by_filter(kept: list[bool | None]) -> None:
    frame = pl.DataFrame(
        {"n": range(len(kept)), "t": [str(each) for each in kept]}, schema={"n": pl.Int32, "t": pl.String}
    )
    mask = pl.Series("kept", kept, dtype=pl.Boolean)
    found = of_rows(frame, mask)
    assert found.equals(frame.filter(mask))
    assert found.schema == frame.schema


@pytest.mark.parametrize("kept", [[True, True], [False, None]])
def test_a_batch_that_is_kept_or_dropped_whole_asks_polars_nothing(
    kept: list[bool | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pl.LazyFrame, "collect", lambda *given, **options: pytest.fail("a query for a whole batch"))
    frame = pl.DataFrame([pl.Series("n", [1, 2])])
    of_rows(frame, pl.Series(kept, dtype=pl.Boolean))
