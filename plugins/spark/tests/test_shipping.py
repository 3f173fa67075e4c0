"""What leaves a lane for the shards of windows: rows that were combined, where that is allowed, and how far time has come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import COMBINED, INDEX, OFFSET, WATERMARK, Batch, Queue
from headrace.runtime.lane import Shipment
from headrace.testing import MemorySink, MemorySource
from headrace_spark.shards.topology import Topology
from headrace_spark.workers.shipping import Outbox

QUEUE = Queue("q", "source")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("combines", "rows"), [(True, 2), (False, 20)])
def test_rows_for_windows(combines: bool, rows: int) -> None:
    stream = hr.stream("test", "sent").from_(
        MemorySource({"q": []}), format="json", schema={"k": "string", "ts": "timestamp"}
    )
    counted = stream.key_by("k").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)")
    plan = counted.to(MemorySink()).plan()
    (shuffle,) = plan.shuffles
    times = [BEGIN + timedelta(seconds=at) for at in range(20)]
    columns: dict[str, Any] = {
        OFFSET: pl.Series(range(20), dtype=pl.Int64), INDEX: pl.Series([0] * 20, dtype=pl.Int32),
        WATERMARK: pl.Series([0] * 19 + [7], dtype=pl.Int64), "k": ["one"] * 20, "ts": times,
    }  # fmt: skip
    outbox = Outbox(plan, Topology(plan, 1), QUEUE, combines=combines)
    batch = Batch(QUEUE, pl.DataFrame(columns).with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC"))))
    assert list(outbox.take([Shipment(shuffle, 0, QUEUE, batch)])) == []
    (sent,) = outbox.rest()
    assert sent.frame().height == sent.count == rows
    assert (COMBINED in sent.frame().columns) == combines
    # The row that had brought time on may stand in one that came before it.
    assert sent.mark == (7 if combines else None)
