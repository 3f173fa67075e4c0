"""The state of these operators is divided by key among another number of shards."""

from __future__ import annotations

from typing import Any, ClassVar

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.interfaces.operator import StatefulSpec
from headrace_contract import StatefulOperatorContract
from headrace_sql.operators.one_row_per_key import OneRowPerKey
from headrace_sql.operators.over_aggregate import OverAggregate
from headrace_sql.operators.over_changing import OverChanging
from headrace_sql.operators.over_functions import OverCall
from headrace_sql.operators.window_top_n import WindowTopN

SPECS: dict[str, StatefulSpec] = {
    "rows in event time": OverAggregate(("k",), "ts", {"n": OverCall("COUNT", None, "ROWS", 3)}),
    "ranges in event time": OverAggregate(("k",), "ts", {"s": OverCall("SUM", "v", "RANGE", 9_000_000)}),
    "rows by arrival": OverAggregate(("k",), None, {"s": OverCall("SUM", "v", "ROWS", 4)}),
    "ranges by the clock": OverAggregate(("k",), None, {"s": OverCall("SUM", "v", "RANGE", 9_000_000)}),
    "all rows": OverAggregate(("k",), None, {"n": OverCall("ROW_NUMBER", None, "ROWS", None)}),
    "one row per key": OneRowPerKey(("k",)),
    "any order": OverChanging(("k",), (("v", True),), {"s": OverCall("SUM", "v", "ROWS", 2)}),
    "first of each moment": WindowTopN(("k", "ts"), "ts", 1, [("v", True)]),
}


@pytest.mark.parametrize("name", SPECS)
def test_state_is_divided_by_key(name: str) -> None:
    class Operators(StatefulOperatorContract):
        schema: ClassVar[Any] = {"k": "string", "v": "int64", "ts": "timestamp"}

        def make_spec(self) -> StatefulSpec:
            return SPECS[name]

        def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
            begin = pl.datetime(2023, 11, 14, 22, 13, 20)
            rows = pl.select(n=pl.int_range(first, first + count)).select(
                k=pl.when(pl.col("n") % 11 == 3).then(None).otherwise(pl.format("k{}", pl.col("n") * pl.col("n") % 5)),
                v=pl.col("n") * 7 % 13,
                ts=(begin + pl.duration(seconds=pl.col("n") + pl.col("n") % 3)).dt.replace_time_zone("UTC"),
            )
            return rows.to_dicts()

    assert Schema.of(Operators.schema)
    Operators().test_state_is_divided_by_key()
