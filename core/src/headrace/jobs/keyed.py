"""The keyed part of the DSL: the streams that ``key_by``, ``window`` and ``join`` return.

A verb here appends a shuffle and a stateful operator. The operators themselves are plug-ins (headrace-stateful).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from headrace.foundation.errors import OptionError, PlanError, did_you_mean
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.registry import default_registry
from headrace.interfaces.windows import Duration, Emit, Window, microseconds
from headrace.plan.graph import Input, Node, OperatorNode, ShuffleNode, UnionNode

_NOTHING: Mapping[str, str] = {}

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.operator import OperatorSpec
    from headrace.jobs.dsl import Stream

WATERMARK_VERB = "watermark"


@dataclass(frozen=True)
class KeyedStream:
    """A stream whose rows go to shards by their key. Made by ``stream.key_by(...)``."""

    _stream: Stream
    keys: tuple[str, ...]
    #: How long the state of a key without rows is kept; None: for ever.
    state_ttl: Duration | None = None

    def ttl(self, duration: Duration) -> KeyedStream:
        """Remove the state of a key that had no rows for this time (processing time). For streams with an unbounded
        number of keys.

        Works for ``agg``, ``reduce``, ``distinct``, ``deduplicate`` and ``top_n``; all other verbs raise an error. A
        later row of the key starts with empty state.
        """
        microseconds(duration, "ttl")
        return replace(self, state_ttl=duration)

    def agg(self, **aggregates: str) -> Stream:
        """Keep running aggregates per key: ``agg(n="count(*)", total="sum(v)")``.

        The result is a changelog with the key columns and one column per aggregate. Each change of a key's result is
        an update.
        """
        return self._stateful("aggregate", self.keys, aggregates, ttl=self.state_ttl)

    def reduce(self, function: Any, *, schema: Mapping[str, Any] | None = None) -> Stream:
        """Combine the rows of each key in pairs with a Python function of two dicts. The result is a changelog, as for ``agg``."""
        return self._stateful("reduce", self.keys, function, schema=schema, ttl=self.state_ttl)

    def distinct(self) -> Stream:
        """Keep the first row of each key. Rows are only added."""
        return self._stateful("distinct", self.keys, ttl=self.state_ttl)

    def deduplicate(self, *, keep: Literal["first", "last"] = "first", by: str | None = None) -> Stream:
        """Keep one row per key: the first or last to come, or with the least or greatest value of column ``by``.

        For the first row to come, rows are only added. Otherwise the result is a changelog.
        """
        return self._stateful("deduplicate", self.keys, keep=keep, by=by, ttl=self.state_ttl)

    def top_n(self, n: int, *, by: str | Sequence[str], rank: str | None = None) -> Stream:
        """Keep, per key, the first ``n`` rows in an order such as ``"amount desc, ts"``. The result is a changelog.

        ``rank`` names a column for the rank of each row, from 1.
        """
        return self._stateful("top_n", self.keys, n, by=by, rank=rank, ttl=self.state_ttl)

    def process(self, function: Any, *, schema: Mapping[str, Any], on: str | None = None) -> Stream:
        """Run a Python function per row with state and timers of its key. Use it if no verb fits.

        See ``headrace_stateful.aggregates.process`` for the arguments of the function. ``on`` names the event-time
        column for its timers.
        """
        self._check_ttl("process", "let a timer of the function remove the key's state")
        stream = self._stream if on is None else with_watermark(self._stream, on, None)
        return replace(self, _stream=stream)._stateful("process", self.keys, function, schema=schema, on=on)

    def apply(self, spec: OperatorSpec) -> Stream:
        """Append an operator object with state: all rows of a key come to the same running operator. Raises PlanError for one without
        state, and for one whose ``keys`` are others: its rows would be spread.
        """
        name = spec.name or type(spec).__name__
        if not isinstance(spec, StatefulSpec):
            raise self._no_state(name)
        self._check_ttl(name)
        keys = spec.key_columns()
        if keys and not set(self.keys) <= set(keys):
            raise PlanError(
                f"{name}() has the keys {', '.join(map(str, keys))}, but key_by() has divided the stream by {', '.join(self.keys)}",
                job=self._stream._job_name,
                plugin=name,
                hint="give key_by() and the operator the same columns",
            )
        return shuffled(self._stream, self.keys).apply(spec)

    def __getattr__(self, verb: str) -> Any:
        """Return a verb with state that a plug-in offers: ``key_by("k").name(…)`` makes its spec with the keys, then the arguments."""
        if verb.startswith("_"):
            raise AttributeError(verb)
        if not default_registry().has("operator", verb):
            raise no_verb("a keyed stream", type(self), verb)

        def append(*arguments: Any, **options: Any) -> Stream:
            made = default_registry().find("operator", verb)
            if not issubclass(made, StatefulSpec):
                raise self._no_state(verb)
            self._check_ttl(verb)
            return self._stateful(verb, self.keys, *arguments, **options)

        return append

    def window(self, window: Window, *, late: Duration | None = None, emit: Emit | None = None) -> WindowedStream:
        """Put the rows of each key into windows: ``window(hr.tumbling("10 s", on="ts"))``, then ``agg`` or ``reduce``.

        ``late`` is the delay of the watermark: how much older than the newest row a row may be without being late. It
        is used if the stream has no ``watermark(...)``. ``emit`` asks for results before and after the
        final one.
        """
        if not isinstance(window, Window):
            raise OptionError(f"{window!r} is not a window", option="window", hint='hr.tumbling("10 s", on="ts")')
        self._check_ttl("window", "a window is removed when it closes; late= says how long late rows are waited for")
        return WindowedStream(self._stream, self.keys, window, late, emit or Emit())

    def _no_state(self, verb: str) -> PlanError:
        return PlanError(
            f"{verb}() keeps no state, so it cannot be used behind key_by()",
            job=self._stream._job_name,
            plugin=verb,
            hint="put it before key_by(); if it does keep state, derive it from headrace.interfaces.operator.StatefulSpec",
        )

    def _check_ttl(self, verb: str, hint: str = "give the operator an option of its own") -> None:
        """Raise an error for a ``ttl`` that a verb does not support."""
        if self.state_ttl is not None:
            raise PlanError(
                f"{verb}() cannot be combined with ttl()",
                job=self._stream._job_name,
                plugin=verb,
                hint=hint,
            )

    def _stateful(self, verb: str, *arguments: Any, **options: Any) -> Stream:
        return shuffled(self._stream, self.keys).operator(verb, *arguments, **options)


@dataclass(frozen=True)
class WindowedStream:
    """A stream in windows. Made by ``window(...)``."""

    _stream: Stream
    keys: tuple[str, ...]
    window: Window
    late: Duration | None
    emit: Emit

    def agg(self, **aggregates: str) -> Stream:
        """Aggregate each key's rows per window: ``agg(n="count(*)", total="sum(v)")``.

        The result has the key columns, ``window_start``, ``window_end`` and one column per aggregate. With ``emit=…``
        it is a changelog whose column ``window_result`` is ``early``, ``final`` or ``update``. ``late()`` returns
        rows that came too late.
        """
        return self._stateful("window_aggregate", aggregates)

    def reduce(self, function: Any, *, schema: Mapping[str, Any] | None = None) -> Stream:
        """Combine the rows of each key and window in pairs with a Python function of two dicts."""
        return self._stateful("window_reduce", function, schema=schema)

    def __getattr__(self, verb: str) -> Any:
        if verb.startswith("_"):
            raise AttributeError(verb)
        raise AttributeError(f'a stream in windows has no {verb!r}; it needs agg(n="count(*)") or reduce(…) first')

    def _stateful(self, verb: str, *arguments: Any, **options: Any) -> Stream:
        stream = self._stream
        if self.window.on is not None:
            stream = with_watermark(stream, self.window.on, self.late)
        elif self.late is not None:
            raise OptionError("windows of processing time have no late rows", option="late")
        keyed = shuffled(stream, self.keys)
        return keyed.operator(verb, self.keys, self.window, *arguments, emit=self.emit, **options)


def keyed(stream: Stream, columns: Sequence[str], named: Mapping[str, Any]) -> KeyedStream:
    """Return the stream keyed by columns and expressions; called by ``stream.key_by``."""
    schema = _known_schema(stream)
    keys: list[str] = []
    for column in columns:
        if column in schema:
            keys.append(column)
            continue
        before = list(stream.schema or ())
        stream = stream.with_columns(column)
        added = [name for name in stream.schema or () if name not in before]
        keys += added
        if not added:
            raise PlanError(
                f"{column!r} does not name a new column", job=stream._job_name, hint="name it: key=expression"
            )
    if named:
        stream = stream.with_columns(**named)
        keys += list(named)
    return KeyedStream(stream, tuple(dict.fromkeys(keys)))


def no_verb(
    what: str, kind: type, verb: str, others: Sequence[str] = (), elsewhere: Mapping[str, str] = _NOTHING
) -> AttributeError:
    """Return the error for a verb that ``kind`` does not have. ``others``: names that it has beside its methods. ``elsewhere``: what
    to write instead of verbs that other libraries have.
    """
    package = default_registry().to_install("operator", verb)
    names = [*(name for name in dir(kind) if not name.startswith("_")), *others]
    hint = f"pip install {package}" if package else elsewhere.get(verb) or did_you_mean(verb, names, known="verbs")
    return AttributeError(f"{what} has no verb {verb!r}; {hint}")


def is_behind_shuffle(edge: Input) -> bool:
    """Return whether all rows of an edge have come through a shuffle, so that an operator with state may follow."""
    if isinstance(edge.node, ShuffleNode):
        return True
    return bool(edge.node.inputs) and all(is_behind_shuffle(each) for each in edge.node.inputs)


def shuffled(stream: Stream, keys: tuple[str, ...]) -> Stream:
    """Append a shuffle by key columns."""
    _check_columns(stream, keys)
    node = ShuffleNode(label="key_by", schema=stream.schema, sides=(stream._edge,), keys=(keys,))
    return replace(stream, _edge=Input(node))


def normalized(stream: Stream, key: tuple[str, ...], state_ttl: Duration | None) -> Stream:
    """Append a shuffle by the key of the changes, and the operator that compares each row with the last one of its
    key.
    """
    changes = stream.changes
    if changes is None:
        raise PlanError(
            "normalize_changes() needs a stream whose rows change, but rows of this stream are only added",
            job=stream._job_name,
            hint="deduplicate() keeps the last row of a key",
        )
    columns = key or changes.key
    if not columns:
        raise PlanError(
            "normalize_changes() needs the key of the table that changes",
            job=stream._job_name,
            hint="normalize_changes(['id'])",
        )
    if state_ttl is not None:
        microseconds(state_ttl, "state_ttl")
    return shuffled(stream, columns).operator("normalize_changes", columns, ttl=state_ttl)


def joined(left: Stream, right: Stream, keys: Sequence[tuple[str, str]], spec: OperatorSpec, label: str) -> Stream:
    """Send two streams to shards by their keys and append an operator with two inputs, ``"left"`` and ``"right"``."""
    left_keys, right_keys = tuple(pair[0] for pair in keys), tuple(pair[1] for pair in keys)
    _check_columns(left, left_keys)
    _check_columns(right, right_keys)
    node = ShuffleNode(
        label="key_by", sides=(left._edge, right._edge), keys=(left_keys, right_keys), side_names=("left", "right")
    )
    extras = {id(sink): sink for stream in (left, right) for sink in stream._extras}
    return replace(left, _edge=Input(node), _extras=tuple(extras.values()))._append(spec, label)


def with_watermark(stream: Stream, on: str, delay: Duration | None) -> Stream:
    """Return the stream with a watermark on a column, unless it has one: taken at the first point at which the column
    exists.

    So rows that a ``where`` drops move the watermark, too: event time advances even if no row matches.
    """
    if has_watermark(stream._edge):
        if delay is not None:
            raise OptionError(
                "the stream has a watermark already",
                job=stream._job_name,
                option="late",
                hint="call watermark() only once",
            )
        return stream
    if delay is not None:
        microseconds(delay, "late")
    _check_columns(stream, (on,))
    passed: list[OperatorNode] = []
    edge = stream._edge
    while isinstance(edge.node, OperatorNode) and edge.output == "" and edge.node.label in ("where", "filter"):
        passed.append(edge.node)
        edge = edge.node.input
    made = replace(stream, _edge=edge).operator(WATERMARK_VERB, on, **({} if delay is None else {"delay": delay}))
    for node in reversed(passed):
        made = replace(made, _edge=Input(replace(node, input=made._edge)))
    return made


def has_watermark(edge: Input) -> bool:
    """Return whether the rows on an edge carry watermarks."""
    node: Node = edge.node
    if isinstance(node, OperatorNode):
        return node.spec.event_time is not None or has_watermark(node.input)
    if isinstance(node, UnionNode | ShuffleNode):
        return all(has_watermark(each) for each in node.inputs)
    return False


def _check_columns(stream: Stream, columns: Sequence[str]) -> None:
    schema = _known_schema(stream)
    for column in columns:
        if column not in schema:
            raise PlanError(
                f"unknown column {column!r}",
                job=stream._job_name,
                hint=did_you_mean(column, list(schema), known="columns"),
            )


def _known_schema(stream: Stream) -> Schema:
    if stream.schema is None:
        raise PlanError(
            "the columns of the stream are not known here",
            job=stream._job_name,
            hint="give the map() before it an option schema={...}",
        )
    return stream.schema
