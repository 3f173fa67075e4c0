"""Turns the arguments of ``from_`` into start positions, codecs, columns and changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces.changes import SourceChanges
from headrace.interfaces.operator import Changes
from headrace.interfaces.registry import default_registry
from headrace.interfaces.source import Source, Start, StartAt
from headrace.plan.graph import METADATA_FIELDS, SourceNode

if TYPE_CHECKING:
    from headrace.interfaces.codec import Codec
    from headrace.jobs.dsl import Pipeline


#: Header fields that are the same for all changes of a row, because these are in one queue.
_CONSTANT_METADATA = frozenset({"queue", "source"})


def label_of(part: object, fallback: str) -> str:
    name = type(part).__name__.removesuffix("Source").removesuffix("Sink")
    return name.lower() or fallback


def start_of(source: Source, start: str | datetime | Start | StartAt | None) -> Start | StartAt:
    if start is None:
        return source.start
    if isinstance(start, Start | StartAt):
        return start
    if isinstance(start, str) and start.lower() in ("earliest", "latest"):
        return Start(start.lower())
    try:
        moment = start if isinstance(start, datetime) else datetime.fromisoformat(start)
    except ValueError as error:
        raise OptionError(f"{start!r} is neither 'earliest', 'latest' nor a time", option="start") from error
    if moment.tzinfo is None:
        raise OptionError(f"{start!r} has no time zone", option="start", hint="write 2026-01-31T12:00:00Z")
    return StartAt(moment)


def codec_of(format: str | None, options: Mapping[str, Any]) -> Codec | None:
    if format is None:
        if options:
            raise OptionError(
                f"option {next(iter(options))!r} belongs to a format, but the option format is not given",
                option="format",
            )
        return None
    codec_class = default_registry().find("codec", format)
    codec: Codec = codec_class(codec_class.Settings.of(options, plugin=format))
    return codec


def body_columns(
    source: Source,
    codec: Codec | None,
    format: str | None,
    declared: Mapping[str, Any] | None,
    label: str,
    pipeline: Pipeline,
) -> Schema:
    if declared is not None:
        return Schema.of(declared)
    found = codec.default_schema() if codec is not None else schema_of(source, label, pipeline)
    if found is None:
        what, hint = f"format {format!r} needs a schema", "pass schema={'column': 'type', ...}"
        if codec is None:
            what = "the source does not know its columns"
            hint += ", or a format that has columns of its own, such as format='raw'"
        raise OptionError(what, plugin=label, option="schema", hint=hint)
    return found


def schema_of(source: Source, label: str, pipeline: Pipeline) -> Schema | None:
    """Return the columns that the source itself knows. The source may connect; if its server is not available, the call
    waits as the start of a job does.
    """
    from headrace.foundation.clock import SystemClock
    from headrace.jobs.job import start_timeout_of
    from headrace.runtime.patience import Patience

    name = f"{pipeline.namespace}.{pipeline.pipeline}"
    return Patience(name, start_timeout_of(pipeline.namespace), SystemClock()).wait_for(
        f"source {label}", source.schema
    )


def metadata_types(
    metadata: Mapping[str, str], codec: Codec | None, label: str
) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return the types of the metadata columns, and which header fields are read for them and for the codec. Raises OptionError."""
    import polars as pl

    header = {
        "queue": pl.String(), "source": pl.String(), "headers": pl.String(), "key": pl.Binary(),
        "offset": pl.Int64(), "time": pl.Datetime("us", "UTC"),
    }  # fmt: skip
    known = {**header, **({} if codec is None else codec.metadata_types())}
    for column, what in metadata.items():
        if what not in known:
            hint = did_you_mean(what, known, known="header fields")
            raise OptionError(f"unknown header field {what!r}", plugin=label, option=f"metadata.{column}", hint=hint)
    fields = {what for what in metadata.values() if what in METADATA_FIELDS}
    types = {column: known[what] for column, what in metadata.items()}
    return types, frozenset(fields) | (frozenset() if codec is None else codec.header_fields)


def source_node(
    pipeline: Pipeline,
    source: Source,
    label: str,
    codec: Codec | None,
    format: str | None,
    *,
    schema: Mapping[str, Any] | None,
    metadata: Mapping[str, str] | None,
    key: str | Sequence[str] | None,
    repeats: bool,
) -> tuple[SourceNode, SourceChanges | None]:
    """Return the node of a source in the plan, and how its rows describe changes. Called by ``Pipeline.from_``. Raises
    JobError.
    """
    columns = body_columns(source, codec, format, schema, label, pipeline)
    source.use_format(format, codec, columns)
    source.check()
    extra = dict(metadata or {})
    extra_types, source.header_fields = metadata_types(extra, codec, label)
    found = changes_of(source, codec, columns, label, key=key, repeats=repeats, metadata=extra)
    if codec is not None:
        codec.record_decoder(
            columns, None, metadata_of_codec(extra)
        )  # raises now if the format cannot handle these columns
    node = SourceNode(
        label=label,
        schema=Schema({**columns, **extra_types}, json_columns=columns.json_columns),
        source=source,
        codec=codec,
        format=format,
        body_schema=columns,
        metadata=extra,
        changes=None if found is None else Changes(found.key, found.before_images),
    )
    return node, found


def metadata_of_codec(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata columns that the codec makes, without those of the header."""
    return {column: what for column, what in metadata.items() if what not in METADATA_FIELDS}


def changes_of(
    source: Source,
    codec: Codec | None,
    columns: Schema,
    label: str,
    *,
    key: str | Sequence[str] | None,
    repeats: bool,
    metadata: Mapping[str, str],
) -> SourceChanges | None:
    """Return how the rows describe changes, with the key that the job names. Raises JobError if the key is missing, or
    if the options do not fit.
    """
    found = source.changes() if codec is None else codec.changes()
    named = None if key is None else (key,) if isinstance(key, str) else tuple(key)
    if found is None:
        for option, given in (("key", named is not None), ("repeats", repeats)):
            if given:
                raise OptionError(
                    "is only for a source whose rows change, and rows of this source are only added",
                    plugin=label,
                    option=option,
                    hint="name a format of changes (debezium-json, canal-json, …), or use key_by() and deduplicate()",
                )
        return None
    constant = _CONSTANT_METADATA | (frozenset() if codec is None else codec.constant_metadata)
    varying = next((column for column, what in metadata.items() if what not in constant), None)
    whole = found.before_images and varying is None
    why = f"the metadata column {varying!r} is not known of old rows"
    if not found.before_images:
        why = "old rows do not come with the new ones"
    elif whole:
        why = "changes may come more than once"
    found = SourceChanges(found.key if named is None else named, whole, found.repeats or repeats)
    for name in found.key or ():
        if name not in columns:
            raise OptionError(
                f"unknown column {name!r}",
                plugin=label,
                option="key",
                hint=did_you_mean(name, columns, known="columns"),
            )
    if codec is not None:
        codec.use_key(columns, found.key or ())
    if found.needs_normalizing and not found.key:
        raise OptionError(
            f"a key is needed: {why}, so that each row can be compared with the last row of its key",
            plugin=label,
            option="key",
            hint="name the columns of the table's primary key: key=['id']",
        )
    return found
