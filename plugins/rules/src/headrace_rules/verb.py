"""The verb ``rules``, and ``where`` as a member of a group of rules."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from headrace.flow.messages import Batch, Queue
from headrace.flow.schema import Schema
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import HeadraceError, OptionError, PlanError, did_you_mean
from headrace.interfaces.meter import NodeMeter
from headrace.interfaces.operator import Operator, RejectedRows
from headrace.interfaces.settings import parse_duration
from headrace_columnar.verbs.base import BoundVerb, Results, ShapedVerb, VerbSpec
from numpy.typing import NDArray

from headrace_rules.background import behind_batches
from headrace_rules.engine import EngineOptions
from headrace_rules.figures import RULE_HITS
from headrace_rules.group import GroupRun, Member, RuleGroup, Segment, new_preparer
from headrace_rules.journal import RuleJournal
from headrace_rules.loading import RulesInput, check_rules, load, load_strictly
from headrace_rules.model import SEVERITIES, RulesError, RuleSet
from headrace_rules.prepared import Preparer
from headrace_rules.sigma_fields import SigmaOptions
from headrace_rules.versions import RulesUpdate, now_text, update, whoami

OUTPUTS = ("matches", "first", "tag")
SCANNERS = ("auto", "hyperscan", "polars")
_TEXTS = pl.List(pl.String())
Integers = NDArray[np.int64]


class GroupedSpec(VerbSpec):
    """A verb whose conditions are evaluated by a group's engine. ``place``: its index in the members of the group."""

    def __init__(self, group: RuleGroup, place: int) -> None:
        self.group = group
        self.place = place

    @property
    def gives_all_rows(self) -> bool:
        """Whether rows come out that no condition matches."""
        return False

    def open(self, schema: Schema | None) -> Operator:
        if schema is None:
            return ShapedVerb(self)
        return GroupedOperator(self, schema)

    def bind(self, schema: Schema) -> BoundVerb:
        return _BoundGrouped(self, schema)

    def decide(self, schema: Schema, queue: Queue, first: int, last: int) -> None:
        self.group.run_for(schema).decide(queue, first, last)

    def leave_decisions(self) -> None:
        self.group.follow()

    def results(self, frame: pl.DataFrame, segment: Segment) -> pl.DataFrame:
        """Return the output rows of the verb for rows that were evaluated."""
        raise NotImplementedError

    def name_of(self, rule: int, segment: Segment) -> str:
        """Return the text that names a rule in the reason of a dead letter."""
        return ""

    def count_hits(self, segment: Segment, meter: NodeMeter) -> None:
        """Count which rules have matched, where the verb's rules have names."""


class GroupedOperator(Operator):
    """Runs a verb of a group in one lane. All lanes of the process share the group's run."""

    def __init__(self, spec: GroupedSpec, schema: Schema) -> None:
        self._spec = spec
        self._run: GroupRun = spec.group.run_for(schema)

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        made = []
        rejected: list[RejectedRows] = []
        for segment in self._run.segments(self._spec.place, batch):
            if self.meter.enabled:
                self._spec.count_hits(segment, self.meter)
            if len(segment.rows) or self._spec.gives_all_rows:
                frame = self._spec.results(segment.frame, segment)
                if frame.height:
                    made.append(frame)
            if segment.failures:
                rejected.append(rejections(self._spec, segment))
        if made:
            yield batch.with_frame(made[0] if len(made) == 1 else pl.concat(made))
        yield from rejected


class _BoundGrouped(BoundVerb):
    """The verb for rows of one shape, in a stream whose columns are not known."""

    def __init__(self, spec: GroupedSpec, schema: Schema) -> None:
        after = spec.output_schema(schema)
        assert after is not None
        self.schemas = {"": after}
        self._spec = spec
        self._run = spec.group.run_for(schema)

    def process(self, frame: pl.DataFrame) -> Results:
        outputs = []
        rejected = None
        for segment in self._run.segments(self._spec.place, Batch(Queue(""), frame)):
            outputs.append(("", self._spec.results(segment.frame, segment)))
            if segment.failures:
                rejected = rejections(self._spec, segment)
        return outputs, rejected


def rejections(spec: GroupedSpec, segment: Segment) -> RejectedRows:
    """Return the rows for which conditions failed, each once, with the errors of all rules that failed for it."""
    reasons: dict[int, list[str]] = {}
    kinds: dict[int, str] = {}
    for row, rule, error in segment.failures:
        text = error.message if isinstance(error, HeadraceError) else (str(error) or repr(error))
        reasons.setdefault(row, []).append(f"{spec.name_of(rule, segment)}{text}")
        kinds.setdefault(row, type(error).__name__)
    rows = sorted(reasons)
    return RejectedRows(segment.frame[rows], ["; ".join(reasons[row]) for row in rows], [kinds[row] for row in rows])


class Rules(GroupedSpec):
    """Tests each row against many rules and tells which of them matched: ``stream.rules("rules/*.yaml")``.

    ``rules`` is a list of dicts (``id``, ``expression``, optionally ``severity``, ``labels``, ``description``), a mapping
    of ids to expressions, the name of a YAML or .sql file, or a pattern of such names. ``output`` says which rows come out:

    * ``"matches"``: rows that match, with ``rule_ids``, the greatest ``rule_severity``, and all ``rule_labels``;
    * ``"first"``: the same rows, with ``rule_id``, ``rule_severity`` and ``rule_labels`` of the first rule that matches;
    * ``"tag"``: all rows, with the columns of ``"matches"``, empty and NULL where no rule matches.

    ``raw_scan``: do not decode JSON bodies without a trigger; damaged ones among them give no dead letters.
    ``verdict_cache``: how many results of rules with user functions are kept. ``reload_interval``: how often the rules'
    files are checked for changes ("10 s", seconds, or a timedelta). ``scanner``: "auto", "hyperscan" or "polars", with the
    same results. ``functions``: user functions by name. ``sigma``: what Sigma rules leave open, a mapping with ``fields``
    (columns by field), ``keywords`` (columns to search), ``logsource`` and ``placeholders``.

    A row for which a rule fails goes to the dead letters with the rule's id; the other rules are evaluated nevertheless.
    Raises RulesError for wrong rules and other JobErrors for wrong options when the job is built. If the columns are not
    known then, rows whose columns do not fit the rules go to the dead letters.
    """

    name: ClassVar[str] = "rules"
    replaces_rules: ClassVar[bool] = True

    def __init__(
        self,
        rules: RulesInput,
        *,
        output: str = "matches",
        raw_scan: bool = False,
        verdict_cache: int = 0,
        reload_interval: str | float | timedelta | None = None,
        scanner: str = "auto",
        functions: Mapping[str, Any] | None = None,
        sigma: Mapping[str, Any] | SigmaOptions | None = None,
    ) -> None:
        if output not in OUTPUTS:
            hint = did_you_mean(str(output), OUTPUTS, known="outputs")
            raise OptionError(f"unknown output {output!r}", plugin="rules", option="output", hint=hint)
        if scanner not in SCANNERS:
            hint = did_you_mean(str(scanner), SCANNERS, known="scanners")
            raise OptionError(f"unknown scanner {scanner!r}", plugin="rules", option="scanner", hint=hint)
        if raw_scan and output == "tag":
            raise OptionError(
                'output="tag" returns all rows, so all of them must be parsed', plugin="rules", option="raw_scan"
            )
        self.sigma = SigmaOptions.of(sigma)
        self.rules: RuleSet = load_strictly(rules, self.sigma)
        self.given = rules
        self.output = output
        self.raw_scan = raw_scan
        self.reload_interval = _interval(reload_interval, rules)
        self.functions = functions if functions is not None else {}
        self.options = EngineOptions(scanner=scanner, verdict_cache_entries=verdict_cache)
        super().__init__(RuleGroup([Member("rules", self.rules, sigma=self.sigma)], self.functions, self.options), 0)
        self._checked: dict[tuple[Any, ...], frozenset[str]] = {}
        self._replacing: Preparer | None = None

    @property
    def gives_all_rows(self) -> bool:
        return self.output == "tag"

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        if schema is None:
            return None
        self._check(schema)
        return Schema({**schema, **self._added()})

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        if wanted is None:
            return None
        return {*(name for name in wanted if name not in self._added()), *self._check(schema)}

    def describe(self) -> str:
        source = self.given if isinstance(self.given, str | os.PathLike) else None
        return f"{len(self.rules)} rules" + (f" from {source}" if source else "") + f", {self.output}"

    def results(self, frame: pl.DataFrame, segment: Segment) -> pl.DataFrame:
        if self.output == "tag":
            return self._tagged(frame, segment)
        rows, first = np.unique(segment.rows, return_index=True)
        part = frame[rows]
        if self.output == "first":
            return part.with_columns(_of_first(segment.rules, segment.rule_numbers[first]))
        return part.with_columns(_of_all(segment.rules, segment.rule_numbers, first))

    def name_of(self, rule: int, segment: Segment) -> str:
        return f"rule {segment.rules[rule].id!r}: "

    def count_hits(self, segment: Segment, meter: NodeMeter) -> None:
        numbers, counts = np.unique(segment.rule_numbers, return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            meter.add(RULE_HITS, count, segment.rules[number].id)

    def replace_rules(self, rules: RulesInput, schema: Schema, who: str | None = None) -> RulesUpdate:
        member = self.group.members[self.place]
        place = member.journal
        assert place is not None, "the plan of a running job was optimized"
        if self._replacing is None:
            self._replacing = new_preparer(schema, self.group)
        at = now_text(SystemClock())
        with behind_batches():
            return update(RuleJournal(place), self.rules, load(rules, self.sigma), self._replacing, who=who or whoami(), at=at,
                          since=member.since, forget=True, reliances=member.reliances)  # fmt: skip

    # ------------------------------------------------------------------------------------------------ private

    def _tagged(self, frame: pl.DataFrame, segment: Segment) -> pl.DataFrame:
        rows, first = np.unique(segment.rows, return_index=True)
        places = np.full(frame.height, len(rows), dtype=np.int64)
        places[rows] = np.arange(len(rows))
        # After the values of the matching rows comes one entry for all other rows.
        nothing = [pl.Series("rule_ids", [[]], dtype=_TEXTS), pl.Series("rule_severity", [None], dtype=pl.String),
                   pl.Series("rule_labels", [[]], dtype=_TEXTS)]  # fmt: skip
        found = _of_all(segment.rules, segment.rule_numbers, first)
        made = [column.append(other).gather(places) for column, other in zip(found, nothing, strict=True)]
        return frame.with_columns(made)

    def _added(self) -> Mapping[str, pl.DataType]:
        first: dict[str, pl.DataType] = {"rule_id": pl.String()} if self.output == "first" else {"rule_ids": _TEXTS}
        return {**first, "rule_severity": pl.String(), "rule_labels": _TEXTS}

    def _check(self, schema: Schema) -> frozenset[str]:
        """Check the rules against columns; return the columns that they read. Raises RulesError, OptionError."""
        key = tuple((name, str(kind)) for name, kind in schema.items())
        found = self._checked.get(key)
        if found is None:
            for name in self._added():
                if name in schema:
                    raise OptionError(
                        f"there is a column {name!r} already", plugin="rules", hint=f"rename({name}='…') before rules"
                    )
            preparer = self.group.run_for(schema).preparer
            _, rejections = check_rules(self.rules, preparer)
            if rejections:
                raise RulesError(rejections, total=len(self.rules))
            found = self._checked[key] = columns_of(self.rules, preparer)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked": {}, "_replacing": None}


class EngineWhere(GroupedSpec):
    """A ``where`` whose condition is evaluated by a group's engine. Its output is that of the plain ``where``."""

    name: ClassVar[str] = "where"
    keeps_rows = True

    def __init__(self, where: Any, group: RuleGroup, place: int) -> None:
        super().__init__(group, place)
        self.where = where

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return self.where.output_schema(schema, output)  # type: ignore[no-any-return]

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        return self.where.required_columns(wanted, schema)  # type: ignore[no-any-return]

    def describe(self) -> str:
        return f"{self.where.describe()} (rule engine)"

    def results(self, frame: pl.DataFrame, segment: Segment) -> pl.DataFrame:
        return frame if len(segment.rows) == frame.height else frame[segment.rows]


def columns_of(rules: RuleSet, preparer: Preparer) -> frozenset[str]:
    """Return the columns that rules read."""
    columns: set[str] = set()
    for rule in rules:
        columns |= preparer.prepare(rule.expression).columns
    return frozenset(columns)


def _interval(given: str | float | timedelta | None, rules: RulesInput) -> timedelta | None:
    if given is None:
        return None
    try:
        interval = parse_duration(given)
    except ValueError as error:
        raise OptionError(str(error), plugin="rules", option="reload_interval") from error
    if isinstance(rules, Mapping) or not (
        isinstance(rules, str | os.PathLike) or any(isinstance(one, str | os.PathLike) for one in rules)
    ):
        raise PlanError("reload_interval can be used only for rules that are read from files", plugin="rules")
    return interval


def _of_first(rules: RuleSet, numbers: Integers) -> list[pl.Series]:
    """Return the added columns; ``numbers`` has for each row the first rule that it matches."""
    distinct, codes = np.unique(numbers, return_inverse=True)
    chosen = [rules[number] for number in distinct.tolist()]
    columns = [
        pl.Series("rule_id", [rule.id for rule in chosen], dtype=pl.String),
        pl.Series("rule_severity", [rule.severity for rule in chosen], dtype=pl.String),
        pl.Series("rule_labels", [list(rule.labels) for rule in chosen], dtype=_TEXTS),
    ]
    return [column.gather(codes) for column in columns]


def _of_all(rules: RuleSet, numbers: Integers, first: Integers) -> list[pl.Series]:
    """Return the added columns; row ``i`` matches the rules ``numbers[first[i]:first[i + 1]]``."""
    listed = numbers.tolist()
    ends = [*first[1:].tolist(), len(listed)] if len(first) else []
    sets = [tuple(listed[begin:end]) for begin, end in zip(first.tolist(), ends, strict=True)]
    with _lock:
        known = _combinations.get(rules)
        if known is None or len(known.codes) > _COMBINATIONS_MAX:
            known = _combinations[rules] = _Combinations()
        return known.columns_for(rules, sets)


class _Combinations:
    """A cache of the added columns, by the set of rules that a row matches: most rows match one of few sets."""

    def __init__(self) -> None:
        self.codes: dict[tuple[int, ...], int] = {}
        self._columns = [
            pl.Series("rule_ids", [], dtype=_TEXTS),
            pl.Series("rule_severity", [], dtype=pl.String),
            pl.Series("rule_labels", [], dtype=_TEXTS),
        ]

    def columns_for(self, rules: RuleSet, sets: list[tuple[int, ...]]) -> list[pl.Series]:
        """Return the added columns; ``sets`` has for each row the rules that it matches."""
        before = len(self.codes)
        codes = [self.codes.setdefault(one, len(self.codes)) for one in sets]
        if len(self.codes) > before:
            self._add(rules, list(self.codes)[before:])
        return [column.gather(codes) for column in self._columns]

    def _add(self, rules: RuleSet, sets: list[tuple[int, ...]]) -> None:
        ids, severities, labels = [], [], []
        for numbers in sets:
            matched = [rules[number] for number in numbers]
            ids.append([rule.id for rule in matched])
            severities.append(SEVERITIES[max(rule.rank for rule in matched)])
            labels.append(list(dict.fromkeys(label for rule in matched for label in rule.labels)))
        added = [pl.Series(ids, dtype=_TEXTS), pl.Series(severities, dtype=pl.String), pl.Series(labels, dtype=_TEXTS)]
        self._columns = [pl.concat([old, new.alias(old.name)]) for old, new in zip(self._columns, added, strict=True)]


_COMBINATIONS_MAX = 20_000
_combinations: WeakKeyDictionary[RuleSet, _Combinations] = WeakKeyDictionary()
_lock = threading.Lock()
