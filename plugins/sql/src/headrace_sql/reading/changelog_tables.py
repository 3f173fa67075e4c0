"""The parser's part for ``TO_CHANGELOG(input => TABLE t, …)`` and ``FROM_CHANGELOG(…)`` in FROM."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot import tokens as sqlglot_tokens

from headrace_sql.reading import nodes

_T: Any = sqlglot_tokens.TokenType  # type: ignore[attr-defined]
FUNCTIONS = ("TO_CHANGELOG", "FROM_CHANGELOG")
#: The arguments, in their order where they have no names.
_ARGUMENTS = ("input", "op", "op_mapping")


def stands_here(parser: Any) -> bool:
    """Return whether one of these functions follows in the text."""
    here, following = parser._curr, parser._next
    return bool(here and here.text.upper() in FUNCTIONS and following and following.token_type == _T.L_PAREN)


def changelog_table(parser: Any) -> exp.Expr:
    """Parse the call of such a function, without an alias behind it."""
    start = parser._curr
    made = nodes.ChangelogTable(this=exp.var(start.text.upper()))
    parser._advance()
    parser._match_l_paren()
    place = 0
    while True:
        word = _ARGUMENTS[place] if place < len(_ARGUMENTS) else ""
        if parser._next is not None and parser._next.token_type == _T.FARROW:
            word = parser._curr.text.lower()
            if word not in _ARGUMENTS:
                parser.raise_error(f"{made.name} has no argument {word!r}; {', '.join(_ARGUMENTS)} are")
            parser._advance(2)
        elif not word:
            parser.raise_error(f"{made.name} takes {len(_ARGUMENTS)} arguments")
        if made.args.get(word) is not None:
            parser.raise_error(f"{word} is given twice")
        made.set(word, _argument(parser, word))
        place += 1
        if not parser._match(_T.COMMA):
            break
    parser._match_r_paren()
    if made.args.get("input") is None:
        parser.raise_error(f"{made.name} needs input => TABLE …", start)
    return made


def _argument(parser: Any, word: str) -> Any:
    if word == "input":
        parser._expect("TABLE")
        made = parser._parse_table_parts()
        if parser._match(_T.PARTITION_BY) or parser._match_text_seq("PARTITION", "BY"):
            parser.raise_error(
                "PARTITION BY is not supported here: changes contain whole rows and need no key", parser._prev
            )
        return made
    if word == "op":
        parser._expect("DESCRIPTOR")
        return parser._parse_wrapped_csv(parser._parse_id)
    return parser._parse_disjunction()
