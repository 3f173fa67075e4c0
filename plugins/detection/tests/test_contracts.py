"""Correlations keep the contract of operators with state."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from headrace.interfaces.operator import StatefulSpec
from headrace_contract import StatefulOperatorContract
from headrace_detection.correlate import Correlate
from headrace_detection.correlations import Bounds, Correlation

BEGIN = datetime(2023, 11, 14, 22, 13, 10, tzinfo=UTC)
SECOND_US = 1_000_000


def correlation(kind: str, **options: Any) -> Correlation:
    empty = ((),) * 2
    return Correlation(f"{kind} rule", kind, ("a", "b"), ("user",), (("user",),) * 2, empty, 20 * SECOND_US, **options)


ALL = [
    correlation("event_count", bounds=Bounds(low=4)),
    correlation("value_count", bounds=Bounds(low=3, unequal=(4,))),
    correlation("temporal", bounds=Bounds(low=2)),
    correlation("temporal_ordered", bounds=Bounds(low=2)),
    Correlation("a", "rule", ("a",)),
]


class TestCorrelate(StatefulOperatorContract):
    """Events of few users, out of order by some seconds: the contract's watermark rises by a second a row."""

    schema: ClassVar[Mapping[str, Any]] = {
        "ts": "timestamp", "user": "string", "correlation_version": "string", "correlation_key": "string",
        "correlation_mask": "int64", "correlation_value": "string",
    }  # fmt: skip

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        rows = []
        for number in range(first, first + count):
            chance = random.Random(number)
            one, user = chance.choice(ALL), f"u{chance.randrange(2)}"
            rows.append(
                {
                    "ts": BEGIN + timedelta(seconds=number + chance.uniform(-2, 12)),
                    "user": user,
                    "correlation_version": one.version,
                    "correlation_key": json.dumps({"user": user}),
                    "correlation_mask": chance.choice([1, 2, 3]),
                    "correlation_value": chance.choice([None, "x", "y", "z", "w"]),
                }
            )
        return rows

    def make_spec(self) -> StatefulSpec:
        return Correlate(ALL, on="ts", output="all")


@pytest.mark.slow
class TestFirst(TestCorrelate):
    def make_spec(self) -> StatefulSpec:
        return Correlate(ALL, on="ts")
