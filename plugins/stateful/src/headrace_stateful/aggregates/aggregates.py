"""Aggregate expressions, compiled: ``{"n": "count(*)", "range": "max(a) - min(a)"}`` to partial results and final results.

Rows become *inputs* (the arguments of the aggregate functions), inputs within groups become *partials*, partials of one group are
merged, and *finished* into results. Used by every operator that aggregates.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError, OptionError, did_you_mean
from headrace.interfaces.function_arguments import misfit
from headrace.interfaces.functions import AggregateFunction, decorated_functions, taken_by
from headrace.interfaces.state_definition import Kept, kept
from headrace_columnar import dialect, registry
from headrace_columnar.evaluation import RowFailure, evaluate_all
from headrace_columnar.expressions import CompiledExpression, compile_node
from headrace_columnar.normal_form import normal_node, normal_text
from headrace_columnar.sql_types import column_hint, shown
from sqlglot import exp

from headrace_stateful.aggregates.aggregate_functions import (
    FUNCTIONS,
    AggregateContext,
    Argument,
    ArgumentError,
    Finish,
    Retraction,
    distinct_of,
    user_aggregate,
)
from headrace_stateful.aggregates.aggregate_partials import PartialColumn, PartialColumns
from headrace_stateful.aggregates.grouping import Aggregation, WholeSum, grouped

#: The column of 1 and -1 that ``partial(…, signed=True)`` reads.
SIGN = "__hr_sign"


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One call of an aggregate function.

    ``retraction`` says how a row is taken back: ``"sign"``: by partials of signed rows; ``"values"``: only by making the partial anew
    from all rows that are left, of which the columns ``inputs`` matter.
    """

    function: str
    inputs: tuple[str, ...]
    retraction: Retraction
    order_sensitive: bool


class AggregatePlan:
    """Compiled aggregates. Made by ``compile_aggregates``; immutable; its methods may be called from any thread."""

    def __init__(
        self,
        inputs: Mapping[str, CompiledExpression],
        columns: Sequence[PartialColumn],
        calls: Sequence[AggregateCall],
        values: Sequence[tuple[str, Finish]],
        results: Mapping[str, CompiledExpression],
        meanings: Mapping[str, str] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self._inputs = dict(inputs)
        self._partials = tuple(columns)
        self._users = tuple(column for column in columns if column.kind == "user")
        self._lifted = [column.value for column in columns if column.is_lifted]
        self._values = tuple(values)
        self._results = dict(results)
        #: What inputs and partial columns are, in normal form, by their names.
        self.meanings = dict(meanings or {})
        #: What the results are, in normal form.
        self.texts = dict(texts or {})
        self.calls = tuple(calls)
        #: The columns of the rows that are read.
        self.columns: frozenset[str] = frozenset().union(*(one.columns for one in self._inputs.values()))
        self.input_schema: dict[str, pl.DataType] = {name: one.data_type for name, one in self._inputs.items()}
        self.partial_schema: dict[str, pl.DataType] = {column.name: column.data_type for column in columns}
        #: The columns of the results.
        self.schema = Schema({name: one.data_type for name, one in self._results.items()})
        #: Whether a result depends on the order in which rows come.
        self.order_sensitive = any(call.order_sensitive for call in calls)
        #: Whether functions of the user are called, for rows or for groups, or others that may give something else each time.
        self.calls_users = bool(self._users) or any(one.calls or not one.deterministic for one in self._inputs.values())
        #: Whether every row can be taken back by its sign.
        self.takes_back_by_sign = all(call.retraction == "sign" for call in calls)

    def held(self, *, inputs: bool = False) -> dict[str, Kept]:
        """Return the columns of a group's state by their tags: the partial columns and, with ``inputs``, those of kept rows."""
        types = {**self.partial_schema, **(self.input_schema if inputs else {})}
        return {self.meanings[name]: kept(name, kind) for name, kind in types.items()}

    @property
    def partials(self) -> Sequence[PartialColumn]:
        """The partial columns, for operators that merge them themselves."""
        return self._partials

    def inputs(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[RowFailure]]:
        """Return the inputs of rows (columns ``input_schema``), and the rows that failed, which must be left out."""
        if not self._inputs:
            return pl.DataFrame(height=frame.height), []
        return evaluate_all(list(self._inputs.values()), frame, list(self._inputs))

    def partial(
        self, rows: pl.DataFrame, by: Sequence[str], *, signed: bool = False, others: Sequence[Aggregation] = ()
    ) -> pl.DataFrame:
        """Aggregate inputs within groups: the columns ``by`` and the partial columns, groups in the order of their first row.

        Within a group rows count in their order. With ``signed`` the column ``SIGN`` says which rows are taken back (-1). ``others`` are
        aggregations beside these.
        """
        if signed:
            signs = [column.signed for column in self._partials]
            assert all(sign is not None for sign in signs), "some aggregates do not take rows back by their sign"
            lifted = rows.with_columns(column.value for column in self._partials)
            return self._typed(grouped(lifted, by, [*others, *(sign for sign in signs if sign is not None)]), by)
        if self._lifted:
            # Lazily: parts that several columns have in common are computed once.
            rows = rows.lazy().with_columns(self._lifted).collect()
        made = grouped(rows, by, [*others, *(_of_rows(column) for column in self._partials)])
        if self._users:
            made = made.with_columns(column.fold_rows(made[column.name]) for column in self._users)
        return self._typed(made, by)

    def merge(
        self, partials: pl.DataFrame, by: Sequence[str], *, others: Sequence[Aggregation] = (),
        without: frozenset[str] = frozenset(),
    ) -> pl.DataFrame:  # fmt: skip
        """Merge partials of the same group, in the order in which they stand. ``others`` are aggregations beside these.

        ``without``: partials that the caller merges itself.
        """
        merged = (_of_partials(column) for column in self._partials if column.name not in without)
        made = grouped(partials, by, [*others, *merged])
        if self._users:
            made = made.with_columns(column.fold_partials(made[column.name]) for column in self._users)
        return self._typed(made, by)

    def take_failed(self) -> list[tuple[pl.DataFrame, list[str]]]:
        """Return rows that failed while results were made, with the reasons: for plans that look at rows only then."""
        return []

    def running(self, before: pl.DataFrame, steps: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
        """Return what each group has come to with each step: partials in the order of ``steps``, one for each.

        ``before`` holds the groups' partials so far, at most one each.
        """
        both = pl.concat([before.select(steps.columns), steps])
        if all(_runs(column) for column in self._partials):
            made = both.with_columns(_running(column).over(list(by)) for column in self._partials)
            return made[before.height :]
        places = pl.int_range(pl.len()).alias("__hr_at"), pl.int_range(pl.len()).over(list(by)).alias("__hr_round")
        both = both.with_columns(places)
        # Round by round: the first step of each group, the second, …, each merged with the group's value so far.
        found: list[pl.DataFrame] = []
        while (part := both.filter(pl.col("__hr_round") == len(found)).drop("__hr_round")).height:
            made = part.drop("__hr_at")
            if found:
                last = found[-1].drop("__hr_at").join(part, on=list(by), how="semi", nulls_equal=True)
                made = self.merge(pl.concat([last, made]), by)
            at = part.select(*by, "__hr_at")
            found.append(made.join(at, on=list(by), how="left", nulls_equal=True, maintain_order="left"))
        return pl.concat(found).sort("__hr_at").drop("__hr_at")[before.height :]

    def finish(self, partials: pl.DataFrame) -> tuple[pl.DataFrame, list[RowFailure]]:
        """Return the results of partials, row by row (columns ``schema`` only), and the rows whose results failed.

        The frame must hold the group's columns too where results read them.
        """
        if self._users:
            partials = partials.with_columns(column.results(partials[column.name]) for column in self._users)
        values = partials.with_columns(finish.expression.alias(name) for name, finish in self._values)
        return evaluate_all(list(self._results.values()), values, list(self._results))

    def _typed(self, made: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
        """Groups of nothing but NULL may come in another type."""
        wrong = [
            pl.col(name).cast(kind) for name, kind in self.partial_schema.items() if made.schema.get(name, kind) != kind
        ]
        return made.with_columns(wrong) if wrong else made


def _of_rows(column: PartialColumn) -> Aggregation:
    """Return what makes a partial column of rows whose contributions stand in columns where they are lifted."""
    if not _is_whole_sum(column):
        return column.rows
    return WholeSum(column.name, pl.col(column.name) if column.is_lifted else column.value, column.rows)


def _of_partials(column: PartialColumn) -> Aggregation:
    return WholeSum(column.name, pl.col(column.name), column.merged) if _is_whole_sum(column) else column.merged


def _is_whole_sum(column: PartialColumn) -> bool:
    return column.kind == "sum" and column.data_type == pl.Int64()


def _runs(column: PartialColumn) -> bool:
    """Whether polars has a cumulative form of the aggregation."""
    if column.kind in ("sum", "first", "last"):
        return True
    return column.kind in ("min", "max") and (column.data_type.is_integer() or column.data_type.is_temporal())


def _running(column: PartialColumn) -> pl.Expr:
    values = pl.col(column.name)
    if column.kind == "sum":
        return values.cum_sum()
    if column.kind == "first":
        return pl.when(values.is_not_null().cum_sum() == 1).then(values).forward_fill()
    if column.kind == "last":
        return values.forward_fill()
    return (values.cum_min() if column.kind == "min" else values.cum_max()).forward_fill()


def compile_aggregates(
    aggregates: Mapping[str, str],
    schema: Schema,
    *,
    keys: Sequence[str] = (),
    functions: Mapping[str, Any] | None = None,
    retracts: bool = False,
    integer_average: bool = False,
) -> AggregatePlan:
    """Compile result columns, each an expression over aggregate functions, against the columns of the rows.

    ``keys`` are columns that results may read as they are. ``functions`` are user functions by name (default: those that the
    decorators made). With ``retracts`` partials are kept such that signed rows leave no trace (of NaN and infinity). With
    ``integer_average`` the average of integers is an integer, cut toward zero, as in Flink; else a double. Sums of integers are 64
    bits and wrap around, as ``+`` does. Raises ExpressionError; OptionError where there are no aggregates.
    """
    if not aggregates:
        raise OptionError("there is nothing to aggregate", option="aggregates", hint='name results: n="count(*)"')
    known: Mapping[str, Any] = ChainMap({} if functions is None else functions, decorated_functions())  # type: ignore[arg-type]
    compiler = _PlanCompiler(schema, tuple(keys), known, retracts, integer_average)
    for name, text in aggregates.items():
        compiler.add(name, text)
    return compiler.plan()


class _PlanCompiler:
    def __init__(
        self, schema: Schema, keys: tuple[str, ...], functions: Mapping[str, Any], retracts: bool, integer_average: bool
    ) -> None:
        self._schema = schema
        self._keys = keys
        self._functions = functions
        self._users = registry.UserFunctions(functions)
        self._retracts = retracts
        self._integer_average = integer_average
        self._partials = PartialColumns()
        self._inputs: dict[str, CompiledExpression] = {}
        self._input_names: dict[tuple[str, bool, bool], str] = {}
        self._calls: list[AggregateCall] = []
        self._values: list[tuple[str, Finish]] = []
        self._value_names: dict[str, str] = {}
        self._results: dict[str, CompiledExpression] = {}
        #: What inputs are, and what results are, in normal form.
        self._meanings: dict[str, str] = {}
        #: What inputs are where a condition of FILTER guards them, with that condition.
        self._guarded: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def add(self, name: str, text: str) -> None:
        if not isinstance(text, str):
            raise ExpressionError(f"an aggregate is SQL text, not {type(text).__name__}: {text!r}")
        node = dialect.parse(text)
        if isinstance(node, exp.Alias):
            node = node.this
        self._texts[name] = normal_text(text)
        node = self._with_results(text, node)
        own = {column: finish.data_type for column, finish in self._values}
        visible = {key: self._schema[key] for key in self._keys if key in self._schema}
        self._check_columns(text, node, visible, own)
        self._results[name] = compile_node(node, text, Schema({**visible, **own}), self._functions)

    def plan(self) -> AggregatePlan:
        times = Counter(self._meanings.values())
        # Where the values themselves are stored, values under a condition are stored apart; the order of the aggregates does not matter.
        texts = {name: text if times[text] == 1 else self._guarded[name] for name, text in self._meanings.items()}
        meanings = {name: f"values of {text}" for name, text in texts.items()}
        for column, tag in zip(self._partials.columns, self._partials.tags, strict=True):
            meaning = _meaning(column, tag, self._meanings)
            again = sum(each == meaning for each in meanings.values())
            meanings[column.name] = meaning + (f" #{again + 1}" if again else "")
        return AggregatePlan(
            self._inputs, self._partials.columns, self._calls, self._values, self._results, meanings, self._texts
        )

    def _with_results(self, text: str, node: Any) -> Any:
        """Return the tree with a column in the place of each call of an aggregate function."""
        replaced = self._call(text, node)
        if replaced is not None:
            return replaced
        for child in list(node.iter_expressions()):
            made = self._with_results(text, child)
            if made is not child:
                child.replace(made)
        return node

    def _call(self, text: str, node: Any) -> Any | None:
        mask, condition = None, None
        call = node
        if isinstance(node, exp.Window):
            raise _error(
                text, node, "OVER is not supported here", hint="key_by() and window() define which rows are aggregated"
            )
        if isinstance(node, exp.WithinGroup):
            raise _error(text, node, "WITHIN GROUP is not supported: values are in the order in which they arrived")
        if isinstance(node, exp.Filter):
            call = node.this
            if not self._is_aggregate(call):
                raise _error(text, node, "only an aggregate function can have FILTER")
            condition = node.expression.this
            mask = self._input(text, condition, predicate=True)
        if not self._is_aggregate(call):
            self._check_known(text, call)
            return None
        signature = node.sql(dialect=dialect.Headrace).lower() if not _has_text(node) else node.sql(dialect.Headrace)
        column = self._value_names.get(signature)
        if column is None:
            column = self._value_names[signature] = f"aggregate {len(self._values)}"
            self._values.append((column, self._built(text, call, mask, condition)))
        made = exp.Column(this=exp.Identifier(this=column, quoted=True))
        made.this.meta.update(call.meta)
        return made

    def _is_aggregate(self, node: Any) -> bool:
        if not isinstance(node, exp.Anonymous):
            return False
        name = _name(node)
        return name in FUNCTIONS or isinstance(self._user(name), AggregateFunction)

    def _user(self, name: str) -> Any:
        return None if name in FUNCTIONS and name not in self._users.listed else self._users.find(name)

    def _check_known(self, text: str, node: Any) -> None:
        if not isinstance(node, exp.Anonymous):
            return
        name = _name(node)
        if self._user(name) is not None or registry.find(name) is not None:
            return
        known = [*FUNCTIONS, *registry.names(), *self._users.listed]
        hint = did_you_mean(name, known, known="functions")
        position, length = dialect.name_span(text, node)
        raise ExpressionError(
            f"unknown function {name!r}", text=text, position=position, length=length,
            hint=hint if "did you mean" in hint else "aggregate functions: " + ", ".join(sorted(FUNCTIONS)),
        )  # fmt: skip

    def _built(self, text: str, node: Any, mask: str | None, condition: Any) -> Finish:
        name = _name(node)
        given = [each for each in node.expressions if not isinstance(each, exp.Star)]
        has_star = len(given) < len(node.expressions)
        distinct = len(given) == 1 and isinstance(given[0], exp.Distinct)
        if distinct:
            given = list(given[0].expressions)
        if has_star and (name != "count" or given):
            raise _error(text, node, "* is allowed only in count(*)")
        if name == "count" and not given and not has_star:
            raise _error(text, node, "count needs * or a column")
        arguments = tuple(self._argument(text, each, condition) for each in given)
        context = AggregateContext(
            name, arguments, self._partials, mask, distinct, self._retracts, self._integer_average
        )
        user = self._user(name)
        order_sensitive, retraction = True, "values"
        try:
            if isinstance(user, AggregateFunction):
                if distinct or not arguments:
                    raise ArgumentError("takes no DISTINCT" if distinct else "needs an argument")
                self._check_types(text, given, arguments, user)
                made = user_aggregate(context, user)
            else:
                builder = FUNCTIONS[name]
                if not builder.least <= len(arguments) <= builder.most:
                    raise ArgumentError(f"takes {_counted(builder.least, builder.most)}, not {len(arguments)}")
                by_values = distinct and builder.distinct_matters
                order_sensitive = builder.order_sensitive
                retraction = "values" if by_values else builder.retraction
                made = distinct_of(context) if by_values and not order_sensitive else builder.build(context)
        except ArgumentError as error:
            raise _error(text, node, f"{name} {error}") from None
        inputs = (*(argument.name for argument in arguments), *(() if mask is None else (mask,)))
        self._calls.append(AggregateCall(name, inputs, retraction, order_sensitive))  # type: ignore[arg-type]
        return made

    def _check_types(self, text: str, given: list[Any], arguments: Sequence[Argument], user: AggregateFunction) -> None:
        """Compare the types of a call with the annotations of the function."""
        called, skip = taken_by(user)
        wrong = None if not skip else misfit(called, [argument.data_type for argument in arguments], skip=skip)
        if wrong is not None:
            place, annotation = wrong
            raise _error(
                text, given[place],
                f"aggregate function {user.name!r} expects {annotation} here, but the argument is {shown(arguments[place].data_type)}",
                hint="CAST the argument, or change the annotation of the function",
            )  # fmt: skip

    def _argument(self, text: str, node: Any, condition: Any) -> Argument:
        name = self._input(text, node, predicate=False, condition=condition)
        return Argument(name, self._inputs[name].data_type, _constant(node))

    def _input(self, text: str, node: Any, *, predicate: bool, condition: Any = None) -> str:
        """Return the name of the input column that holds an expression over the row.

        Where ``condition``, the condition of FILTER, is not true, the expression is not evaluated, because it may fail there.
        """
        for inner in node.walk():
            if self._is_aggregate(inner):
                raise _error(text, inner, "an aggregate function cannot contain another one")
            self._check_known(text, inner)
        compiled = compile_node(node, text, self._schema, self._functions)
        chosen = node
        if condition is not None and (compiled.checks or compiled.calls):
            chosen = exp.Case(ifs=[exp.If(this=condition.copy(), true=node.copy())])
            compiled = compile_node(chosen, text, self._schema, self._functions)
        # A guarded expression is not the same CASE written by hand: that one means something else.
        key = (chosen.sql(dialect=dialect.Headrace), predicate, chosen is not node)
        if key not in self._input_names:
            compiled = _condition(text, node, compiled) if predicate else _typed(compiled)
            self._input_names[key] = f"__hr_a{len(self._inputs)}"
            self._inputs[self._input_names[key]] = compiled
            # The expression itself is the same with and without the condition: partial results are distinguished by the condition.
            self._meanings[self._input_names[key]] = normal_node(node)
            self._guarded[self._input_names[key]] = normal_node(chosen)
        return self._input_names[key]

    def _check_columns(self, text: str, node: Any, visible: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        for column in _columns(node):
            name = column.name if isinstance(column, exp.Identifier) else column.parts[0].name
            if name in visible or name in own:
                continue
            if name in self._schema:
                raise _error(
                    text, column, f"column {name!r} has several values in a group",
                    hint=f"take one of them, such as max({name}) or last({name}), or add it to key_by()",
                )  # fmt: skip
            raise _error(text, column, f"unknown column {name!r}", hint=column_hint(name, self._schema))


def _meaning(column: PartialColumn, tag: Sequence[Any], inputs: Mapping[str, str]) -> str:
    """Return the text of a partial column: ``count(*)``, ``max("v")``, ``sum("v") of "w" > 3``."""
    what, mask, *arguments = tag
    given = ", ".join(inputs.get(str(each), str(each)) for each in arguments)
    if what == "rows":
        text = "count(*)"
    elif column.kind == "sum":
        text = f"{what}({given})"
    else:
        text = f"{column.kind}({given})" if what in ("extreme", "edge") else f"{what}({given}) by {column.kind}"
    return text if mask is None else f"{text} where {inputs[mask]}"


def _columns(node: Any) -> Iterator[Any]:
    yield from node.find_all(exp.Column)


def _name(node: Any) -> str:
    return (node.this if isinstance(node.this, str) else node.this.name).lower()


def _constant(node: Any) -> Any:
    """Return the value of a literal or of an array of literals; None for any other expression."""
    if isinstance(node, exp.Cast | exp.Paren):
        return _constant(node.this)
    if isinstance(node, exp.Array) or (isinstance(node, exp.Anonymous) and _name(node) == "array"):
        values = [_constant(each) for each in node.expressions]
        return None if None in values else values
    if not isinstance(node, exp.Literal):
        return None
    return node.this if node.is_string else Decimal(node.this)


def _has_text(node: Any) -> bool:
    """Whether case matters in an expression: quoted or plain, names of columns do."""
    return any(True for _ in node.find_all(exp.Column, exp.Literal))


def _condition(text: str, node: Any, compiled: CompiledExpression) -> CompiledExpression:
    if not isinstance(compiled.data_type, pl.Boolean):
        raise _error(text, node, "the condition of FILTER must be boolean")
    return CompiledExpression(
        compiled.expression.fill_null(False), compiled.data_type, compiled.columns, compiled.text, compiled.deterministic,
        compiled.staged.fill_null(False), compiled.checks, compiled.calls, is_predicate=True,
    )  # fmt: skip


def _typed(compiled: CompiledExpression) -> CompiledExpression:
    """NULL without a type counts as an integer."""
    if not isinstance(compiled.data_type, pl.Null):
        return compiled
    nothing = pl.lit(None, dtype=pl.Int64)
    return CompiledExpression(nothing, pl.Int64(), compiled.columns, compiled.text, staged=nothing)


def _counted(least: int, most: int) -> str:
    if least == most:
        return "one argument" if least == 1 else f"{least} arguments"
    return f"{least} to {most} arguments" if most < 100 else "any number of arguments"


def _error(text: str, node: Any, message: str, *, hint: str | None = None) -> ExpressionError:
    position, length = dialect.span(text, node)
    return ExpressionError(message, text=text, position=position, length=length, hint=hint)
