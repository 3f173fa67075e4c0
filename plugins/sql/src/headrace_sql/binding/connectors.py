"""WITH options of Flink's and Blink's tables as sources and sinks of headrace.

Every option is either mapped, or known to have no meaning here (then a notice says so), or refused with the nearest name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import option_fields
from headrace.interfaces.table_options import TableOptions
from sqlglot import exp

from headrace_sql.binding import json_maps
from headrace_sql.binding.notices import Notices
from headrace_sql.binding.scope import error_at
from headrace_sql.binding.tables import Option, Table
from headrace_sql.reading.durations import duration_us

if TYPE_CHECKING:
    from headrace.interfaces.sink import Sink
    from headrace.jobs.dsl import Pipeline, Stream
    from headrace.jobs.job import Job


_LEGACY = {"connector.type": "connector", "connector.path": "path", "connector.topic": "topic", "format.type": "format"}
_FORMATS = {
    "json": "json",
    "csv": "csv",
    "raw": "raw",
    "parquet": "parquet",
    "debezium-json": None,
    "canal-json": None,
    "avro": None,
}
#: How long a table that is looked up may be kept; Blink's is in milliseconds.
REFRESH_OPTIONS = ("lookup.cache.ttl", "lookup.partial-cache.expire-after-write", "cacheTTLMs")


def refresh_of(table: Table | None) -> timedelta | None:
    """Return after how long a table that rows are looked up in is read anew; None: never. Raises ExpressionError."""
    for key in REFRESH_OPTIONS if table is not None else ():
        assert table is not None
        option = table.options.get(key)
        if option is None:
            continue
        try:
            length_us = duration_us(option.value, key)
        except OptionError as error:
            raise error_at(option.node, table.text, f"option {key!r}: {error.message}", error.hint) from error
        return timedelta(microseconds=length_us) if length_us else None
    return None


@dataclass(frozen=True)
class Connector:
    """What a table's text says of its connector."""

    #: As the text names it, in lower case.
    name: str
    #: The source and sink of this name.
    plugin: str
    #: The other options of the table.
    options: Mapping[str, Option]
    #: Where mistakes in the name are shown.
    node: exp.Expr

    def offered(self, kind: str) -> TableOptions | None:
        """Return what the plug-in's source or sink (``kind``) declares for tables; None when there is none for this name."""
        if not default_registry().has(kind, self.plugin):
            return None
        declared: Mapping[str, TableOptions] = default_registry().find(kind, self.plugin).table_options
        return declared.get(self.name, TableOptions() if self.name == self.plugin else None)


def connector_of(table: Table, kind: str) -> Connector:
    """Return a table's connector as ``"source"`` or ``"sink"``. Raises ExpressionError for an unknown one."""
    options = {_LEGACY.get(key, key): option for key, option in table.options.items()}
    chosen = options.pop("connector", None) or options.pop("type", None)
    if chosen is None and "topic" in options:
        # rsqldb's short form: a topic, and the name server from elsewhere
        return Connector("rocketmq", "rocketmq", options, table.node.this.this)
    if chosen is None:
        raise error_at(
            table.node.this.this,
            table.text,
            f"table {table.name!r} says no connector",
            "WITH ('connector' = 'kafka', …)",
        )
    name = chosen.value.lower()
    return Connector(name, _plugin_of(name, chosen, table, kind), options, chosen.node)


def _plugin_of(name: str, chosen: Option, table: Table, kind: str) -> str:
    """Return the plug-in that a connector's name means. Raises ExpressionError, or MissingPluginError saying what to install."""
    registry = default_registry()
    if registry.has("connector", name):
        return str(registry.find("connector", name))
    if registry.has("source", name) or registry.has("sink", name):
        return name
    for each in (kind, "source", "sink", "connector"):
        if registry.to_install(each, name) is not None:
            registry.find(each, name)  # raises, saying what to install
    known = [*registry.names("connector"), *registry.names("source"), *registry.names("sink")]
    hint = did_you_mean(name, known, known="connectors")
    raise error_at(chosen.node, table.text, f"unknown connector {chosen.value!r}", hint)


def mapped_options(
    notices: Notices, table: Table, kind: str
) -> tuple[Connector, TableOptions, dict[str, Any], dict[str, Any]]:
    """Return the connector of a table as ``"source"`` or ``"sink"``, what it declares, its options, and those of the format.

    Raises ExpressionError.
    """
    connector = connector_of(table, kind)
    name, declared = connector.name, connector.offered(kind)
    other_kind = "sink" if kind == "source" else "source"
    refused = declared if declared is not None else connector.offered(other_kind)
    if refused is not None and refused.refused is not None:
        raise error_at(connector.node, table.text, f"connector {name!r}: {refused.refused}")
    if declared is None:
        what = "read from" if kind == "source" else "written to"
        raise error_at(table.node.this.this, table.text, f"table {table.name!r} cannot be {what}: connector {name!r}")
    settings = default_registry().find(kind, connector.plugin).Settings
    fields = {each.encode_name: each for each in option_fields(settings)}
    made: dict[str, Any] = {}
    format_options: dict[str, Any] = {}
    for key, option in connector.options.items():
        target = declared.options.get(key)
        plain = key.replace("-", "_")
        if callable(target):
            made |= _called(target, option, table)
        elif target is not None:
            made[target] = option.value
        elif key in REFRESH_OPTIONS and kind == "source":
            refresh_of(table)
        elif key == "format" or key == "value.format":
            made["format"] = _format(option, table)
        elif _format_option(notices, key, option, format_options, table):
            continue
        elif plain in fields:
            made[plain] = option.value
        elif key in declared.unused:
            notices.add_once(f"table {table.name!r}: option {key!r} has no effect here: {declared.unused[key]}")
        elif _with_prefix(declared, key, option, made) or _is_known(connector.offered(other_kind), key):
            continue
        else:
            names = [*declared.options, *declared.unused, *fields, "format"]
            raise error_at(
                option.node,
                table.text,
                f"connector {name!r} has no option {key!r}",
                did_you_mean(key, names, known="options"),
            )
    return connector, declared, made, format_options


def _with_prefix(declared: TableOptions, key: str, option: Option, made: dict[str, Any]) -> bool:
    """Take an option that belongs to one that holds several. Returns whether it is such."""
    for prefix, target in declared.prefixes.items():
        if key.startswith(prefix):
            made.setdefault(target, {})[key.removeprefix(prefix)] = option.value
            return True
    return False


def _is_known(declared: TableOptions | None, key: str) -> bool:
    """Return whether an option is one of the table's other direction: of no effect for this one."""
    return declared is not None and key in declared.options


@dataclass(frozen=True)
class Refused:
    """An option that would change rows, unless it has this value."""

    taken: str
    why: str
    hint: str


_BAD_RECORDS = (
    "a record that cannot be parsed goes to the dead letters as a whole, whether it says true or false; "
    "bad_records='stop' lets it end the job"
)
#: Options of formats: refused, of no effect for the reason given, or heeded without a word.
_FORMAT_OPTIONS: Mapping[str, Refused | str] = {
    "json.ignore-parse-errors": _BAD_RECORDS,
    "csv.ignore-parse-errors": _BAD_RECORDS,
    "json.fail-on-missing-field": Refused(
        "false",
        "a field that is missing is NULL",
        "leave it out, and WHERE field IS NOT NULL for those that must be there",
    ),
    "csv.allow-comments": Refused("false", "a line that begins with # is a record", "WHERE first_column NOT LIKE '#%'"),
    # Both forms are read, whatever it says.
    "json.timestamp-format.standard": "",
    "json.encode.decimal-as-plain-number": "",
}


def _called(target: Callable[[str], Mapping[str, Any]], option: Option, table: Table) -> Mapping[str, Any]:
    try:
        return target(option.value)
    except ValueError as error:
        raise error_at(option.node, table.text, f"option {option.key!r} = {option.value!r}: {error}") from error


def _format(option: Option, table: Table) -> str:
    word = _FORMATS.get(option.value.lower())
    if word is None:
        known = [name for name, made in _FORMATS.items() if made]
        raise error_at(
            option.node,
            table.text,
            f"format {option.value!r} is not supported",
            did_you_mean(option.value, known, known="formats"),
        )
    return word


def _format_option(notices: Notices, key: str, option: Option, made: dict[str, Any], table: Table) -> bool:
    """Take an option of a format. Returns whether it is one. Raises ExpressionError for one that would change the rows."""
    names = {"csv.field-delimiter": "delimiter", "csv.quote-character": "quote", "csv.null-literal": "null_value"}
    if key in names:
        made[names[key]] = option.value
        return True
    if key not in _FORMAT_OPTIONS:
        return False
    value, what = option.value.strip().lower(), _FORMAT_OPTIONS[key]
    if isinstance(what, Refused):
        if value != what.taken:
            raise error_at(
                option.node, table.text, f"{key!r} = {option.value!r} is not supported: {what.why}", what.hint
            )
        return True
    if what:
        notice = f"table {table.name!r}: option {key!r} has no effect here: {what}"
        notices.add_once(notice)
    return True


def source_stream(pipeline: Pipeline, notices: Notices, table: Table, name: str | None = None) -> Stream:
    """Begin the stream of a table: its source with the columns that it declares, called like the table or otherwise."""

    connector, declared, options, format_options = mapped_options(notices, table, "source")
    plugin = connector.plugin
    format_name = options.pop("format", None)
    source_class = default_registry().find("source", plugin)
    if declared.columns_option is not None:
        options[declared.columns_option] = {name: type_name(kind) for name, kind in table.columns.items()}
    elif format_name is None:
        format_name = declared.format
    fields = {
        "timestamp": "time",
        "partition": "queue",
        "offset": "offset",
        "key": "key",
        "headers": "headers",
        "topic": "source",
    }
    metadata = {}
    for column, what in table.metadata.items():
        if what not in fields:
            raise error_at(
                table.node.this.this,
                table.text,
                f"METADATA column {column!r}: unknown field {what!r}",
                did_you_mean(what, fields, known="fields"),
            )
        metadata[column] = fields[what]
    if table.headers:
        metadata["__headers"] = "headers"
    start = options.pop("start", None)
    source = source_class(source_class.Settings.of(_converted(source_class.Settings, options), plugin=plugin))
    schema = Schema(table.columns) if format_name is not None else None
    if format_name == "json":
        schema = json_maps.declared_as_text(table.columns)
    stream = pipeline.from_(
        source,
        format=format_name,
        schema=schema,
        metadata=metadata,
        name=name or table.name,
        start=start,
        **format_options,
    )
    if format_name == "json":
        stream = json_maps.with_maps(stream, table.columns)
    for column in table.headers:
        stream = stream.with_columns(**{column: f"json_value(\"__headers\", '$.{column}')"})
    return stream.drop("__headers") if table.headers else stream


def _converted(settings: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options whose texts are numbers and booleans where the plug-in declares such."""
    made = {}
    for each in option_fields(settings):
        if each.encode_name not in options:
            continue
        value = options[each.encode_name]
        declared = str(each.type)
        if isinstance(value, str) and "Secret" not in declared and "str" not in declared.replace("strict", ""):
            if re.search(r"\bbool\b", declared) and value.lower() in ("true", "false"):
                value = value.lower() == "true"
            elif re.search(r"\bint\b", declared) and re.fullmatch(r"-?\d+", value):
                value = int(value)
        made[each.encode_name] = value
    return made


def sink_job(
    notices: Notices, table: Table, stream: Stream, name: str, by_key: Callable[[Stream, Sink, Table], Stream]
) -> Job:
    """End a stream in a table's sink. ``by_key`` returns what the sink is given, known by the table's primary key."""
    connector, declared, options, format_options = mapped_options(notices, table, "sink")
    plugin = connector.plugin

    sink_class = default_registry().find("sink", plugin)
    settings = sink_class.Settings
    fields = {each.encode_name for each in option_fields(settings)}
    if "format" not in fields:
        options.pop("format", None)
    if options.get("format", "json") == "json" and {"format", "format_options"} <= fields:
        stream, maps = json_maps.with_texts(stream)
        if maps:
            format_options["json_columns"] = tuple(maps)
    elif "json_columns" in fields:  # it writes JSON, whatever it is given
        stream, maps = json_maps.with_texts(stream)
        options["json_columns"] = tuple(maps)
    if format_options and "format_options" in fields:
        options["format_options"] = format_options
    if table.primary_key:
        options = {**declared.with_key(table.primary_key), **options}
    if table.partitioned:
        notice = f"table {table.name!r}: rows of all partitions are written to one directory, with the partition columns in them"
        notices.add_once(notice)
    try:
        sink = sink_class(settings.of(_converted(settings, options), plugin=plugin))
    except OptionError as error:
        error.job = error.job or f"{stream.pipeline.namespace}.{stream.pipeline.pipeline}"
        raise
    return by_key(stream, sink, table).to(sink, name=name)
