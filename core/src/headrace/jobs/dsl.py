"""The DSL: each verb adds a node to a plan. Nothing runs until a job is run.

Verbs call any installed plug-in: ``from_<name>``, ``to_<name>``, and operators by their own names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import MissingPluginError, OptionError, PlanError, did_you_mean, located
from headrace.interfaces import functions as user_functions
from headrace.interfaces.operator import StatefulSpec
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import Settings
from headrace.interfaces.sink import Sink, SinkSettings
from headrace.interfaces.source import Source, Start, StartAt
from headrace.interfaces.windows import Duration, Emit, Window
from headrace.jobs.given_options import OF_FROM, field_names, split_options, unknown_option
from headrace.jobs.job_names import check_job_name
from headrace.jobs.keyed import KeyedStream, WindowedStream, is_behind_shuffle, keyed, no_verb, normalized
from headrace.jobs.source_parts import codec_of, label_of, source_node, start_of
from headrace.plan.graph import (
    DeadLettersNode,
    Input,
    OperatorNode,
    SinkNode,
    UnionNode,
    changes_at,
    input_schema,
)

if TYPE_CHECKING:
    import polars as pl

    from headrace.interfaces.operator import Changes, OperatorSpec
    from headrace.jobs.job import Job


_IN_A_JOB = "a stream is run by its sink: stream.to_print().run()"
#: Names of verbs in other libraries, and what to write here instead.
_BY_OTHER_NAMES = {
    **dict.fromkeys(("run", "start"), _IN_A_JOB),
    **dict.fromkeys(("group_by", "groupby", "groupBy", "keyBy"), "write key_by(…).agg(…)"),
    **dict.fromkeys(("with_column", "withColumn", "assign"), "write with_columns(name='expression')"),
    **dict.fromkeys(("print", "sink", "write", "writeStream"), "a stream ends in to_<name>(…), such as to_print()"),
}


class FunctionCatalog(Mapping[str, user_functions.UserFunction]):
    """The user functions that a stream's expressions can name, by lower-case name.

    It looks first in the stream's own functions, then in those made by decorators, then in plug-ins. Its pickle
    contains only the functions that were used.
    """

    def __init__(self, own: Mapping[str, user_functions.UserFunction] | None = None) -> None:
        self._own = dict(own or {})
        self._used: dict[str, user_functions.UserFunction] = {}

    def __getitem__(self, name: str) -> user_functions.UserFunction:
        found = self._look_up(name.lower())
        if found is None:
            raise KeyError(name)
        self._used[name.lower()] = found
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._look_up(name.lower()) is not None

    def __iter__(self) -> Iterator[str]:
        return iter({**user_functions.decorated_functions(), **self._own})

    def __len__(self) -> int:
        return len({**user_functions.decorated_functions(), **self._own})

    @property
    def own(self) -> Mapping[str, user_functions.UserFunction]:
        """The stream's own functions. All other functions are the same for all streams of a process."""
        return self._own

    def with_function(self, name: str, function: user_functions.UserFunction) -> FunctionCatalog:
        """Return a catalog that has one more function, under this name; this one is not changed."""
        return FunctionCatalog({**self._own, name.lower(): function})

    def add(self, name: str, function: user_functions.UserFunction) -> None:
        """Add a function for this catalog's streams, including those that exist already."""
        self._own[name.lower()] = function

    def remove(self, name: str) -> None:
        """Remove one of this catalog's own functions, if there is one of this name."""
        self._own.pop(name.lower(), None)

    def _look_up(self, name: str) -> user_functions.UserFunction | None:
        found = self._own.get(name) or user_functions.decorated_functions().get(name)
        if found is not None:
            return found
        try:
            offered = default_registry().find("function", name)
        except MissingPluginError:
            return None
        return user_functions.resolve(offered, name=name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (FunctionCatalog, (dict(self._used),))


@dataclass(frozen=True)
class Pipeline:
    """The start of a job, made by ``headrace.stream(namespace, pipeline)``. Call ``from_<name>`` on it."""

    namespace: str
    pipeline: str
    functions: FunctionCatalog
    #: "dead_letters" or "stop"; None: as the namespace says.
    bad_records: str | None = None

    def from_(
        self,
        source: Source,
        *,
        format: str | None = None,
        schema: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        name: str | None = None,
        start: str | datetime | Start | StartAt | None = None,
        key: str | Sequence[str] | None = None,
        repeats: bool = False,
        normalize: bool = True,
        state_ttl: Duration | None = None,
        **format_options: Any,
    ) -> Stream:
        """Begin a stream with a source object.

        ``format`` names the codec of the bodies and ``schema`` their columns (type names, Python or polars types);
        ``metadata`` adds columns from the header: ``{"partition": "queue", "at": "time"}``. ``start`` is the position
        at which queues without a checkpoint start. Raises JobError if options, format and schema do not fit together.

        For sources and formats whose rows change: ``key`` names the primary key of the table. ``repeats`` says that
        changes may come more than once. If they may, or if old rows do not come with new ones, the last row of each
        key is kept as state, and is forgotten ``state_ttl`` after its last change. With ``normalize=False`` that is
        left to a later ``normalize_changes``: until then only verbs that work on each row alone can follow.
        """
        label = name or label_of(source, "source")
        settings = source.settings
        if isinstance(settings, Settings):
            settings.check_types(plugin=label)
        source.start = start_of(source, start)
        codec = codec_of(format, format_options)
        node, changes = source_node(
            self, source, label, codec, format, schema=schema, metadata=metadata, key=key, repeats=repeats
        )
        stream = Stream(self, Input(node))
        if changes is None or not changes.needs_normalizing or not normalize:
            return stream
        return stream.normalize_changes(changes.key or (), state_ttl=state_ttl)

    def __getattr__(self, verb: str) -> Callable[..., Stream]:
        if not verb.startswith("from_") or verb == "from_":
            raise AttributeError(f"a pipeline has no {verb!r}: start it with from_<name>(...)")
        plugin = verb.removeprefix("from_")

        def from_plugin(
            *arguments: Any,
            format: str | None = None,
            schema: Mapping[str, Any] | None = None,
            metadata: Mapping[str, str] | None = None,
            name: str | None = None,
            **options: Any,
        ) -> Stream:
            with located(job=f"{self.namespace}.{self.pipeline}"):
                source_class = default_registry().find("source", plugin)
                own, others = split_options(source_class.Settings, plugin, arguments, options)
                begin = {each: others.pop(each) for each in OF_FROM if each in others}
                of_format = default_registry().find("codec", format).Settings if others and format else None
                declared = (source_class.Settings, *([of_format] if of_format is not None else ()))
                for option in others:
                    if of_format is None or option not in field_names(of_format):
                        raise unknown_option(plugin, option, *declared, spellings=source_class.table_options)
                source = source_class(source_class.Settings.of(own, plugin=plugin))
                return self.from_(
                    source, format=format, schema=schema, metadata=metadata, name=name or plugin, **begin, **others
                )

        return from_plugin


@dataclass(frozen=True)
class Stream:
    """A stream of rows at one point of a job. Immutable: every verb returns a new stream."""

    _pipeline: Pipeline
    _edge: Input
    #: Sinks that were attached to earlier points of the stream; they belong to the job, too.
    _extras: tuple[SinkNode, ...] = ()

    @property
    def schema(self) -> Schema | None:
        """The columns at this point, or None if they are known only row by row (after ``map`` without a schema)."""
        return input_schema(self._edge)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline with which the stream began: the names of the job, and the functions that expressions can
        call.
        """
        return self._pipeline

    @property
    def edge(self) -> Input:
        """The place of the stream in the plan that is being built. For languages, and for operators that take whole
        streams.
        """
        return self._edge

    @property
    def changes(self) -> Changes | None:
        """Whether the rows change earlier results, and by which key. None: rows are only added."""
        return changes_at(self._edge)

    @property
    def columns(self) -> list[str]:
        """The names of the columns at this point; none if they are known only row by row."""
        return list(self.schema or ())

    # ------------------------------------------------------------------------------------------------- rows as frames

    def collect(self, backend: str = "light", *, changes: bool = False, **options: Any) -> pl.DataFrame:
        """Run to the end of the present input and return the rows as a polars frame.

        Of a changelog the final rows are returned; with ``changes``, each change is a row with its kind in the last
        column, ``op`` (``+I``, ``-U``, ``+U``, ``-D``). For bounded input that fits into memory. How many records
        became dead letters is said in the log. ``options`` are those of ``run``. Raises JobError as ``run`` does.
        """
        from headrace.jobs.collecting import collect_all, materialized, with_kinds

        made = collect_all({"rows": self}, backend, **options)["rows"]
        return with_kinds(made) if changes else materialized(made)

    def head(self, rows: int = 10, backend: str = "light", **options: Any) -> pl.DataFrame:
        """Return the first rows, and stop reading then. Of a changelog, read everything and return the first of the
        final rows.
        """
        from headrace.jobs.collecting import first_rows

        if self.changes is not None:
            return self.collect(backend, **options).head(rows)
        return first_rows(self, rows, backend, **options)

    def show(self, rows: int = 10, backend: str = "light", **options: Any) -> None:
        """Print the first rows."""
        print(self.head(rows, backend, **options))

    def __repr__(self) -> str:
        known = (
            "columns unknown"
            if self.schema is None
            else ", ".join(f"{n}: {type_name(k)}" for n, k in self.schema.items())
        )
        shown = known if len(known) <= 200 else known[:199] + "…"
        return f"<stream of {self._job_name}{', changing' if self.changes is not None else ''}: {shown}>"

    def _repr_html_(self) -> str:
        """Return the columns as a table, for notebooks. Nothing runs."""
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(type_name(kind))}</td></tr>"
            for name, kind in (self.schema or {}).items()
        )
        title = escape(f"stream of {self._job_name}{', changing' if self.changes is not None else ''}")
        return f"<table><caption>{title}</caption><tr><th>column</th><th>type</th></tr>{rows}</table>"

    # ---------------------------------------------------------------------------------------------- verbs: rows

    def where(self, predicate: str | pl.Expr) -> Stream:
        """Keep the rows for which a SQL expression or polars expression is true (not false, not NULL)."""
        return self.operator("where", predicate)

    def filter(self, predicate: str | pl.Expr | Callable[[dict[str, Any]], Any]) -> Stream:
        """Like ``where``; also takes a Python function of a row (a dict)."""
        if isinstance(predicate, str) or not callable(predicate):
            return self.where(predicate)
        return self.operator("filter", predicate)

    def select(self, *columns: str | pl.Expr, **named: str | pl.Expr) -> Stream:
        """Keep only these columns: names, SQL expressions (``"a + b AS c"``), or ``name=expression``."""
        return self.operator("select", *columns, **named)

    def with_columns(self, *columns: str | pl.Expr, **named: str | pl.Expr) -> Stream:
        """Add or replace columns. All expressions see the columns as they were before."""
        return self.operator("with_columns", *columns, **named)

    def drop(self, *columns: str) -> Stream:
        """Remove columns."""
        return self.operator("drop", *columns)

    def rename(self, mapping: Mapping[str, str] | None = None, /, **names: str) -> Stream:
        """Rename columns: ``rename({"old": "new"})`` or ``rename(old="new")``."""
        return self.operator("rename", {**(mapping or {}), **names})

    def map(self, function: Any, *, schema: Mapping[str, Any] | None = None) -> Stream:
        """Replace each row (a dict) by the dict that a Python function returns for it. None drops the row.

        With ``schema`` (or a TypedDict or dataclass as the function's return annotation) the new columns are
        known and checked. Without it each row keeps its own keys and types, and later expressions are checked
        while the job runs, for each combination of keys and types.
        """
        return self.operator("map", function, schema=schema)

    def flat_map(self, function: Any, *, schema: Mapping[str, Any] | None = None) -> Stream:
        """Replace each row by any number of rows: the function returns or yields dicts."""
        return self.operator("flat_map", function, schema=schema)

    def map_batches(
        self, function: Callable[[pl.DataFrame], pl.DataFrame], *, schema: Mapping[str, Any] | None = None
    ) -> Stream:
        """Replace the columns of a whole batch by a function of a polars frame. The function must keep the number and order of rows.

        ``schema`` gives the columns that it returns. Without it the function must return the columns that it was given.
        """
        return self.operator("map_batches", function, schema=schema)

    def for_each(self, function: Callable[[dict[str, Any]], Any]) -> Stream:
        """Call a function for each row and pass the row on unchanged. After a crash it may be called again: at least once."""
        return self.operator("for_each", function)

    def script(self, text: str) -> Stream:
        """Run assignments and conditions, one statement after the other, each seeing the ones before it."""
        return self.operator("script", text)

    def operator(self, verb: str, *arguments: Any, **options: Any) -> Stream:
        """Append the operator that a plug-in offers as a verb: as ``stream.<verb>(...)``, but also if the class has a
        method of that name. For languages; state needs a shuffle before it (``headrace.jobs.keyed.shuffled``).
        """
        spec_class = default_registry().find("operator", verb)
        if spec_class.takes_functions:
            options["functions"] = self._pipeline.functions
        try:
            with located(job=self._job_name, plugin=verb):
                if spec_class.is_composed:
                    composed: Stream = spec_class.of_stream(self, *arguments, **options)
                    return composed
                spec = spec_class(*arguments, **options)
        except TypeError as error:
            raise OptionError(f"{verb}: {error}", job=self._job_name, plugin=verb) from error
        return self._append(spec, verb)

    def apply(self, spec: OperatorSpec) -> Stream:
        """Append an operator object."""
        return self._append(spec, spec.name or type(spec).__name__)

    # --------------------------------------------------------------------------------------------- verbs: shape

    def union(self, *others: Stream) -> Stream:
        """Merge streams with the same columns. Rows of one queue keep their order, and duplicates are kept."""
        streams = (self, *others)
        schemas = [stream.schema for stream in streams]
        first = schemas[0]
        for schema in schemas[1:]:
            if (schema is None) != (first is None) or (
                schema is not None and first is not None and dict(schema) != dict(first)
            ):
                raise PlanError(
                    f"union of streams with different columns: {first!r} and {schema!r}",
                    job=self._job_name,
                    hint="give all streams the same columns with select() before the union",
                )
        node = UnionNode(label="union", schema=first, merged=tuple(stream._edge for stream in streams))
        extras = {id(sink): sink for stream in streams for sink in stream._extras}
        return Stream(self._pipeline, Input(node), tuple(extras.values()))

    def split(self, **branches: str | pl.Expr) -> Branches:
        """Divide the stream: each row goes to the first branch whose condition is true, else to ``rest``.

        ``found = stream.split(errors="status >= 500", slow="ms > 1000")``, then ``found.errors``, ``found.slow`` and
        ``found.rest`` are streams.
        """
        appended = self.operator("split", **branches)
        node = appended._edge.node
        assert isinstance(node, OperatorNode)
        return Branches(
            {output: replace(appended, _edge=Input(node, output)) for output in node.spec.outputs}, self._job_name
        )

    def dead_letters(self, route: Callable[[Stream], Job] | None = None) -> Stream:
        """Return the bad records of the job as a stream (see docs/jobs.md for its columns).

        With ``route``, a function that ends the stream of bad records in a sink, this stream is returned:
        ``.dead_letters(lambda bad: bad.to_file("bad"))``. Without it the stream of bad records is returned.
        """
        from headrace.flow.dead_letters import dead_letter_schema

        node = DeadLettersNode(label="dead_letters", schema=dead_letter_schema())
        bad = Stream(self._pipeline, Input(node))
        if route is None:
            return bad
        return replace(self, _extras=(*self._extras, *route(bad).sink_nodes))

    # --------------------------------------------------------------------------------------------- verbs: state

    def key_by(self, *columns: str, **named: str | pl.Expr) -> KeyedStream:
        """Send rows to shards by a key: columns, SQL expressions, or ``name=expression``. Without a column all rows have one key."""
        return keyed(self, columns, named)

    def window(self, window: Window, *, late: Duration | None = None, emit: Emit | None = None) -> WindowedStream:
        """Put all rows into windows, without a key; see ``KeyedStream.window``."""
        return self.key_by().window(window, late=late, emit=emit)

    def agg(self, **aggregates: str) -> Stream:
        """Keep running aggregates over all rows; see ``KeyedStream.agg``."""
        return self.key_by().agg(**aggregates)

    def distinct(self, *columns: str) -> Stream:
        """Keep the first of the rows that are equal in these columns (default: in all)."""
        return self.key_by(*(columns or self.schema or ())).distinct()

    def normalize_changes(self, key: str | Sequence[str] = (), *, state_ttl: Duration | None = None) -> Stream:
        """Turn changes that may come twice, or lack their old rows, into a complete changelog, by the last row of each
        key.

        ``from_`` calls it if a source needs it. Without ``key`` it is the key of the changes. The row of a key is
        kept as state, and forgotten ``state_ttl`` after its last change.
        """
        return normalized(self, (key,) if isinstance(key, str) else tuple(key), state_ttl)

    def late(self) -> Stream:
        """Return the rows that came too late for the window operator before this stream."""
        node = self._edge.node
        if not isinstance(node, OperatorNode) or "late" not in node.spec.outputs:
            raise PlanError("only the result of a window operator has late rows", job=self._job_name)
        return replace(self, _edge=Input(node, "late"), _extras=())

    def join(self, other: Stream, on: Any, **options: Any) -> Stream:
        """Join with another stream: on equal columns, within a time bound or the same window (``headrace_stateful.joins.join``).

        ``on``: a column, several, or ``{"left column": "right column"}``. Options: ``how``, ``within``, ``window``,
        ``time``, ``suffix``.
        """
        with located(job=self._job_name, plugin="join"):
            made: Stream = default_registry().find("operator", "join").of_streams(self, other, on, **options)
        return made

    # --------------------------------------------------------------------------------------------- verbs: sinks

    def to(self, sink: Sink, *, name: str | None = None) -> Job:
        """End the stream in a sink object."""
        from headrace.jobs.job import Job

        schema = self.schema
        label = name or f"to_{label_of(sink, 'sink')}"
        if not isinstance(sink.settings, SinkSettings):
            raise OptionError(
                f"the settings of the sink are {sink.settings!r:.100}, not SinkSettings",
                job=self._job_name,
                plugin=label,
                hint="set self.settings in __init__ to an object made by Settings.of({...}), or do not set it",
            )
        sink.settings.check_types(plugin=label)
        sink.check(schema)
        node = SinkNode(label=label, schema=schema, sink=sink, input=self._edge)
        return Job(self, (node, *self._extras))

    def to_dataframe(self, session: Any = None, **options: Any) -> Any:
        """Return the rows as a DataFrame of Spark, streaming or batch, for any query of yours; needs headrace-spark.

        ``session`` is the SparkSession that it belongs to, which a stream that began with ``from_dataframe`` knows
        already. For the options see docs/dataframes.md. Raises JobError if the stream has an error.
        """
        from headrace.jobs.job import DEFAULT_BACKEND

        return default_registry().find("backend", DEFAULT_BACKEND).to_dataframe(self, session, **options)

    def print(self, **options: Any) -> Job:
        """Print the rows; the same as ``to_print``."""
        return self._to_plugin("print", (), options)

    def __getattr__(self, verb: str) -> Any:
        if verb.startswith("_"):
            raise AttributeError(verb)
        if verb.startswith("to_"):
            return lambda *arguments, **options: self._to_plugin(verb.removeprefix("to_"), arguments, options)
        if verb.startswith("from_"):
            raise AttributeError(
                f"{verb}: a stream has one source; start another stream from the pipeline, and union the two"
            )
        if not default_registry().has("operator", verb):
            raise no_verb("a stream", type(self), verb, list(default_registry().names("operator")), _BY_OTHER_NAMES)
        return lambda *arguments, **options: self.operator(verb, *arguments, **options)

    # -------------------------------------------------------------------------------------------------- private

    @property
    def _job_name(self) -> str:
        return f"{self._pipeline.namespace}.{self._pipeline.pipeline}"

    def _to_plugin(self, plugin: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Job:
        with located(job=self._job_name):
            sink_class = default_registry().find("sink", plugin)
            given = dict(options)
            name = given.pop("name", None)
            own, others = split_options(sink_class.Settings, plugin, arguments, given)
            for option in others:
                spellings = sink_class.table_options
                raise unknown_option(plugin, option, sink_class.Settings, spellings=spellings, of_streams=False)
            return self.to(sink_class(sink_class.Settings.of(own, plugin=plugin)), name=name or f"to_{plugin}")

    def _append(self, spec: OperatorSpec, label: str) -> Stream:
        before = self.schema
        if isinstance(spec, StatefulSpec) and not is_behind_shuffle(self._edge):
            # In the lane of a queue it would get only the rows of that queue, and its state would be lost with the
            # process.
            raise PlanError(
                f"{label}() keeps state by key, but this stream is not divided by key",
                job=self._job_name,
                plugin=label,
                hint=f"stream.key_by('column').{label}(…), or key_by('column').apply(…) of an operator object",
            )
        with located(job=self._job_name, plugin=label):
            after = spec.output_schema(before)
        node = OperatorNode(label=label, schema=after, spec=spec, input=self._edge)
        return replace(self, _edge=Input(node))


class Branches(Mapping[str, Stream]):
    """The streams that ``split`` returns. Read one as an attribute or by its name."""

    def __init__(self, streams: Mapping[str, Stream], job: str) -> None:
        self._streams = dict(streams)
        self._job = job

    def __getitem__(self, name: str) -> Stream:
        return self._streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def __getattr__(self, name: str) -> Stream:
        if name.startswith("_") or name not in self._streams:
            raise AttributeError(
                f"split has no branch {name!r}; " + did_you_mean(name, self._streams, known="branches")
            )
        return self._streams[name]


def stream(
    namespace: str,
    pipeline: str,
    *,
    functions: Mapping[str, Any] | Iterable[Any] = (),
    bad_records: str | None = None,
) -> Pipeline:
    """Begin a job. ``namespace`` groups jobs that share settings, ``pipeline`` names this one.

    ``functions``: user functions for its expressions, made by decorators, or ``{name: function}`` where the function
    is a callable, ``"package.module:name"`` or an object with ``eval``. ``bad_records``: what happens to a record
    that cannot be processed: ``"dead_letters"`` (the default) or ``"stop"``.
    """
    check_job_name(namespace, pipeline)
    if bad_records not in (None, "dead_letters", "stop"):
        raise OptionError(f"unusable value {bad_records!r}: 'dead_letters' or 'stop'", option="bad_records")
    if isinstance(functions, Mapping):
        own = {name.lower(): user_functions.resolve(what, name=name) for name, what in functions.items()}
    else:
        resolved = [user_functions.resolve(what) for what in functions]
        own = {function.name.lower(): function for function in resolved}
    return Pipeline(namespace, pipeline, FunctionCatalog(own), bad_records)
