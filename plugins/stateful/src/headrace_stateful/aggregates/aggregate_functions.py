"""The aggregate functions: what each keeps of its rows, and how its result comes of that.

All skip NULL, as SQL says, but ``count(*)`` and ``array_agg``. Without a value a result is NULL (of counts 0, of ``collect`` an
empty array).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Literal

import polars as pl
from headrace_columnar.rowwise import by_series, map_rows
from headrace_columnar.sql_types import is_scalar, is_text, shown

from headrace_stateful.aggregates import aggregate_numbers as numbers
from headrace_stateful.aggregates.aggregate_partials import PartialColumns, PartialKind

#: How a row can be taken back: by its sign, or only by all values of the group being known.
Retraction = Literal["sign", "values"]


class ArgumentError(Exception):
    """The arguments do not fit the function; the message says why."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: a column of the inputs. ``constant`` is set where its value is known when the job is built."""

    name: str
    data_type: pl.DataType
    constant: Any = None

    @property
    def column(self) -> pl.Expr:
        return pl.col(self.name)


@dataclass(frozen=True, slots=True)
class Finish:
    """How a result is made of partial columns."""

    expression: pl.Expr
    data_type: pl.DataType


@dataclass(frozen=True, slots=True)
class AggregateContext:
    """One call, as its builder sees it."""

    name: str
    arguments: tuple[Argument, ...]
    partials: PartialColumns
    #: The name of a boolean input column: false where FILTER (WHERE …) leaves a row out.
    mask: str | None = None
    distinct: bool = False
    retracts: bool = False
    integer_average: bool = False

    def masked(self, value: pl.Expr) -> pl.Expr:
        return value if self.mask is None else pl.when(pl.col(self.mask)).then(value)

    @property
    def value(self) -> pl.Expr:
        """The first argument, NULL where FILTER leaves the row out."""
        return self.masked(self.arguments[0].column)

    @property
    def data_type(self) -> pl.DataType:
        return self.arguments[0].data_type

    def tag(self, what: str) -> tuple[Any, ...]:
        return (what, self.mask, *(argument.name for argument in self.arguments))

    def add(self, what: str, kind: PartialKind, data_type: pl.DataType, value: pl.Expr) -> pl.Expr:
        return self.partials.add(self.tag(what), kind, data_type, value)

    def counted(self) -> pl.Expr:
        """The number of values that are not NULL."""
        present = self.value.is_not_null()
        return self.partials.add(
            self.tag("count"), "sum", pl.Int64(), present.cast(pl.Int64), present.sum().cast(pl.Int64)
        )


@dataclass(frozen=True, slots=True)
class AggregateBuilder:
    """A function of the table."""

    build: Callable[[AggregateContext], Finish]
    least: int
    most: int
    retraction: Retraction
    order_sensitive: bool = False
    #: Whether DISTINCT changes the result.
    distinct_matters: bool = True


def _count(call: AggregateContext) -> Finish:
    if not call.arguments:
        one = call.masked(pl.lit(1, dtype=pl.Int64))
        rows = pl.len().cast(pl.Int64) if call.mask is None else pl.col(call.mask).sum().cast(pl.Int64)
        return Finish(call.partials.add(("rows", call.mask), "sum", pl.Int64(), one, rows), pl.Int64())
    if len(call.arguments) == 1:
        return Finish(call.counted(), pl.Int64())
    present = pl.all_horizontal(argument.column.is_not_null() for argument in call.arguments)
    counted = call.masked(present).fill_null(False)
    made = call.partials.add(call.tag("count"), "sum", pl.Int64(), counted.cast(pl.Int64), counted.sum().cast(pl.Int64))
    return Finish(made, pl.Int64())


def _sum(call: AggregateContext) -> Finish:
    kind = call.data_type
    present = call.counted() > 0
    if isinstance(kind, pl.Duration):
        whole = call.add("sum", "sum", pl.Int64(), call.value.cast(pl.Duration("us")).cast(pl.Int64))
        return Finish(pl.when(present).then(whole).cast(pl.Duration("us")), pl.Duration("us"))
    if isinstance(kind, pl.Decimal):
        result = pl.Decimal(38, kind.scale)
        return Finish(pl.when(present).then(_decimal_sum(call, kind)), result)
    if kind.is_float():
        return Finish(
            pl.when(present).then(numbers.double_of(*_double_parts(call, "sum", _double(call)))), pl.Float64()
        )
    if isinstance(kind, pl.UInt64 | pl.Int128 | pl.UInt128):
        whole = call.add("wide", "sum", pl.Int128(), call.value.cast(pl.Int128))
        return Finish(pl.when(present).then(whole.cast(pl.Decimal(38, 0), strict=False)), pl.Decimal(38, 0))
    if kind.is_integer():
        whole = call.add("sum", "sum", pl.Int64(), call.value.cast(pl.Int64))
        return Finish(pl.when(present).then(whole), pl.Int64())
    hint = ": count the rows with count(*) FILTER (WHERE …)" if isinstance(kind, pl.Boolean) else ""
    raise ArgumentError(f"needs numbers, not {shown(kind)}{hint}")


def _double(call: AggregateContext) -> pl.Expr:
    return call.value.cast(pl.Float64)


def _double_parts(call: AggregateContext, what: str, *values: pl.Expr) -> list[pl.Expr]:
    """The parts of the sum of doubles, or of the sum of several doubles per row: a value and its rounding error."""

    def total(part: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
        made = part(values[0])
        for value in values[1:]:
            made = made + part(value)
        return made

    def outer(value: pl.Expr) -> pl.Expr:
        return numbers.outer_part(value, finite_only=call.retracts)

    columns = [
        call.add(f"{what} coarse", "sum", pl.Int128(), total(numbers.coarse_part)),
        call.add(f"{what} fine", "sum", pl.Int128(), total(numbers.fine_part)),
        call.add(f"{what} outer", "sum", pl.Float64(), total(outer)),
    ]
    if call.retracts:
        columns.append(call.add(f"{what} special", "sum", pl.Int128(), numbers.special_part(values[0])))
    return columns


def _decimal_sum(call: AggregateContext, kind: pl.Decimal) -> pl.Expr:
    """The sum of decimals: exact; NULL when it needs more than 38 digits."""
    wide = pl.Decimal(38, kind.scale)
    if kind.precision <= 28:
        return call.add("sum", "sum", wide, call.value.cast(wide))
    # polars raises when a sum has more than 38 digits: halves of the digits are added up by themselves.
    unit = pl.lit(10**19, dtype=pl.Int128)
    digits = by_series([call.value], lambda values: values.to_physical(), pl.Int128())
    high = call.add("high", "sum", pl.Int128(), digits // unit)
    low = call.add("low", "sum", pl.Int128(), digits % unit)
    scale = kind.scale

    def joined(high_digits: int, low_digits: int) -> Decimal | None:
        whole = high_digits * 10**19 + low_digits
        return Decimal(whole).scaleb(-scale, _WIDE) if abs(whole) < 10**38 else None

    return map_rows([high, low], joined, wide)


_WIDE = Context(prec=120, rounding=ROUND_HALF_UP)


def _average(call: AggregateContext) -> Finish:
    kind = call.data_type
    count = call.counted()
    if isinstance(kind, pl.Decimal):
        result = pl.Decimal(38, max(6, kind.scale))
        step = Decimal(1).scaleb(-result.scale)

        def quotient(total: Decimal, number: int) -> Decimal | None:
            if number == 0:
                return None
            made = _WIDE.divide(total, Decimal(number)).quantize(step, context=_WIDE)
            return made if made.adjusted() < 38 - result.scale else None

        return Finish(map_rows([_decimal_sum(call, kind), count], quotient, result), result)
    if kind.is_float():
        total = numbers.double_of(*_double_parts(call, "sum", _double(call)))
        return Finish(pl.when(count > 0).then(total / count), pl.Float64())
    if isinstance(kind, pl.Duration) or kind.is_integer():
        value = call.value.cast(pl.Duration("us")).cast(pl.Int64) if isinstance(kind, pl.Duration) else call.value
        total = call.add("wide", "sum", pl.Int128(), value.cast(pl.Int128))
        if not isinstance(kind, pl.Duration) and not call.integer_average:
            return Finish(pl.when(count > 0).then(total.cast(pl.Float64) / count), pl.Float64())
        cut = (total.abs() // pl.when(count > 0).then(count).cast(pl.Int128)) * total.sign()
        whole = cut.cast(pl.Int64, strict=False)
        if isinstance(kind, pl.Duration):
            return Finish(whole.cast(pl.Duration("us")), pl.Duration("us"))
        return Finish(whole, pl.Int64())
    raise ArgumentError(f"needs numbers, not {shown(kind)}")


def _variance(*, sample: bool, root: bool) -> Callable[[AggregateContext], Finish]:
    def build(call: AggregateContext) -> Finish:
        if not call.data_type.is_numeric():
            raise ArgumentError(f"needs numbers, not {shown(call.data_type)}")
        value = _double(call)
        made = numbers.variance_of(
            call.counted(),
            _double_parts(call, "sum as double", value),
            _double_parts(call, "squares", *numbers.square(value)),
            sample=sample,
        )
        return Finish(made.sqrt() if root else made, pl.Float64())

    return build


def _extreme(kind: Literal["min", "max"]) -> Callable[[AggregateContext], Finish]:
    def build(call: AggregateContext) -> Finish:
        data_type, value = _comparable(call)
        how: PartialKind = "nan_max" if kind == "max" and data_type.is_float() else kind
        return Finish(call.add("extreme", how, data_type, value), data_type)

    return build


def _comparable(call: AggregateContext) -> tuple[pl.DataType, pl.Expr]:
    kind = call.data_type
    if is_text(kind):
        return pl.String(), call.value.cast(pl.String)
    if not is_scalar(kind):
        raise ArgumentError(f"cannot compare values of type {shown(kind)}")
    return kind, call.value


def _edge(kind: Literal["first", "last"]) -> Callable[[AggregateContext], Finish]:
    def build(call: AggregateContext) -> Finish:
        return Finish(call.add("edge", kind, call.data_type, call.value), call.data_type)

    return build


def _logical(kind: Literal["min", "max"]) -> Callable[[AggregateContext], Finish]:
    def build(call: AggregateContext) -> Finish:
        if not isinstance(call.data_type, pl.Boolean):
            raise ArgumentError(f"needs a condition, not {shown(call.data_type)}")
        return Finish(call.add("extreme", kind, pl.Boolean(), call.value), pl.Boolean())

    return build


def _values(call: AggregateContext, *, keep_nulls: bool = False) -> pl.Expr:
    """The list of all values in the order in which they came."""
    column = call.arguments[0].column
    if call.mask is not None:
        column = column.filter(pl.col(call.mask))
    rows = column if keep_nulls else column.drop_nulls()
    what = "values and NULLs" if keep_nulls else "values"
    return call.partials.add(call.tag(what)[:3], "concat", pl.List(call.data_type), call.value, rows)


def _distinct_values(call: AggregateContext) -> pl.Expr:
    """The list of the different values in the order in which they first came. Of several arguments: of structs."""
    kind: pl.DataType = call.data_type
    column = call.value
    arguments = {argument.name: argument for argument in call.arguments}  # the same column may be given twice
    if len(arguments) > 1 and call.name == "count":
        kind = pl.Struct({argument.name: argument.data_type for argument in arguments.values()})
        present = pl.all_horizontal(argument.column.is_not_null() for argument in arguments.values())
        column = call.masked(pl.when(present).then(pl.struct(argument.column for argument in arguments.values())))
    rows = column.drop_nulls().unique(maintain_order=True)
    return call.partials.add(call.tag("different"), "distinct", pl.List(kind), column, rows)


def _collect(*, keep_nulls: bool, distinct: bool = False, empty: bool) -> Callable[[AggregateContext], Finish]:
    def build(call: AggregateContext) -> Finish:
        made = _distinct_values(call) if distinct or call.distinct else _values(call, keep_nulls=keep_nulls)
        result = made if empty else pl.when(made.list.len() > 0).then(made)
        return Finish(result, pl.List(call.data_type))

    return build


def _percentile(call: AggregateContext) -> Finish:
    """The exact percentile of all values: between two of them, in proportion. Of several percentages: an array."""
    if not call.data_type.is_numeric():
        raise ArgumentError(f"needs numbers, not {shown(call.data_type)}")
    given = call.arguments[1].constant
    listed = given if isinstance(given, list) else [given]
    wanted = [float(each) for each in listed if isinstance(each, Decimal)]
    if not wanted or len(wanted) < len(listed) or not all(0 <= each <= 1 for each in wanted):
        raise ArgumentError("takes a constant percentage from 0 to 1, or an array of such")
    values = _values(call).list.eval(pl.element().cast(pl.Float64))
    made = [values.list.eval(pl.element().quantile(each, interpolation="linear")).list.first() for each in wanted]
    if not isinstance(given, list):
        return Finish(made[0], pl.Float64())
    present = values.list.len() > 0
    return Finish(pl.when(present).then(pl.concat_list(made)), pl.List(pl.Float64()))


def _joined(call: AggregateContext) -> Finish:
    if not is_text(call.data_type):
        raise ArgumentError(f"joins only texts, not {shown(call.data_type)}: CAST it")
    separator = ","
    if len(call.arguments) > 1:
        separator = call.arguments[1].constant
        if not isinstance(separator, str):
            raise ArgumentError("the separator must be a constant text")
    made = _distinct_values(call) if call.distinct else _values(call)
    return Finish(pl.when(made.list.len() > 0).then(made.list.join(separator)), pl.String())


def _approximate(call: AggregateContext) -> Finish:
    codes = numbers.sketch_codes(call.value)
    made = call.partials.add(call.tag("sketch"), "sketch", pl.List(pl.UInt32()), codes)
    return Finish(numbers.sketch_estimate(made), pl.Int64())


def distinct_of(call: AggregateContext) -> Finish:
    """Build ``count(DISTINCT …)``, ``sum(DISTINCT …)`` and ``avg(DISTINCT …)``. Raises ArgumentError for others."""
    if call.name == "count":
        if not call.arguments:
            raise ArgumentError("DISTINCT needs a column")
        return Finish(_distinct_values(call).list.len().cast(pl.Int64), pl.Int64())
    # The different values of a group are summed as rows of a separate group.
    inner = PartialColumns()
    plain = AggregateContext(
        call.name, (Argument("value", call.data_type),), inner, integer_average=call.integer_average
    )
    builder = FUNCTIONS[call.name]
    if builder.build not in (_sum, _average) and call.name not in _SPREADS:
        raise ArgumentError("does not take DISTINCT")
    finish = builder.build(plain)
    columns = list(inner.columns)

    def compute(lists: pl.Series) -> pl.Series:
        owners = pl.DataFrame({"value": lists, "owner": pl.int_range(len(lists), eager=True)})
        flat = owners.explode("value", empty_as_null=True)
        flat = flat.with_columns(column.value for column in columns if column.is_lifted)
        made = flat.group_by("owner", maintain_order=True).agg([column.rows for column in columns])
        return made.select(finish.expression).to_series()

    return Finish(by_series([_distinct_values(call)], compute, finish.data_type), finish.data_type)


def user_aggregate(call: AggregateContext, function: Any) -> Finish:
    """Build the call of a user's aggregate function."""
    # Named by place: the same column may be given twice.
    arguments = pl.struct(argument.column.alias(str(place)) for place, argument in enumerate(call.arguments))
    rows = arguments if call.mask is None else arguments.filter(pl.col(call.mask))
    # By the name in the call: two functions may have the same name of their own (the name of their class).
    tag = (*call.tag("user"), call.name)
    call.partials.add(tag, "user", pl.Binary(), pl.lit(None, dtype=pl.Binary), rows, function)
    return Finish(pl.col(call.partials.found(tag, "user").result_name), function.return_type)


_SPREADS = ("stddev", "stddev_samp", "stddev_pop", "std", "variance", "var_samp", "var_pop", "var")


def _table() -> Mapping[str, AggregateBuilder]:
    def one(
        build: Callable[[AggregateContext], Finish], retraction: Retraction, most: int = 1, **flags: bool
    ) -> AggregateBuilder:
        return AggregateBuilder(build, 1, most, retraction, **flags)

    sample, population = _variance(sample=True, root=False), _variance(sample=False, root=False)
    sample_root, population_root = _variance(sample=True, root=True), _variance(sample=False, root=True)
    least = one(_extreme("min"), "values", distinct_matters=False)
    most = one(_extreme("max"), "values", distinct_matters=False)
    first = one(_edge("first"), "values", order_sensitive=True, distinct_matters=False)
    last = one(_edge("last"), "values", order_sensitive=True, distinct_matters=False)
    every = one(_logical("min"), "values", distinct_matters=False)
    some = one(_logical("max"), "values", distinct_matters=False)
    collect = one(_collect(keep_nulls=False, empty=True), "values", order_sensitive=True)
    different = one(_collect(keep_nulls=False, distinct=True, empty=True), "values", order_sensitive=True)
    joined = one(_joined, "values", 2, order_sensitive=True)
    return {
        "count": AggregateBuilder(_count, 0, 100, "sign"),
        "sum": one(_sum, "sign"), "avg": one(_average, "sign"), "mean": one(_average, "sign"),
        "min": least, "max": most,
        "first": first, "first_value": first, "any_value": first, "last": last, "last_value": last,
        "stddev": one(sample_root, "sign"), "stddev_samp": one(sample_root, "sign"), "std": one(sample_root, "sign"),
        "stddev_pop": one(population_root, "sign"), "variance": one(sample, "sign"), "var": one(sample, "sign"),
        "var_samp": one(sample, "sign"), "var_pop": one(population, "sign"),
        "bool_and": every, "every": every, "bool_or": some, "some": some,
        "collect": collect, "collect_list": collect, "collect_set": different,
        "array_agg": one(_collect(keep_nulls=True, empty=False), "values", order_sensitive=True),
        "listagg": joined, "string_agg": joined, "percentile": AggregateBuilder(_percentile, 2, 2, "values"),
        "approx_count_distinct": one(_approximate, "values", distinct_matters=False),
    }  # fmt: skip


FUNCTIONS: Mapping[str, AggregateBuilder] = _table()
