"""Sigma rules (https://sigmahq.io, specification 2): the common part, translated to SQL conditions.

Supported are searches that are mappings or lists of mappings; the modifiers contains, startswith, endswith, all, re, cased,
exists, lt, lte, gt, gte; conditions with and, or, not, brackets, ``1 of x*``, ``all of x*``, ``1 of them``. Values are
compared without regard to case, as Sigma says, unless ``cased`` is given. Field names are column names. A rule with
anything else (keywords, for example) is rejected, and the reason names it: no rule gets another meaning. ``logsource`` is
ignored: a rule is evaluated on all rows of the stream that the verb ``rules`` is called on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from headrace_rules.model import SEVERITIES, Rejection, Rule

_MODIFIERS = ("contains", "startswith", "endswith", "all", "re", "cased", "exists", "lt", "lte", "gt", "gte")
_COMPARISONS = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
#: Brackets and ``not`` within each other in a condition, and lists within each other in a search.
_NESTING_MAX = 100
#: At most so many tests are joined by one chain of OR or AND, because the syntax tree of a chain is as deep as the chain is
#: long. More tests are joined in groups, with brackets.
_TESTS_IN_A_ROW = 50
_TOKEN = re.compile(r"\s*(\(|\)|[^\s()]+)")


class _UnsupportedError(ValueError):
    """The rule has a part of Sigma that is not supported or is wrong; the message names it."""


def rule_of(entry: Mapping[str, Any], place: str) -> Rule | Rejection:
    """Return the rule of a Sigma document, or why there is none."""
    rule_id = entry.get("id") or entry.get("name") or entry.get("title")
    if not isinstance(rule_id, str) or not rule_id.strip():
        return Rejection("", "a Sigma rule needs an id, a name or a title", place)
    rule_id = re.sub(r"[\s,;'\"\\]+", "-", rule_id.strip())[:200]
    try:
        expression = _condition(entry["detection"])
    except _UnsupportedError as error:
        return Rejection(rule_id, f"Sigma: {error}", place)
    severity = entry.get("level", "medium")
    if severity not in SEVERITIES:
        return Rejection(rule_id, f"unknown level {severity!r}", place)
    tags = [str(tag) for tag in entry.get("tags") or ()]
    return Rule(rule_id, expression, severity, tuple(tags), str(entry.get("title") or ""), place)


def _condition(detection: Any) -> str:
    if not isinstance(detection, Mapping):
        raise _UnsupportedError("detection must be a mapping")
    searches = {name: value for name, value in detection.items() if name not in ("condition", "timeframe")}
    if "timeframe" in detection:
        raise _UnsupportedError("timeframe is not supported: rules look at one row")
    condition = detection.get("condition")
    if isinstance(condition, list):
        return _joined([f"({_Conditions(str(one), searches).parse()})" for one in condition], "OR")
    if not isinstance(condition, str):
        raise _UnsupportedError("detection has no condition")
    return _Conditions(condition, searches).parse()


class _Conditions:
    """A recursive-descent parser of a condition: or, and, not, brackets, names, ``1 of``, ``all of``."""

    def __init__(self, text: str, searches: Mapping[str, Any]) -> None:
        if "|" in text:
            raise _UnsupportedError("aggregations in conditions are not supported")
        self._tokens = _TOKEN.findall(text)
        self._searches = searches
        self._nesting = 0

    def parse(self) -> str:
        found = self._or()
        if self._tokens:
            raise _UnsupportedError(f"unexpected {self._tokens[0]!r} in the condition")
        return found

    def _next(self) -> str:
        if not self._tokens:
            raise _UnsupportedError("the condition ends too early")
        return str(self._tokens.pop(0))

    def _peek(self) -> str:
        return self._tokens[0].lower() if self._tokens else ""

    def _or(self) -> str:
        parts = [self._and()]
        while self._peek() == "or":
            self._next()
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else f"({_joined(parts, 'OR')})"

    def _and(self) -> str:
        parts = [self._not()]
        while self._peek() == "and":
            self._next()
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else f"({_joined(parts, 'AND')})"

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
            raise _UnsupportedError(f"the condition nests deeper than {_NESTING_MAX} levels")
        yield
        self._nesting -= 1

    def _operand(self) -> str:
        token = self._next()
        if token == "(":
            with self._deeper():
                inner = self._or()
            if self._next() != ")":
                raise _UnsupportedError("a bracket is not closed in the condition")
            return f"({inner})"
        if self._peek() == "of" and token.lower() in ("1", "all", "any"):
            self._next()
            pattern = self._next()
            names = [n for n in self._searches if _meant(pattern, n)]
            if not names:
                raise _UnsupportedError(f"no search is called {pattern!r}")
            tests = [_search(self._searches[name]) for name in names]
            return f"({_joined(tests, 'AND' if token.lower() == 'all' else 'OR')})"
        if token not in self._searches:
            raise _UnsupportedError(f"no search is called {token!r}")
        return _search(self._searches[token])


def _meant(pattern: str, name: str) -> bool:
    if pattern.lower() == "them":
        return not name.startswith("_")
    return fnmatchcase(name, pattern)


def _joined(tests: Sequence[str], operator: str) -> str:
    """Join tests by AND or OR so that the expression does not nest deeply, however many there are."""
    while len(tests) > _TESTS_IN_A_ROW:
        groups = [tests[start : start + _TESTS_IN_A_ROW] for start in range(0, len(tests), _TESTS_IN_A_ROW)]
        tests = ["(" + f" {operator} ".join(group) + ")" for group in groups]
    return f" {operator} ".join(tests)


def _search(search: Any) -> str:
    if isinstance(search, Mapping):
        return "(" + _joined([_field(name, value) for name, value in search.items()], "AND") + ")"
    if isinstance(search, list) and search and all(isinstance(one, Mapping) for one in search):
        return "(" + _joined([_search(one) for one in search], "OR") + ")"
    raise _UnsupportedError(
        "a search is a mapping of fields, or a list of such; keywords are not supported, because they name no column"
    )


def _field(key: Any, value: Any) -> str:
    name, *modifiers = str(key).split("|")
    for modifier in modifiers:
        if modifier not in _MODIFIERS:
            raise _UnsupportedError(f"modifier {modifier!r} is not supported")
    column = ".".join('"' + part.replace('"', "") + '"' for part in name.split("."))
    values = value if isinstance(value, list) else [value]
    if not values:
        raise _UnsupportedError(f"field {name!r} has no values")
    tests = [_test(column, one, modifiers) for one in values]
    joined = _joined(tests, "AND" if "all" in modifiers else "OR")
    return joined if len(tests) == 1 else f"({joined})"


def _test(column: str, value: Any, modifiers: list[str]) -> str:
    if "exists" in modifiers:
        return f"{column} IS NOT NULL" if value else f"{column} IS NULL"
    for modifier, sign in _COMPARISONS.items():
        if modifier in modifiers:
            return f"{column} {sign} {_number(value)}"
    if value is None:
        return f"{column} IS NULL"
    # With these modifiers the value is a text, even if YAML reads a number: ``port|endswith: 443``.
    is_text = not {"contains", "startswith", "endswith", "re", "cased"}.isdisjoint(modifiers)
    if isinstance(value, bool) and not is_text:
        return f"{column} = {str(value).upper()}"
    if isinstance(value, int | float) and not is_text:
        return f"{column} = {_number(value)}"
    text = str(value)
    if "re" in modifiers:
        return f"{column} RLIKE {_quoted(text)}"
    pattern = _like(text)
    if "contains" in modifiers:
        pattern = f"%{pattern}%"
    elif "startswith" in modifiers:
        pattern = f"{pattern}%"
    elif "endswith" in modifiers:
        pattern = f"%{pattern}"
    return f"{column} {'LIKE' if 'cased' in modifiers else 'ILIKE'} {_quoted(pattern)} ESCAPE '!'"


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnsupportedError(f"{value!r} is not a number")
    return repr(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _like(text: str) -> str:
    """Translate Sigma's wildcards ``*`` and ``?`` to LIKE. A backslash before ``*``, ``?`` or a backslash takes it literally."""
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        if character == "\\" and following and following in "*?\\":
            out.append(_plain(following))
            position += 2
            continue
        out.append({"*": "%", "?": "_"}.get(character) or _plain(character))
        position += 1
    return "".join(out)


def _plain(character: str) -> str:
    return "!" + character if character in "%_!" else character
