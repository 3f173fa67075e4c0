"""docs/process-functions.md, followed to the letter."""

from __future__ import annotations

from pathlib import Path

from tests.documentation.test_first_steps import blocks_of, shell, write_files

PAGE = "docs/process-functions.md"


def test_the_function_of_the_page_gives_what_it_says(tmp_path: Path) -> None:
    write_files(blocks_of(PAGE), tmp_path)
    [shown] = [text for kind, name, text in blocks_of(PAGE) if (kind, name) == ("text", "output")]
    assert shell("python job.py", tmp_path) == shown
