"""Memory in place of the sources and sinks of a pipeline, for its cases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import headrace as hr
from headrace.codecs.json import JsonCodec
from headrace.flow.messages import Bodies
from headrace.foundation.errors import JobError, did_you_mean
from headrace.interfaces.settings import option_fields
from headrace.testing import MemorySink, MemorySource

from headrace_pipeline.connectors import check_sink, plugin_of, source_options
from headrace_pipeline.document import Items, Section, Value
from headrace_pipeline.keys import SOURCE
from headrace_pipeline.placing import placed

#: Options of a source that have no meaning for memory: where it starts, and the key of a table that a server knows.
_LEFT_OUT = frozenset(("start",))
_OF_CHANGES = frozenset(("key", "repeats", "normalize", "state_ttl"))


class MemoryEnds:
    """Stands for the sources and sinks of one case. Options of connectors are not read, so that variables in them need no value."""

    def __init__(self, given: Mapping[str, Value]) -> None:
        self._given = given
        #: What the sinks got, by name, and the columns at each.
        self.sinks: dict[str, MemorySink] = {}
        self.schemas: dict[str, hr.Schema] = {}
        self.letters = MemorySink()

    def source(self, pipeline: hr.Pipeline, name: str, section: Section) -> hr.Stream:
        """Return a stream of the lines or rows that the case gives to a source."""
        connector, settings = plugin_of(section, "source", SOURCE[1:], of=f"source {name!r}")
        own = {field.encode_name for field in option_fields(settings[0])} | _LEFT_OUT
        kept = {key: entry for key, entry in section.entries.items() if key == "connector" or key not in own}
        options = source_options(Section(section.file, section.place, kept), settings)
        given = self._given.get(name)
        with placed(section):
            if "format" not in options:
                return self._without_format(pipeline, name, connector, section, options)
            if given is None or not _are_rows(given):
                lines = [] if given is None else _lines(given)
                return pipeline.from_(MemorySource({name: lines} if lines else {}), name=name, **options)
            columns = pipeline.from_(MemorySource({}), name=name, **options)
        if columns.changes is not None:
            given.fail(f"rows of the format {options['format']} are changes", hint="give its bodies, as lines")
        return _of_rows(pipeline, name, given, columns.schema)

    def _without_format(
        self, pipeline: hr.Pipeline, name: str, connector: str, section: Section, options: dict[str, Any]
    ) -> hr.Stream:
        """Return the stream of a source that knows its columns: a case has no server that could say them."""
        if "schema" not in options:
            section.fail(
                f"source {name!r} asks its server for the columns, and a case has none", option="schema",
                hint=f"write the columns of {connector} as schema:, then cases can give rows",
            )  # fmt: skip
        given = self._given.get(name)
        options = {key: value for key, value in options.items() if key not in _OF_CHANGES}
        columns = pipeline.from_(MemorySource({}), name=name, **options)
        if given is not None and not _are_rows(given):
            given.fail(f"source {name!r} gives rows and no lines")
        return _of_rows(pipeline, name, given, columns.schema)

    def sink(self, stream: hr.Stream, name: str, section: Section) -> hr.Job:
        """End a stream in memory."""
        check_sink(section, name)
        if stream.schema is None:
            section.fail(f"the columns that sink {name!r} gets are not known")
        self.sinks[name], self.schemas[name] = MemorySink(), stream.schema
        return stream.to(self.sinks[name], name=name)

    def dead_letters(self, stream: hr.Stream, section: Section | None) -> hr.Job:
        """End the stream of bad records in memory."""
        if section is not None:
            check_sink(section, "dead_letters")
        return stream.to(self.letters, name="dead_letters_sink")


def typed_rows(given: list[Section], schema: hr.Schema, *, of: str) -> list[dict[str, Any]]:
    """Return rows of a case as values of the types of columns; a column that is left out is NULL.

    Raises PipelineError for a column that there is not, and for a value that is not of the type.
    """
    decoder = JsonCodec().decoder(schema)
    for row in given:
        for column, entry in row.entries.items():
            if column not in schema:
                hint = did_you_mean(column, schema, known="columns")
                entry.key.fail(f"{of} has no column {column!r}", option=column, hint=hint)
            _decoded(decoder, {column: entry.value.plain()}, entry.value)
    if not given:
        return []
    return decoder.decode(Bodies.of([_body(row.plain()) for row in given])).frame.to_dicts()


def _decoded(decoder: Any, row: dict[str, Any], place: Value) -> None:
    bad = decoder.decode(Bodies.of([_body(row)])).bad
    if bad:
        place.fail(bad[0].reason)


def _body(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode()


def _of_rows(pipeline: hr.Pipeline, name: str, given: Value | None, schema: hr.Schema | None) -> hr.Stream:
    if schema is None:
        raise JobError(f"the columns of source {name!r} are not known")
    rows = [] if given is None else [each.section() for each in given.items()]
    typed_rows(rows, schema, of=f"source {name!r}")
    bodies = [_body(row.plain()) for row in rows]
    return pipeline.from_(MemorySource({name: bodies} if bodies else {}), format="json", schema=schema, name=name)


def _are_rows(value: Value) -> bool:
    return isinstance(value, Items) and any(isinstance(each, Section) for each in value.items())


def _lines(value: Value) -> list[bytes]:
    """Return lines: of a list of texts, or of one text behind ``|``."""
    texts = value.texts() if isinstance(value, Items) else value.text().splitlines()
    return [text.encode() for text in texts]
