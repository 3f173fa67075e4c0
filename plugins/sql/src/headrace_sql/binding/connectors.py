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
from headrace.foundation.errors import OptionError, did_you_mean, located
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import option_fields
from headrace.interfaces.table_options import TableOptions
from sqlglot import exp

from headrace_sql.binding import formats, json_maps, partitions
from headrace_sql.binding.idleness import WATERMARK_OPTIONS
from headrace_sql.binding.notices import Notices
from headrace_sql.binding.scope import error_at
from headrace_sql.binding.tables import Option, Table

if TYPE_CHECKING:
    from headrace.interfaces.sink import Sink
    from headrace.interfaces.source import Source
    from headrace.jobs.dsl import Pipeline, Stream
    from headrace.jobs.job import Job


_LEGACY = {"connector.type": "connector", "connector.path": "path", "connector.topic": "topic", "format.type": "format"}
#: How long a table that is looked up may be kept; Blink's is in milliseconds.
REFRESH_OPTIONS = ("lookup.cache.ttl", "lookup.partial-cache.expire-after-write", "cacheTTLMs")


def refresh_of(table: Table | None) -> timedelta | None:
    """Return the interval at which a lookup table is read again; None: never. Raises ExpressionError."""
    key = next((each for each in REFRESH_OPTIONS if table is not None and each in table.options), None)
    length_us = None if table is None or key is None else table.length_us(key)
    return timedelta(microseconds=length_us) if length_us else None


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
        """Return the declaration for tables of the plug-in's source or sink (``kind``); None if there is none for this name."""
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
            f"table {table.name!r} has no connector",
            "WITH ('connector' = 'kafka', …)",
        )
    name = _by_url(chosen.value.lower(), options.get("url"))
    return Connector(name, _plugin_of(name, chosen, table, kind), options, chosen.node)


def _by_url(name: str, url: Option | None) -> str:
    """Return the connector's name with the kind of server that its URL has, where a plug-in offers that: ``jdbc:postgresql``."""
    found = None if url is None else re.match(r"(\w+:\w+):", url.value.lower())
    if found is None or found[1].split(":")[0] != name:
        return name
    registry = default_registry()
    known = registry.has("connector", found[1]) or registry.to_install("connector", found[1]) is not None
    return found[1] if known else name


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
    format_name = formats.name_of(connector.options, table)
    if format_name is not None:
        made["format"] = format_name
    for key, option in connector.options.items():
        target = declared.options.get(key)
        plain = key.replace("-", "_")
        if callable(target):
            made |= _called(target, option, table)
        elif target is not None:
            made[target] = option.value
        elif key in REFRESH_OPTIONS and kind == "source":
            refresh_of(table)
        elif key in WATERMARK_OPTIONS:
            unused = WATERMARK_OPTIONS[key]
            if unused is not None:
                notices.add_once(f"table {table.name!r}: option {key!r} has no effect here: {unused}")
        elif key in formats.NAMES or formats.take_option(notices, key, option, format_name, format_options, table):
            continue
        elif plain in fields:
            made[plain] = option.value
        elif key in declared.unused:
            notices.add_once(f"table {table.name!r}: option {key!r} has no effect here: {declared.unused[key]}")
        elif _with_prefix(declared, key, option, made) or _is_known(connector, other_kind, key):
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


def _is_known(connector: Connector, other_kind: str, key: str) -> bool:
    """Return whether an option is one of the table's other direction: of no effect for this one."""
    declared = connector.offered(other_kind)
    if declared is None:
        return False
    settings = default_registry().find(other_kind, connector.plugin).Settings
    return key in declared.options or key.replace("-", "_") in {each.encode_name for each in option_fields(settings)}


def _called(target: Callable[[str], Mapping[str, Any]], option: Option, table: Table) -> Mapping[str, Any]:
    try:
        return target(option.value)
    except ValueError as error:
        raise error_at(option.node, table.text, f"option {option.key!r} = {option.value!r}: {error}") from error


def source_watermark_hint(table: Table) -> str | None:
    """Return the hint to set the source's option ``time-delay``; None if the source has no such option."""
    settings = default_registry().find("source", connector_of(table, "source").plugin).Settings
    if "time_delay" not in {each.encode_name for each in option_fields(settings)}:
        return None
    return "give 'time-delay' = '5 s': by how much times in a queue may decrease ('0 s' if the broker sets them)"


@dataclass(frozen=True)
class TableStream:
    """The stream of a table's source."""

    stream: Stream
    source: Source
    #: Whether its changes must be normalised by key, behind computed columns and watermark.
    normalizes: bool


def source_stream(
    pipeline: Pipeline, notices: Notices, table: Table, name: str | None = None, *, repeats: bool = False
) -> TableStream:
    """Begin the stream of a table: its source with the columns that it declares, called like the table or otherwise.

    ``repeats``: changes may come more than once.
    """

    connector, declared, options, format_options = mapped_options(notices, table, "source")
    plugin = connector.plugin
    format_name = options.pop("format", None)
    source_class = default_registry().find("source", plugin)
    by_queue = table.partitioned if declared.with_partitions is not None else ()
    if declared.with_partitions is not None and by_queue:
        options = {**declared.with_partitions(by_queue), **options}
    if declared.columns_option is not None:
        options[declared.columns_option] = {name: type_name(kind) for name, kind in table.columns.items()}
    elif format_name is None:
        format_name = declared.format
    if declared.upserts:
        format_name, format_options = formats.as_upserts(format_name, format_options, options, table)
    elif declared.keyed:
        format_name, format_options = formats.with_key(format_name, format_options, options, table)
    codec = None if format_name is None else formats.codec_of(format_name, format_options)
    metadata = _metadata(table, {} if codec is None else codec.metadata_types())
    start = options.pop("start", None)
    with located(job=f"{pipeline.namespace}.{pipeline.pipeline}"):
        source = source_class(_settings(source_class.Settings, options, connector, declared, table))
    in_records = partitions.columns_of_records(table, by_queue, format_name)
    schema = Schema(in_records) if format_name is not None else None
    of_json = format_name is not None and formats.holds_json(format_name, format_options)
    if of_json:
        schema = json_maps.declared_as_text(in_records)
    changes = source.changes() if codec is None else codec.changes()
    changing = changes is not None
    stream = pipeline.from_(
        source,
        format=format_name,
        schema=schema,
        metadata={**metadata, **({partitions.QUEUE: "queue"} if by_queue else {})},
        name=name or table.name,
        start=start,
        key=(table.primary_key or None) if changing else None,
        repeats=repeats and changing,
        normalize=False,
        **format_options,
    )
    maps = {name: kind for name, kind in table.metadata_types.items() if name in metadata}
    stream = json_maps.with_maps(stream, {**(table.columns if of_json else {}), **maps})
    if by_queue:
        stream = partitions.with_partitions(stream, table, by_queue)
    for column in table.headers:
        stream = stream.with_columns(**{column: f"json_value(\"__headers\", '$.{column}')"})
    stream = stream.drop("__headers") if table.headers else stream
    found = stream.changes
    return TableStream(stream, source, found is not None and (repeats or not found.before_images))


#: Header fields by the names that Flink's tables give them.
_HEADER_FIELDS = {
    "timestamp": "time", "partition": "queue", "offset": "offset", "key": "key", "headers": "headers", "topic": "source",
}  # fmt: skip


def _metadata(table: Table, of_format: Mapping[str, Any]) -> dict[str, str]:
    """Return the header fields, or fields of the format, that METADATA columns are. Raises ExpressionError."""
    found = {}
    for column, what in table.metadata.items():
        inner = what.removeprefix("value.")
        if what in _HEADER_FIELDS:
            found[column] = _HEADER_FIELDS[what]
        elif inner in of_format:
            found[column] = inner
        else:
            names = [*_HEADER_FIELDS, *(f"value.{name}" for name in of_format)]
            raise error_at(
                table.node.this.this,
                table.text,
                f"METADATA column {column!r}: unknown field {what!r}",
                did_you_mean(what, names, known="fields"),
            )
    if table.headers:
        found["__headers"] = "headers"
    return found


def _settings(
    settings: Any, options: Mapping[str, Any], connector: Connector, declared: TableOptions, table: Table
) -> Any:
    """Return the options of a table as its plug-in takes them. Raises OptionError, which speaks of the table and its text."""
    try:
        return settings.of(_converted(settings, options), plugin=connector.plugin)
    except OptionError as error:
        error.message = f"table {table.name!r}: {error.message}"
        missing = error.option is not None and error.option not in options
        spelled = [key for key, meant in declared.options.items() if meant == error.option]
        # Functions may make it of another option: a URL has the name of the database.
        spelled = spelled or [key for key, meant in declared.options.items() if callable(meant) and key == "url"]
        if missing and spelled and spelled[0] not in connector.options:
            error.hint = f"WITH (…, {spelled[0]!r} = '…')"
        raise


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
    notices: Notices, table: Table, stream: Stream, name: str, by_key: Callable[[Stream, Sink, Table], Stream],
    *, overwrites: bool = False, within: Mapping[str, str | None] | None = None,
) -> Job:  # fmt: skip
    """End a stream in a table's sink. ``by_key`` returns what the sink is given, known by the table's primary key.

    ``overwrites``: what the sink has is removed when the job begins; with ``within`` that of the partition with these values, of which the
    stream has all rows, without the columns of the partition.
    """
    connector, declared, options, format_options = mapped_options(notices, table, "sink")
    plugin = connector.plugin

    sink_class = default_registry().find("sink", plugin)
    settings = sink_class.Settings
    fields = {each.encode_name for each in option_fields(settings)}
    if "format" not in fields:
        options.pop("format", None)
    if formats.holds_json(options.get("format", "json"), {}) and {"format", "format_options"} <= fields:
        stream, maps = json_maps.with_texts(stream)
        if maps:
            format_options["json_columns"] = tuple(maps)
    elif "json_columns" in fields:  # it writes JSON, whatever it is given
        stream, maps = json_maps.with_texts(stream)
        options["json_columns"] = tuple(maps)
    if format_options and "format_options" in fields:
        options["format_options"] = format_options
    options = {**declared.defaults, **options}
    if table.primary_key:
        options = {**declared.with_key(table.primary_key), **options}
    elif declared.needs_key:
        raise error_at(
            table.node.this.this,
            table.text,
            f"table {table.name!r} has no PRIMARY KEY, which connector {connector.name!r} needs",
            "add PRIMARY KEY (…) NOT ENFORCED to its columns",
        )
    if within is not None:
        assert declared.within_partition is not None
        options = dict(declared.within_partition(options, within))
    elif table.partitioned and declared.with_partitions is not None:
        options = {**declared.with_partitions(table.partitioned), **options}
    elif table.partitioned:
        notice = f"table {table.name!r}: rows of all partitions are written to one directory, with the partition columns in them"
        notices.add_once(notice)
    with located(job=f"{stream.pipeline.namespace}.{stream.pipeline.pipeline}"):
        sink = sink_class(_settings(settings, options, connector, declared, table))
    if overwrites and not sink.can_replace:
        raise error_at(
            connector.node, table.text, f"INSERT OVERWRITE: connector {connector.name!r} cannot remove what is there"
        )
    sink.replaces = overwrites
    return by_key(stream, sink, table).to(sink, name=name)
