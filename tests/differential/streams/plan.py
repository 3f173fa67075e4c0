"""What a streaming job is, as data: tables with arriving rows, and a tree of verbs.

Everything else here reads it: the generator makes it, the interpreter says what must come out of it, and ``dsl`` and ``sql`` write it down
as jobs. Nothing in it is headrace's.

Values are text, int, bool, float, Decimal, datetime (UTC, without a zone), lists, or None for NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar

Row = dict[str, Any]
#: ("column", name), ("constant", value, kind), or (operator, expression, …).
Expression = tuple[Any, ...]
#: text, int, decimal, boolean, double, time, list; key and text key: whole numbers and texts that are only grouped, joined, counted and
#: ordered, so that others in the same order would do as well.
Kind = str
How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True)
class Arrival:
    """A row that arrives: in which table and queue."""

    table: str
    queue: int
    row: Row


@dataclass(frozen=True)
class Table:
    """A source. ``delay``: how far a row may be behind a newer one of its queue."""

    name: str
    columns: Mapping[str, Kind]
    queues: int
    delay: timedelta


@dataclass(frozen=True)
class Aggregate:
    """One aggregate: a function over a column (None: ``*``), perhaps of its different values, of rows that fulfil a condition."""

    function: str
    column: str | None
    distinct: bool = False
    condition: Expression | None = None
    kind: Kind = "int"


@dataclass(frozen=True)
class Window:
    """``kind``: tumbling, sliding, cumulative or session (then ``size`` is the gap)."""

    kind: str
    size: timedelta
    every: timedelta
    offset: timedelta
    on: str


@dataclass(frozen=True)
class Emit:
    """When a window gives results beside the final one."""

    before: timedelta | None
    after: timedelta | None
    until: timedelta


@dataclass(frozen=True, eq=False)
class Node:
    """A verb. ``columns`` is what comes out; ``changes`` says that rows are taken back; ``times`` are columns that event time goes by."""

    columns: Mapping[str, Kind]
    changes: bool = field(default=False, kw_only=True)
    times: Sequence[str] = field(default=(), kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        found = [getattr(self, name) for name in ("input", "left", "right") if hasattr(self, name)]
        return (*found, *getattr(self, "merged", ()))


NodeT = TypeVar("NodeT", bound=Node)


@dataclass(frozen=True, eq=False)
class Source(Node):
    table: Table


@dataclass(frozen=True, eq=False)
class Where(Node):
    input: Node
    condition: Expression


@dataclass(frozen=True, eq=False)
class Select(Node):
    input: Node
    expressions: Mapping[str, Expression]


@dataclass(frozen=True, eq=False)
class Split(Node):
    """The rows that the first so many conditions do not take and the next does; ``branch`` == len(conditions): the rest."""

    input: Node
    conditions: tuple[Expression, ...]
    branch: int


@dataclass(frozen=True, eq=False)
class FlatMap(Node):
    """Each row as often as ``abs(v) % 3`` says (NULL: once), with ``copy`` numbering the copies."""

    input: Node
    column: str


@dataclass(frozen=True, eq=False)
class Union(Node):
    merged: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Grouped(Node):
    """Running aggregates by keys."""

    input: Node
    keys: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]


@dataclass(frozen=True, eq=False)
class Windowed(Node):
    """Aggregates by keys and window."""

    input: Node
    keys: tuple[str, ...]
    window: Window
    aggregates: Mapping[str, Aggregate]
    emit: Emit | None = None
    #: Written as ``GROUP BY TUMBLE(ts, …)``, not as ``TABLE(TUMBLE(…))``.
    legacy: bool = False


@dataclass(frozen=True, eq=False)
class Late(Node):
    """The rows that came too late for a window or a join of windows."""

    input: Node


@dataclass(frozen=True, eq=False)
class Join(Node):
    """``renamed``: what the columns of the right side are called; those not in it do not come out."""

    left: Node
    right: Node
    pairs: tuple[tuple[str, str], ...]
    how: How
    renamed: Mapping[str, str]
    where: Expression | None = None


@dataclass(frozen=True, eq=False)
class IntervalJoin(Join):
    time: tuple[str, str] = ("ts", "ts")
    low: timedelta = timedelta()
    high: timedelta = timedelta()


@dataclass(frozen=True, eq=False)
class WindowJoin(Join):
    time: tuple[str, str] = ("ts", "ts")
    window: Window = field(default=Window("tumbling", timedelta(), timedelta(), timedelta(), "ts"))


@dataclass(frozen=True, eq=False)
class TemporalJoin(Join):
    """Left rows with the version of the right row of their key at their time."""

    time: tuple[str, str] = ("ts", "ts")


@dataclass(frozen=True, eq=False)
class TopN(Node):
    """``order``: (column, descending); all columns, so that it is total. ``rank``: the column of the place, or None."""

    input: Node
    keys: tuple[str, ...]
    n: int
    order: tuple[tuple[str, bool], ...]
    rank: str | None = None


@dataclass(frozen=True, eq=False)
class WindowTopN(TopN):
    """The first rows of each window; the columns of the window are among the keys."""


@dataclass(frozen=True, eq=False)
class Distinct(Node):
    """The first row of each key."""

    input: Node
    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class OverCall:
    """``rows``: so many rows before; ``span``: so much time before; neither: all. ``by_rows``: ROWS, else RANGE."""

    function: str
    column: str | None
    by_rows: bool
    rows: int | None = None
    span: timedelta | None = None
    distance: int = 1
    distinct: bool = False


@dataclass(frozen=True, eq=False)
class Over(Node):
    """Each row with aggregates of the rows of its key before it in event time."""

    input: Node
    keys: tuple[str, ...]
    on: str
    calls: Mapping[str, OverCall]


@dataclass(frozen=True, eq=False)
class FirstByTime(Node):
    """The row of each key with the least event time, given when time has come to it."""

    input: Node
    keys: tuple[str, ...]
    on: str


@dataclass(frozen=True, eq=False)
class Match(Node):
    """MATCH_RECOGNIZE: per key, in the order of event time, rows one behind the other that fit a pattern.

    ``pattern``: variables with how often they come, at least and at most (None: without bound). ``values``: which values of
    the column ``by`` a variable takes; no value belongs to two. ``measures``: FIRST, LAST or COUNT of a variable's column.
    ``next_row``: the next match may begin with the row behind the first one, else behind the last one. ``within``: the last row is less
    than this behind the first one; None: however far.
    """

    input: Node
    keys: tuple[str, ...]
    on: str
    by: str
    pattern: tuple[tuple[str, int, int | None], ...]
    values: Mapping[str, tuple[int, ...]]
    measures: Mapping[str, tuple[str, str, str]]
    next_row: bool
    within: timedelta | None = None


@dataclass(frozen=True, eq=False)
class Counted(Node):
    """A function with state and timers: per key a count of rows, given with each third row and ``span`` after the last one."""

    input: Node
    keys: tuple[str, ...]
    on: str
    span: timedelta


@dataclass(frozen=True)
class Plan:
    """A job: tables, what arrives in which order, and the nodes whose rows are written, by name.

    ``silences``: before which arrivals nothing comes for so long that no queue is waited for any more.
    """

    tables: tuple[Table, ...]
    arrivals: tuple[Arrival, ...]
    outputs: Mapping[str, Node]
    silences: frozenset[int] = frozenset()

    def nodes(self) -> list[Node]:
        """Return all verbs, inputs before what reads them."""
        found: dict[int, Node] = {}

        def visit(node: Node) -> None:
            if id(node) not in found:
                for each in node.inputs:
                    visit(each)
                found[id(node)] = node

        for node in self.outputs.values():
            visit(node)
        return list(found.values())

    def of_type(self, *kinds: type[NodeT]) -> Iterator[NodeT]:
        return (node for node in self.nodes() if isinstance(node, kinds))
