"""Correlation rules of Sigma (specification 2.1), read and checked.

A correlation names rules, by their id, name or title. All that is wrong is found before a job starts, and named with its file
and its place in it. What has no exact meaning here is refused: no correlation gets another meaning.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.foundation.errors import OptionError, did_you_mean
from headrace_rules.loading import RulesInput, documents_of, files_of, load
from headrace_rules.model import DEFAULT_SEVERITY, SEVERITIES, Rejection, RulesError
from headrace_rules.sigma import id_of
from headrace_rules.sigma_fields import SigmaOptions

#: What ``correlate`` takes: file names, patterns, directories, or documents.
CorrelationsInput: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str] | Mapping[str, Any]]

TYPES = ("event_count", "value_count", "temporal", "temporal_ordered")
#: The kind of a rule whose own alerts are passed on (``generate``).
RULE = "rule"
_SECTION = ("type", "rules", "group-by", "timespan", "condition", "aliases", "generate")
_COMPARISONS = ("gt", "gte", "lt", "lte", "eq", "neq")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIMESPAN = re.compile(r"([1-9]\d{0,8})([smhd])")
#: Which of its rules an event matches is kept in the bits of one whole number.
_RULES_MAX = 62
_GREATEST = 2**62


class CorrelationProblem(Exception):
    """What is wrong with a correlation; it becomes a Rejection with the place."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The condition on a number: ``low <= number <= high`` and ``number`` not in ``unequal``."""

    low: int = 0
    high: int = _GREATEST
    unequal: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Correlation:
    """One correlation, or with the kind ``RULE`` a rule whose own alerts are passed on.

    ``rules`` are ids of rules in the order of the document. ``keys`` and ``values`` say per rule which columns the fields of
    ``group-by`` and of the condition are.
    """

    id: str
    kind: str
    rules: tuple[str, ...]
    groups: tuple[str, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    span_us: int = 0
    bounds: Bounds = field(default_factory=Bounds)
    severity: str = DEFAULT_SEVERITY
    labels: tuple[str, ...] = ()
    place: str = ""
    #: Of all that its document says.
    digest: str = ""

    @property
    def version(self) -> str:
        """The id with a digest of what decides about results: events that are kept for another version are not counted."""
        parts = [self.kind, self.rules, self.groups, self.keys, self.values, self.span_us]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
        return f"{self.id} {digest}"


def load_correlations(
    given: CorrelationsInput, rules: RulesInput | None, sigma: SigmaOptions
) -> tuple[Correlation, ...]:
    """Read correlations, and after them the rules whose own alerts are passed on.

    The rules that they name are in the same files or in ``rules``. Raises RulesError with the errors, their files and places;
    OptionError when there are no correlations or no such file.
    """
    documents = _documents(given)
    known = _Rules(sigma)
    for entry, _ in documents:
        if "detection" in entry or "expression" in entry:
            known.add(entry)
    if rules is not None:
        known.add_all(rules)
    found: list[Correlation] = []
    rejections: list[Rejection] = []
    alone: dict[str, None] = {}
    sections = [(entry, place) for entry, place in documents if "correlation" in entry]
    known.correlations = {name for entry, _ in sections for name in _names_of(entry)}
    for entry, place in sections:
        try:
            made = _correlation(entry, place, known)
            if any(one.id == made.id for one in found):
                raise CorrelationProblem("the id is already used by another correlation")
            found.append(made)
            if entry["correlation"].get("generate"):
                alone.update(dict.fromkeys(made.rules))
        except CorrelationProblem as problem:
            rejections.append(Rejection(id_of(entry), str(problem), place))
    if rejections:
        raise RulesError(rejections, total=len(sections))
    if not found:
        raise OptionError("there are no correlations", plugin="correlate", option="correlations")
    return (*found, *(Correlation(rule, RULE, (rule,), **known.shown(rule)) for rule in alone))


def _documents(given: CorrelationsInput) -> list[tuple[Mapping[str, Any], str]]:
    found: list[tuple[Mapping[str, Any], str]] = []
    for number, one in enumerate([given] if isinstance(given, str | os.PathLike) else given, 1):
        if isinstance(one, Mapping):
            found.append((one, f"correlation {number}"))
            continue
        for path in files_of(one):
            found += [(entry, place) for entry, place in documents_of(path) if isinstance(entry, Mapping)]
    return found


def _names_of(entry: Mapping[str, Any]) -> list[str]:
    return [str(entry[name]) for name in ("id", "name", "title") if entry.get(name)]


class _Rules:
    """The rules that correlations can name."""

    def __init__(self, sigma: SigmaOptions) -> None:
        self.sigma = sigma
        self.correlations: set[str] = set()
        #: By each text that a correlation can name a rule with.
        self._ids: dict[str, str] = {}
        self._entries: dict[str, Mapping[str, Any]] = {}

    def add(self, entry: Mapping[str, Any]) -> None:
        rule_id = id_of(entry)
        self._entries.setdefault(rule_id, entry)
        for name in (rule_id, *_names_of(entry)):
            self._ids.setdefault(name, rule_id)

    def add_all(self, rules: RulesInput) -> None:
        for rule in load(rules, self.sigma).rules:
            entry = {"id": rule.id, "level": rule.severity, "tags": rule.labels}
            self._entries.setdefault(rule.id, entry)
            self._ids.setdefault(rule.id, rule.id)
        if isinstance(rules, Mapping):
            return
        for one in [rules] if isinstance(rules, str | os.PathLike) else rules:
            if isinstance(one, str | os.PathLike):
                for path in files_of(one):
                    if path.suffix.lower() != ".sql":
                        for entry, _ in documents_of(path):
                            if isinstance(entry, Mapping) and "detection" in entry:
                                self.add(entry)

    def id_of(self, name: Any) -> str:
        found = self._ids.get(str(name))
        if found is not None:
            return found
        if str(name) in self.correlations:
            raise CorrelationProblem(
                f"rules: {name!r} is a correlation; correlations of correlations are not supported"
            )
        hint = did_you_mean(str(name), list(self._ids), known="rules")
        raise CorrelationProblem(f"rules: there is no rule with the id or name {name!r}; {hint}")

    def names(self, rule: str) -> list[str]:
        return [name for name, rule_id in self._ids.items() if rule_id == rule]

    def shown(self, rule: str) -> dict[str, Any]:
        entry = self._entries[rule]
        severity = entry.get("level", entry.get("severity", DEFAULT_SEVERITY))
        return {"severity": str(severity), "labels": _texts(entry.get("tags") or entry.get("labels") or ())}


def _correlation(entry: Mapping[str, Any], place: str, known: _Rules) -> Correlation:
    section = entry["correlation"]
    if not isinstance(section, Mapping):
        raise CorrelationProblem(f"correlation must be a mapping, not {section!r:.80}")
    for name in section:
        if name not in _SECTION:
            raise CorrelationProblem(
                f"unknown entry {name!r} of correlation; {did_you_mean(str(name), _SECTION, known='entries')}"
            )
    if not id_of(entry):
        raise CorrelationProblem("a correlation needs an id, a name or a title")
    kind = section.get("type")
    if kind not in TYPES:
        raise CorrelationProblem(f"type: {kind!r} is not supported; {did_you_mean(str(kind), TYPES, known='types')}")
    rules = tuple(dict.fromkeys(known.id_of(name) for name in _list(section, "rules")))
    if len(rules) > _RULES_MAX:
        raise CorrelationProblem(f"rules: {len(rules)} rules, but a correlation has at most {_RULES_MAX}")
    groups = tuple(str(name) for name in _list(section, "group-by"))
    fields, bounds = _condition(section, kind, len(rules))
    columns = _Columns(section.get("aliases"), rules, known)
    severity = entry.get("level", DEFAULT_SEVERITY)
    if severity not in SEVERITIES:
        raise CorrelationProblem(f"unknown level {severity!r}")
    if not isinstance(section.get("generate", False), bool):
        raise CorrelationProblem(f"generate: {section['generate']!r} is neither true nor false")
    return Correlation(
        id_of(entry), kind, rules, groups,
        tuple(columns.of(groups, rule) for rule in rules), tuple(columns.of(fields, rule) for rule in rules),
        _timespan_us(section.get("timespan")), bounds, severity, _texts(entry.get("tags") or ()), place,
        digest_of(entry),
    )  # fmt: skip


def digest_of(entry: Mapping[str, Any]) -> str:
    """Return a digest of the document of a correlation, by which a changed one is known."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True, default=str).encode()).hexdigest()


def _list(section: Mapping[str, Any], name: str) -> list[Any]:
    given = section.get(name)
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or not found:
        what = (
            "group-by names the fields by which events belong together"
            if name == "group-by"
            else "name at least one rule"
        )
        raise CorrelationProblem(f"{name} is missing or empty: {what}")
    return found


def _texts(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(str(one) for one in given)


def _timespan_us(given: Any) -> int:
    found = _TIMESPAN.fullmatch(str(given))
    if found is None:
        raise CorrelationProblem(
            f"timespan: {given!r} is not a time; write a whole number and one of s, m, h, d, such as 10m"
        )
    return int(found[1]) * _UNITS[found[2]] * 1_000_000


def _condition(section: Mapping[str, Any], kind: str, rules: int) -> tuple[tuple[str, ...], Bounds]:
    """Return the fields whose values are counted, and the bounds of the number."""
    given = section.get("condition")
    if given is None and kind in ("temporal", "temporal_ordered"):
        return (), Bounds(low=rules)
    if not isinstance(given, Mapping):
        raise CorrelationProblem(f"condition: {given!r:.80} is not a mapping; write for example gte: 10")
    known = ("field", *_COMPARISONS) if kind == "value_count" else _COMPARISONS
    for name in given:
        if name not in known:
            raise CorrelationProblem(
                f"condition of {kind}: unknown entry {name!r}; {did_you_mean(str(name), known, known='entries')}"
            )
    fields = tuple(str(name) for name in _list(given, "field")) if kind == "value_count" else ()
    bounds = _bounds({name: value for name, value in given.items() if name != "field"})
    if kind == "temporal_ordered" and (bounds.low < rules or bounds.high < _GREATEST or bounds.unequal):
        raise CorrelationProblem(
            f"condition of temporal_ordered: only gte: {rules} is supported (all rules, in their order)"
        )
    return fields, bounds


def _bounds(given: Mapping[str, Any]) -> Bounds:
    if not given:
        raise CorrelationProblem("condition has no comparison: gt, gte, lt, lte, eq or neq")
    low, high, unequal = 0, _GREATEST, []
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _GREATEST:
            raise CorrelationProblem(f"condition: {name}: {value!r} is not a number of events or values")
        if name in ("gt", "gte", "eq"):
            low = max(low, value + 1 if name == "gt" else value)
        if name in ("lt", "lte", "eq"):
            high = min(high, value - 1 if name == "lt" else value)
        if name == "neq":
            unequal.append(value)
    first = max(low, 1)
    # Of one number more than are excluded, one is left.
    if first > high or all(number in unequal for number in range(first, min(high, first + len(unequal)) + 1)):
        raise CorrelationProblem("condition is never true: each window contains at least the event that ends it")
    return Bounds(low, high, tuple(unequal))


class _Columns:
    """Finds the column of a field, or of an alias, for events of a rule."""

    def __init__(self, aliases: Any, rules: Sequence[str], known: _Rules) -> None:
        self._known = known
        self._aliases: dict[str, dict[str, str]] = {}
        if aliases is None:
            return
        if not isinstance(aliases, Mapping) or not all(isinstance(each, Mapping) for each in aliases.values()):
            raise CorrelationProblem("aliases must be a mapping of names to mappings of rules to fields")
        for alias, fields in aliases.items():
            by_rule = {known.id_of(name): str(column) for name, column in fields.items()}
            for rule in by_rule:
                if rule not in rules:
                    raise CorrelationProblem(
                        f"aliases: {alias!r} names the rule {rule!r}, which is not among the rules"
                    )
            for rule in rules:
                if rule not in by_rule:
                    raise CorrelationProblem(f"aliases: {alias!r} has no field for the rule {rule!r}")
            self._aliases[str(alias)] = by_rule

    def of(self, fields: Sequence[str], rule: str) -> tuple[str, ...]:
        return tuple(self._one(self._aliases.get(name, {}).get(rule, name)) for name in fields)

    def _one(self, name: str) -> str:
        given = self._known.sigma.fields.get(name, name)
        columns = [given] if isinstance(given, str) else list(given)
        if len(columns) != 1:
            raise CorrelationProblem(f"the field {name!r} is mapped to several columns, but a correlation needs one")
        return str(columns[0])
