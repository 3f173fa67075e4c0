"""docs/leases.md, followed to the letter."""

from __future__ import annotations

from pathlib import Path

from tests.documentation.test_first_steps import blocks_of, shell, write_files

PAGE = "docs/leases.md"


def test_the_first_lease_prints_what_the_page_says(tmp_path: Path) -> None:
    write_files(blocks_of(PAGE), tmp_path)
    [shown] = [text for kind, name, text in blocks_of(PAGE) if (kind, name) == ("text", "output")]
    assert shell("python first_lease.py", tmp_path) == shown
    assert "('gate', 2)" in shell("python first_lease.py", tmp_path)


def test_the_contract_of_another_store_runs_as_printed(tmp_path: Path) -> None:
    write_files(blocks_of(PAGE), tmp_path)
    [script] = [text for kind, name, text in blocks_of(PAGE) if (kind, name) == ("shell", "contract")]
    said = shell(script, tmp_path)
    assert "2 skipped" in said
    assert "10 passed" in said
