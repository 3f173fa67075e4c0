"""The meter: sums, merging of what workers took, limits of labels, figures of a status."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime

import polars as pl
from headrace.foundation.clock import ManualClock
from headrace.interfaces import metrics as m
from headrace.interfaces.backend import JobState, JobStatus, QueueStatus
from headrace.interfaces.meter import Meter, NodeMeter
from headrace.interfaces.metrics import OTHERS, Snapshot, Span
from headrace.runtime.lane_figures import ages
from hypothesis import given
from hypothesis import strategies as st


def snapshot_of(meter: Meter, **status: object) -> Snapshot:
    return meter.snapshot(JobStatus("a.b", "light", JobState.RUNNING, **status), {})  # type: ignore[arg-type]


def test_what_workers_took_is_added_and_taken_once() -> None:
    driver, worker = Meter(), Meter(spans=True)
    span = Span("batch", "kafka", "kafka/0", 0, 9, 10, 1, 2, 7)
    for _ in range(2):
        worker.add(m.NODE_INPUT_ROWS, 5, "where")
        worker.observe(m.CHECKPOINT_DURATION, 0.003)
        worker.set(m.STATE_SIZE, 17)
        worker.span(span)
        taken = json.loads(json.dumps(worker.take()))
        assert taken["spans"] == [["batch", "kafka", "kafka/0", 0, 9, 10, 1, 2, 7]]
        driver.merge(taken)
    assert worker.take() == {}
    found = snapshot_of(driver)
    assert found.value(m.NODE_INPUT_ROWS, "where") == 10
    assert found.value(m.STATE_SIZE) == 17
    [family] = [each for each in found.families if each.metric == m.CHECKPOINT_DURATION]
    assert family.series[0].counts[2] == 2
    assert family.series[0].value == 0.006


def test_a_meter_travels_without_its_figures() -> None:
    meter = Meter(spans=True, series_max=3)
    meter.add(m.RESTARTS, 1)
    arrived = pickle.loads(pickle.dumps(meter))  # noqa: S301  # as a plan travels to workers
    assert (arrived.enabled, arrived.spans, arrived.take()) == (True, True, {})


def test_a_meter_that_nobody_wants_counts_nothing() -> None:
    meter = Meter(enabled=False)
    meter.add(m.RESTARTS, 1)
    meter.observe(m.CHECKPOINT_DURATION, 1.0)
    NodeMeter(meter, "n").add(m.NODE_INPUT_ROWS, 1)
    assert meter.take() == {}
    assert snapshot_of(meter, records_read=1).value(m.RESTARTS) == 0


def test_labels_beyond_the_limit_are_summed_and_the_first_ones_stay() -> None:
    meter = Meter(series_max=2)
    for _ in range(2):
        for rule in ("a", "b", "c", "d"):
            meter.add(m.DEAD_LETTERS, 1, "node", rule)
    found = snapshot_of(meter)
    assert [found.value(m.DEAD_LETTERS, "node", each) for each in ("a", "b", OTHERS)] == [2, 2, 4]
    queues = tuple(QueueStatus(f"s/{name}", 10, 10 + name, 10) for name in range(4))
    found = snapshot_of(meter, queues=queues)
    assert found.value(m.SOURCE_RECORDS, "s", OTHERS) == 20
    assert found.value(m.QUEUE_LAG, "s", OTHERS) == 2 + 3
    assert found.value(m.SOURCE_RECORDS) == 40


def test_lag_in_seconds_is_the_age_of_the_last_record_unless_all_is_read() -> None:
    clock = ManualClock(1_000.0)
    meter = Meter(clock=clock)
    for queue in ("behind", "done"):
        meter.set(m.QUEUE_TIME, 940.0, "s", queue)
    queues = (QueueStatus("s/behind", 1, 5), QueueStatus("s/done", 5, 5), QueueStatus("s/timeless", 1, 5))
    found = snapshot_of(meter, queues=queues, watermark=datetime.fromtimestamp(900, UTC))
    assert found.value(m.QUEUE_LAG_TIME, "s", "behind") == 60
    [family] = [each for each in found.families if each.metric == m.QUEUE_LAG_TIME]
    assert {each.labels: each.value for each in family.series} == {("s", "behind"): 60, ("s", "done"): 0}
    assert found.value(m.WATERMARK_LAG) == 100


NOW_US = 1_000_000_000_000


@given(st.lists(st.one_of(st.none(), st.integers(NOW_US - 200_000_000_000, NOW_US + 10_000_000))))
def test_ages_are_those_of_each_record(times: list[int | None]) -> None:
    column = pl.Series(times, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
    counts, total = ages(column, NOW_US, m.LATENCY_BOUNDS)
    expected = [0] * (len(m.LATENCY_BOUNDS) + 1)
    known = [NOW_US - time for time in times if time is not None]
    for age in known:
        expected[sum(age > round(bound * 1_000_000) for bound in m.LATENCY_BOUNDS)] += 1
    assert counts == expected
    assert abs(total - max(0.0, sum(known) / 1_000_000)) < 0.1


def test_names_are_those_of_the_conventions() -> None:
    names = {each.prometheus_name for each in m.METRICS.values()}
    assert {
        "headrace_source_io_bytes_total",
        "headrace_checkpoint_duration_seconds",
        "headrace_queue_lag_records",
    } <= names
    assert len(names) == len(m.METRICS)
