"""docs/sql-support.md says what is so: every text of it is run again."""

from __future__ import annotations

import re
from pathlib import Path

from headrace_sql import support_docs
from headrace_sql.support_cases import SCALARS
from headrace_sql.support_statements import STATEMENTS

PAGE = Path(__file__).parents[3] / "docs" / "sql-support.md"


def test_the_page_says_what_running_its_texts_gives() -> None:
    written = PAGE.read_text(encoding="utf-8").splitlines()
    made = support_docs.page().splitlines()
    assert [line for line in made if line not in written] == [], "run python -m headrace_sql.support_docs"
    assert written == made


def test_what_differs_says_why_and_what_is_refused_says_so() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    here = [re.split(r"(?<!\\)\|", row)[3].strip() for row in rows]
    told = [each for each in here if each not in ("here", "---")]
    assert len(told) == sum(len(cases) for group in (SCALARS, STATEMENTS) for cases in group.values()) > 300
    assert {each.split(":")[0] for each in told} == {"works", "refused", "different"}
    assert [each for each in told if each.startswith("different") and len(each.rsplit(";", 1)[-1].strip()) < 10] == []
