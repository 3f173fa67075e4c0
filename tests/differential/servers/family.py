"""Jobs that write into real servers: MySQL, Kafka, RocketMQ, Elasticsearch. What others read there is compared with DuckDB's rows.

The families are picked by name only, as their seeds need servers: ``make fuzz-servers SEEDS=200`` starts them.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import headrace as hr

from tests.differential.choices import Choices
from tests.differential.comparing import Row, difference
from tests.differential.families import Family
from tests.differential.kinds import BIGINT, INT, STRING, Kind
from tests.differential.oracle import run_duckdb
from tests.differential.running import register
from tests.differential.servers import targets
from tests.differential.servers.tables import generate_keyed_table, generate_name
from tests.differential.styles import generate_breaks, run_with_breaks
from tests.differential.tables import Table

#: How results change: not at all, or rows are replaced and deleted by a key of one column or two.
SHAPES = ("append", "union", "last", "last filtered", "first two", "aggregates", "joined")


@dataclass(frozen=True)
class ServerCase:
    """Tables, a query, what its columns are called, and how the job is run. ``{names}`` in the query stand for the columns."""

    server: str
    tables: tuple[Table, ...]
    shape: str
    #: Names and types of what is written; the keys come first.
    columns: Mapping[str, Kind]
    keys: tuple[str, ...]
    batch: int = 1000
    options: Mapping[str, int] = field(default_factory=dict)
    breaks: tuple[tuple[Any, ...], ...] = ()
    #: Options of the sink beside its place.
    sink: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        told = [
            f"into {self.server} {dict(self.sink)}, batches of {self.batch}, {dict(self.options)}, breaks {self.breaks}"
        ]
        return "\n".join(
            [*map(str, self.tables), *told, query_of(self, "flink"), "-- for DuckDB:", query_of(self, "duckdb")]
        )


def generate(choices: Choices, server: str) -> ServerCase:
    """Return a job into a server."""
    shapes = [each for each in SHAPES if each in targets.TARGETS[server].shapes]
    shape = choices.pick(shapes)
    key = choices.pick([INT, STRING, BIGINT])
    tables = tuple(
        generate_keyed_table(choices, f"t{number + 1}", key) for number in range(2 if shape == "joined" else 1)
    )
    taken = _columns(tables, shape)
    names = [generate_name(choices, at, targets.TARGETS[server].unnamed) for at in range(len(taken))]
    columns = dict(zip(names, taken, strict=True))
    keys = tuple(names[: {"append": 0, "union": 0, "first two": 2}.get(shape, 1)])
    options = {"shards": choices.pick([2, 5])} if choices.chance(30) else {}
    batch = choices.weighted([(4, 1000), (3, 7), (2, 1)])
    breaks = generate_breaks(choices) if choices.chance(40) else ()
    sink = targets.TARGETS[server].generate(choices, columns, keys)
    return ServerCase(server, tables, shape, columns, keys, batch, options, breaks, sink)


def _columns(tables: tuple[Table, ...], shape: str) -> list[Kind]:
    """Return the types of what a query gives."""
    kinds = [column.kind for column in tables[0].columns]
    if shape == "first two":
        return [kinds[1], BIGINT, kinds[0], *kinds[2:]]
    if shape == "aggregates":
        return [kinds[1], BIGINT, *(kind for kind in kinds if _ordered(kind) for _ in range(2))]
    if shape == "joined":
        return [kinds[1], kinds[0], *kinds[2:], *(column.kind for column in tables[1].columns[2:])]
    return [kinds[1], kinds[0], *kinds[2:]]


def _ordered(kind: Kind) -> bool:
    return kind.name in ("int", "bigint", "smallint", "tinyint", "decimal", "date", "timestamp", "time", "string")


def query_of(case: ServerCase, dialect: str) -> str:
    """Return the query as headrace or DuckDB has it."""
    quote = _backticked if dialect == "flink" else _quoted
    names = [quote(name) for name in case.columns]
    first = case.tables[0]
    rest = [column.name for column in first.columns[2:]]
    if case.shape in ("append", "union"):
        items = _items(["k", "id", *rest], names)
        once = f"SELECT {items} FROM t1"
        return once if case.shape == "append" else f"{once} WHERE id < 7\nUNION ALL\n{once} WHERE id > 2"
    if case.shape in ("last", "last filtered"):
        condition = "" if case.shape == "last" else f" AND ({rest[0]} IS NOT NULL OR MOD(id, 3) = 0)"
        return f"SELECT {_items(['k', 'id', *rest], names)} FROM ({_ranked('t1')}) AS r WHERE rn = 1{condition}"
    if case.shape == "first two":
        return f"SELECT {_items(['k', 'rn', 'id', *rest], names)} FROM ({_ranked('t1')}) AS r WHERE rn <= 2"
    if case.shape == "aggregates":
        made = ["k", "COUNT(*)"]
        made += [f"{function}({c.name})" for c in first.columns if _ordered(c.kind) for function in ("MIN", "MAX")]
        return f"SELECT {_items(made, names)} FROM t1 GROUP BY k HAVING COUNT(*) <> 2"
    others = [f"b.{column.name}" for column in case.tables[1].columns[2:]]
    sides = [
        f"SELECT {', '.join(column.name for column in table.columns)} FROM ({_ranked(table.name)}) AS r WHERE rn = 1"
        for table in case.tables
    ]
    items = _items(["a.k", "a.id", *(f"a.{name}" for name in rest), *others], names)
    return f"SELECT {items} FROM ({sides[0]}) AS a LEFT JOIN ({sides[1]}) AS b ON a.k = b.k"


def _ranked(table: str) -> str:
    return f"SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id DESC) AS rn FROM {table}"


def _items(made: list[str], names: list[str]) -> str:
    return ", ".join(f"{one} AS {name}" for one, name in zip(made, names, strict=True))


def _backticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def check(case: ServerCase) -> str | None:
    """Return in what a server's rows differ from DuckDB's, or None."""
    kind = targets.TARGETS[case.server]
    expected: Counter[Row] = Counter()
    for row, count in run_duckdb(case.tables, query_of(case, "duckdb")).items():
        expected[kind.kept(row, case.columns)] += count
    with kind.opened(os.environ[kind.variable], f"d{uuid.uuid4().hex[:16]}", case.columns, case.keys) as target:
        _run(case, partial(target.write, sink=case.sink))
        found = target.rows(sum(expected.values()))
    return difference(expected, found, names=("by DuckDB", f"in {case.server}")) or None


def _run(case: ServerCase, write: Callable[[hr.Stream], hr.Job]) -> None:
    def made() -> hr.Job:
        register(case.tables)
        job = hr.sql(query_of(case, "flink"), pipeline="job")
        return write(next(iter(job.script.relations().values())).stream)

    given = {"max_batch_records": case.batch, "show_progress": False, **case.options}
    if case.breaks:
        run_with_breaks(made, case.breaks, given)
    else:
        made().run("light", **given)


FAMILIES = [Family(server, partial(generate, server=server), check, str) for server in targets.TARGETS]
