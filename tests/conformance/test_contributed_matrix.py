"""Sources of contrib/ and verbs behind them, in all pairs: a stop in the middle, and the rows of a plain model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from headrace_light.workers import reading_ahead
from headrace_light.workers.lane_workers import LaneWorkers

from tests.conformance.case import differences
from tests.conformance.contributed_sources import SOURCES, VERBS, expected, rows_of, started
from tests.effort import often_or_slow
from tests.eventually import eventually
from tests.waiting_workers import start_and_wait

PAIRS = [f"{source} {verb}" for source in SOURCES for verb in VERBS]
#: In every run each source and each verb once, as on a diagonal.
OFTEN = [f"{source} {verb}" for source, verb in zip(SOURCES, VERBS, strict=True)]
PARTS = ((0, 70), (70, 95), (95, 160))


def written(place: Path) -> Counter[str]:
    return Counter(line for part in (place / "out").glob("*.json") for line in part.read_text().splitlines())


def run_in_parts(place: Path, pair: str, backend: str, **options: Any) -> None:
    """Send records in three parts: the job is stopped behind the first, waits between the others, and ends with what there is."""
    source, verb = pair.split()
    sender = SOURCES[source](place)
    job = VERBS[verb](sender.stream).to_file(str(place / "out"), format="json")
    checkpoint = {"checkpoint": place / "state", **options}
    with started(job, sender, backend, **checkpoint) as handle:
        sender.send(rows_of(*PARTS[0]))
        eventually(lambda: handle.status().records_read >= PARTS[0][1], "the first part is read")
    with started(job, sender, backend, **checkpoint) as handle:
        read = handle.status().records_read
        sender.send(rows_of(*PARTS[1]))
        eventually(lambda: handle.status().records_read >= read + PARTS[1][1] - PARTS[1][0], "the second part is read")
        sender.send(rows_of(*PARTS[2]))
        if sender.listens_on is not None:
            eventually(
                lambda: handle.status().records_read >= read + PARTS[2][1] - PARTS[1][0], "the last part is read"
            )
    job.run(backend, show_progress=False, **checkpoint)
    assert differences({"out": written(place)}, {"out": expected(verb, rows_of(0, PARTS[2][1]))}) == []


@pytest.mark.parametrize("pair", often_or_slow(PAIRS, OFTEN))
def test_light(pair: str, tmp_path: Path) -> None:
    run_in_parts(tmp_path, pair, "light", checkpoint_interval="50 ms")


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_light_with_workers(pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "RECORDS_MIN", 0)  # the inputs are small
    monkeypatch.setattr(LaneWorkers, "start", start_and_wait)
    run_in_parts(tmp_path, pair, "light", workers=2, max_batch_records=11)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.startswith(("file", "cri"))])
def test_spark(pair: str, tmp_path: Path) -> None:
    run_in_parts(tmp_path, pair, "spark", max_batch_records=23)
