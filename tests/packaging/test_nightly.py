"""The page of a nightly run: every target has a line, a failure does not stop the others, and says what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly import main, skipped_targets

PROGRAM = """#!/bin/sh
case $1 in
  good) echo "=== 12 passed, 3 skipped in 1.00s ===";;
  bad) echo "FAILED tests/test_x.py::test_y - assert 1 | 2"; echo "=== 1 failed, 4 passed in 1.00s ==="; exit 2;;
  silent) exit 3;;
esac
"""


def test_a_page_of_all_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = tmp_path / "make"
    make.write_text(PROGRAM)
    make.chmod(0o700)
    monkeypatch.setenv("HEADRACE_NIGHTLY_SKIPPED", "sigma=HEADRACE_SIGMA is not set")
    page = tmp_path / "out" / "nightly.md"
    assert main(["bad", "good", "silent", "--page", str(page), "--make", str(make)]) == 1
    text = page.read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| bad", "**failed** (2)"], ["| good", "passed"], ["| silent", "**failed** (3)"], ["| sigma", "left out"]
    ]  # fmt: skip
    assert "12 passed, 3 skipped" in rows[1]
    assert "FAILED tests/test_x.py::test_y - assert 1 | 2" in text
    assert "## silent" in text
    assert (tmp_path / "out" / "nightly" / "bad.log").read_text().startswith("FAILED")
    assert main(["good", "--page", str(page), "--make", str(make)]) == 0


def test_what_is_left_out() -> None:
    assert skipped_targets("") == {}
    assert skipped_targets("a=x is not set; b=y=z;") == {"a": "x is not set", "b": "y=z"}
