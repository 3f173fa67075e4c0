"""Prepared rules: what each condition needs, and the functions that verify it.

A condition is split at its top-level ANDs. The parts that are cheap in Python become one function of a row; the
others are compiled by headrace_columnar, each distinct one once, however many rules have it. A condition that can fail
for a row (a CAST, a user function) or that gives other results at another time is kept whole, so that it fails for
exactly the rows for which it would fail by itself.

What a condition needs is known at once: from its text, or from the disk, where an earlier process has stored it
(``condition_cache``). The functions are made when the first row is to be verified: most rules never have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError, HeadraceError
from headrace_columnar.expressions import CompiledExpression, compile_predicate

from headrace_rules.atoms import Atom, Need, ValueAtom, all_atoms
from headrace_rules.background import pause, without_collections
from headrace_rules.slots import Slots
from headrace_rules.text_conditions import Condition

if TYPE_CHECKING:
    from headrace_rules.condition_cache import ConditionCache


@dataclass(eq=False, slots=True)
class Clause:
    """A part of conditions that headrace_columnar evaluates; shared by all rules that have it. It cannot fail."""

    text: str
    expression: pl.Expr
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class CheapPart:
    """A part of a condition as a function of a row, its rough cost, and its need (see ``atoms``)."""

    condition: Condition
    cost: int
    need: Need | None
    #: The slots that it reads.
    slots: frozenset[int] = frozenset()

    def columns_of(self, slots: Slots) -> frozenset[str]:
        """Return the columns that it reads."""
        return frozenset().union(*(slots.read[slot] for slot in self.slots))


@dataclass(frozen=True, eq=False, slots=True)
class Parts:
    """How a condition is verified. Either ``whole`` is given, or ``cheap`` and ``clauses``, all of which must be true."""

    cheap: tuple[CheapPart, ...] = ()
    clauses: tuple[Clause, ...] = ()
    whole: CompiledExpression | None = None
    #: Columns without whose values the condition is never true.
    needed: frozenset[str] = frozenset()

    def check(self, trigger: frozenset[Atom] | None) -> Condition | None:
        """Return the cheap parts as one function of a row, the cheapest part first. Parts that gave the trigger come last.

        They are probably true where the trigger was found, so the other parts exclude more rows.
        """
        if not self.cheap:
            return None

        def order(part: CheapPart) -> tuple[bool, int]:
            triggered = trigger is not None and part.need is not None and trigger <= all_atoms(part.need)
            return triggered, part.cost

        return _all_true([part.condition for part in sorted(self.cheap, key=order)])


@dataclass(eq=False, slots=True)
class PreparedCondition:
    """What is known of a condition before a row is verified. ``Preparer.parts`` gives how that is done."""

    text: str
    need: Need | None
    #: Its parts ``column = constant``: they are tested for many rows at once.
    equalities: tuple[ValueAtom, ...] = ()
    #: The columns that it reads.
    columns: frozenset[str] = frozenset()
    #: Whether it can fail for a row, or is not a function of the row alone. Then it is evaluated whole.
    is_whole: bool = False
    #: The functions that it calls by name, in lower case.
    calls: frozenset[str] = frozenset()
    #: None until a row is to be verified.
    parts: Parts | None = None
    #: The whole condition compiled, to evaluate it on all rows at once. ``Preparer.compiled`` sets it.
    compiled: CompiledExpression | None = None


@dataclass(slots=True)
class Preparer:
    """Prepares conditions for the columns of one schema. It keeps the prepared conditions and returns them again.

    Several threads may use it. ``stored``: where what conditions need is kept between processes; None: nowhere.
    """

    schema: Schema
    functions: Mapping[str, Any] = field(default_factory=dict)
    slots: Slots = field(default_factory=Slots)
    stored: ConditionCache | None = None
    clauses: dict[str, Clause] = field(default_factory=dict)
    _prepared: dict[str, PreparedCondition] = field(default_factory=dict)
    _column_sets: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)

    def prepare(self, text: str) -> PreparedCondition:
        """Return the prepared condition. Raises ExpressionError as ``compile_predicate`` does."""
        found = self._prepared.get(text)
        if found is None:
            found = self._prepared[text] = self._from_text(text)
        return found

    def prepare_many(self, texts: Sequence[str]) -> None:
        """Prepare the conditions that are not wrong, so that ``prepare`` has them. Those stored on disk are not parsed."""
        wanted = list(dict.fromkeys(texts))
        if all(text in self._prepared for text in wanted):
            return
        with without_collections():
            self._prepare_missing(wanted)

    def _prepare_missing(self, wanted: Sequence[str]) -> None:
        # Packs are of all texts, not only of those that are missing, so that the next process finds them.
        packs = [] if self.stored is None else self.stored.packs(wanted, self.schema)
        packs = [pack for pack in packs if not all(text in self._prepared for text in pack.texts)]
        for pack in packs:
            pause()
            assert self.stored is not None
            for text, condition in self.stored.read(pack, self).items():
                self._prepared.setdefault(text, condition)
        for text in wanted:
            pause()
            try:
                self.prepare(text)
            except HeadraceError:
                continue  # ``prepare`` raises it again when this one is requested
        if self.stored is not None:
            self.stored.write(packs, self._prepared, self.functions)

    def parts(self, condition: PreparedCondition) -> Parts:
        """Return how a condition is verified."""
        if condition.parts is None:
            condition.parts = self._from_text(condition.text).parts
        assert condition.parts is not None
        return condition.parts

    def compiled(self, condition: PreparedCondition) -> CompiledExpression:
        """Return the whole condition compiled by headrace_columnar."""
        if condition.is_whole:
            whole = self.parts(condition).whole
            assert whole is not None
            return whole
        if condition.compiled is None:
            condition.compiled = compile_predicate(condition.text, self.schema, self.functions)
        return condition.compiled

    def forget_others(self, texts: Iterable[str]) -> None:
        """Drop all prepared conditions except these. The values in ``slots`` are kept."""
        kept = set(texts)
        self._prepared = {text: one for text, one in self._prepared.items() if text in kept}
        made = [one.parts for one in self._prepared.values() if one.parts is not None]
        clauses = {clause.text for parts in made for clause in parts.clauses}
        self.clauses = {key: clause for key, clause in self.clauses.items() if clause.text in clauses}

    @staticmethod
    def slots_of(conditions: Iterable[PreparedCondition]) -> int:
        """Return how many values of a row the functions of conditions read, as far as they are made."""
        made = [one.parts for one in conditions if one.parts is not None]
        return len(frozenset().union(*(part.slots for parts in made for part in parts.cheap)))

    def shared(self, names: Iterable[str]) -> frozenset[str]:
        """Return a set of columns, the same object for all conditions that read these."""
        made = frozenset(names)
        return self._column_sets.setdefault(made, made)

    def _from_text(self, text: str) -> PreparedCondition:
        from headrace_rules.preparing import prepared  # imports sqlglot, which takes a while

        try:
            return prepared(text, self)
        except RecursionError:
            raise ExpressionError("the expression is nested too deeply", text=text, position=0) from None


def _all_true(parts: Sequence[Condition]) -> Condition:
    """Return a function that tells whether all conditions are true in a row. Unlike AND it takes NULL as FALSE."""
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        first, second = parts

        def both(row: Sequence[Any], first: Condition = first, second: Condition = second) -> bool | None:
            return first(row) and second(row)

        return both
    if len(parts) == 3:
        one, two, three = parts

        def all_three(
            row: Sequence[Any], one: Condition = one, two: Condition = two, three: Condition = three
        ) -> bool | None:
            return one(row) and two(row) and three(row)

        return all_three

    def every(row: Sequence[Any], parts: Sequence[Condition] = parts) -> bool:
        return all(part(row) for part in parts)

    return every
