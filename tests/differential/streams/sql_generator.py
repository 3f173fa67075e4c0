"""Jobs in SQL from choices. ``flink``: only what Flink takes too, and of which Flink's result is always the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.differential.choices import Choices
from tests.differential.streams import expressions, plan
from tests.differential.streams.arrivals import make_tables
from tests.differential.streams.generator import SIZES, Maker

_HOWS = ("inner", "left", "right", "full")


def make_sql_plan(choices: Choices, *, flink: bool = False) -> plan.Plan:
    """Return a job that can be written in SQL."""
    in_order = choices.chance(50)
    keys = not flink and choices.chance(10)
    null_times = not flink and choices.chance(30)
    # In Flink a bounded OVER drops rows of before 1970.
    tables, arrivals = make_tables(
        choices, in_order=in_order, null_times=null_times, queues=not flink, before_1970=not flink, keys=keys
    )
    maker = SqlMaker(choices, tables, flink=flink, in_order=in_order)
    return plan.Plan(tables, arrivals, maker.outputs())


class SqlMaker(Maker):
    """Makes nodes that SQL has. Times of nodes are time attributes."""

    def __init__(self, choices: Choices, tables: tuple[plan.Table, ...], *, flink: bool, in_order: bool) -> None:
        super().__init__(choices, tables)
        self._flink = flink
        self._nested = not flink
        self._in_order = in_order
        #: Flink reads tables in any order: two of them are read only where nothing is late.
        self._several = in_order or not flink
        self._dialect = "flink" if flink else "sql"

    def outputs(self) -> Mapping[str, plan.Node]:
        made = super().outputs()
        return {"out": made["out"]}

    def _passing(self, node: plan.Node) -> plan.Node:
        for _ in self._choices.repeat(0, 2, 30):
            made: list[tuple[int, Callable[[plan.Node], plan.Node]]] = [(3, self._where), (3, self._select)]
            if self._several:
                made += [(1, self._union)] if self._flink else [(1, self._union), (1, self._in_three)]
            node = self._choices.weighted(made)(node)
        return node

    def _stage(self, node: plan.Node) -> plan.Node:
        verbs: list[tuple[int, Callable[[plan.Node], plan.Node]]] = [
            (3, self._grouped),
            (2, self._top_n),
            (1, self._distinct),
        ]
        if self._several:
            verbs.append((2, self._join))
        if node.times and not node.changes:
            verbs += [(8, self._windowed), (3, self._over), (2, self._first_by_time)]
            if self._several:
                verbs += [(3, self._interval_join), (3, self._window_join), (2, self._temporal_join)]
            if self._in_order and not self._flink and self._is_ordered(node) and node.columns.get("g") == "int":
                verbs.append((3, self._match))
            if isinstance(node, plan.Windowed) and not node.legacy:
                verbs.append((8, self._window_top_n))
        return self._choices.weighted(verbs)(node)

    def _aggregates(self, node: plan.Node) -> Mapping[str, Any]:
        unused = ("list", "double") if self._flink else ("double",)
        inputs = {name: kind for name, kind in node.columns.items() if kind not in unused}
        ordered = self._is_ordered(node)
        return expressions.aggregates(
            self._choices, inputs, dialect=self._dialect, ordered=ordered, changes=node.changes
        )

    def _window(self, node: plan.Node, *, sessions: bool = True) -> plan.Window:
        window = super()._window(node, sessions=sessions)
        size = max(window.size, timedelta(seconds=1))
        every = {
            "tumbling": size,
            "session": size,
            "sliding": size / self._choices.pick([2, 1, 4]),
            "cumulative": size / 5,
        }[window.kind]
        offset = self._choices.weighted([(3, timedelta()), (1, every / 2)]) if window.kind != "session" else timedelta()
        return plan.Window(window.kind, size, every, offset, window.on)

    def _without_bounds(self, node: plan.Node) -> plan.Node:
        """Return a stream whose columns are not called like those that a window adds."""
        taken = [name for name in node.columns if name.startswith("window_")]
        if not taken:
            return node
        names = {name: self._name("w") if name in taken else name for name in node.columns}
        columns = {names[name]: kind for name, kind in node.columns.items()}
        expressions_ = {names[name]: ("column", name) for name in node.columns}
        made = plan.Select(
            columns, node, expressions_, changes=node.changes, times=tuple(names[name] for name in node.times)
        )
        return self._marked(made, ordered=self._is_ordered(node))

    def _top_n(self, node: plan.Node) -> plan.Node:
        made = super()._top_n(node)
        if self._flink and isinstance(made, plan.TopN) and made.n == 1:
            # Flink 2.3 does not take back what a Top-1 has given: more than one row is left of a key.
            two = plan.TopN(made.columns, made.input, made.keys, 2, made.order, made.rank, changes=True)
            return self._marked(two, ordered=False)
        return made

    def _windowed(self, node: plan.Node) -> plan.Node:
        node = self._without_bounds(node)
        made = super()._windowed(node)
        assert isinstance(made, plan.Windowed)
        if self._flink and made.window.kind != "tumbling":
            # Where windows are merged of parts, the order in LISTAGG is that of the parts.
            rows = plan.Aggregate("count", None)
            aggregates = {name: rows if what.function == "listagg" else what for name, what in made.aggregates.items()}
            columns = {**made.columns, **{name: what.kind for name, what in aggregates.items()}}
            made = replace(made, columns=columns, aggregates=aggregates)
        legacy = made.window.kind != "cumulative" and not made.window.offset and self._choices.chance(30)
        if made.window.kind == "session" and not made.keys and not self._flink:
            legacy = True
        columns = {name: kind for name, kind in made.columns.items() if name != "window_result"} | {
            "window_time": "time"
        }
        return self._marked(
            plan.Windowed(
                columns, node, made.keys, made.window, made.aggregates, legacy=legacy, times=("window_time",)
            ),
            ordered=False,
        )

    def _keys(self, node: plan.Node, low: int = 0) -> tuple[str, ...]:
        return tuple(name for name in super()._keys(node, low) if not name.startswith("window_")) or (
            () if not low else ("k",)
        )

    def _distinct(self, node: plan.Node) -> plan.Node:
        if "list" in node.columns.values():
            return self._grouped(node)
        made = plan.Distinct(node.columns, node, tuple(node.columns), changes=node.changes)
        return self._marked(made, ordered=self._is_ordered(node))

    def _over(self, node: plan.Node) -> plan.Node:
        choices = self._choices
        frames: list[dict[str, Any]] = [
            {"by_rows": False}, {"by_rows": True}, {"by_rows": True, "rows": choices.integer(0, 4)},
            {"by_rows": False, "span": choices.pick(SIZES)},
        ]  # fmt: skip
        frame = choices.pick(frames)
        usable = {name: kind for name, kind in node.columns.items() if kind in ("int", "text", "decimal")}
        calls: dict[str, plan.OverCall] = {}
        columns = dict(node.columns)
        total = not self._is_ordered(node) and frame["by_rows"]
        for _ in choices.repeat(1, 3, 50):
            functions = ["count", "sum", "min", "max", "avg"]
            if not self._is_ordered(node):
                functions = ["count"] if total else functions
            elif frame["by_rows"]:
                functions += ["first_value", "last_value"]
            function = choices.pick(functions)
            kinds = ("int",) if function in ("sum", "avg") else ("int", "text", "decimal")
            named = [name for name, kind in usable.items() if kind in kinds]
            if not named or (function == "count" and (total or choices.chance(50))):
                function, column = "count", None
            else:
                column = choices.pick(named)
            name = self._name("o")
            columns[name] = "int" if function in ("count", "sum", "avg") else usable[str(column)]
            calls[name] = plan.OverCall(function, column, **frame)
        if choices.chance(20) and not frame["by_rows"] and "span" not in frame and self._is_ordered(node):
            name = self._name("o")
            columns[name] = "int"
            calls = {name: plan.OverCall("row_number", None, False)}
            columns = {**node.columns, name: "int"}
        keys = self._keys(node)
        return self._marked(plan.Over(columns, node, keys, node.times[0], calls, times=(node.times[0],)), ordered=False)

    def _first_by_time(self, node: plan.Node) -> plan.Node:
        if not self._is_ordered(node):
            return self._over(node)
        keys = self._keys(node, 1)
        if any(name not in node.columns for name in keys):
            return self._over(node)
        return self._marked(plan.FirstByTime(node.columns, node, keys, node.times[0]), ordered=False)

    def _match(self, node: plan.Node) -> plan.Node:
        """Return a pattern of variables of which no row can be two."""
        choices = self._choices
        values = {"A": (0,), "B": (1,), "C": (2, 3)} if choices.chance(50) else {"A": (1, 2), "B": (0,), "C": (3,)}
        between = choices.pick([("B", 1, 1), ("B", 0, None), ("B", 1, None), ("B", 0, 1), ("B", 2, 3), ("B", 1, 2)])
        first = ("A", 1, choices.pick([1, 1, None, 2]))
        pattern = choices.pick([(first, between, ("C", 1, 1)), (first, ("B", 1, 1)), (first, ("C", 1, 1))])
        used = [variable for variable, _, _ in pattern]
        keys = tuple(name for name in self._keys(node) if name != "g")
        columns = {name: node.columns[name] for name in keys}
        measures: dict[str, tuple[str, str, str]] = {}
        usable = [name for name, kind in node.columns.items() if kind in ("int", "text", "decimal")]
        for _ in choices.repeat(1, 3, 60):
            name, function = self._name("m"), choices.pick(["first", "last", "count"])
            measures[name] = (function, choices.pick(used), choices.pick(usable))
            columns[name] = "int" if function == "count" else node.columns[measures[name][2]]
        taken = {variable: values[variable] for variable in used}
        next_row = choices.chance(40)
        within = choices.pick(SIZES) if choices.chance(45) else None
        made = plan.Match(columns, node, keys, node.times[0], "g", pattern, taken, measures, next_row, within)
        return self._marked(made, ordered=False)

    def _window_top_n(self, node: plan.Node) -> plan.Node:
        assert isinstance(node, plan.Windowed)
        if "list" in node.columns.values() or "double" in node.columns.values():
            return self._grouped(node)
        choices = self._choices
        rest = [name for name in node.columns if not name.startswith("window_")]
        first = choices.some(rest, 1, 2)
        order = tuple((name, choices.chance(50)) for name in [*first, *(name for name in rest if name not in first)])
        keys = ("window_start", "window_end", *(choices.some(node.keys, 0, 1)))
        rank = self._name("place") if choices.chance(50) else None
        columns = {**node.columns, **({rank: "int"} if rank else {})}
        made = plan.WindowTopN(columns, node, keys, choices.integer(1, 3), order, rank, times=("window_time",))
        return self._marked(made, ordered=False)

    # -------------------------------------------------------------------------------------------------- joins

    def _shape(self, left: plan.Node, right: plan.Node, *, hows: tuple[str, ...] = _HOWS) -> dict[str, Any]:
        made = super()._shape(left, right, hows=_HOWS)
        made["pairs"] = made["pairs"] or ((("k", "k"),) if "k" in left.columns and "k" in right.columns else ())
        return made

    def _join(self, node: plan.Node) -> plan.Node:
        other = self._other(node)
        shape = self._shape(node, other)
        if not shape["pairs"]:
            return self._grouped(node)
        return self._marked(plan.Join(**shape, changes=True), ordered=False)

    def _interval_join(self, node: plan.Node) -> plan.Node:
        made = super()._interval_join(node)
        assert isinstance(made, plan.IntervalJoin)
        if not made.pairs:
            return self._over(node)
        times = made.times if made.how == "inner" else ()
        parts = {
            name: getattr(made, name)
            for name in ("left", "right", "pairs", "how", "renamed", "where", "time", "low", "high")
        }
        return self._marked(plan.IntervalJoin(made.columns, **parts, times=times), ordered=False)

    def _timed_other(self, node: plan.Node) -> plan.Node:
        return self._without_bounds(super()._timed_other(node))

    def _window_join(self, node: plan.Node) -> plan.Node:
        made = super()._window_join(self._without_bounds(node))
        if not isinstance(made, plan.WindowJoin):
            return self._over(node)
        if not made.pairs:
            return self._over(node)
        parts = {
            name: getattr(made, name)
            for name in ("left", "right", "pairs", "how", "renamed", "where", "time", "window")
        }
        return self._marked(plan.WindowJoin(made.columns, **parts), ordered=False)

    def _temporal_join(self, node: plan.Node) -> plan.Node:
        other = self._source()
        shape = self._shape(node, other)
        pairs = [pair for pair in shape["pairs"] if pair[1] == "k"]
        if not pairs:
            return self._over(node)
        shape |= {"pairs": tuple(pairs), "how": self._choices.pick(["inner", "left"]), "where": None}
        return self._marked(
            plan.TemporalJoin(**shape, time=(node.times[0], "ts"), times=(node.times[0],)), ordered=False
        )
