"""Sigma rules (https://sigmahq.io, specification 2), translated to SQL conditions.

The conditions of rules are read here, fields and values in ``sigma_fields``. Values are compared without regard to case, as
Sigma says, unless ``cased`` is given. A rule with anything that has no meaning for one row is rejected, and the reason names
it: no rule gets another meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from headrace_rules.model import SEVERITIES, Rejection, Rule
from headrace_rules.sigma_fields import NO_OPTIONS, SigmaOptions, field_condition, joined
from headrace_rules.sigma_sources import sources_for
from headrace_rules.sigma_values import SigmaError

#: Brackets and ``not`` within each other in a condition, and lists within each other in a search.
_NESTING_MAX = 100
_TOKEN = re.compile(r"\s*(\(|\)|[^\s()]+)")


def id_of(entry: Mapping[str, Any]) -> str:
    """Return what rules are called in a job: the id, else the name, else the title, without blanks; "" if there is none."""
    rule_id = entry.get("id") or entry.get("name") or entry.get("title")
    if not isinstance(rule_id, str):
        return ""
    return re.sub(r"[\s,;'\"\\]+", "-", rule_id.strip())[:200]


def rule_of(entry: Mapping[str, Any], place: str, options: SigmaOptions = NO_OPTIONS) -> Rule | Rejection:
    """Return the rule of a Sigma document, or why there is none."""
    rule_id = id_of(entry)
    if not rule_id:
        return Rejection("", "a Sigma rule needs an id, a name or a title", place)
    try:
        expression = _condition(entry["detection"], options)
        rows = _rows_of(entry.get("logsource"), options)
    except SigmaError as error:
        return Rejection(rule_id, f"Sigma: {error}", place)
    severity = entry.get("level", "medium")
    if severity not in SEVERITIES:
        return Rejection(rule_id, f"unknown level {severity!r}", place)
    if rows:
        expression = f"{rows} AND ({expression})"
    tags = [str(tag) for tag in entry.get("tags") or ()]
    return Rule(rule_id, expression, severity, tuple(tags), str(entry.get("title") or ""), place)


def _rows_of(rule_source: Any, options: SigmaOptions) -> str:
    """Return the condition by which rows of a rule's log source are known; empty: all rows are."""
    conditions = [
        f"({one.where})" if isinstance(one.where, str) else _search(one.where, options)
        for one in sources_for(options.logsource, rule_source) or ()
    ]
    return joined(conditions, "OR") if conditions else ""


def _condition(detection: Any, options: SigmaOptions) -> str:
    if not isinstance(detection, Mapping):
        raise SigmaError("detection must be a mapping")
    searches = {name: value for name, value in detection.items() if name not in ("condition", "timeframe")}
    if "timeframe" in detection:
        raise SigmaError("timeframe is not supported: a rule is evaluated on one row")
    condition = detection.get("condition")
    if isinstance(condition, list):
        return joined([f"({_Conditions(str(one), searches, options).parse()})" for one in condition], "OR")
    if not isinstance(condition, str):
        raise SigmaError("detection has no condition")
    return _Conditions(condition, searches, options).parse()


class _Conditions:
    """A recursive-descent parser of a condition: or, and, not, brackets, names, ``1 of``, ``all of``."""

    def __init__(self, text: str, searches: Mapping[str, Any], options: SigmaOptions) -> None:
        if "|" in text:
            raise SigmaError("aggregations in conditions are not supported: write a correlation rule")
        self._tokens = _TOKEN.findall(text)
        self._searches = searches
        self._options = options
        self._nesting = 0

    def parse(self) -> str:
        found = self._or()
        if self._tokens:
            raise SigmaError(f"unexpected {self._tokens[0]!r} in the condition")
        return found

    def _next(self) -> str:
        if not self._tokens:
            raise SigmaError("the condition is incomplete")
        return str(self._tokens.pop(0))

    def _peek(self) -> str:
        return self._tokens[0].lower() if self._tokens else ""

    def _or(self) -> str:
        parts = [self._and()]
        while self._peek() == "or":
            self._next()
            parts.append(self._and())
        return joined(parts, "OR")

    def _and(self) -> str:
        parts = [self._not()]
        while self._peek() == "and":
            self._next()
            parts.append(self._not())
        return joined(parts, "AND")

    def _not(self) -> str:
        if self._peek() == "not":
            self._next()
            # A field that is missing (NULL) does not match, so ``not`` of it is true.
            with self._deeper():
                return f"({self._not()}) IS NOT TRUE"
        return self._operand()

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._nesting += 1
        if self._nesting > _NESTING_MAX:
            raise SigmaError(f"the condition nests deeper than {_NESTING_MAX} levels")
        yield
        self._nesting -= 1

    def _operand(self) -> str:
        token = self._next()
        if token == "(":
            with self._deeper():
                inner = self._or()
            if self._next() != ")":
                raise SigmaError("a bracket is not closed in the condition")
            return inner
        if self._peek() == "of" and token.lower() in ("1", "all", "any"):
            self._next()
            pattern = self._next()
            names = [n for n in self._searches if _meant(pattern, n)]
            if not names:
                raise SigmaError(f"there is no search identifier {pattern!r}")
            tests = [_search(self._searches[name], self._options) for name in names]
            return joined(tests, "AND" if token.lower() == "all" else "OR")
        if token not in self._searches:
            raise SigmaError(f"there is no search identifier {token!r}")
        return _search(self._searches[token], self._options)


def _meant(pattern: str, name: str) -> bool:
    if pattern.lower() == "them":
        return not name.startswith("_")
    return fnmatchcase(name, pattern)


def _search(search: Any, options: SigmaOptions) -> str:
    if isinstance(search, Mapping):
        if not search:
            raise SigmaError("a search identifier has no fields")
        return joined([field_condition(name, value, options) for name, value in search.items()], "AND")
    if isinstance(search, list) and search:
        words = [one for one in search if not isinstance(one, Mapping)]
        tests = [_search(one, options) for one in search if isinstance(one, Mapping)]
        return joined([*tests, field_condition("", words, options)] if words else tests, "OR")
    return field_condition("", search, options)
