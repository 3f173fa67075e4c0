"""Evaluates rules on the rows in which their triggers were found. Only a rule that is true there is a match."""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from headrace.runtime.batch_trials import may_be_the_rows_fault
from headrace_columnar.expressions import CompiledExpression, evaluate, evaluate_all
from numpy.typing import NDArray

from headrace_rules.atoms import Atom, Source
from headrace_rules.coded_columns import CodedColumns
from headrace_rules.distinct_values import DistinctValues
from headrace_rules.prepared import Clause, PreparedCondition, Preparer
from headrace_rules.text_conditions import Condition
from headrace_rules.trigger_plan import ValueCodes

Integers = NDArray[np.int64]
#: (row, rule, what went wrong)
RuleFailure = tuple[int, int, Exception]

#: Up to so many evaluations (rows × clauses), one call of polars for all clauses on all rows costs less than one per clause.
_TOGETHER_MAX = 20_000
#: With fewer candidates it is as fast to evaluate the conditions one by one.
_EQUALITIES_FROM = 200
#: Up to so many values, a row is made of the values of each candidate, for all candidates in one step.
_WIDE = 24


@dataclass(slots=True)
class Matches:
    """Which rules match which rows, as ``row * rules + rule``, ordered; and which rules failed for which rows."""

    pairs: Integers
    rules: int
    failures: list[RuleFailure] = field(default_factory=list)

    @property
    def rows(self) -> Integers:
        return self.pairs // self.rules

    @property
    def rule_numbers(self) -> Integers:
        return self.pairs % self.rules


class VerdictCache:
    """Keeps the results of conditions that call user functions, by the exact values of the columns that they read.

    For functions that are slow and give the same result for the same values. Failures are not kept. When there are more
    than ``entries_max`` results, those that were not used for the longest time are dropped.
    """

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._verdicts: OrderedDict[Any, bool] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def evaluate(self, number: int, compiled: CompiledExpression, part: pl.DataFrame) -> tuple[list[bool], list[Any]]:
        """Return the result for each row of ``part``, and the failures as (row of ``part``, error)."""
        keys = [(number, *map(_exact, row)) for row in part.select(sorted(compiled.columns)).rows()]
        verdicts = [self._find(key) for key in keys]
        new: dict[Any, int] = {}
        for place, (key, verdict) in enumerate(zip(keys, verdicts, strict=True)):
            if verdict is None:
                new.setdefault(key, place)
        if not new:
            return [verdict is True for verdict in verdicts], []
        result, failures = evaluate(compiled, part[list(new.values())])
        failed = {place: error for place, error in failures}
        found = dict(zip(new, result.to_list(), strict=True))
        errors = {key: failed[order] for order, key in enumerate(new) if order in failed}
        for key, verdict in found.items():
            if key not in errors:
                self._store(key, bool(verdict))
        told = [(place, errors[key]) for place, key in enumerate(keys) if key in errors]
        return [bool(found[k]) if v is None else v for k, v in zip(keys, verdicts, strict=True)], told

    def _find(self, key: Any) -> bool | None:
        verdict = self._verdicts.get(key)
        if verdict is None:
            self.misses += 1
        else:
            self.hits += 1
            self._verdicts.move_to_end(key)
        return verdict

    def _store(self, key: Any, verdict: bool) -> None:
        self._verdicts[key] = verdict
        while len(self._verdicts) > self._entries_max:
            self._verdicts.popitem(last=False)


def _exact(value: Any) -> Any:
    """Return a key that differs if values differ. In Python 0.0 equals -0.0, and a list cannot be a key."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, list):
        return ("list", *map(_exact, value))
    if isinstance(value, dict):
        return ("struct", *((name, _exact(inner)) for name, inner in value.items()))
    return value


class _Equalities:
    """The parts ``column = constant`` of all conditions. They are tested for all candidates at once."""

    def __init__(self, conditions: Sequence[PreparedCondition]) -> None:
        values: dict[Source, list[str | int]] = {}
        asked = [(number, atom) for number, condition in enumerate(conditions) for atom in condition.equalities]
        for _, atom in asked:
            values.setdefault(atom.source, []).append(atom.value)
        self._codes = [ValueCodes(source, wanted) for source, wanted in values.items()]
        places = {codes.source: place for place, codes in enumerate(self._codes)}
        self._wanted = [np.full(len(conditions), -2, dtype=np.int64) for _ in self._codes]
        for number, atom in asked:
            place = places[atom.source]
            self._wanted[place][number] = self._codes[place].code_of[atom.value]

    def possible(self, hits: pl.DataFrame, places: Integers, rules: Integers) -> Integers:
        """Return the indexes of candidates that no equality excludes. Candidate i: rule ``rules[i]``, row ``places[i]`` of ``hits``."""
        kept = np.ones(len(places), dtype=bool)
        for codes, wanted in zip(self._codes, self._wanted, strict=True):
            asked = wanted[rules]
            unasked = asked == -2
            if not unasked.all():
                kept &= unasked | (asked == codes.codes(hits)[places])
        return np.flatnonzero(kept)


def _places(rows: Integers) -> tuple[Integers, Integers]:
    """Return the distinct values of ``rows``, which are ordered, and for each value of ``rows`` its index among them."""
    if not len(rows):
        return rows, rows
    is_new = np.concatenate(([True], rows[1:] != rows[:-1]))
    return rows[is_new], np.cumsum(is_new) - 1


@dataclass(frozen=True, eq=False, slots=True)
class _Check:
    """How a condition is verified: its cheap parts as one function of a row, and the slots that this reads."""

    cheap: Condition | None
    read: frozenset[int]
    clauses: tuple[Clause, ...]
    #: Whether the cheap parts are the whole condition.
    is_plain: bool
    is_whole: bool


class Verifier:
    """Verifies candidates of one list of conditions with their triggers. Used by one thread at a time."""

    def __init__(
        self,
        conditions: Sequence[PreparedCondition],
        triggers: Sequence[frozenset[Atom] | None],
        preparer: Preparer,
        cache: VerdictCache | None = None,
    ) -> None:
        self._conditions = conditions
        self._preparer = preparer
        self._slots = preparer.slots
        self._triggers = triggers
        #: What verifies each condition; None where no row was to be verified yet.
        self._checks: list[_Check | None] = [None] * len(conditions)
        self._equalities = _Equalities(conditions)
        self._distinct = DistinctValues(conditions, preparer)
        self.cache = cache

    def verify(self, frame: pl.DataFrame, candidates: Integers, coded: CodedColumns | None = None) -> Matches:
        """Return the candidates (``row * rules + rule``, ordered) that are matches. ``coded``: columns of the frame."""
        count = len(self._conditions)
        if not len(candidates):
            return Matches(candidates, count)
        try:
            possible = candidates if coded is None else self._distinct.possible(coded, candidates, count)
            return self._verify_together(frame, possible) if len(possible) else Matches(possible, count)
        except BaseException as error:
            if not may_be_the_rows_fault(error):
                raise
            # polars fails on values of a row. Each condition evaluated by itself finds the row and reports it as failed.
            return self._verify_each(frame, candidates)

    def _verify_each(self, frame: pl.DataFrame, candidates: Integers) -> Matches:
        """Evaluate every candidate by its whole condition; rows that cannot be evaluated fail."""
        count = len(self._conditions)
        rows, rules = candidates // count, candidates % count
        failures: list[RuleFailure] = []
        kept = [
            self._verify_whole(frame, rows, rule, np.flatnonzero(rules == rule), failures)
            for rule in np.unique(rules).tolist()
        ]
        return Matches(candidates[np.sort(np.concatenate(kept))], count, failures)

    def _verify_together(self, frame: pl.DataFrame, candidates: Integers) -> Matches:
        count = len(self._conditions)
        rows, rules = candidates // count, candidates % count
        # Only rows with candidates are taken out of the columns, each once.
        taken, places = _places(rows)
        hits = frame.select(self._columns(frame, rules))[taken]
        if len(candidates) >= _EQUALITIES_FROM:
            kept_places = self._equalities.possible(hits, places, rules)
            candidates, places, rules = candidates[kept_places], places[kept_places], rules[kept_places]
            rows = rows[kept_places]
            taken, again = _places(places)
            hits, places = hits[taken], again
        plain: list[int] = []
        clauses: dict[int, list[int]] = {}
        wholes: dict[int, list[int]] = {}
        for rule, numbers in self._passed(hits, places, rules):
            check = self._check(rule)
            if check.is_plain:
                plain += numbers
            elif check.is_whole:
                wholes.setdefault(rule, []).extend(numbers)
            else:
                clauses.setdefault(rule, []).extend(numbers)
        kept = [np.array(plain, dtype=np.int64)]
        if clauses:
            kept.append(self._verify_clauses(hits, places, clauses))
        failures: list[RuleFailure] = []
        for rule, numbers in wholes.items():
            kept.append(self._verify_whole(frame, rows, rule, np.array(numbers, dtype=np.int64), failures))
        matched = np.sort(np.concatenate(kept))
        return Matches(candidates[matched], count, failures)

    def _check(self, rule: int) -> _Check:
        """Return how a condition is verified. Most are never asked for: their triggers are in no row."""
        made = self._checks[rule]
        if made is None:
            condition = self._conditions[rule]
            parts = self._preparer.parts(condition)
            made = self._checks[rule] = _Check(
                parts.check(self._triggers[rule]),
                frozenset().union(*(part.slots for part in parts.cheap)),
                parts.clauses,
                not condition.is_whole and not parts.clauses,
                condition.is_whole,
            )
        return made

    def _columns(self, frame: pl.DataFrame, rules: Integers) -> list[str]:
        """Return the columns that some rules read."""
        read = frozenset().union(*{self._conditions[rule].columns for rule in np.unique(rules).tolist()})
        return [name for name in frame.columns if name in read]

    def _passed(self, hits: pl.DataFrame, places: Integers, rules: Integers) -> Iterator[tuple[int, list[int]]]:
        """Yield the rules, each with the candidates (indexes of ``rules``) that its cheap parts do not exclude."""
        wanted = sorted(frozenset().union(*(self._check(rule).read for rule in np.unique(rules).tolist())))
        expressions = self._slots.expressions
        found = hits.select([expressions[slot] for slot in wanted]).get_columns()
        columns = {slot: column.to_list() for slot, column in zip(wanted, found, strict=True)}
        width = wanted[-1] + 1 if wanted else 0
        if width > _WIDE:
            yield from self._passed_by_rule(columns, width, places.tolist(), rules)
            return
        nothing = itertools.repeat(None)
        parts: list[Iterable[Any]] = [columns.get(slot, nothing) for slot in range(width)]
        values = list(zip(*parts, strict=False)) if wanted else [()] * hits.height
        cheap = {rule: self._check(rule).cheap for rule in np.unique(rules).tolist()}
        # By rule, so that what is done for a candidate that passes is done in this loop: there may be one for each row.
        passed: defaultdict[int, list[int]] = defaultdict(list)
        for number, (place, rule) in enumerate(zip(places.tolist(), rules.tolist(), strict=True)):
            condition = cheap[rule]
            if condition is None or condition(values[place]):
                passed[rule].append(number)
        yield from passed.items()

    def _passed_by_rule(
        self, columns: Mapping[int, Sequence[Any]], width: int, places: Sequence[int], rules: Integers
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield as ``_passed``. Rows of many values are not made: each rule is given only those that it reads."""
        order = np.argsort(rules, kind="stable")
        ordered = rules[order]
        begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        row: list[Any] = [None] * width
        for rule, numbers in zip(ordered[begins].tolist(), np.split(order, begins[1:]), strict=True):
            check = self._check(rule)
            listed = numbers.tolist()
            if check.cheap is None:
                yield rule, listed
                continue
            read = [(slot, columns[slot]) for slot in check.read]
            passed = []
            for number in listed:
                for slot, values in read:
                    row[slot] = values[places[number]]
                if check.cheap(row):
                    passed.append(number)
            if passed:
                yield rule, passed

    def candidates_by_values(
        self, frame: pl.DataFrame, coded: CodedColumns, rules: Integers
    ) -> tuple[Integers, Integers]:
        """Return candidates of rules without a trigger, and those of the rules that are to be evaluated on whole columns."""
        return self._distinct.candidates(frame, coded, rules, len(self._conditions))

    def verify_everywhere(self, frame: pl.DataFrame, rules: Integers) -> Matches:
        """Return the matches of rules without a trigger, evaluated on whole columns."""
        count = len(self._conditions)
        together = [rule for rule in rules.tolist() if not self._conditions[rule].is_whole]
        alone = [rule for rule in rules.tolist() if self._conditions[rule].is_whole]
        pairs = []
        failures: list[RuleFailure] = []
        if together and frame.height:
            found, failed = evaluate_all([self._preparer.compiled(self._conditions[rule]) for rule in together], frame)
            for rule, column in zip(together, found.get_columns(), strict=True):
                pairs.append(column.arg_true().to_numpy().astype(np.int64) * count + rule)
            # If one condition fails for a row, the results of the others are not known: each is evaluated alone for it.
            again = np.array([row for row, _ in failed], dtype=np.int64)
            for rule in together if len(again) else ():
                pairs.append(
                    again[self._verify_whole(frame, again, rule, np.arange(len(again)), failures)] * count + rule
                )
        all_rows = np.arange(frame.height, dtype=np.int64)
        for rule in alone:
            pairs.append(self._verify_whole(frame, all_rows, rule, all_rows, failures) * count + rule)
        merged = np.sort(np.concatenate(pairs)) if pairs else np.zeros(0, dtype=np.int64)
        return Matches(merged, count, failures)

    # ------------------------------------------------------------------------------------------------ private

    def _verify_whole(
        self, frame: pl.DataFrame, rows: Integers, rule: int, numbers: Integers, failures: list[RuleFailure]
    ) -> Integers:
        """Evaluate a condition that can fail; return which of ``numbers`` (places in ``rows``) match."""
        compiled = self._preparer.compiled(self._conditions[rule])
        part = frame[rows[numbers]] if len(numbers) < frame.height else frame
        failed: Any
        if self.cache is not None and compiled.calls and compiled.deterministic:
            verdicts, failed = self.cache.evaluate(rule, compiled, part)
            result = np.array(verdicts, dtype=bool)
        else:
            series, failed = evaluate(compiled, part)
            result = series.to_numpy().astype(bool)
        failures += [(int(rows[numbers[place]]), rule, error) for place, error in failed]
        matched: Integers = numbers[result]
        return matched

    def _verify_clauses(self, hits: pl.DataFrame, places: Integers, waiting: dict[int, list[int]]) -> Integers:
        """Evaluate the clauses of the rules in ``waiting`` (numbers of candidates by rule); return those that match."""
        wanted: dict[Clause, list[Integers]] = {}
        numbers_of = {rule: np.array(numbers, dtype=np.int64) for rule, numbers in waiting.items()}
        for rule, numbers in numbers_of.items():
            for clause in self._check(rule).clauses:
                wanted.setdefault(clause, []).append(places[numbers])
        rows_of = {clause: np.unique(np.concatenate(parts)) for clause, parts in wanted.items()}
        holds = _evaluate_clauses(hits, rows_of)
        kept = []
        for rule, numbers in numbers_of.items():
            passed = np.ones(len(numbers), dtype=bool)
            for clause in self._check(rule).clauses:
                passed &= holds[clause][places[numbers]]
            kept.append(numbers[passed])
        return np.concatenate(kept)


def _evaluate_clauses(hits: pl.DataFrame, rows_of: dict[Clause, Integers]) -> dict[Clause, NDArray[np.bool_]]:
    """Return for each clause in which rows of ``hits`` it is true. Only the values for its rows in ``rows_of`` are valid."""
    union = np.unique(np.concatenate(list(rows_of.values())))
    if len(union) * len(rows_of) <= _TOGETHER_MAX:
        return _evaluate_together(hits, list(rows_of), union)
    holds: dict[Clause, NDArray[np.bool_]] = {}
    for clause, rows in rows_of.items():
        holds |= _evaluate_together(hits, [clause], rows)
    return holds


def _evaluate_together(hits: pl.DataFrame, clauses: list[Clause], rows: Integers) -> dict[Clause, NDArray[np.bool_]]:
    columns = sorted(frozenset().union(*(clause.columns for clause in clauses)))
    part = hits.select(columns)
    part = part[rows] if len(rows) < hits.height else part
    found = part.select(clause.expression.alias(str(number)) for number, clause in enumerate(clauses))
    holds = {}
    for clause, column in zip(clauses, found.get_columns(), strict=True):
        whole = np.zeros(hits.height, dtype=bool)
        whole[rows] = column.to_numpy()
        holds[clause] = whole
    return holds
