"""Sources that are silent for hours of event time: windows close meanwhile, also after a restart, and what comes then is not late."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from headrace_light.workers import reading_ahead
from headrace_light.workers.lane_workers import LaneWorkers

from tests.conformance.case import differences
from tests.conformance.silent_sources import SILENT, append_steadily, job_of, rows_at, windows, written
from tests.eventually import eventually
from tests.waiting_workers import start_and_wait

_SERVERS = ("mqtt", "redis", "s3")
#: Those that Spark can read: what listens is read by one process.
_ON_SPARK = ("redis", "s3", "sftp", "web")


def marked(*names: str, slow: bool = True) -> list[Any]:
    marks = {name: [pytest.mark.servers] if name in _SERVERS else [] for name in names}
    return [
        pytest.param(name, marks=[*marks[name], *([pytest.mark.slow] if slow and name != "syslog" else [])])
        for name in names
    ]


def run_with_silences(name: str, place: Path, request: pytest.FixtureRequest, backend: str, **options: Any) -> None:
    silent = SILENT[name](place, request)
    append_steadily(place, [])
    job = job_of(name, silent, place)
    of_silent, steady = rows_at(1, 0, "silent"), rows_at(0, 1_000, "steady")
    started: dict[str, Any] = {"checkpoint": place / "state", **options}

    def given(wanted: Counter[str]) -> None:
        eventually(lambda: not wanted - written(place), "windows close", shown=lambda: wanted - written(place))

    with job.start(backend, **started) as handle:
        silent.ready()
        # In the order of their times: a source of which nobody knows yet, or that is idle, holds up nothing.
        append_steadily(place, steady)
        eventually(lambda: handle.status().records_read >= len(steady), "what comes steadily is read")
        silent.send(of_silent)
        eventually(lambda: handle.status().records_read >= len(of_silent) + len(steady), "what was sent is read")
        silent.disturb()
        append_steadily(place, rows_at(3, 2_000, "steady"))  # three hours later, and nothing of the other source
        given(windows(of_silent + steady))
        steady += rows_at(3, 2_000, "steady")
    with job.start(backend, **started) as handle:  # the silence goes on
        silent.ready()
        append_steadily(place, rows_at(6, 3_000, "steady"))
        given(windows(of_silent + steady))
        steady += rows_at(6, 3_000, "steady")
        eventually(lambda: handle.status().records_read >= len(rows_at(6, 3_000, "steady")), "all of them are read")
        silent.disturb()
        read = handle.status().records_read
        again = rows_at(9, 100, "silent")
        silent.send(again)
        eventually(lambda: handle.status().records_read >= read + len(again), "what comes after the silence is read")
        of_silent += again
        append_steadily(place, rows_at(10, 4_000, "steady"))
        given(windows(of_silent + steady))
        steady += rows_at(10, 4_000, "steady")
        eventually(lambda: handle.status().records_read >= read + len(again) + 60, "the last rows are read")
        assert handle.status().late_rows == 0
    job.run(backend, show_progress=False, **started)
    assert differences({"out": written(place)}, {"out": windows(of_silent + steady)}) == []


@pytest.mark.parametrize("name", marked(*SILENT))
def test_light(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run_with_silences(name, tmp_path, request, "light", checkpoint_interval="50 ms")


@pytest.mark.slow
@pytest.mark.parametrize("name", marked(*SILENT))
def test_light_with_workers(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_ahead, "RECORDS_MIN", 0)  # the inputs are small
    monkeypatch.setattr(LaneWorkers, "start", start_and_wait)
    run_with_silences(name, tmp_path, request, "light", workers=2, max_batch_records=11)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", marked(*_ON_SPARK))
def test_spark(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run_with_silences(name, tmp_path, request, "spark")
