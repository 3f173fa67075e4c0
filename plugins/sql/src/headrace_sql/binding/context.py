"""What a clause is compiled with: the catalog, errors at their place in the text, and translators of expressions.

A clause may also ask for a whole query, for FROM, for WHERE or for SELECT; the compiler, which is above all clauses, answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from headrace_sql.binding import zones
from headrace_sql.binding.catalog import Catalog
from headrace_sql.binding.expression_parts import aggregates_in
from headrace_sql.binding.expressions import Translator
from headrace_sql.binding.query_hints import StateTtls
from headrace_sql.binding.scope import Column, Relation, error_at

#: What SELECT lists: the name that it gives, the expression, and the column where the expression is just one.
Listed = tuple[str | None, exp.Expr, Column | None]


class Context(ABC):
    """The context of one query of a text."""

    def __init__(self, catalog: Catalog, text: str) -> None:
        self.catalog = catalog
        self.text = text
        #: The parts of WITH, by name.
        self.common: dict[str, Relation] = {}
        #: What hints of the SELECT at hand say of the state of its joins and aggregate.
        self.state_ttls = StateTtls(catalog.options, exp.Select(), text)
        #: The SELECT at hand.
        self.around: exp.Select | None = None

    # ------------------------------------------------------------------------------------------- errors, expressions

    def error(self, node: Any, message: str, hint: str | None = None) -> Exception:
        return error_at(node, self.text, message, hint)

    def translator(
        self, relation: Relation, replaced: dict[str, str] | None = None, *, grouped: bool = False
    ) -> Translator:
        return Translator(relation, self.text, self.catalog.functions, self.catalog.zone, replaced, grouped=grouped)

    def without_columns(self) -> Translator:
        """Return the translator of expressions that name no column: of constants."""
        return self.translator(self.catalog.no_columns)

    def has_aggregates(self, node: exp.Select) -> bool:
        parts = [*node.expressions, *([node.args["having"]] if node.args.get("having") else [])]
        return any(aggregates_in(part, self.catalog.functions) for part in parts)

    def window_offset_us(self, node: Any, relation: Relation, on: str | None, length_us: int) -> int:
        """Return by how much windows of a time column (None: processing time) are moved for the session's time zone."""
        if self.catalog.zone == "UTC" or (on is not None and not zones.is_instant(relation.schema[on])):
            return 0
        found = zones.window_offset_us(self.catalog.zone, length_us)
        if found is None:
            raise self.error(
                node, f"windows of this length start at different times of day in summer and in winter in the time zone "
                      f"{self.catalog.zone}",
                "make the time a TIMESTAMP of the zone: CAST(ts AS TIMESTAMP(3)) as a computed column with the WATERMARK",
            )  # fmt: skip
        return found

    def settled(self, node: exp.Expr, relation: Relation) -> Relation:
        """Return a relation without a ROW_NUMBER() that waits for its bound: then it numbers all rows."""
        ranking = relation.ranking
        if ranking is None:
            return relation
        made = ranking.unbounded()
        named = zip(made.columns, relation.columns, strict=True)
        return replace(made, columns=tuple(replace(new, name=old.name, table=old.table) for new, old in named))

    # ------------------------------------------------------------------------------------------- the compiler answers

    @abstractmethod
    def query(self, node: exp.Expr) -> Relation:
        """Return the relation of a query. Raises JobError for errors in it and for parts that are not supported."""

    @abstractmethod
    def from_clause(self, node: exp.Select, conditions: list[exp.Expr]) -> tuple[Relation, list[exp.Expr]]:
        """Return the relation of FROM with its joins, and the conditions of WHERE that are not used up by them."""

    @abstractmethod
    def where(self, relation: Relation, conditions: Sequence[exp.Expr]) -> Relation:
        """Keep the rows for which all conditions are true; a condition on a ROW_NUMBER() makes it a Top-N."""

    @abstractmethod
    def selected(self, relation: Relation, listed: Sequence[Listed], translator: Translator) -> Relation:
        """Return the output of a SELECT for each row, where stars are expanded to columns already and there is no OVER."""
