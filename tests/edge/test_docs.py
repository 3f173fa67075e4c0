"""The guide of the edge: its job runs; the one that forwards is run by ``test_store_and_forward.py``."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "edge.md"


def block(name: str) -> str:
    """Return a block of code of the page by the word behind ``python``."""
    found = re.search(rf"```python {name}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert found is not None, name
    return found[1]


def test_the_job_that_stays_on_the_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("readings").mkdir()
    lines = [f'{{"sensor": "s{n}", "at": "2026-01-01 00:00:00", "celsius": {75 + n}}}\n' for n in range(10)]
    Path("readings/a.ndjson").write_text("".join(lines))
    for _ in range(2):  # the second run finds nothing new
        exec(compile(block("local"), "edge.md", "exec"), {})
    with closing(sqlite3.connect("readings.db")) as database:
        rows = database.execute("SELECT sensor, celsius FROM too_hot ORDER BY sensor").fetchall()
    assert rows == [("s6", 81.0), ("s7", 82.0), ("s8", 83.0), ("s9", 84.0)]
