"""CREATE TABLE, read: its columns, keys, watermark and options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import polars as pl
from headrace.foundation.errors import OptionError, did_you_mean
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.scope import error_at
from headrace_sql.reading import nodes
from headrace_sql.reading.durations import duration_us


@dataclass(frozen=True)
class Option:
    """One option of a WITH clause."""

    key: str
    value: str
    node: exp.Expr


@dataclass
class Table:
    """A CREATE TABLE statement, read."""

    name: str
    node: exp.Expr
    text: str
    #: Columns of the bodies, in their order.
    columns: dict[str, pl.DataType] = field(default_factory=dict)
    #: Column name to header field: METADATA and HEADER columns.
    metadata: dict[str, str] = field(default_factory=dict)
    #: Message properties by column: Blink's HEADER.
    headers: dict[str, str] = field(default_factory=dict)
    metadata_types: dict[str, pl.DataType] = field(default_factory=dict)
    computed: dict[str, exp.Expr] = field(default_factory=dict)
    #: All columns in the order of the text.
    order: list[str] = field(default_factory=list)
    primary_key: tuple[str, ...] = ()
    watermark: tuple[str, exp.Expr] | None = None
    options: dict[str, Option] = field(default_factory=dict)
    partitioned: tuple[str, ...] = ()
    is_dimension: bool = False
    virtual: set[str] = field(default_factory=set)
    #: Its key in the session: its name, with its catalog and database if these are not the default ones.
    key: str = ""

    @property
    def sink_columns(self) -> dict[str, pl.DataType]:
        """The columns that an INSERT fills: no computed ones."""
        known = {**self.columns, **{k: v for k, v in self.metadata_types.items() if k not in self.virtual}}
        return {name: known[name] for name in self.order if name in known}

    def length_us(self, key: str) -> int | None:
        """Return the microseconds of an option that is a length of time; None: it is not given. Raises ExpressionError."""
        option = self.options.get(key)
        if option is None:
            return None
        try:
            return duration_us(option.value, key)
        except OptionError as error:
            raise error_at(option.node, self.text, f"option {key!r}: {error.message}", error.hint) from error

    def with_options(self, given: tuple[tuple[str, str, int], ...], text: str) -> Table:
        """Return the table with options replaced by those of a hint. ``given``: (key, value, place in the text)."""
        if not given:
            return self
        made = dict(self.options)
        for key, value, place in given:
            node = exp.Literal.string(key)
            node.meta.update(start=place, end=place + 2)
            made[key] = Option(key, value, node)
        return replace(self, options=made, text=text)


def read_table(node: exp.Create, text: str, key: str = "") -> Table:
    """Read a CREATE TABLE statement. ``key``: its key in the session, if that is not its name. Raises ExpressionError."""
    schema = node.this
    table = Table(schema.this.name, node, text, key=key or schema.this.name)
    for element in schema.expressions:
        _read_element(table, element, text)
    for option in node.args["properties"].expressions:
        key = option.this.name
        if key in table.options:
            raise error_at(option.this, text, f"option {key!r} is given twice")
        table.options[key] = Option(key, option.args["value"].name, option.this)
    table.partitioned = tuple(each.name for each in node.args.get("partitioned") or ())
    for name in (*table.primary_key, *table.partitioned, *([table.watermark[0]] if table.watermark else ())):
        if name not in table.order:
            raise error_at(
                schema.this,
                text,
                f"table {table.name!r} has no column {name!r}",
                did_you_mean(name, table.order, known="columns"),
            )
    return table


def _read_element(table: Table, element: exp.Expr, text: str) -> None:
    if isinstance(element, nodes.Watermark):
        if table.watermark is not None:
            raise error_at(element, text, "a table has one WATERMARK")
        table.watermark = (element.this.name, element.expression)
        return
    if isinstance(element, nodes.SystemTimePeriod):
        table.is_dimension = True
        return
    if isinstance(element, exp.Constraint):
        element = element.expressions[0]
    if isinstance(element, exp.PrimaryKey):
        table.primary_key = tuple(each.name for each in element.expressions)
        return
    name = element.name
    if name in table.order:
        raise error_at(element.this, text, f"column {name!r} is given twice")
    table.order.append(name)
    kind = element.args.get("kind")
    metadata = None
    for constraint in element.args.get("constraints") or ():
        what = constraint.args["kind"]
        if isinstance(what, exp.ComputedColumnConstraint):
            table.computed[name] = what.this
            return
        if isinstance(what, nodes.MetadataConstraint):
            metadata = what
        elif isinstance(what, exp.PrimaryKeyColumnConstraint):
            table.primary_key = (name,)
    if kind is None:
        raise error_at(element, text, f"column {name!r} has no type")
    declared = types.polars_type(kind, text)
    if metadata is None:
        table.columns[name] = declared
        return
    table.metadata_types[name] = declared
    if metadata.args.get("header"):
        table.headers[name] = name
    else:
        source = metadata.args.get("this")
        table.metadata[name] = source.name if source is not None else name
    if metadata.args.get("virtual") or metadata.args.get("header"):
        table.virtual.add(name)
