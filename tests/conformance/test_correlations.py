"""Correlation rules give the alerts of a plain model: on light with one process and several, on Spark, over restarts, in any shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headrace_light.workers import reading_ahead
from headrace_light.workers.lane_workers import LaneWorkers
from headrace_rules.journal import RuleJournal

from tests.conformance.case import differences
from tests.conformance.correlated_events import UNMATCHED, Correlations, Event, events_of, job, write_events, written
from tests.eventually import eventually
from tests.waiting_workers import start_and_wait

FILES = 2


def lay_out(place: Path, seed: int) -> Correlations:
    made = Correlations.of_seed(seed)
    made.write(place / "rules.yml")
    return made


def feed(place: Path, events: list[Event]) -> None:
    for number in range(FILES):
        write_events(place / "in", f"{number}.ndjson", events[number::FILES])


def check(place: Path, wanted: Any) -> None:
    assert differences({"alerts": written(place)}, {"alerts": wanted}) == []


OPTIONS: dict[str, dict[str, Any]] = {
    "alone": {},
    "shards": {"shards": 3},
    "small batches": {"max_batch_records": 7},
    "workers": {"workers": 2, "max_batch_records": 20},
}


@pytest.mark.parametrize("how", OPTIONS)
def test_light(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "RECORDS_MIN", 0)  # the inputs are small
    monkeypatch.setattr(LaneWorkers, "start", start_and_wait)
    total = 0
    for seed in range(2 if how == "workers" else 6):
        place = tmp_path / str(seed)
        place.mkdir()
        correlations, events = lay_out(place, seed), events_of(seed, 150)
        feed(place, events)
        job(place, correlations.output).run("light", **OPTIONS[how])
        wanted = correlations.alerts(events)
        total += wanted.total()
        check(place, wanted)
    assert total > 20


def in_parts(place: Path, seed: int, backend: str, **options: Any) -> None:
    """Run a job that is stopped and started from its checkpoint while windows are open; the last run comes to the end."""
    correlations, events = lay_out(place, seed), events_of(seed, 240)
    for begin, end in ((0, 80), (80, 160)):
        feed(place, events[begin:end])
        with job(place, correlations.output).start(backend, checkpoint=place / "state", **options) as handle:
            eventually(lambda: handle.status().records_read >= end - begin, "the part is read")  # noqa: B023
    feed(place, events[160:])
    job(place, correlations.output).run(backend, checkpoint=place / "state", **options)
    wanted = correlations.alerts(events)
    assert wanted.total() > 5
    check(place, wanted)


@pytest.mark.parametrize("seed", range(4))
def test_light_over_restarts(tmp_path: Path, seed: int) -> None:
    in_parts(tmp_path, seed, "light", shards=2)


def replaced(place: Path, seed: int, backend: str, **options: Any) -> None:
    """Replace the rules while a job runs: the alerts are those of the old rules up to a record, and of the new ones from it on."""
    correlations, events = lay_out(place, seed), events_of(seed, 500)
    sent = 0
    (place / "in").mkdir()

    def send(count: int, **more: Any) -> None:
        nonlocal sent
        for event in events[sent : sent + count]:
            event.update(more)
        write_events(place / "in", "0.ndjson", events[sent : sent + count])
        sent += count

    journal = RuleJournal(place / "state" / "rules" / "rules")
    with job(place, correlations.output).start(backend, checkpoint=place / "state", **options) as handle:
        send(150)
        eventually(lambda: handle.status().records_read == sent, "the first part is read")
        correlations.changed().write(place / "rules.yml")
        assert not handle.update_rules(str(place / "rules.yml")).rejected

        def switched() -> bool:
            send(1, EventID=UNMATCHED)
            eventually(lambda: handle.status().records_read == sent, "the record is read")
            return any(entry["event"] == "switch" for entry in journal.audited())

        eventually(switched, "the new rules are in use")
        send(150)
        eventually(lambda: handle.status().records_read == sent, "the last part is read")
    correlations.write(place / "rules.yml")  # the job as it was goes on with the newest rules
    job(place, correlations.output).run(backend, checkpoint=place / "state", **options)
    [offset] = [entry["offset"] for entry in journal.audited() if entry["event"] == "switch"]
    for event in events[offset:sent]:
        event["changed"] = True
    wanted = correlations.alerts(events[:sent])
    assert wanted != correlations.alerts([{**event, "changed": False} for event in events[:sent]])
    check(place, wanted)


@pytest.mark.parametrize("how", ["alone", "shards", pytest.param("workers", marks=pytest.mark.slow)])
def test_replaced_rules(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "RECORDS_MIN", 0)
    monkeypatch.setattr(LaneWorkers, "start", start_and_wait)
    replaced(tmp_path, 3, "light", **OPTIONS[how])


@pytest.mark.slow
@pytest.mark.spark
def test_replaced_rules_on_spark(tmp_path: Path) -> None:
    replaced(tmp_path, 3, "spark", shards=2, show_progress=False)


@pytest.mark.slow  # test_contributed.py has correlations on Spark in every run
@pytest.mark.spark
def test_spark(tmp_path: Path) -> None:
    correlations, events = lay_out(tmp_path, 11), events_of(11, 1_500)
    feed(tmp_path, events)
    job(tmp_path, correlations.output).run("spark", shards=2, max_batch_records=300, show_progress=False)
    wanted = correlations.alerts(events)
    assert wanted.total() > 20
    check(tmp_path, wanted)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", [5, 6, 7])
def test_spark_over_restarts(tmp_path: Path, seed: int) -> None:
    in_parts(tmp_path, seed, "spark", shards=2, show_progress=False)
