"""Hints: ``t /*+ OPTIONS('k' = 'v') */`` behind a table, and ``SELECT /*+ … */``.

To sqlglot a hint behind a table is a comment; here it is found between the tokens, so that none is passed over in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.foundation.errors import ExpressionError, did_you_mean
from sqlglot import exp

from headrace_sql.binding.emitting import duration_us, state_ttl
from headrace_sql.binding.scope import error_at

if TYPE_CHECKING:
    from headrace_sql.binding.catalog import Catalog

#: Key of a table node's meta for the options that a hint behind it gives: (key, value, place in the text).
OPTIONS = "headrace_options"
_HINT = re.compile(r"/\*\+(.*?)\*/", re.DOTALL)
_COMMENT = re.compile(r"--[^\n]*|//[^\n]*|/\*(?!\+).*?\*/", re.DOTALL)
_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_OPTION = re.compile(r"\s*'((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)'\s*(,|$)")
#: Hints of Flink's planner: they choose how, not what.
PLANNER_HINTS = ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "LOOKUP", "MULTI_JOIN")
STATE_TTL = "STATE_TTL"


def with_table_hints(text: str, tokens: Sequence[Any], statements: Iterable[exp.Expr | None]) -> None:
    """Put the options of hints to the tables behind which they stand. Raises ExpressionError for other hints and places."""
    found: dict[int, tuple[int, tuple[tuple[str, str, int], ...]]] = {}
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
            "a hint stands behind a table or behind SELECT", text=text, position=place, length=3,
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


def check_query_hints(catalog: Catalog, node: exp.Select, text: str) -> None:
    """Note what hints behind SELECT have no effect. Raises ExpressionError for unknown ones."""
    hint = node.args.get("hint")
    for each in hint.expressions if hint is not None else ():
        name = each.name.upper()
        if name == STATE_TTL:
            continue  # state_ttl_hints
        if name not in PLANNER_HINTS:
            known = [*PLANNER_HINTS, STATE_TTL]
            raise error_at(each, text, f"unknown hint {name!r}", did_you_mean(name, known, known="hints"))
        notice = f"hint {name} has no effect here: there is one way to run a query"
        if notice not in catalog.notices:
            catalog.notices.append(notice)


class StateTtls:
    """How long the joins and the aggregate of one SELECT keep what comes of a table, by the hint STATE_TTL.

    The hint names tables, views or aliases of FROM; what is not named keeps as ``table.exec.state.ttl`` says.
    """

    def __init__(self, options: Mapping[str, str], node: exp.Select, text: str) -> None:
        """Read the hints behind SELECT. Raises ExpressionError for a malformed one, or a name that is not in FROM."""
        self._options = options
        self._text = text
        self._lengths: dict[str, tuple[str, exp.Expr]] = {}
        self._used: set[str] = set()
        hint = node.args.get("hint")
        named = [each for each in (hint.expressions if hint is not None else ()) if each.name.upper() == STATE_TTL]
        items = [node.args["from_"].this, *(join.this for join in node.args.get("joins") or ())] if named else []
        inputs = [item.alias_or_name for item in items]
        for each in named:
            if not each.expressions:
                raise error_at(each, text, "STATE_TTL takes 'table' = 'time', …", "STATE_TTL('orders' = '1 d')")
            for pair in each.expressions:
                name, length = _pair(pair, each, text)
                if name not in inputs:
                    raise error_at(
                        each, text, f"STATE_TTL: there is no table {name!r} in FROM",
                        did_you_mean(name, inputs, known="tables of FROM"),
                    )  # fmt: skip
                self._lengths[name] = f"{duration_us(length, STATE_TTL)} us", each

    def of_aggregate(self, node: exp.Select) -> dict[str, Any]:
        """Return the option of an aggregate of a single table."""
        source = node.args.get("from_")
        return self._of(None if source is None or node.args.get("joins") else source.this.alias_or_name)

    def of_join(self, left: str | None, right: str) -> dict[str, Any]:
        """Return the option of a join; ``left``: the name of its left side, None when that is a join itself."""
        left_ttl, right_ttl = self._of(left).get("ttl"), self._of(right).get("ttl")
        if left_ttl == right_ttl:
            return {} if left_ttl is None else {"ttl": left_ttl}
        return {"ttl": (left_ttl, right_ttl)}

    def end(self) -> None:
        """Raise ExpressionError when a hint has not been heeded: what keeps that table is neither a regular join nor an aggregate."""
        for name, (_, node) in self._lengths.items():
            if name not in self._used:
                raise error_at(
                    node, self._text, f"STATE_TTL of {name!r} has no effect: the query neither joins it without a time bound nor "
                    "aggregates it without a window", "SET 'table.exec.state.ttl' holds for all other state",
                )  # fmt: skip

    def _of(self, name: str | None) -> dict[str, Any]:
        if name is None or name not in self._lengths:
            return state_ttl(self._options)
        self._used.add(name)
        length = self._lengths[name][0]
        return {} if length == "0 us" else {"ttl": length}


def _pair(pair: exp.Expr, hint: exp.Expr, text: str) -> tuple[str, str]:
    if not isinstance(pair, exp.EQ) or not all(
        isinstance(each, exp.Literal | exp.Column) for each in (pair.this, pair.expression)
    ):
        raise error_at(hint, text, "STATE_TTL takes 'table' = 'time', …", "STATE_TTL('orders' = '1 d')")
    return pair.this.name, pair.expression.name
