"""Verbs that let rows through or not: where, filter, split."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl
from headrace.flow.messages import of_rows
from headrace.flow.schema import Schema, per_schema
from headrace.foundation.errors import NOT_THE_FAULT_OF_A_ROW, FunctionError, OptionError
from headrace.interfaces.functions import UserFunction
from headrace.interfaces.operator import Derivation
from headrace.interfaces.state_definition import quoted
from headrace_columnar.evaluation import RowFailure, evaluate_all
from headrace_columnar.expressions import CompiledExpression, compile_predicate
from headrace_columnar.normal_form import conditions
from headrace_columnar.verbs.base import BoundVerb, Results, VerbSpec, rejected_of

#: The output of ``split`` for rows that no branch takes.
REST = "rest"


class Where(VerbSpec):
    """Keeps the rows for which a condition is true."""

    name: ClassVar[str] = "where"
    keeps_rows = True

    def __init__(self, predicate: str | pl.Expr, *, functions: Mapping[str, UserFunction] | None = None) -> None:
        self.predicate = predicate
        self.functions = functions

    @per_schema
    def compiled(self, schema: Schema) -> CompiledExpression:
        """Return the compiled condition."""
        return compile_predicate(self.predicate, schema, self.functions)  # type: ignore[arg-type]

    def bind(self, schema: Schema) -> BoundVerb:
        return _BoundWhere(schema, self.compiled(schema))

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        if wanted is None:
            return None
        return {*wanted, *self.compiled(schema).columns}

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        return _passing(schema, conditions(self.predicate))

    def describe(self) -> str:
        return str(self.predicate)


def _passing(schema: Schema | None, true: Iterable[str]) -> Derivation:
    """Return the derivation of a verb that passes on those rows for which something is true."""
    found = tuple(true)
    if schema is None:
        return Derivation(None, step=" AND ".join(sorted(found)))
    return Derivation({name: quoted(name) for name in schema}, found)


class _BoundWhere(BoundVerb):
    def __init__(self, schema: Schema, predicate: CompiledExpression) -> None:
        self.schemas = {"": schema}
        self._predicate = predicate

    def process(self, frame: pl.DataFrame) -> Results:
        kept, failures = evaluate_all([self._predicate], frame, ["kept"])
        return [("", of_rows(frame, kept.to_series()))], rejected_of(frame, failures)


class Split(VerbSpec):
    """Sends each row to the first branch whose condition is true, else to ``rest``."""

    name: ClassVar[str] = "split"
    keeps_rows = True

    def __init__(self, *, functions: Mapping[str, UserFunction] | None = None, **branches: str | pl.Expr) -> None:
        if not branches:
            raise OptionError('split needs at least one branch: split(errors="status >= 500")', plugin="split")
        if REST in branches:
            raise OptionError(
                f"{REST!r} is the name of the branch for rows that match no condition", plugin="split", option=REST
            )
        self.branches = dict(branches)
        self.functions = functions
        self.outputs: Sequence[str] = (*branches, REST)

    @per_schema
    def compiled(self, schema: Schema) -> Mapping[str, CompiledExpression]:
        """Return the compiled conditions by branch."""
        return {name: compile_predicate(text, schema, self.functions) for name, text in self.branches.items()}  # type: ignore[arg-type]

    def bind(self, schema: Schema) -> BoundVerb:
        return _BoundSplit(schema, self.compiled(schema))

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return None if schema is None else self.bind(schema).schemas[output or REST]

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        if wanted is None:
            return None
        columns = set(wanted)
        for condition in self.compiled(schema).values():
            columns |= condition.columns
        return columns

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        # A row goes to the first branch that takes it: the order of the branches counts, up to this one.
        tried: list[str] = []
        for name, text in self.branches.items():
            condition = " AND ".join(sorted(conditions(text)))
            if name == output:
                return _passing(schema, [*tried, f"first true of the branches: {condition}"])
            tried.append(f"not in a branch before: {condition}")
        return _passing(schema, tried)

    def describe(self) -> str:
        return ", ".join(f"{name}: {text}" for name, text in self.branches.items())


class _BoundSplit(BoundVerb):
    def __init__(self, schema: Schema, branches: Mapping[str, CompiledExpression]) -> None:
        self.schemas = dict.fromkeys((*branches, REST), schema)
        self._branches = branches

    def process(self, frame: pl.DataFrame) -> Results:
        names = list(self._branches)
        taken, failures = evaluate_all(list(self._branches.values()), frame, names)
        rejected = rejected_of(frame, failures)
        left = pl.Series([True]).new_from_index(0, frame.height)
        if failures:
            left = left.scatter([place for place, _ in failures], False)
        outputs = []
        for name in names:
            outputs.append((name, of_rows(frame, left & taken[name])))
            left = left & ~taken[name]
        return [*outputs, (REST, of_rows(frame, left))], rejected


class Filter(VerbSpec):
    """Keeps the rows for which a Python function of the row returns something true."""

    name: ClassVar[str] = "filter"
    takes_functions = False
    keeps_rows = True

    def __init__(self, predicate: Callable[[dict[str, Any]], Any]) -> None:
        if not callable(predicate):
            raise FunctionError(f"filter needs a function of a row, not {predicate!r}")
        self.predicate = predicate

    def bind(self, schema: Schema) -> BoundVerb:
        return _BoundFilter(schema, self.predicate)

    def derivation(self, schema: Schema | None, output: str = "") -> Derivation:
        return _passing(schema, [f"function {self.describe()}"])

    def describe(self) -> str:
        return getattr(self.predicate, "__qualname__", None) or type(self.predicate).__name__


class _BoundFilter(BoundVerb):
    def __init__(self, schema: Schema, predicate: Callable[[dict[str, Any]], Any]) -> None:
        self.schemas = {"": schema}
        self._columns = list(schema)
        self._predicate = predicate

    def process(self, frame: pl.DataFrame) -> Results:
        kept: list[bool] = []
        failures: list[RowFailure] = []
        for place, row in enumerate(frame.select(self._columns).to_dicts()):
            try:
                kept.append(bool(self._predicate(row)))
            except NOT_THE_FAULT_OF_A_ROW:
                raise
            except Exception as error:  # the user's code may raise anything: the row goes to the dead letters with it
                kept.append(False)
                failures.append((place, error))
        return [("", of_rows(frame, pl.Series(kept, dtype=pl.Boolean)))], rejected_of(frame, failures)
