"""Jobs of the Python DSL from choices: up to four verbs with memory, one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from tests.differential.choices import Choices
from tests.differential.streams import expressions, plan
from tests.differential.streams.arrivals import make_tables

SIZES = [timedelta(milliseconds=each) for each in (5000, 1000, 2000, 10_000, 60_000, 3_600_000, 700)]
_BOUNDS = [timedelta(milliseconds=each) for each in (0, 1000, -1000, 5000, -5000, 60_000, 250)]
_HOWS = ("inner", "left", "right", "full", "semi", "anti")
_NO = timedelta()


def make_plan(choices: Choices) -> plan.Plan:
    """Return a job of the DSL."""
    keys = choices.chance(10)
    tables, arrivals = make_tables(choices, in_order=choices.chance(30), null_times=choices.chance(60), keys=keys)
    return plan.Plan(tables, arrivals, Maker(choices, tables).outputs())


class Maker:
    """Makes nodes. A stream is *ordered* when its rows come in an order that the job itself determines."""

    def __init__(self, choices: Choices, tables: tuple[plan.Table, ...]) -> None:
        self._choices = choices
        self._tables = tables
        self._sources: dict[str, plan.Node] = {}
        self._unordered: set[int] = set()
        self._beside: dict[str, plan.Node] = {}
        self._names = 0
        self._nested = True

    def outputs(self) -> Mapping[str, plan.Node]:
        """Return the nodes that are written."""
        node = self._passing(self._source())
        for _ in self._choices.repeat(1, 4, 55):
            node = self._stage(node)
            node = self._passing(node)
        return {"out": node, **self._beside}

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _is_ordered(self, node: plan.Node) -> bool:
        return id(node) not in self._unordered

    def _marked(self, node: plan.Node, *, ordered: bool) -> plan.Node:
        if not ordered:
            self._unordered.add(id(node))
        return node

    # ------------------------------------------------------------------------------------------ without memory

    def _source(self) -> plan.Node:
        table = self._choices.pick(self._tables)
        if table.name not in self._sources:
            self._sources[table.name] = plan.Source(table.columns, table, times=("ts",))
        return self._sources[table.name]

    def _passing(self, node: plan.Node) -> plan.Node:
        """Put some verbs without memory behind a node."""
        for _ in self._choices.repeat(0, 3, 35):
            made: list[tuple[int, Callable[[plan.Node], plan.Node]]] = [
                (3, self._where),
                (3, self._select),
                (1, self._split),
                (1, self._union),
                (1, self._in_three),
            ]
            if "copy" not in node.columns and not node.changes and "int" in node.columns.values():
                made.append((1, self._flat_map))
            node = self._choices.weighted(made)(node)
        return node

    def _where(self, node: plan.Node) -> plan.Node:
        condition = expressions.condition(self._choices, node.columns)
        made = plan.Where(node.columns, node, condition, changes=node.changes, times=node.times)
        return self._marked(made, ordered=self._is_ordered(node))

    def _select(self, node: plan.Node) -> plan.Node:
        kept = [name for name in node.columns if name in node.times or not self._choices.chance(15)] or list(
            node.columns
        )
        columns: dict[str, plan.Kind] = {name: node.columns[name] for name in kept}
        made: dict[str, Any] = {name: ("column", name) for name in kept}
        for _ in self._choices.repeat(0, 2, 50):
            kind, value = expressions.value(self._choices, node.columns, nested=self._nested)
            for _ in self._choices.repeat(1, 2, 15):  # twice the same gives the same twice
                name = self._name("c")
                columns[name], made[name] = kind, value
        selected = plan.Select(columns, node, made, changes=node.changes, times=node.times)
        return self._marked(selected, ordered=self._is_ordered(node))

    def _split(self, node: plan.Node) -> plan.Node:
        conditions = tuple(
            expressions.condition(self._choices, node.columns, 1) for _ in self._choices.repeat(1, 2, 40)
        )
        branch = self._choices.integer(0, len(conditions))
        made = plan.Split(node.columns, node, conditions, branch, changes=node.changes, times=node.times)
        return self._marked(made, ordered=self._is_ordered(node))

    def _flat_map(self, node: plan.Node) -> plan.Node:
        column = self._choices.pick([name for name, kind in node.columns.items() if kind == "int"])
        made = plan.FlatMap({**node.columns, "copy": "int"}, node, column, changes=node.changes, times=node.times)
        return self._marked(made, ordered=self._is_ordered(node))

    def _union(self, node: plan.Node) -> plan.Node:
        """Bring a stream together with a part of itself, or with another table."""
        if isinstance(node, plan.Source) and self._choices.chance(50):
            other: plan.Node = self._source()
        else:
            other = self._where(node)
        made = plan.Union(node.columns, (node, other), changes=node.changes, times=node.times)
        return self._marked(made, ordered=self._is_ordered(node))

    def _in_three(self, node: plan.Node) -> plan.Node:
        """Bring the rows of a condition, of its contrary and of neither together: they are all rows."""
        p = expressions.condition(self._choices, node.columns)
        parts = tuple(
            self._marked(
                plan.Where(node.columns, node, part, changes=node.changes, times=node.times),
                ordered=self._is_ordered(node),
            )
            for part in (p, ("not", p), ("is null", p))
        )
        return self._marked(
            plan.Union(node.columns, parts, changes=node.changes, times=node.times), ordered=self._is_ordered(node)
        )

    # --------------------------------------------------------------------------------------------- with memory

    def _stage(self, node: plan.Node) -> plan.Node:
        verbs: list[tuple[int, Callable[[plan.Node], plan.Node]]] = [
            (2, self._grouped),
            (2, self._top_n),
            (2, self._join),
        ]
        if node.changes:
            verbs.append((1, self._distinct))
        elif not node.times:
            verbs += [(1, self._distinct)]
        else:
            verbs = [
                (8, self._windowed), (1, self._grouped), (1, self._top_n), (1, self._distinct), (2, self._interval_join),
                (2, self._window_join), (1, self._join),
            ]  # fmt: skip
            if self._is_ordered(node):
                verbs.append((1, self._counted))
        return self._choices.weighted(verbs)(node)

    def _keys(self, node: plan.Node, low: int = 0) -> tuple[str, ...]:
        liked = [name for name in node.columns if name not in ("id", "ts", "d") and node.columns[name] != "list"]
        usable = liked or [name for name in node.columns if node.columns[name] not in ("list", "double")]
        return tuple(self._choices.some(usable, low, 2))

    def _aggregates(self, node: plan.Node) -> Mapping[str, Any]:
        inputs = {name: kind for name, kind in node.columns.items() if kind != "double"}
        return expressions.aggregates(
            self._choices, inputs, dialect="dsl", ordered=self._is_ordered(node), changes=node.changes
        )

    def _window(self, node: plan.Node, *, sessions: bool = True) -> plan.Window:
        choices = self._choices
        size, on = choices.pick(SIZES), choices.pick(node.times)
        kind = choices.weighted([(3, "tumbling"), (2, "sliding"), (1, "cumulative"), (3 if sessions else 0, "session")])
        if kind == "session":
            return plan.Window(kind, size, size, _NO, on)
        every = {
            "tumbling": size,
            "sliding": size * choices.pick([2, 1, 3]) / 6,
            "cumulative": size / choices.pick([2, 5]),
        }[kind]
        return plan.Window(
            kind, size, every, choices.weighted([(3, _NO), (1, size / 4), (1, timedelta(seconds=7))]), on
        )

    def _windowed(self, node: plan.Node) -> plan.Node:
        choices = self._choices
        window, keys = self._window(node), self._keys(node)
        keys = tuple(name for name in keys if name not in ("window_start", "window_end"))
        emit = self._emit() if choices.chance(30) else None
        aggregates = self._aggregates(node)
        if set(aggregates) & set(keys):
            aggregates = {self._name("w"): what for what in aggregates.values()}
        columns = {**{name: node.columns[name] for name in keys}, "window_start": "time", "window_end": "time"}
        columns |= {name: what.kind for name, what in aggregates.items()}
        if emit is not None:
            columns["window_result"] = "text"
        times = () if emit is not None else ("window_start", "window_end")
        made = self._marked(
            plan.Windowed(columns, node, keys, window, aggregates, emit, changes=emit is not None, times=times),
            ordered=False,
        )
        if choices.chance(35):
            self._beside["late"] = plan.Late(node.columns, made)
        return made

    def _emit(self) -> plan.Emit | None:
        spans = [_NO, timedelta(seconds=1), timedelta(seconds=4), timedelta(minutes=1)]
        before = self._choices.pick([None, *spans])
        until = self._choices.pick([_NO, timedelta(seconds=5), timedelta(hours=1)])
        after = self._choices.pick([None, *spans]) if until else None
        return None if before is None and not until else plan.Emit(before, after, until)

    def _grouped(self, node: plan.Node) -> plan.Node:
        keys, aggregates = self._keys(node), self._aggregates(node)
        if set(aggregates) & set(keys):
            aggregates = {self._name("g"): what for what in aggregates.values()}
        columns = {
            **{name: node.columns[name] for name in keys},
            **{name: what.kind for name, what in aggregates.items()},
        }
        return self._marked(plan.Grouped(columns, node, keys, aggregates, changes=True), ordered=False)

    def _top_n(self, node: plan.Node) -> plan.Node:
        first = self._choices.some([name for name in node.columns if node.columns[name] != "list"], 1, 2)
        rest = [name for name in node.columns if name not in first and node.columns[name] != "list"]
        if len(first) + len(rest) < len(node.columns):
            return self._grouped(node)  # lists cannot be ordered by, so the order would not be total
        order = tuple((name, self._choices.chance(50)) for name in [*first, *rest])
        rank = self._name("place") if self._choices.chance(50) else None
        columns = {**node.columns, **({rank: "int"} if rank else {})}
        n = self._choices.integer(1, 4)
        return self._marked(plan.TopN(columns, node, self._keys(node), n, order, rank, changes=True), ordered=False)

    def _distinct(self, node: plan.Node) -> plan.Node:
        whole = node.changes or not self._is_ordered(node)
        if whole and "list" in node.columns.values():
            return self._grouped(node)
        keys = tuple(node.columns) if whole else self._keys(node, 1)
        made = plan.Distinct(node.columns, node, keys, changes=node.changes, times=node.times)
        return self._marked(made, ordered=self._is_ordered(node))

    def _counted(self, node: plan.Node) -> plan.Node:
        keys = self._keys(node, 1)
        columns = {**{name: node.columns[name] for name in keys}, "fired": "time", "count": "int"}
        return self._marked(plan.Counted(columns, node, keys, "ts", self._choices.pick(SIZES)), ordered=False)

    # -------------------------------------------------------------------------------------------------- joins

    def _other(self, node: plan.Node) -> plan.Node:
        """Return a stream for the other side: a table, windows of it, or what the left side came from."""
        other = self._passing(self._source())
        if self._choices.chance(20):
            other = self._windowed(other) if self._choices.chance(50) else self._grouped(other)
        return node if self._choices.chance(5) else other

    def _timed_other(self, node: plan.Node) -> plan.Node:
        other = self._passing(self._source())
        if self._choices.chance(15):
            windowed = self._windowed(other)
            other = other if windowed.changes else windowed
        return node if self._choices.chance(5) else other

    def _shape(self, left: plan.Node, right: plan.Node, *, hows: tuple[str, ...] = _HOWS) -> dict[str, Any]:
        """Return what all joins have."""
        choices = self._choices
        how = choices.pick(hows)
        pairs: list[tuple[str, str]] = []
        for _ in choices.repeat(1, 2, 20):
            usable = [
                (one, other) for one, kind in left.columns.items() for other, its in right.columns.items()
                if kind == its and kind in ("text", "int", "key", "text key") and one not in ("id", "copy") and other not in ("id", "copy")
                and one not in [pair[0] for pair in pairs] and other not in [pair[1] for pair in pairs]
            ]  # fmt: skip
            usable.sort(key=lambda pair: pair[0] != pair[1])
            if usable:
                pairs.append(usable[0] if choices.chance(60) else choices.pick(usable))
        if choices.chance(3):
            pairs = []
        prefix = self._name("r")
        renamed = {name: f"{prefix}_{name}" for name in right.columns}
        columns = dict(left.columns)
        both = {**left.columns, **{renamed[name]: kind for name, kind in right.columns.items()}}
        where = (
            expressions.condition(choices, {n: k for n, k in both.items() if k != "list"}, 1)
            if choices.chance(25)
            else None
        )
        if how not in ("semi", "anti"):
            columns = both
        return {
            "columns": columns,
            "left": left,
            "right": right,
            "pairs": tuple(pairs),
            "how": how,
            "renamed": renamed,
            "where": where,
        }

    def _join(self, node: plan.Node) -> plan.Node:
        other = self._other(node)
        shape = self._shape(node, other)
        changes = node.changes or other.changes or shape["how"] not in ("inner", "semi")
        return self._marked(plan.Join(**shape, changes=changes), ordered=False)

    def _times_after(self, shape: Mapping[str, Any], time: tuple[str, str]) -> tuple[str, ...]:
        return (time[0],) if shape["how"] in ("semi", "anti") else (time[0], shape["renamed"][time[1]])

    def _interval_join(self, node: plan.Node) -> plan.Node:
        other = self._timed_other(node)
        shape = self._shape(node, other)
        time = (self._choices.pick(node.times), self._choices.pick(other.times))
        low, high = sorted([self._choices.pick(_BOUNDS), self._choices.pick(_BOUNDS)])
        times = self._times_after(shape, time)
        return self._marked(plan.IntervalJoin(**shape, time=time, low=low, high=high, times=times), ordered=False)

    def _window_join(self, node: plan.Node) -> plan.Node:
        other = self._timed_other(node)
        if "window_start" in node.columns or "window_end" in node.columns:
            return self._interval_join(node)
        shape = self._shape(node, other)
        time = (self._choices.pick(node.times), self._choices.pick(other.times))
        window = self._window(node, sessions=False)
        shape["columns"] = {**shape["columns"], "window_start": "time", "window_end": "time"}
        made = plan.WindowJoin(**shape, time=time, window=window, times=("window_start", "window_end"))
        self._marked(made, ordered=False)
        if self._choices.chance(30):
            self._beside["late_join"] = plan.Late(shape["columns"], made)
        return made
