"""What once differed gives the right rows: in one batch, and row by row."""

from __future__ import annotations

import pytest

from tests.differential.streams import golden, running


@pytest.mark.parametrize("batch", [1, 1000])
@pytest.mark.parametrize("name", golden.names())
def test_a_golden_case_gives_its_rows(name: str, batch: int) -> None:
    case = golden.load(name)
    found = running.run_text(case.plan, case.text, case.dialect, batch=batch)
    assert golden.written(found.rows) == case.rows
    assert found.faults == []
