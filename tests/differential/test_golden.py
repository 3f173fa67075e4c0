"""What once differed gives the right rows: in one batch and row by row, with one shard and with three."""

from __future__ import annotations

from typing import Any

import pytest

from tests.differential import golden
from tests.differential.comparing import difference
from tests.differential.running import run_sql


@pytest.mark.parametrize("options", [{}, {"max_batch_records": 1}, {"shards": 3, "max_batch_records": 3}], ids=str)
@pytest.mark.parametrize("name", golden.names())
def test_a_golden_case_gives_its_rows(name: str, options: dict[str, Any]) -> None:
    tables, text, rows = golden.load(name)
    found = run_sql(tables, text, **options)
    assert difference(rows, found.rows) == ""
    assert found.faults == ()
