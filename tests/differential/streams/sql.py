"""Plans as SQL texts of Flink: a view per verb."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from tests.differential.streams.expressions import aggregate_sql, sql
from tests.differential.streams.plan import (
    Distinct,
    Expression,
    FirstByTime,
    Grouped,
    IntervalJoin,
    Join,
    Match,
    Node,
    Over,
    OverCall,
    Plan,
    Select,
    Source,
    Table,
    TemporalJoin,
    TopN,
    Union,
    Where,
    Window,
    Windowed,
    WindowJoin,
    WindowTopN,
)  # fmt: skip

_TYPES = {
    "text": "STRING", "int": "BIGINT", "decimal": "DECIMAL(10, 2)", "boolean": "BOOLEAN", "time": "TIMESTAMP(3)",
    "key": "BIGINT", "text key": "STRING",
}  # fmt: skip


def table_text(table: Table, options: Mapping[str, str], prefix: str = "") -> str:
    """Return the statement that makes a table known; its name begins with ``prefix``."""
    columns = [f"{name} {_TYPES[kind]}" for name, kind in table.columns.items()]
    given = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    late = interval(table.delay)
    return f"CREATE TABLE {prefix}{table.name} ({', '.join(columns)}, WATERMARK FOR ts AS ts - {late}) WITH ({given})"


def views_of(plan: Plan, prefix: str = "", *, as_text: bool = False) -> tuple[list[str], str]:
    """Return the statements that make views, and the query of the output ``out``: times in it are plain columns.

    Names of tables and views begin with ``prefix``. ``as_text``: the query gives one column ``texts``, a JSON array of the values as texts.
    """
    names: dict[int, str] = {}
    statements = []
    for node in plan.nodes():
        if isinstance(node, Source):
            names[id(node)] = prefix + node.table.name
            continue
        name = f"{prefix}n{len(names)}"
        inputs = [names[id(each)] for each in node.inputs]
        statements += [text.replace("{name}", name) for text in _before(node, inputs)]
        statements.append(f"CREATE VIEW {name} AS {_query(node, inputs, name)}")
        names[id(node)] = name
    out = plan.outputs["out"]
    if as_text:
        values = ", ".join(f"CAST({name} AS STRING)" for name in out.columns)
        return statements, f"SELECT JSON_ARRAY({values} NULL ON NULL) AS texts FROM {names[id(out)]}"
    shown = [
        f"CAST({name} AS TIMESTAMP(3)) AS {name}" if kind == "time" else name for name, kind in out.columns.items()
    ]
    return statements, f"SELECT {', '.join(shown)} FROM {names[id(out)]}"


def _before(node: Node, inputs: list[str]) -> list[str]:
    """Return views that a verb needs."""
    if not isinstance(node, TemporalJoin):
        return []
    columns = ", ".join(node.right.columns)
    ranked = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {node.pairs[0][1]} ORDER BY {node.time[1]} DESC) AS rn FROM {inputs[1]}"
    return [f"CREATE VIEW {{name}}_versions AS SELECT {columns} FROM ({ranked}) WHERE rn = 1"]


def _query(node: Node, inputs: list[str], name: str) -> str:
    one = inputs[0]
    columns = ", ".join(node.columns)
    if isinstance(node, Where):
        return f"SELECT {columns} FROM {one} WHERE {sql(node.condition)}"
    if isinstance(node, Select):
        made = [
            name if each == ("column", name) else f"{sql(each)} AS {name}" for name, each in node.expressions.items()
        ]
        return f"SELECT {', '.join(made)} FROM {one}"
    if isinstance(node, Union):
        return " UNION ALL ".join(f"SELECT {columns} FROM {each}" for each in inputs)
    if isinstance(node, Windowed):
        return _legacy(node, one) if node.legacy else _windowed(node, one)
    if isinstance(node, Grouped):
        made = [*node.keys, *(f"{aggregate_sql(what)} AS {name}" for name, what in node.aggregates.items())]
        return f"SELECT {', '.join(made)} FROM {one}" + (f" GROUP BY {', '.join(node.keys)}" if node.keys else "")
    if isinstance(node, Distinct):
        return f"SELECT DISTINCT {columns} FROM {one}"
    if isinstance(node, FirstByTime):
        ranked = (
            f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {', '.join(node.keys)} ORDER BY {node.on} ASC) AS rn FROM {one}"
        )
        return f"SELECT {columns} FROM ({ranked}) WHERE rn = 1"
    if isinstance(node, TopN):
        return _top_n(node, one)
    if isinstance(node, Match):
        return _match(node, one)
    if isinstance(node, Over):
        over = f"({_partition(node.keys)}ORDER BY {node.on}"
        made = [
            *node.input.columns,
            *(f"{_call(call)} OVER {over}{_frame(call)}) AS {name}" for name, call in node.calls.items()),
        ]
        return f"SELECT {', '.join(made)} FROM {one}"
    assert isinstance(node, Join)
    return _join(node, one, f"{name}_versions" if isinstance(node, TemporalJoin) else inputs[1])


def _match(node: Match, one: str) -> str:
    measures = [
        f"{function.upper()}({variable}.{column}) AS {name}"
        for name, (function, variable, column) in node.measures.items()
    ]
    pattern = " ".join(variable + _times(low, high) for variable, low, high in node.pattern)
    defined = [
        f"{variable} AS {' OR '.join(f'{variable}.{node.by} = {value}' for value in values)}"
        for variable, values in node.values.items()
    ]
    within = "" if node.within is None else f" WITHIN {interval(node.within)}"
    skip = "TO NEXT ROW" if node.next_row else "PAST LAST ROW"
    inside = (
        f"{_partition(node.keys)}ORDER BY {node.on} MEASURES {', '.join(measures)} ONE ROW PER MATCH AFTER MATCH SKIP {skip} "
        f"PATTERN ({pattern}){within} DEFINE {', '.join(defined)}"
    )
    return f"SELECT {', '.join(node.columns)} FROM {one} MATCH_RECOGNIZE ({inside}) AS matched"


def _times(low: int, high: int | None) -> str:
    short = {(1, 1): "", (0, None): "*", (1, None): "+", (0, 1): "?"}
    return short.get((low, high), f"{{{low},{'' if high is None else high}}}")


def _partition(keys: tuple[str, ...]) -> str:
    return f"PARTITION BY {', '.join(keys)} " if keys else ""


def _top_n(node: TopN, one: str) -> str:
    rank = node.rank or "rn"
    order = ", ".join(f"{name} {'DESC' if descending else 'ASC'}" for name, descending in node.order)
    ranked = f"SELECT *, ROW_NUMBER() OVER ({_partition(node.keys)}ORDER BY {order}) AS {rank} FROM {one}"
    return f"SELECT {', '.join(node.columns)} FROM ({ranked}) WHERE {rank} <= {node.n}"


def _call(call: OverCall) -> str:
    inside = "" if call.function == "row_number" else "*" if call.column is None else call.column
    return f"{call.function.upper()}({'DISTINCT ' if call.distinct else ''}{inside})"


def _frame(call: OverCall) -> str:
    if call.function == "row_number":
        return ""
    kind = "ROWS" if call.by_rows else "RANGE"
    begin = (
        "UNBOUNDED"
        if call.rows is None and call.span is None
        else str(call.rows)
        if call.span is None
        else interval(call.span)
    )
    return f" {kind} BETWEEN {begin} PRECEDING AND CURRENT ROW"


def table_window(window: Window, table: str, keys: tuple[str, ...] = ()) -> str:
    """Return a window as a table function."""
    partition = f" PARTITION BY ({', '.join(keys)})" if window.kind == "session" and keys else ""
    of = f"TABLE {table}{partition}, DESCRIPTOR({window.on})"
    offset = f", {interval(window.offset)}" if window.offset else ""
    if window.kind == "session":
        return f"TABLE(SESSION({of}, {interval(window.size)}))"
    name = {"tumbling": "TUMBLE", "sliding": "HOP", "cumulative": "CUMULATE"}[window.kind]
    step = "" if window.kind == "tumbling" else f"{interval(window.every)}, "
    return f"TABLE({name}({of}, {step}{interval(window.size)}{offset}))"


def _windowed(node: Windowed, one: str) -> str:
    aggregates = [f"{aggregate_sql(what)} AS {name}" for name, what in node.aggregates.items()]
    keys = [*node.keys, "window_start", "window_end", "window_time"]
    shown = ", ".join([*keys[:-1], *aggregates, "window_time"])
    return f"SELECT {shown} FROM {table_window(node.window, one, node.keys)} GROUP BY {', '.join(keys)}"


def _legacy(node: Windowed, one: str) -> str:
    window = node.window
    name = {"tumbling": "TUMBLE", "sliding": "HOP", "session": "SESSION"}[window.kind]
    step = f"{interval(window.every)}, " if window.kind == "sliding" else ""
    call = f"({window.on}, {step}{interval(window.size)})"
    bounds = [f"{name}_{what}{call} AS window_{column}" for what, column in (("START", "start"), ("END", "end"))]
    aggregates = [f"{aggregate_sql(what)} AS {name}" for name, what in node.aggregates.items()]
    shown = [*node.keys, *bounds, *aggregates, f"{name}_ROWTIME{call} AS window_time"]
    return f"SELECT {', '.join(shown)} FROM {one} GROUP BY {', '.join([*node.keys, name + call])}"


def _join(node: Join, left: str, right: str) -> str:
    shown = [f"l.{name}" for name in node.left.columns] + [f"r.{old} AS {new}" for old, new in node.renamed.items()]
    sides = {name: f"l.{name}" for name in node.left.columns} | {new: f"r.{old}" for old, new in node.renamed.items()}
    conditions = [f"l.{one} = r.{other}" for one, other in node.pairs]
    of_left, of_right = left, right
    if isinstance(node, IntervalJoin):
        one, other = f"l.{node.time[0]}", f"r.{node.time[1]}"
        conditions.append(f"{other} BETWEEN {_moved(one, node.low)} AND {_moved(one, node.high)}")
    elif isinstance(node, WindowJoin):
        of_left, of_right = (
            f"(SELECT * FROM {table_window(Window(node.window.kind, node.window.size, node.window.every, node.window.offset, on), each)})"
            for on, each in zip(node.time, (left, right), strict=True)
        )  # fmt: skip
        conditions += ["l.window_start = r.window_start", "l.window_end = r.window_end"]
        bounds = ("window_start", "window_end")
        shown += [f"COALESCE(l.{bound}, r.{bound}) AS {bound}" for bound in bounds]
    elif isinstance(node, TemporalJoin):
        of_right = f"{right} FOR SYSTEM_TIME AS OF l.{node.time[0]}"
    if node.where is not None:
        conditions.append(sql(_renamed(node.where, sides)))
    how = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}[node.how]
    return f"SELECT {', '.join(shown)} FROM {of_left} AS l {how} {of_right} AS r ON {' AND '.join(conditions)}"


def _renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    operator, *operands = expression
    if operator == "column":
        return ("column", names[operands[0]])
    if operator == "constant":
        return expression
    return (operator, *(_renamed(each, names) for each in operands))


def _moved(time: str, by: timedelta) -> str:
    return f"{time} - {interval(-by)}" if by < timedelta() else f"{time} + {interval(by)}" if by else time


def interval(length: timedelta) -> str:
    """Return a length of time as SQL."""
    for unit, one in (("DAY", timedelta(days=1)), ("HOUR", timedelta(hours=1)), ("MINUTE", timedelta(minutes=1))):
        if length and not length % one:
            return f"INTERVAL '{length // one}' {unit}"
    seconds, rest = divmod(length, timedelta(seconds=1))
    fraction = f".{rest // timedelta(milliseconds=1):03d}" if rest else ""
    return f"INTERVAL '{seconds}{fraction}' SECOND"


__all__ = ["WindowTopN", "interval", "table_text", "views_of"]
