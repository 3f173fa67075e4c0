"""Prepares rules: a condition is parsed once, and its triggers and the functions that verify it are made.

A condition is split at its top-level ANDs. The parts that are cheap in Python become one function of a row; the
others are compiled by headrace_columnar, each distinct one once, however many rules have it. A condition that can fail
for a row (a CAST, a user function) or that gives other results at another time is kept whole, so that it fails for
exactly the rows for which it would fail by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar import dialect
from headrace_columnar.expressions import CompiledExpression, compile_node, compile_predicate
from sqlglot import exp

from headrace_rules.conditions import NotNativeError, Slots, all_true, native_condition
from headrace_rules.text_conditions import Condition
from headrace_rules.triggers import Atom, Need, ValueAtom, all_atoms, choice, equality_of, need_of, operands


@dataclass(eq=False, slots=True)
class Clause:
    """A part of conditions that headrace_columnar evaluates; shared by all rules that have it. It cannot fail."""

    text: str
    expression: pl.Expr
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class CheapPart:
    """A part of a condition as a function of a row, its rough cost, and its need (see ``triggers``)."""

    condition: Condition
    cost: int
    need: Need | None
    #: The slots that it reads.
    slots: frozenset[int] = frozenset()

    def columns_of(self, slots: Slots) -> frozenset[str]:
        """Return the columns that it reads."""
        return frozenset().union(*(slots.read[slot] for slot in self.slots))


@dataclass(eq=False, slots=True)
class PreparedCondition:
    """A condition ready to run. Either ``whole`` is given, or ``cheap`` and ``clauses``, all of which must be true."""

    text: str
    need: Need | None
    cheap: tuple[CheapPart, ...] = ()
    clauses: tuple[Clause, ...] = ()
    whole: CompiledExpression | None = None
    #: Its parts ``column = constant``: they are tested for many rows at once.
    equalities: tuple[ValueAtom, ...] = ()
    #: The columns that it reads.
    columns: frozenset[str] = frozenset()
    #: The whole condition compiled, to evaluate it on all rows at once. ``Preparer.compiled`` sets it.
    compiled: CompiledExpression | None = None

    def check(self, trigger: frozenset[Atom] | None) -> Condition | None:
        """Return the cheap parts as one function of a row, the cheapest part first. Parts that gave the trigger come last.

        They are probably true where the trigger was found, so the other parts exclude more rows.
        """
        if not self.cheap:
            return None

        def order(part: CheapPart) -> tuple[bool, int]:
            triggered = trigger is not None and part.need is not None and trigger <= all_atoms(part.need)
            return triggered, part.cost

        return all_true([part.condition for part in sorted(self.cheap, key=order)])


@dataclass(slots=True)
class Preparer:
    """Prepares conditions for the columns of one schema. It keeps the prepared conditions and returns them again."""

    schema: Schema
    functions: Mapping[str, Any] = field(default_factory=dict)
    slots: Slots = field(default_factory=Slots)
    _clauses: dict[str, Clause] = field(default_factory=dict)
    _prepared: dict[str, PreparedCondition] = field(default_factory=dict)
    _column_sets: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)

    def prepare(self, text: str) -> PreparedCondition:
        """Return the prepared condition. Raises ExpressionError as ``compile_predicate`` does."""
        found = self._prepared.get(text)
        if found is None:
            try:
                found = self._prepared[text] = self._prepare(text)
            except RecursionError:
                raise ExpressionError("the expression is nested too deeply", text=text, position=0) from None
        return found

    def compiled(self, condition: PreparedCondition) -> CompiledExpression:
        """Return the whole condition compiled by headrace_columnar."""
        if condition.whole is not None:
            return condition.whole
        if condition.compiled is None:
            condition.compiled = compile_predicate(condition.text, self.schema, self.functions)
        return condition.compiled

    def forget_others(self, texts: Iterable[str]) -> None:
        """Drop all prepared conditions except these. The values in ``slots`` are kept."""
        kept = set(texts)
        self._prepared = {text: one for text, one in self._prepared.items() if text in kept}
        clauses = {clause.text: clause for one in self._prepared.values() for clause in one.clauses}
        self._clauses = {key: clause for key, clause in self._clauses.items() if clause.text in clauses}

    def _prepare(self, text: str) -> PreparedCondition:
        node: Any = dialect.parse(text)
        if isinstance(node, exp.Alias):
            node = node.this
        inside = node
        while isinstance(inside, exp.Paren):
            inside = inside.this
        parts = operands(inside) if isinstance(inside, exp.And) else [inside]
        cheap: list[CheapPart] = []
        clauses: list[Clause] = []
        needs: list[Need] = []
        equalities: list[ValueAtom] = []
        for part in parts:
            need = need_of(part, self.schema, self.functions)
            try:
                condition, cost, slots = native_condition(part, self.slots, self.schema, self.functions, text)
                cheap.append(CheapPart(condition, cost, need, slots))
            except NotNativeError:
                clause = self._clause(part, text)
                if clause is None:
                    # This part can fail. Only the parts before it may decide for which rows it is evaluated, so only they give triggers.
                    whole = compile_predicate(text, self.schema, self.functions)
                    need = choice(needs) if whole.deterministic else None
                    return PreparedCondition(text, need, whole=whole, columns=whole.columns)
                clauses.append(clause)
            if need is not None:
                needs.append(need)
            equality = equality_of(part, self.schema, self.functions)
            if equality is not None:
                equalities.append(equality)
        return PreparedCondition(
            text,
            choice(needs),
            cheap=tuple(cheap),
            clauses=tuple(clauses),
            equalities=tuple(equalities),
            # It may have columns that are not read, because names of fields and units are identifiers too. This does no harm.
            columns=self._shared(one.name for one in node.find_all(exp.Identifier) if one.name in self.schema),
        )

    def _shared(self, names: Iterable[str]) -> frozenset[str]:
        """Return a set of columns, the same object for all conditions that read these."""
        made = frozenset(names)
        return self._column_sets.setdefault(made, made)

    def _clause(self, node: exp.Expr, text: str) -> Clause | None:
        """Return the clause of a part; None when it can fail or is not a function of the row alone."""
        key = repr(node)
        found = self._clauses.get(key)
        if found is not None:
            return found
        compiled = compile_node(node, text, self.schema, self.functions)
        if not isinstance(compiled.data_type, pl.Boolean | pl.Null):
            return None  # compiling the whole condition raises the error, with the right message
        if compiled.can_fail or not compiled.deterministic or not compiled.columns:
            return None
        position, length = dialect.span(text, node)
        expression = compiled.staged if isinstance(compiled.data_type, pl.Boolean) else pl.lit(None, dtype=pl.Boolean)
        made = Clause(text[position : position + length], expression.fill_null(False), compiled.columns)
        self._clauses[key] = made
        return made
