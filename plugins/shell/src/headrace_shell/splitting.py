"""The statements of a text that is typed or read: where one ends, and whether the last one is complete."""

from __future__ import annotations

import re

#: Texts, names in backticks, comments, and the semicolon between statements.
_PART = re.compile(r"""'(?:[^']|'')*'|"(?:[^"])*"|`(?:[^`]|``)*`|--[^\n]*|//[^\n]*|/\*.*?\*/|;""", re.DOTALL)
_OPEN = re.compile(r"'|`|/\*")
_SET_BEGINS = re.compile(r"(?is)\b(STATEMENT\s+SET\s+BEGIN|BEGIN\s+STATEMENT\s+SET)\b")
_SET_ENDS = re.compile(r"(?is)\bEND\s*$")


def statements_of(text: str) -> tuple[list[str], str]:
    """Return the statements that end in a semicolon, and the text after the last one.

    A semicolon in a text, a name or a comment ends nothing; one in a statement set does not end the set.
    """
    found: list[str] = []
    begin = 0
    for part in _PART.finditer(text):
        if part[0] != ";":
            continue
        statement = text[begin : part.end()]
        plain = without_comments(statement)
        if _SET_BEGINS.search(plain) and not _SET_ENDS.search(plain.rstrip().rstrip(";").rstrip()):
            continue
        if plain.strip().strip(";").strip():
            found.append(statement.strip())
        begin = part.end()
    return found, text[begin:]


def is_complete(text: str) -> bool:
    """Return whether typed text can be run: statements that end in a semicolon, or a command with a backslash."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\"):
        return True
    if stripped.rstrip(";").strip().lower() in ("quit", "exit", "help", "clear"):
        return True
    _, rest = statements_of(text)
    return not without_comments(rest).strip() and not _is_open(text)


def without_comments(text: str) -> str:
    """Return a text without its comments; texts and names stay."""
    return _PART.sub(lambda part: " " if part[0][:2] in ("--", "//", "/*") else part[0], text)


def _is_open(text: str) -> bool:
    """Return whether a text, a name or a comment is not closed."""
    return _OPEN.search(_PART.sub(" ", text)) is not None
