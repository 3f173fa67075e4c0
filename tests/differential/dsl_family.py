"""Chains of verbs of the Python DSL, compared with nested SELECTs in DuckDB.

Expressions are those of ``forms``, in the language of the columns; where that differs from Flink's SQL, ``DSL_FORMS`` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import headrace as hr
import polars as pl

from tests.differential import styles
from tests.differential.choices import Choices
from tests.differential.comparing import difference
from tests.differential.expressions import ExpressionMaker, comparable
from tests.differential.families import Family
from tests.differential.kinds import BIGINT, BOOLEAN, INT, STRING
from tests.differential.oracle import run_duckdb
from tests.differential.running import FUNCTIONS, FoldingSink, stream_of
from tests.differential.tables import Table, generate_table
from tests.differential.tree import WILD, Aggregate, Call, Column, Expression, parts_of
from tests.differential.writing import Writer

#: Forms that the language of columns has not, or in which it means something else than Flink's SQL.
NOT_IN_DSL = frozenset(
    {"boolean to text", "average whole", "cut to bigint", "to decimal", "to text", "floor", "ceiling"}
)


class _DslWriter(Writer):
    """Writes expressions in the language of the columns, which is near to Flink's SQL."""

    def __init__(self) -> None:
        super().__init__("flink")

    def name(self, name: str) -> str:
        return name if name.isascii() and name.isidentifier() and name.islower() else f'"{name}"'


@dataclass(frozen=True)
class Step:
    """A verb: what it does to a stream, the query for DuckDB around the one before it, how it is told, and the columns after it."""

    text: str
    columns: tuple[Column, ...]
    apply: Callable[[hr.Stream], hr.Stream] = field(compare=False)
    query: Callable[[str], str] = field(compare=False)


@dataclass(frozen=True)
class DslCase:
    """Tables, the chain of verbs over the first one, and how it is run."""

    tables: tuple[Table, ...]
    steps: tuple[Step, ...]
    style: styles.Style
    #: The tables as streams, by name: filled when the chain is built, as joins read other tables.
    streams: dict[str, hr.Stream] = field(default_factory=dict, compare=False)


class _Chain:
    """Makes steps one behind the other."""

    def __init__(self, choices: Choices, tables: Sequence[Table], streams: dict[str, hr.Stream]) -> None:
        self.choices, self.tables, self.streams = choices, tables, streams
        self.columns = columns_of(tables[0])
        #: Whether rows are only added so far: some verbs take no changes.
        self.added_only = True
        self._names = 0

    def fresh(self) -> str:
        self._names += 1
        return f"c{self._names}"

    def step(self) -> Step:
        """Return the next verb."""
        makers = [(3, self._where), (4, self._select), (3, self._with_columns), (1, self._rename), (1, self._drop),
                  (3, self._agg), (1, self._top_n), (2, self._join),
                  (1, self._union), (1, self._distinct), (1, self._map), (1, self._filter), (1, self._map_batches),
                  (1, self._flat_map), (1, self._rules), (1, self._lookup), (1, self._script), (1, self._map_of_several)]  # fmt: skip
        made = self.choices.weighted(makers)()
        self.columns = made.columns
        return made

    def _maker(self) -> ExpressionMaker:
        return ExpressionMaker(self.choices, self.columns)

    def _expression(self, depth: int) -> Expression:
        made = self._maker().user(depth) if self.choices.chance(25) else self._maker().any(depth)
        return made if _in_dsl(made) else self.choices.pick(self.columns)

    def _condition(self) -> Expression:
        made = self._maker().condition(self.choices.integer(0, 2))
        return made if _in_dsl(made) else Call(BOOLEAN, 1, "is not null", (self.columns[0],))

    def _where(self) -> Step:
        condition = self._condition()
        text = _dsl(condition)
        return Step(
            f"where({text!r})",
            self.columns,
            lambda stream: stream.where(text),
            lambda inner: _around(inner, "*", f"WHERE {_duckdb(condition)}"),
        )

    def _items(self, low: int) -> dict[str, Expression]:
        return {self.fresh(): self._expression(self.choices.integer(0, 2)) for _ in self.choices.repeat(low, 4, 60)}

    def _select(self) -> Step:
        kept = self.choices.some(self.columns, 0, 3)
        made = self._items(0 if kept else 1)
        texts = {name: _dsl(item) for name, item in made.items()}
        names = [_quoted(column.name) for column in kept]
        columns = (*kept, *_columns(made))
        items = ", ".join([*names, *(f"{_duckdb(item)} AS {name}" for name, item in made.items())])
        return Step(
            f"select({', '.join([*map(repr, names), *(f'{name}={text!r}' for name, text in texts.items())])})", columns,
            lambda stream: stream.select(*names, **texts), lambda inner: _around(inner, items),
        )  # fmt: skip

    def _with_columns(self) -> Step:
        made = self._items(1)
        if self.choices.chance(20):  # one that is there is replaced; the others see what it was
            made = {
                self.choices.pick(self.columns).name if at == 0 else name: item
                for at, (name, item) in enumerate(made.items())
            }
        texts = {name: _dsl(item) for name, item in made.items()}
        columns = tuple(
            next((each for each in _columns(made) if each.name == column.name), column) for column in self.columns
        )
        columns += tuple(each for each in _columns(made) if each.name not in {column.name for column in self.columns})
        items = ", ".join(
            f"{_duckdb(made[column.name])} AS {_quoted(column.name)}" if column.name in made else _quoted(column.name) for column in columns
        )  # fmt: skip
        return Step(
            f"with_columns({', '.join(f'{name}={text!r}' for name, text in texts.items())})", columns,
            lambda stream: stream.with_columns(**texts), lambda inner: _around(inner, items),
        )  # fmt: skip

    def _rename(self) -> Step:
        old = self.choices.pick(self.columns)
        new = self.fresh()
        columns = tuple(replace(column, name=new) if column == old else column for column in self.columns)
        items = ", ".join(
            f"{_quoted(one.name)} AS {_quoted(other.name)}" for one, other in zip(self.columns, columns, strict=True)
        )
        return Step(
            f"rename({old.name}={new!r})",
            columns,
            lambda stream: stream.rename(**{old.name: new}),
            lambda inner: _around(inner, items),
        )

    def _drop(self) -> Step:
        if len(self.columns) < 2:
            return self._where()
        gone = self.choices.pick(self.columns)
        columns = tuple(column for column in self.columns if column != gone)
        return Step(
            f"drop({gone.name!r})",
            columns,
            lambda stream: stream.drop(gone.name),
            lambda inner: _around(inner, _names(columns)),
        )

    def _agg(self) -> Step:
        keys = [column for column in self.choices.some(self.columns, 0, 2) if comparable(column)]
        named: dict[str, Expression] = {}
        if self.choices.chance(30):
            key = self._expression(1)
            if comparable(key):
                named[self.fresh()] = key
        aggregates: dict[str, Expression] = {}
        for _ in self.choices.repeat(1, 3, 60):
            made = self._maker().aggregate(self.choices.integer(0, 1))
            aggregates[self.fresh()] = made if _in_dsl(made) else Aggregate(BIGINT, 20_000, "count rows", ())
        columns = (*keys, *_columns(named), *_columns(aggregates))
        texts = {name: _dsl(item) for name, item in named.items()}
        results = {name: _dsl(item) for name, item in aggregates.items()}
        names = [column.name for column in keys]
        self.added_only = False
        items = ", ".join(
            [*map(_quoted, names), *(f"{_duckdb(item)} AS {name}" for name, item in {**named, **aggregates}.items())]
        )
        group = ", ".join([*map(_quoted, names), *(f"{_duckdb(item)}" for item in named.values())])
        tail = f"GROUP BY {group}" if group else "HAVING COUNT(*) > 0"  # without rows there is no total of a stream
        return Step(
            f"key_by({', '.join([*map(repr, names), *(f'{name}={text!r}' for name, text in texts.items())])}).agg({results})", columns,
            lambda stream: stream.key_by(*names, **texts).agg(**results), lambda inner: _around(inner, items, tail),
        )  # fmt: skip

    def _top_n(self) -> Step:
        if not all(comparable(column) for column in self.columns):
            return self._where()
        key = self.choices.pick(self.columns)
        order = [(column, self.choices.chance(50)) for column in self.choices.some(self.columns, 1, 1)]
        order += [(column, False) for column in self.columns if column != order[0][0]]
        count = self.choices.integer(1, 3)
        by = ", ".join(f"{_quoted(column.name)}{' desc' if descending else ''}" for column, descending in order)
        ordered = ", ".join(
            f"{_quoted(column.name)} {'DESC NULLS LAST' if descending else 'NULLS FIRST'}"
            for column, descending in order
        )
        self.added_only = False
        names = _names(self.columns)
        tail = f"QUALIFY ROW_NUMBER() OVER (PARTITION BY {_quoted(key.name)} ORDER BY {ordered}) <= {count}"
        return Step(
            f"key_by({key.name!r}).top_n({count}, by={by!r})", self.columns,
            lambda stream: stream.key_by(key.name).top_n(count, by=by), lambda inner: _around(inner, names, tail),
        )  # fmt: skip

    def _join(self) -> Step:
        table = self.choices.pick(self.tables)
        others = tuple(replace(column, name=f"j{self._names}{column.name}") for column in columns_of(table))
        self._names += 1
        pairs = [
            (one, other)
            for one in self.columns
            for other in others
            if one.kind == other.kind and comparable(one) and comparable(other)
        ]
        if not pairs:
            return self._where()
        chosen = dict(self.choices.some(pairs, 1, 2))  # one column of the left may be in one pair only
        how = self.choices.pick(["inner", "left", "semi", "anti", "full", "right"])
        on = {one.name: other.name for one, other in chosen.items()}
        renames = {column.name: other.name for column, other in zip(columns_of(table), others, strict=True)}
        right = f"(SELECT {', '.join(f'{old} AS {new}' for old, new in renames.items())} FROM {table.name})"  # names of our own
        condition = " AND ".join(f"l.{_quoted(one)} = r.{_quoted(other)}" for one, other in on.items())
        streams = self.streams
        columns = self.columns if how in ("semi", "anti") else (*self.columns, *others)
        self.added_only = self.added_only and how in ("inner", "semi")

        def apply(stream: hr.Stream) -> hr.Stream:
            return stream.join(streams[table.name].rename(**renames), on, how=how).select(
                *(_quoted(column.name) for column in columns)
            )

        sql_how = {"inner": "INNER", "full": "FULL"}.get(how, how.upper())
        return Step(
            f"join({table.name}.rename({renames}), {on}, how={how!r}).select({_names(columns)})", columns, apply,
            lambda inner: f"SELECT {_names(columns)} FROM ({inner}) AS l {sql_how} JOIN {right} AS r ON {condition}",
        )  # fmt: skip

    def _union(self) -> Step:
        condition = self._condition()
        text = _dsl(condition)
        duck = _duckdb(condition)
        return Step(
            f"split(found={text!r}): found, rest and found together", self.columns,
            lambda stream: (lambda parts: parts.found.union(parts.rest, parts.found))(stream.split(found=text)),
            lambda inner: f"SELECT * FROM ({inner}) UNION ALL SELECT * FROM ({inner}) WHERE {duck}",
        )  # fmt: skip

    def _distinct(self) -> Step:
        if not all(comparable(column) for column in self.columns):
            return self._where()
        return Step(
            "distinct()",
            self.columns,
            lambda stream: stream.distinct(),
            lambda inner: f"SELECT DISTINCT * FROM ({inner})",
        )

    def _map(self) -> Step:
        columns = self.columns
        source, name = self.choices.pick(columns), self.fresh()
        schema = {**{column.name: column.kind.polars for column in columns}, name: pl.Boolean()}
        added = self.added_only
        if not added:
            return self._where()
        return Step(
            f"map(lambda row: row with {name}: {source.name} is None)", (*columns, Column(BOOLEAN, 1, name)),
            lambda stream: _cast(stream, columns).map(lambda row: {**row, name: row[source.name] is None}, schema=schema),
            lambda inner: _around(inner, f"*, {_quoted(source.name)} IS NULL AS {name}"),
        )  # fmt: skip

    def _filter(self) -> Step:
        source = self.choices.pick(self.columns)
        if not self.added_only:
            return self._where()
        return Step(
            f"filter(lambda row: row[{source.name!r}] is not None)", self.columns,
            lambda stream: stream.filter(lambda row: row[source.name] is not None),
            lambda inner: _around(inner, "*", f"WHERE {_quoted(source.name)} IS NOT NULL"),
        )  # fmt: skip

    def _map_batches(self) -> Step:
        source, name = self.choices.pick(self.columns), self.fresh()
        columns = self.columns
        if not self.added_only:
            return self._where()
        schema = {**{column.name: column.kind.polars for column in columns}, name: pl.Boolean()}
        return Step(
            f"map_batches({name}: {source.name}.is_null())", (*columns, Column(BOOLEAN, 1, name)),
            lambda stream: _cast(stream, columns).map_batches(
                lambda frame: frame.with_columns(pl.col(source.name).is_null().alias(name)), schema=schema
            ),
            lambda inner: _around(inner, f"*, {_quoted(source.name)} IS NULL AS {name}"),
        )  # fmt: skip

    def _flat_map(self) -> Step:
        columns, name = self.columns, self.fresh()
        if not self.added_only:
            return self._where()
        count = self.choices.integer(0, 3)
        schema = {**{column.name: column.kind.polars for column in columns}, name: pl.Int64()}
        return Step(
            f"flat_map({count} rows with {name}: their number)", (*columns, Column(BIGINT, 3, name)),
            lambda stream: _cast(stream, columns).flat_map(lambda row: [{**row, name: number} for number in range(count)], schema=schema),
            lambda inner: f"SELECT i.*, n AS {name} FROM ({inner}) AS i CROSS JOIN (SELECT UNNEST(RANGE({count})) AS n)",
        )  # fmt: skip

    def _rules(self) -> Step:
        """Several conditions at once: of the rows that a rule matches, the ids in the order of the rules, joined."""
        if not self.added_only or not all(column.name.isidentifier() for column in self.columns):
            return self._where()
        conditions = {f"r{number}": self._condition() for number in self.choices.repeat(1, 4, 70)}
        rules = {name: _dsl(condition) for name, condition in conditions.items()}
        name = self.fresh()
        names = [_quoted(column.name) for column in self.columns]
        parts = ", ".join(f"CASE WHEN {_duckdb(condition)} THEN '{rule}' END" for rule, condition in conditions.items())
        joined = f"CONCAT_WS(',', {parts})"  # it leaves NULLs out
        return Step(
            f"rules({rules}).select(…, {name}=\"array_join(rule_ids, ',')\")", (*self.columns, Column(STRING, 20, name)),
            lambda stream: stream.rules(rules).select(*names, **{name: "array_join(rule_ids, ',')"}),
            lambda inner: f"SELECT * FROM ({_around(inner, f'*, {joined} AS {name}')}) WHERE {name} <> ''",
        )  # fmt: skip

    def _lookup(self) -> Step:
        """A dimension table: each row with the table's rows of its key."""
        table = self.choices.pick(self.tables)
        others = tuple(replace(column, name=f"d{self._names}{column.name}") for column in columns_of(table))
        self._names += 1
        pairs = [
            (one, other) for one in self.columns for other in others
            if one.kind == other.kind and one.kind.name in ("int", "bigint", "string", "date")
        ]  # fmt: skip
        if not pairs or not self.added_only:
            return self._where()
        one, key = self.choices.pick(pairs)
        how = self.choices.pick(["inner", "left"])
        renames = {column.name: other.name for column, other in zip(columns_of(table), others, strict=True)}
        right = f"(SELECT {', '.join(f'{old} AS {new}' for old, new in renames.items())} FROM {table.name})"
        columns = (*self.columns, *(column for column in others if column != key))
        streams, left = self.streams, self.columns
        condition = f"l.{_quoted(one.name)} = r.{key.name}"

        def apply(stream: hr.Stream) -> hr.Stream:
            dimension = streams[table.name].rename(**renames)
            joined = _cast(stream, left).lookup_join(dimension, on={one.name: key.name}, how=how)
            return joined.select(*(_quoted(column.name) for column in columns))

        return Step(
            f"lookup_join({table.name}.rename({renames}), on={{{one.name!r}: {key.name!r}}}, how={how!r}).select({_names(columns)})",
            columns, apply,
            lambda inner: f"SELECT {_names(columns)} FROM ({inner}) AS l {how.upper()} JOIN {right} AS r ON {condition}",
        )  # fmt: skip

    def _script(self) -> Step:
        """Assignments, each seeing the ones before it, and a condition."""
        if not all(column.name.isidentifier() for column in self.columns):
            return self._where()
        statements, query_items = [], []
        columns = self.columns
        for _ in self.choices.repeat(1, 3, 60):
            item, name = self._expression(1), self.fresh()
            statements.append(f"{name} = {_dsl(item)}")
            query_items.append((name, _duckdb(item)))
            self.columns = (*self.columns, *_columns({name: item}))
        condition = self._condition()
        statements.append(f"WHERE {_dsl(condition)}")
        text, made = "; ".join(statements), self.columns
        duck = _duckdb(condition)
        self.columns = columns

        def query(inner: str) -> str:
            for name, item in query_items:
                inner = _around(inner, f"*, {item} AS {name}")
            return _around(inner, "*", f"WHERE {duck}")

        return Step(f"script({text!r})", made, lambda stream: stream.script(text), query)

    def _map_of_several(self) -> Step:
        """Several maps and lambdas, made in a loop: each keeps what it was made with."""
        if not self.added_only:
            return self._where()
        columns = self.columns
        names = [self.fresh() for _ in self.choices.repeat(2, 3, 50)]
        made = (*columns, *(Column(INT, 10, name) for name in names))

        def apply(stream: hr.Stream) -> hr.Stream:
            schema = {column.name: column.kind.polars for column in columns}
            stream = _cast(stream, columns)
            for number, name in enumerate(names):
                schema = {**schema, name: pl.Int32()}
                stream = stream.map(lambda row, name=name, number=number: {**row, name: number}, schema=schema)
                stream = stream.filter(lambda row, name=name, number=number: row[name] == number)
            return stream

        items = ", ".join(f"{number} AS {name}" for number, name in enumerate(names))
        return Step(
            f"map and filter, one after the other, for {names}",
            made,
            apply,
            lambda inner: _around(inner, f"*, {items}"),
        )


def _cast(stream: hr.Stream, columns: Sequence[Column]) -> hr.Stream:
    """Give columns the types that the tree says: whole numbers of expressions are 64 bits in the DSL."""
    assert stream.schema is not None
    wrong = {
        column.name: pl.col(column.name).cast(column.kind.polars)
        for column in columns
        if stream.schema[column.name] != column.kind.polars
    }
    return stream.with_columns(**wrong) if wrong else stream


def columns_of(table: Table) -> tuple[Column, ...]:
    return tuple(Column(each.kind, 1000.0 if each.tame else WILD, each.name) for each in table.columns)


def _columns(items: dict[str, Expression]) -> tuple[Column, ...]:
    return tuple(Column(item.kind, item.bound, name) for name, item in items.items())


def _in_dsl(expression: Expression) -> bool:
    forms = [part for part in parts_of(expression) if isinstance(part, Call | Aggregate)]
    return not any((part.form if isinstance(part, Call) else part.function) in NOT_IN_DSL for part in forms)


def _dsl(expression: Expression) -> str:
    return _DslWriter().expression(expression)


def _duckdb(expression: Expression) -> str:
    return Writer("duckdb").expression(expression)


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.islower() else f'"{name}"'


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(_quoted(column.name) for column in columns)


def _around(inner: str, items: str, tail: str = "") -> str:
    return f"SELECT {items} FROM (\n{inner}\n) {tail}".rstrip()


def generate(choices: Choices) -> DslCase:
    """Return a chain of one to six verbs."""
    style = styles.generate_style(choices)
    style = replace(style, dressing="plain", breaks=())
    tables = tuple(generate_table(choices, f"t{number}") for number in (1, 2))
    chain = _Chain(choices, tables, {})
    steps = [chain.step() for _ in choices.repeat(1, 6, 70)]
    return DslCase(tables, tuple(steps), style, chain.streams)


def check(case: DslCase) -> str | None:
    """Return in what the chain differs from DuckDB, or None."""
    style = case.style
    tables = [table.in_queues(style.queues) if style.queues else table for table in case.tables]
    pipeline = hr.stream("differential", "dsl", functions=FUNCTIONS, bad_records="stop")
    streams = case.streams
    streams.update({table.name: stream_of(pipeline, table) for table in tables})
    stream, query = streams["t1"], f"SELECT {_names(columns_of(case.tables[0]))} FROM t1"
    for step in case.steps:
        stream, query = step.apply(stream), step.query(query)
    sink = FoldingSink()
    with styles.nullcontext() if style.optimized else styles.not_optimized():
        stream.to(sink).run(
            "light", max_batch_records=style.max_batch_records, shards=style.shards, show_progress=False
        )
    expected = run_duckdb(case.tables, query)
    return difference(expected, +sink.table, names=("by DuckDB", "by headrace")) or "\n".join(sink.faults[:5]) or None


def describe(case: DslCase) -> str:
    """Return the tables and the verbs."""
    query = f"SELECT {_names(columns_of(case.tables[0]))} FROM t1"
    for step in case.steps:
        query = step.query(query)
    return "\n".join(
        [
            *map(str, case.tables),
            str(case.style),
            "",
            "t1",
            *(f"  .{step.text}" for step in case.steps),
            "",
            "-- for DuckDB:",
            query,
        ]
    )


FAMILY = Family("dsl", generate, check, describe, weight=20)
