"""WITH options of Flink's and Blink's tables as sources and sinks of headrace.

Every option is either mapped, or known to have no meaning here (then a notice says so), or refused with the nearest name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import msgspec
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces.registry import default_registry

from headrace_sql.binding import json_maps
from headrace_sql.binding.notices import Notices
from headrace_sql.binding.scope import error_at
from headrace_sql.binding.tables import Option, Table
from headrace_sql.operators.sinks import DeclareKey
from headrace_sql.reading.durations import duration_us

if TYPE_CHECKING:
    from headrace.jobs.dsl import Pipeline, Stream
    from headrace.jobs.job import Job


@dataclass(frozen=True)
class Mapped:
    """How one connector's options are called here. Values: our option's name, or a function of the text to our options."""

    plugin: str
    both: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    sink: Mapping[str, Any] = field(default_factory=dict)
    #: Known options without a meaning here, and why.
    unused: Mapping[str, str] = field(default_factory=dict)
    is_source: bool = True
    is_sink: bool = True


def _path(text: str) -> dict[str, Any]:
    if text.startswith("file:"):
        parsed = urlparse(text)
        text = unquote(parsed.path) or text
    return {"path": text}


def _jdbc(text: str) -> dict[str, Any]:
    found = re.fullmatch(r"jdbc:(?:mysql|mariadb)://([^:/?]+)(?::(\d+))?/([^?]+)(\?.*)?", text)
    if found is None:
        raise ValueError("only jdbc:mysql://host:port/database is supported")
    made: dict[str, Any] = {"host": found[1], "database": found[3]}
    return {**made, "port": int(found[2])} if found[2] else made


def _startup(text: str) -> dict[str, Any]:
    starts = {"earliest-offset": "earliest", "latest-offset": "latest"}
    if text in ("group-offsets", "timestamp"):
        return {}
    if text not in starts:
        raise ValueError("earliest-offset, latest-offset, group-offsets or timestamp")
    return {"start": starts[text]}


def _json_data(text: str) -> dict[str, Any]:
    if text.lower() != "true":
        raise ValueError("only JSON data is supported")
    return {"format": "json"}


def _no_array(text: str) -> dict[str, Any]:
    if text.lower() != "false":
        raise ValueError("messages that are JSON arrays are not supported")
    return {}


def _hosts(text: str) -> dict[str, Any]:
    return {"url": text.split(";")[0]}


def _semicolons(text: str) -> dict[str, Any]:
    return {"name_servers": text.replace(",", ";")}


_BLINK_JSON = {"isJsonData": _json_data, "msgIsJsonArray": _no_array, "data_format": "format", "encoding": lambda t: {}}
_TUNING = "a matter of Flink's own runtime"
_FILE_UNUSED = {
    "sink.partition-commit.trigger": _TUNING, "sink.partition-commit.delay": _TUNING, "sink.partition-commit.policy.kind": _TUNING,
    "partition.time-extractor.timestamp-pattern": _TUNING, "sink.rolling-policy.rollover-interval": _TUNING,
    "sink.rolling-policy.check-interval": _TUNING, "sink.rolling-policy.file-size": _TUNING, "source.monitor-interval": _TUNING,
    "partition.time-extractor.kind": _TUNING, "sink.parallelism": _TUNING, "auto-compaction": _TUNING,
}  # fmt: skip
_ROCKETMQ = Mapped(
    "rocketmq",
    both={"topic": "topic", "namesrvAddr": _semicolons, "nameServerAddress": _semicolons, "endpoint": _semicolons,
          "accessKey": "access_key",
          "accessId": "access_key", "secretKey": "secret_key", **_BLINK_JSON},
    source={"groupName": "group", "consumerGroup": "group", "tag": "tags"},
    sink={"tag": "tag", "groupName": lambda t: {}, "producerGroup": lambda t: {}},
)  # fmt: skip
_JDBC = Mapped(
    "mysql",
    both={"url": _jdbc, "table-name": "table", "tableName": "table", "username": "user", "userName": "user", "password": "password"},
    unused={"driver": "there is one driver", "lookup.cache.max-rows": _TUNING,
            "sink.buffer-flush.max-rows": _TUNING, "sink.buffer-flush.interval": _TUNING},
)  # fmt: skip
MAPPINGS: Mapping[str, Mapped] = {
    "filesystem": Mapped("file", both={"path": _path}, unused=_FILE_UNUSED),
    "file": Mapped("file", both={"filePath": _path, "path": _path, **_BLINK_JSON}),
    "kafka": Mapped(
        "kafka",
        both={"topic": "topic", "properties.bootstrap.servers": "servers"},
        source={"properties.group.id": "group", "scan.startup.mode": _startup, "scan.startup.timestamp-millis": "start_ms"},
        sink={"key.fields": "key", "sink.transactional-id-prefix": "transactional_id", "properties.group.id": lambda t: {},
              "scan.startup.mode": lambda t: {}},
        unused={"sink.partitioner": "partitions follow the key", "sink.parallelism": _TUNING, "scan.parallelism": _TUNING,
                "scan.topic-partition-discovery.interval": _TUNING, "key.format": "keys are texts", "value.fields-include": _TUNING},
    ),
    "upsert-kafka": Mapped("kafka", both={"topic": "topic", "properties.bootstrap.servers": "servers"}, is_source=False,
                           unused={"key.format": "keys are texts", "sink.parallelism": _TUNING}),
    "rocketmq": _ROCKETMQ,
    "metaq": _ROCKETMQ,
    "jdbc": _JDBC,
    "db": _JDBC,
    "rds": _JDBC,
    "elasticsearch-7": Mapped("elasticsearch", both={"hosts": _hosts, "index": "index", "username": "user", "password": "password"},
                              unused={"document-type": "newer servers have none", "sink.bulk-flush.max-actions": _TUNING}),
    "print": Mapped("print", unused={"print-identifier": _TUNING, "standard-error": _TUNING, "sink.parallelism": _TUNING}, is_source=False),
    "blackhole": Mapped("blackhole", is_source=False),
    "datagen": Mapped("datagen", is_sink=False),
}  # fmt: skip
_SAME = {"elasticsearch": "elasticsearch-7", "elasticsearch-8": "elasticsearch-7", "mysql": "jdbc", "console": "print"}
_REFUSED = {"mysql-cdc": "changes of a MySQL table are not read; use 'jdbc', or a topic with the changes"}
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


def connector_of(table: Table) -> tuple[str, dict[str, Option]]:
    """Return a table's connector, by the name that MAPPINGS has, and its other options. Raises ExpressionError."""
    options = {_LEGACY.get(key, key): option for key, option in table.options.items()}
    chosen = options.pop("connector", None) or options.pop("type", None)
    if chosen is None and "topic" in options:
        return "rocketmq", options  # rsqldb's short form: a topic, and the name server from elsewhere
    if chosen is None:
        raise error_at(
            table.node.this.this,
            table.text,
            f"table {table.name!r} says no connector",
            "WITH ('connector' = 'kafka', …)",
        )
    name = _SAME.get(chosen.value.lower(), chosen.value.lower())
    if name in _REFUSED:
        raise error_at(chosen.node, table.text, f"connector {name!r}: {_REFUSED[name]}")
    if name not in MAPPINGS and not default_registry().has("source", name) and not default_registry().has("sink", name):
        raise error_at(
            chosen.node,
            table.text,
            f"unknown connector {chosen.value!r}",
            did_you_mean(name, [*MAPPINGS, *_SAME], known="connectors"),
        )
    return name, options


def mapped_options(notices: Notices, table: Table, kind: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return (plug-in, its options, options of the format) of a table as ``"source"`` or ``"sink"``. Raises ExpressionError."""
    name, given = connector_of(table)
    mapping = MAPPINGS.get(name, Mapped(name))
    if not (mapping.is_source if kind == "source" else mapping.is_sink):
        what = "read from" if kind == "source" else "written to"
        raise error_at(table.node.this.this, table.text, f"table {table.name!r} cannot be {what}: connector {name!r}")
    known = {**mapping.both, **(mapping.source if kind == "source" else mapping.sink)}
    other = {**mapping.sink, **mapping.source}
    settings = default_registry().find(kind, mapping.plugin).Settings
    fields = {each.encode_name: each for each in msgspec.structs.fields(settings)}
    made: dict[str, Any] = {}
    format_options: dict[str, Any] = {}
    for key, option in given.items():
        target = known.get(key)
        plain = key.replace("-", "_")
        if callable(target):
            made |= _called(target, option, table)
        elif target is not None:
            made[target] = option.value
        elif key in REFRESH_OPTIONS and kind == "source":
            refresh_of(table)
        elif key == "format" or key == "value.format":
            made["format"] = _format(option, table)
        elif _format_option(notices, key, option, format_options, table) or key in other:
            continue
        elif plain in fields:
            made[plain] = option.value
        elif key in mapping.unused:
            notice = f"table {table.name!r}: option {key!r} has no effect here: {mapping.unused[key]}"
            notices.add_once(notice)
        elif mapping.plugin == "kafka" and key.startswith("properties."):
            made.setdefault("conf", {})[key.removeprefix("properties.")] = option.value
        elif name == "datagen" and key.startswith("fields."):
            made.setdefault("fields", {})[key.removeprefix("fields.")] = option.value
        else:
            names = [*known, *mapping.unused, *fields, "format"]
            raise error_at(
                option.node,
                table.text,
                f"connector {name!r} has no option {key!r}",
                did_you_mean(key, names, known="options"),
            )
    return mapping.plugin, made, format_options


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


def _called(target: Callable[[str], dict[str, Any]], option: Option, table: Table) -> dict[str, Any]:
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

    plugin, options, format_options = mapped_options(notices, table, "source")
    format_name = options.pop("format", None)
    start_ms = options.pop("start_ms", None)
    if start_ms is not None:
        options["start"] = datetime.fromtimestamp(int(start_ms) / 1000, UTC)
    source_class = default_registry().find("source", plugin)
    if plugin == "datagen":
        options["columns"] = {name: type_name(kind) for name, kind in table.columns.items()}
    elif format_name is None and plugin in ("file", "kafka", "rocketmq"):
        format_name = "json"
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
    for each in msgspec.structs.fields(settings):
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


def sink_job(notices: Notices, table: Table, stream: Stream, name: str) -> Job:
    """End a stream in a table's sink."""
    plugin, options, format_options = mapped_options(notices, table, "sink")

    sink_class = default_registry().find("sink", plugin)
    settings = sink_class.Settings
    fields = {each.encode_name for each in msgspec.structs.fields(settings)}
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
    if table.primary_key and plugin == "mysql":
        options.setdefault("mode", "upsert")
    if table.primary_key and plugin == "kafka" and len(table.primary_key) == 1:
        options.setdefault("key", table.primary_key[0])
    if table.primary_key and plugin == "elasticsearch":
        options.setdefault("id", table.primary_key[0] if len(table.primary_key) == 1 else None)
    if table.partitioned:
        notice = f"table {table.name!r}: rows of all partitions are written to one directory, with the partition columns in them"
        notices.add_once(notice)
    try:
        sink = sink_class(settings.of(_converted(settings, options), plugin=plugin))
    except OptionError as error:
        error.job = error.job or f"{stream.pipeline.namespace}.{stream.pipeline.pipeline}"
        raise
    if table.primary_key and stream.changes is not None:
        stream = stream.apply(DeclareKey(table.primary_key))
    return stream.to(sink, name=name)
