"""Where statements end."""

from __future__ import annotations

import pytest
from headrace_shell.splitting import is_complete, statements_of

SET = "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END;"


@pytest.mark.parametrize(
    ("text", "wanted", "rest"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1;", "SELECT 2;"], ""),
        ("SELECT ';' AS a; SELECT `;`", ["SELECT ';' AS a;"], " SELECT `;`"),
        ("-- a; b\nSELECT 1 /* ; */;", ["-- a; b\nSELECT 1 /* ; */;"], ""),
        ("SELECT 'it''s; so';;", ["SELECT 'it''s; so';"], ""),
        (f"{SET} SELECT 1;", [SET, "SELECT 1;"], ""),
    ],
)
def test_statements(text: str, wanted: list[str], rest: str) -> None:
    assert statements_of(text) == (wanted, rest)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1;", True), ("SELECT 1", False), ("SELECT ';", False), ("SELECT 1; -- end", True), (r"\d", True), ("quit", True),
        ("", True), ("/* open ;", False), ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1;", False),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;", True),
    ],
)  # fmt: skip
def test_whether_a_text_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete
