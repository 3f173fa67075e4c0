"""Making chains of verbs of the Python DSL, each with the SELECT around the one before it that means the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import headrace as hr
import polars as pl

from tests.differential import rewriting
from tests.differential.choices import Choices
from tests.differential.dsl_steps import (
    Step,
    around,
    as_dsl,
    as_sql,
    cast_to,
    columns_named,
    columns_of,
    in_dsl,
    names_of,
    quoted,
)
from tests.differential.expressions import ExpressionMaker, comparable
from tests.differential.kinds import BIGINT, BOOLEAN, DECIMAL, INT, STRING, TIMESTAMP
from tests.differential.tables import Table
from tests.differential.tree import Aggregate, Call, Column, Expression, Literal
from tests.differential.writing import duckdb_key


def _aliased(items: Mapping[str, Expression], dialect: str) -> Iterator[str]:
    return (f"{as_sql(item, dialect)} AS {name}" for name, item in items.items())


class Chain:
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
                  (1, self._flat_map), (1, self._rules), (1, self._lookup), (1, self._script), (1, self._map_of_several),
                  (2, self._in_three), (1, self._where_of_flag), (2, self._twice)]  # fmt: skip
        made = self.choices.weighted(makers)()
        self.columns = made.columns
        return made

    def _maker(self) -> ExpressionMaker:
        return ExpressionMaker(self.choices, self.columns)

    def _expression(self, depth: int) -> Expression:
        made = self._maker().user(depth) if self.choices.chance(25) else self._maker().any(depth)
        return made if in_dsl(made) else self.choices.pick(self.columns)

    def _condition(self) -> Expression:
        made = self._maker().condition(self.choices.integer(0, 2))
        return made if in_dsl(made) else Call(BOOLEAN, 1, "is not null", (self.columns[0],))

    def _where(self) -> Step:
        condition = self._condition()
        text = as_dsl(condition)
        return Step(
            f"where({text!r})",
            self.columns,
            lambda stream: stream.where(text),
            lambda inner, dialect: around(inner, "*", f"WHERE {as_sql(condition, dialect)}"),
        )

    def _items(self, low: int) -> dict[str, Expression]:
        return {self.fresh(): self._expression(self.choices.integer(0, 2)) for _ in self.choices.repeat(low, 4, 60)}

    def _select(self) -> Step:
        kept = self.choices.some(self.columns, 0, 3)
        made = self._items(0 if kept else 1)
        texts = {name: as_dsl(item) for name, item in made.items()}
        names = [quoted(column.name) for column in kept]
        columns = (*kept, *columns_named(made))
        return Step(
            f"select({', '.join([*map(repr, names), *(f'{name}={text!r}' for name, text in texts.items())])})", columns,
            lambda stream: stream.select(*names, **texts),
            lambda inner, dialect: around(inner, ", ".join([*names, *_aliased(made, dialect)])),
        )  # fmt: skip

    def _with_columns(self) -> Step:
        made = self._items(1)
        if self.choices.chance(20):  # one that is there is replaced; the others see what it was
            made = {
                self.choices.pick(self.columns).name if at == 0 else name: item
                for at, (name, item) in enumerate(made.items())
            }
        texts = {name: as_dsl(item) for name, item in made.items()}
        columns = tuple(
            next((each for each in columns_named(made) if each.name == column.name), column) for column in self.columns
        )
        columns += tuple(
            each for each in columns_named(made) if each.name not in {column.name for column in self.columns}
        )

        def query(inner: str, dialect: str) -> str:
            items = [
                f"{as_sql(made[column.name], dialect)} AS {quoted(column.name)}" if column.name in made else quoted(column.name)
                for column in columns
            ]  # fmt: skip
            return around(inner, ", ".join(items))

        return Step(
            f"with_columns({', '.join(f'{name}={text!r}' for name, text in texts.items())})", columns,
            lambda stream: stream.with_columns(**texts), query,
        )  # fmt: skip

    def _rename(self) -> Step:
        old = self.choices.pick(self.columns)
        new = self.fresh()
        columns = tuple(replace(column, name=new) if column == old else column for column in self.columns)
        items = ", ".join(
            f"{quoted(one.name)} AS {quoted(other.name)}" for one, other in zip(self.columns, columns, strict=True)
        )
        return Step(
            f"rename({old.name}={new!r})",
            columns,
            lambda stream: stream.rename(**{old.name: new}),
            lambda inner, dialect: around(inner, items),
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
            lambda inner, dialect: around(inner, names_of(columns)),
        )

    def _agg(self) -> Step:
        keys = [column for column in self.choices.some(self.columns, 0, 2) if comparable(column)]
        named: dict[str, Expression] = {}
        if self.choices.chance(30):
            key = self._expression(1)
            if comparable(key) and not isinstance(key, Literal):  # GROUP BY 0 names a place in the list
                named[self.fresh()] = key
        aggregates: dict[str, Expression] = {}
        for _ in self.choices.repeat(1, 3, 60):
            made = self._maker().aggregate(self.choices.integer(0, 1))
            aggregates[self.fresh()] = made if in_dsl(made) else Aggregate(BIGINT, 20_000, "count rows", ())
        columns = (*keys, *columns_named(named), *columns_named(aggregates))
        texts = {name: as_dsl(item) for name, item in named.items()}
        results = {name: as_dsl(item) for name, item in aggregates.items()}
        names = [column.name for column in keys]
        self.added_only = False

        def query(inner: str, dialect: str) -> str:
            items = ", ".join([*map(quoted, names), *_aliased({**named, **aggregates}, dialect)])
            # A number alone is the place of a column there; a constant makes no groups anyway.
            texts = (as_sql(item, dialect) for item in named.values() if not isinstance(item, Literal))
            made = map(duckdb_key, texts) if dialect == "duckdb" else texts
            group = ", ".join([*map(quoted, names), *made])
            # Without rows there is no total of a stream.
            return around(inner, items, f"GROUP BY {group}" if group else "HAVING COUNT(*) > 0")

        return Step(
            f"key_by({', '.join([*map(repr, names), *(f'{name}={text!r}' for name, text in texts.items())])}).agg({results})", columns,
            lambda stream: stream.key_by(*names, **texts).agg(**results), query,
        )  # fmt: skip

    def _top_n(self) -> Step:
        if not all(comparable(column) for column in self.columns):
            return self._where()
        key = self.choices.pick(self.columns)
        order = [(column, self.choices.chance(50)) for column in self.choices.some(self.columns, 1, 1)]
        order += [(column, False) for column in self.columns if column != order[0][0]]
        count = self.choices.integer(1, 3)
        by = ", ".join(f"{quoted(column.name)}{' desc' if descending else ''}" for column, descending in order)
        ordered = ", ".join(
            f"{quoted(column.name)} {'DESC NULLS LAST' if descending else 'NULLS FIRST'}"
            for column, descending in order
        )
        self.added_only = False
        names = names_of(self.columns)
        place = f"ROW_NUMBER() OVER (PARTITION BY {quoted(key.name)} ORDER BY {ordered}) AS place"
        return Step(
            f"key_by({key.name!r}).top_n({count}, by={by!r})", self.columns,
            lambda stream: stream.key_by(key.name).top_n(count, by=by),
            lambda inner, dialect: around(around(inner, f"*, {place}"), names, f"WHERE place <= {count}"),
        )  # fmt: skip

    def _join(self) -> Step:
        table = self.choices.pick(self.tables)
        others = tuple(replace(column, name=f"j{self._names}{column.name}") for column in columns_of(table))
        self._names += 1
        pairs = [
            (one, other)
            for one in self.columns
            for other in others
            # In expressions of columns a TIMESTAMP has a zone, and 99.99 four digits: they never equal those of tables.
            if one.kind == other.kind and comparable(one) and comparable(other) and one.kind not in (TIMESTAMP, DECIMAL)
        ]
        if not pairs:
            return self._where()
        chosen = dict(self.choices.some(pairs, 1, 2))  # one column of the left may be in one pair only
        how = self.choices.pick(["inner", "left", "semi", "anti", "full", "right"])
        on = {one.name: other.name for one, other in chosen.items()}
        renames = {column.name: other.name for column, other in zip(columns_of(table), others, strict=True)}
        right = f"(SELECT {', '.join(f'{old} AS {new}' for old, new in renames.items())} FROM {table.name})"  # names of our own
        condition = " AND ".join(f"l.{quoted(one)} = r.{quoted(other)}" for one, other in on.items())
        streams = self.streams
        columns = self.columns if how in ("semi", "anti") else (*self.columns, *others)
        self.added_only = self.added_only and how in ("inner", "semi")

        def apply(stream: hr.Stream) -> hr.Stream:
            return stream.join(streams[table.name].rename(**renames), on, how=how).select(
                *(quoted(column.name) for column in columns)
            )

        def query(inner: str, dialect: str) -> str:
            if how in ("semi", "anti"):
                exists = f"{'NOT ' if how == 'anti' else ''}EXISTS (SELECT 1 FROM {right} AS r WHERE {condition})"
                return f"SELECT {names_of(columns)} FROM ({inner}) AS l WHERE {exists}"
            return f"SELECT {names_of(columns)} FROM ({inner}) AS l {how.upper()} JOIN {right} AS r ON {condition}"

        return Step(
            f"join({table.name}.rename({renames}), {on}, how={how!r}).select({names_of(columns)})", columns, apply, query,
        )  # fmt: skip

    def _union(self) -> Step:
        condition = self._condition()
        text = as_dsl(condition)
        return Step(
            f"split(found={text!r}): found, rest and found together", self.columns,
            lambda stream: (lambda parts: parts.found.union(parts.rest, parts.found))(stream.split(found=text)),
            lambda inner, dialect: f"{around(inner, '*')} UNION ALL {around(inner, '*', f'WHERE {as_sql(condition, dialect)}')}",
        )  # fmt: skip

    def _distinct(self) -> Step:
        if not all(comparable(column) for column in self.columns):
            return self._where()
        return Step(
            "distinct()",
            self.columns,
            lambda stream: stream.distinct(),
            lambda inner, dialect: around(inner, "DISTINCT *"),
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
            lambda stream: cast_to(stream, columns).map(lambda row: {**row, name: row[source.name] is None}, schema=schema),
            lambda inner, dialect: around(inner, f"*, {quoted(source.name)} IS NULL AS {name}"),
        )  # fmt: skip

    def _filter(self) -> Step:
        source = self.choices.pick(self.columns)
        if not self.added_only:
            return self._where()
        return Step(
            f"filter(lambda row: row[{source.name!r}] is not None)", self.columns,
            lambda stream: stream.filter(lambda row: row[source.name] is not None),
            lambda inner, dialect: around(inner, "*", f"WHERE {quoted(source.name)} IS NOT NULL"),
        )  # fmt: skip

    def _map_batches(self) -> Step:
        source, name = self.choices.pick(self.columns), self.fresh()
        columns = self.columns
        if not self.added_only:
            return self._where()
        schema = {**{column.name: column.kind.polars for column in columns}, name: pl.Boolean()}
        return Step(
            f"map_batches({name}: {source.name}.is_null())", (*columns, Column(BOOLEAN, 1, name)),
            lambda stream: cast_to(stream, columns).map_batches(
                lambda frame: frame.with_columns(pl.col(source.name).is_null().alias(name)), schema=schema
            ),
            lambda inner, dialect: around(inner, f"*, {quoted(source.name)} IS NULL AS {name}"),
        )  # fmt: skip

    def _flat_map(self) -> Step:
        columns, name = self.columns, self.fresh()
        if not self.added_only:
            return self._where()
        count = self.choices.integer(0, 3)
        numbers = f"(SELECT n FROM (VALUES (0), (1), (2)) AS v(n) WHERE n < {count}) AS r"
        schema = {**{column.name: column.kind.polars for column in columns}, name: pl.Int64()}
        return Step(
            f"flat_map({count} rows with {name}: their number)", (*columns, Column(BIGINT, 3, name)),
            lambda stream: cast_to(stream, columns).flat_map(lambda row: [{**row, name: number} for number in range(count)], schema=schema),
            lambda inner, dialect: f"SELECT i.*, n AS {name} FROM ({inner}) AS i CROSS JOIN {numbers}",
        )  # fmt: skip

    def _rules(self) -> Step:
        """Several conditions at once: of the rows that a rule matches, the ids in the order of the rules, joined."""
        if not self.added_only or not all(column.name.isidentifier() for column in self.columns):
            return self._where()
        conditions = {f"r{number}": self._condition() for number in self.choices.repeat(1, 4, 70)}
        rules = {name: as_dsl(condition) for name, condition in conditions.items()}
        name = self.fresh()
        names = [quoted(column.name) for column in self.columns]

        def query(inner: str, dialect: str) -> str:
            parts = ", ".join(
                f"CASE WHEN {as_sql(each, dialect)} THEN '{rule}' END" for rule, each in conditions.items()
            )
            joined = f"CONCAT_WS(',', {parts})"  # it leaves NULLs out
            return around(around(inner, f"*, {joined} AS {name}"), "*", f"WHERE {name} <> ''")

        return Step(
            f"rules({rules}).select(…, {name}=\"array_join(rule_ids, ',')\")", (*self.columns, Column(STRING, 20, name)),
            lambda stream: stream.rules(rules).select(*names, **{name: "array_join(rule_ids, ',')"}),
            query,
        )  # fmt: skip

    def _lookup(self) -> Step:
        """A dimension table: each row with the table's rows of its key."""
        table = self.choices.pick(self.tables)
        others = tuple(replace(column, name=f"d{self._names}{column.name}") for column in columns_of(table))
        self._names += 1
        pairs = [
            (one, other) for one in self.columns for other in others
            if one.kind == other.kind and one.kind.name in ("int", "bigint", "string", "date", "key", "text key")
        ]  # fmt: skip
        if not pairs or not self.added_only:
            return self._where()
        one, key = self.choices.pick(pairs)
        how = self.choices.pick(["inner", "left"])
        renames = {column.name: other.name for column, other in zip(columns_of(table), others, strict=True)}
        right = f"(SELECT {', '.join(f'{old} AS {new}' for old, new in renames.items())} FROM {table.name})"
        columns = (*self.columns, *(column for column in others if column != key))
        streams, left = self.streams, self.columns
        condition = f"l.{quoted(one.name)} = r.{key.name}"

        def apply(stream: hr.Stream) -> hr.Stream:
            dimension = streams[table.name].rename(**renames)
            joined: hr.Stream = cast_to(stream, left).lookup_join(dimension, on={one.name: key.name}, how=how)
            return joined.select(*(quoted(column.name) for column in columns))

        return Step(
            f"lookup_join({table.name}.rename({renames}), on={{{one.name!r}: {key.name!r}}}, how={how!r}).select({names_of(columns)})",
            columns, apply,
            lambda inner, dialect: f"SELECT {names_of(columns)} FROM ({inner}) AS l {how.upper()} JOIN {right} AS r ON {condition}",
        )  # fmt: skip

    def _script(self) -> Step:
        """Assignments, each seeing the ones before it, and a condition."""
        if not all(column.name.isidentifier() for column in self.columns):
            return self._where()
        statements, query_items = [], []
        columns = self.columns
        for _ in self.choices.repeat(1, 3, 60):
            item, name = self._expression(1), self.fresh()
            statements.append(f"{name} = {as_dsl(item)}")
            query_items.append((name, item))
            self.columns = (*self.columns, *columns_named({name: item}))
        condition = self._condition()
        statements.append(f"WHERE {as_dsl(condition)}")
        text, made = "; ".join(statements), self.columns
        self.columns = columns

        def query(inner: str, dialect: str) -> str:
            for name, item in query_items:
                inner = around(inner, f"*, {as_sql(item, dialect)} AS {name}")
            return around(inner, "*", f"WHERE {as_sql(condition, dialect)}")

        return Step(f"script({text!r})", made, lambda stream: stream.script(text), query)

    # ----------------------------------------------------------------------- steps that must change nothing

    def _own_condition(self) -> Expression:
        made = rewriting.condition(self.choices, self.columns)
        return made if in_dsl(made) else Call(BOOLEAN, 1, "is null", (self.columns[0],))

    def _in_three(self) -> Step:
        """The rows of p, of NOT p and of p IS NULL together are all rows, whatever p is."""
        p = as_dsl(self._own_condition())
        parts = [p, f"NOT ({p})", f"({p}) IS NULL"]
        first = self.choices.integer(0, 2)
        parts = [*parts[first:], *parts[:first]]
        return Step(
            f"where({parts[0]!r}).union(where({parts[1]!r}), where({parts[2]!r}))", self.columns,
            lambda stream: stream.where(parts[0]).union(*map(stream.where, parts[1:])), lambda inner, dialect: inner,
        )  # fmt: skip

    def _where_of_flag(self) -> Step:
        """A condition as a computed column leaves the rows that it leaves in ``where``."""
        condition = self._condition()
        text, flag = as_dsl(condition), self.fresh()
        return Step(
            f"with_columns({flag}={text!r}).where({flag!r}).drop({flag!r})", self.columns,
            lambda stream: stream.with_columns(**{flag: text}).where(flag).drop(flag),
            lambda inner, dialect: around(inner, "*", f"WHERE {as_sql(condition, dialect)}"),
        )  # fmt: skip

    def _twice(self) -> Step:
        """The same expression twice in one verb gives the same column twice."""
        made = self._own_condition() if self.choices.chance(40) else self._expression(self.choices.integer(0, 2))
        text, one, other = as_dsl(made), self.fresh(), self.fresh()
        same = f"{one} IS NOT DISTINCT FROM {other}"
        return Step(
            f"with_columns({one}={text!r}, {other}={text!r}).where({same!r}).drop({one!r}, {other!r})", self.columns,
            lambda stream: stream.with_columns(**{one: text, other: text}).where(same).drop(one, other), lambda inner, dialect: inner,
        )  # fmt: skip

    def _map_of_several(self) -> Step:
        """Several maps and filters, made in a loop: each keeps what it was made with."""
        if not self.added_only:
            return self._where()
        columns = self.columns
        names = [self.fresh() for _ in self.choices.repeat(2, 3, 50)]
        made = (*columns, *(Column(INT, 10, name) for name in names))

        def apply(stream: hr.Stream) -> hr.Stream:
            schema = {column.name: column.kind.polars for column in columns}
            stream = cast_to(stream, columns)
            for number, name in enumerate(names):
                schema = {**schema, name: pl.Int32()}
                stream = stream.map(lambda row, name=name, number=number: {**row, name: number}, schema=schema)

                def kept(row: dict[str, Any], name: str = name, number: int = number) -> bool:
                    return bool(row[name] == number)

                stream = stream.filter(kept)
            return stream

        items = ", ".join(f"{number} AS {name}" for number, name in enumerate(names))
        return Step(
            f"map and filter, one after the other, for {names}",
            made,
            apply,
            lambda inner, dialect: around(inner, f"*, {items}"),
        )
