"""Hints behind a table: ``t /*+ OPTIONS('k' = 'v') */``.

To sqlglot such a hint is a comment; here it is found between the tokens, so that none is passed over in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.foundation.errors import ExpressionError, did_you_mean
from sqlglot import exp

#: Key of a table node's meta for the options that a hint behind it gives: (key, value, place in the text).
OPTIONS = "headrace_options"
_HINT = re.compile(r"/\*\+(.*?)\*/", re.DOTALL)
_COMMENT = re.compile(r"--[^\n]*|//[^\n]*|/\*(?!\+).*?\*/", re.DOTALL)
_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_OPTION = re.compile(r"\s*'((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)'\s*(,|$)")


def with_table_hints(text: str, tokens: Sequence[Any], statements: Iterable[exp.Expr | None]) -> None:
    """Put the options of hints to the tables behind which they stand. Raises ExpressionError for other hints and places."""
    found: dict[int, tuple[int, tuple[tuple[str, str, int], ...]]] = {}
    if not tokens:
        return
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        end = len(text) if following is None else following.start
        between = _COMMENT.sub(lambda comment: " " * len(comment[0]), text[token.end + 1 : end])
        for hint in _HINT.finditer(between):
            place = token.end + 1 + hint.start()
            found[token.start] = place, _options(text, hint[1], place, place + len(hint[0]))
    if not found:
        return
    for statement in statements:
        for table in statement.find_all(exp.Table) if statement is not None else ():
            start = table.this.meta.get("start") if isinstance(table.this, exp.Identifier) else None
            if start in found:
                table.meta[OPTIONS] = found.pop(start)[1]
    for place, _ in found.values():
        raise ExpressionError(
            "a hint must follow a table or SELECT", text=text, position=place, length=3,
            hint="FROM t /*+ OPTIONS('key' = 'value') */",
        )  # fmt: skip


def _options(text: str, body: str, place: int, end: int) -> tuple[tuple[str, str, int], ...]:
    call = _CALL.fullmatch(body)
    name = call[1].upper() if call is not None else body.strip()
    if call is None or name != "OPTIONS":
        raise ExpressionError(
            f"unknown hint {name!r} behind a table", text=text, position=place, length=end - place,
            hint=did_you_mean(name, ["OPTIONS"], known="hints"),
        )  # fmt: skip
    made, at = [], 0
    while at < len(call[2]):
        option = _OPTION.match(call[2], at)
        if option is None:
            raise ExpressionError("OPTIONS takes 'key' = 'value', …", text=text, position=place, length=end - place)
        made.append((option[1].replace("''", "'"), option[2].replace("''", "'"), place))
        at = option.end()
    return tuple(made)
