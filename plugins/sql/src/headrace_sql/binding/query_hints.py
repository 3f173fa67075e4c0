"""Hints behind SELECT: how long state is kept by table, and those of Flink's planner, which have no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.foundation.errors import OptionError, did_you_mean
from sqlglot import exp

from headrace_sql.binding.emitting import state_ttl
from headrace_sql.binding.notices import Notices
from headrace_sql.binding.scope import error_at
from headrace_sql.reading.durations import duration_us

#: Hints of Flink's planner: they choose how, not what.
PLANNER_HINTS = ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "LOOKUP", "MULTI_JOIN")
STATE_TTL = "STATE_TTL"
#: What LOOKUP may say, and the values of those options that have a few.
_LOOKUP_OPTIONS: Mapping[str, Sequence[str]] = {
    "table": (), "async": ("true", "false"), "output-mode": ("ordered", "allow_unordered"), "capacity": (), "timeout": (),
    "retry-predicate": ("lookup_miss",), "retry-strategy": ("fixed_delay",), "fixed-delay": (), "max-attempts": (),
    "shuffle": ("true", "false"),
}  # fmt: skip
_DURATIONS, _NUMBERS = ("timeout", "fixed-delay"), ("capacity", "max-attempts")


def check_query_hints(notices: Notices, node: exp.Select, text: str) -> None:
    """Note what hints behind SELECT have no effect. Raises ExpressionError for unknown hints, tables and options."""
    hint = node.args.get("hint")
    for each in hint.expressions if hint is not None else ():
        name = each.name.upper()
        if name == STATE_TTL:
            continue  # state_ttl_hints
        if name not in PLANNER_HINTS:
            known = [*PLANNER_HINTS, STATE_TTL]
            raise error_at(each, text, f"unknown hint {name!r}", did_you_mean(name, known, known="hints"))
        _check_named(each, name, _inputs(node), text)
        notice = f"hint {name} has no effect here: there is one way to run a query"
        notices.add_once(notice)


def _inputs(node: exp.Select) -> list[str]:
    """Return the names and aliases of FROM."""
    source = node.args.get("from_")
    items = [*([] if source is None else [source.this]), *(join.this for join in node.args.get("joins") or ())]
    return list(dict.fromkeys(name for item in items for name in (item.alias_or_name, item.name) if name))


def _check_named(hint: exp.Expr, name: str, inputs: Sequence[str], text: str) -> None:
    """Raise ExpressionError for a hint whose tables are not in FROM, or with options that it does not have."""
    if name == "LOOKUP":
        options = dict(
            _pair(pair, hint, text, "LOOKUP('table' = 'rates', 'async' = 'true')") for pair in hint.expressions
        )
        _check_lookup(hint, options, text)
        named = [options["table"]]
    else:
        named = [each.name for each in hint.expressions]
    if not named:
        raise error_at(hint, text, f"{name} names tables of FROM", f"{name}(orders)")
    for each in named:
        if each not in inputs:
            hint_text = did_you_mean(each, inputs, known="tables of FROM")
            raise error_at(hint, text, f"{name}: there is no table {each!r} in FROM", hint_text)


def _check_lookup(hint: exp.Expr, options: Mapping[str, str], text: str) -> None:
    for key, value in options.items():
        if key not in _LOOKUP_OPTIONS:
            known = did_you_mean(key, list(_LOOKUP_OPTIONS), known="options")
            raise error_at(hint, text, f"LOOKUP has no option {key!r}", known)
        choices = _LOOKUP_OPTIONS[key]
        if choices and value.lower() not in choices:
            raise error_at(hint, text, f"LOOKUP: {key!r} is {' or '.join(choices)}, not {value!r}")
        if key in _NUMBERS and not (value.isdecimal() and int(value) > 0):
            raise error_at(hint, text, f"LOOKUP: {key!r} is a number from 1 on, not {value!r}")
        if key in _DURATIONS:
            _check_duration(hint, key, value, text)
    if "table" not in options:
        raise error_at(
            hint, text, "LOOKUP needs the table that is looked up", "LOOKUP('table' = 'rates', 'async' = 'true')"
        )
    retry = [key for key in ("retry-predicate", "retry-strategy", "fixed-delay", "max-attempts") if key in options]
    if retry and len(retry) < 4:
        raise error_at(hint, text, "LOOKUP: retry-predicate, retry-strategy, fixed-delay and max-attempts go together")


def _check_duration(hint: exp.Expr, key: str, value: str, text: str) -> None:
    try:
        duration_us(value, key)
    except OptionError as error:
        raise error_at(hint, text, f"LOOKUP: {error}") from error


class StateTtls:
    """How long the joins and the aggregate of one SELECT keep rows of a table, by the hint STATE_TTL.

    The hint names tables, views or aliases of FROM; for others ``table.exec.state.ttl`` is valid.
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


def _pair(pair: exp.Expr, hint: exp.Expr, text: str, example: str = "STATE_TTL('orders' = '1 d')") -> tuple[str, str]:
    if not isinstance(pair, exp.EQ) or not all(
        isinstance(each, exp.Literal | exp.Column) for each in (pair.this, pair.expression)
    ):
        what = "'table' = 'time'" if hint.name.upper() == STATE_TTL else "'option' = 'value'"
        raise error_at(hint, text, f"{hint.name.upper()} takes {what}, …", example)
    return pair.this.name, pair.expression.name
