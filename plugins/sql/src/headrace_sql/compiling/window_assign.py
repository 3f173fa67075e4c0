"""Window functions of tables without an aggregation: their columns made for each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.interfaces.windows import Window
from headrace_stateful.windows.window_shape import WINDOW_END, WINDOW_START

from headrace_sql.binding.scope import Relation
from headrace_sql.binding.trees import physical, text_of
from headrace_sql.operators.correlate import Correlate
from headrace_sql.operators.window_assign import TableWindow, WindowAssign
from headrace_sql.operators.window_results import TimedResults


def assigned(relation: Relation) -> Relation:
    """Return the relation with its window's columns made, for all that is no aggregation of the window."""
    window = relation.table_window
    assert window is not None
    names = {column.window: column.physical for column in relation.columns if column.window is not None}
    if window.kind == "session":
        return _in_sessions(relation, window, names)
    stream = relation.stream.apply(WindowAssign(window, (names["start"], names["end"], names["time"])))
    return replace(relation, stream=stream, table_window=None)


def _in_sessions(relation: Relation, window: TableWindow, names: Mapping[str, str]) -> Relation:
    """Return rows with their sessions: they come when their session closes, before anything of a later one."""

    schema, keys = relation.schema, window.partition
    own = {name: text_of(physical(name)) for name in schema if name not in keys}
    row = ", ".join(f"'__field_{index}', {text}" for index, text in enumerate(own.values()))
    source = relation.stream.with_columns(__session_row=f"named_struct({row})")
    sessions = source.key_by(*keys).window(Window("session", window.size_us, window.every_us, window.on))
    made = sessions.agg(__session_rows="array_agg(__session_row)")
    made = made.rename({WINDOW_START: names["start"], WINDOW_END: names["end"]})
    last = f"{text_of(physical(names['end']))} - INTERVAL '1' MILLISECOND"
    made = made.with_columns(**{names["time"]: last}).apply(TimedResults())
    fields = {name: schema[name] for name in own}
    made = made.apply(Correlate(None, ["__session_rows"], fields)).drop("__session_rows")
    # Times of the rows lie behind the watermark now; that of the window is just reached.
    plain = tuple(c if c.window == "time" or c.time != "event" else replace(c, time=None) for c in relation.columns)
    return replace(relation, stream=made, columns=plain, table_window=None, base=None)
