"""Hashes of keys: equal for equal values, however the column came about."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from headrace.flow.key_hashes import key_hashes
from headrace.runtime.shuffle import by_shard

_TWO = pl.lit(Decimal("2.50"), dtype=pl.Decimal(10, 2))


def _computed(values: list[Any]) -> pl.DataFrame:
    """A column whose NULLs are computed: polars keeps bytes behind them, longer than those of the values."""
    plain = pl.Series("m", values, dtype=pl.Decimal(10, 2))
    return plain.to_frame().select((pl.col("m") - _TWO).cast(pl.Decimal(10, 2)))


@pytest.mark.parametrize("values", [[Decimal("3.00"), None], [None, Decimal("3.00"), None], [None]])
def test_computed_decimals_with_nulls_have_the_hashes_of_plain_ones(values: list[Any]) -> None:
    plain = pl.DataFrame(
        {"m": [None if each is None else each - Decimal("2.50") for each in values]}, schema={"m": pl.Decimal(10, 2)}
    )
    assert key_hashes(_computed(values), ["m"]).tolist() == key_hashes(plain, ["m"]).tolist()


def test_rows_of_one_key_are_in_one_shard_in_their_order() -> None:
    frame = _computed([Decimal("3.00"), None, Decimal("-1.00"), None, Decimal("3.00")]).with_row_index("at")
    parts = dict(by_shard(frame, ["m"], 4))
    assert sorted(at for part in parts.values() for at in part["at"]) == [0, 1, 2, 3, 4]
    for part in parts.values():
        assert part["at"].is_sorted()
    places = [value for part in parts.values() for value in part["m"].unique()]
    assert len(places) == len(set(places)) == 3
