"""Every case on the light backend with worker processes gives what it gives in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace_light.workers import reading_ahead
from headrace_light.workers.lane_workers import LaneWorkers

from tests.conformance import stateful_cases, stateless_cases
from tests.conformance.case import Case, differences, outputs
from tests.conformance.running import make, run
from tests.effort import often_or_slow
from tests.waiting_workers import start_and_wait

CASES = {
    f"{kind}-{case.name}": case
    for kind, cases in (("stateless", stateless_cases.CASES), ("stateful", stateful_cases.CASES))
    for case in cases
}
#: In every run, one of each kind of work; the others in the slow runs, since each case starts two processes.
OFTEN = list(CASES)[:: max(1, len(CASES) // 5)]


@pytest.mark.parametrize("name", often_or_slow(list(CASES), OFTEN))
def test_a_case_gives_the_same_with_workers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "RECORDS_MIN", 0)  # the inputs are small
    monkeypatch.setattr(LaneWorkers, "start", start_and_wait)
    case: Case = CASES[name]
    run(case, make(tmp_path / "workers"), "light", workers=2, max_batch_records=23)
    run(case, make(tmp_path / "one"), "light")
    assert differences(outputs(tmp_path / "workers"), outputs(tmp_path / "one")) == []
