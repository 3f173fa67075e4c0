"""Sources and sinks of a pipeline, as the DSL makes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import headrace as hr
from headrace.flow.schema import data_type
from headrace.foundation.secrecy import is_secret_name
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import Settings, describe_options

from headrace_pipeline.document import Scalar, Section, Value
from headrace_pipeline.keys import SINK, SOURCE, Key
from headrace_pipeline.placing import placed
from headrace_pipeline.variables import is_secret_place


class Ends(Protocol):
    """What a pipeline begins and ends with. Tests of a pipeline put memory there."""

    def source(self, pipeline: hr.Pipeline, name: str, section: Section) -> hr.Stream:
        """Return the stream of a source."""

    def sink(self, stream: hr.Stream, name: str, section: Section) -> hr.Job:
        """End a stream in a sink."""

    def dead_letters(self, stream: hr.Stream, section: Section | None) -> hr.Job | None:
        """End the stream of bad records. ``section``: the sink that the file names."""


class Connectors:
    """The sources and sinks that the file names."""

    def source(self, pipeline: hr.Pipeline, name: str, section: Section) -> hr.Stream:
        connector, settings = plugin_of(section, "source", SOURCE[1:], of=f"source {name!r}")
        options = source_options(section, settings)
        with placed(section):
            made: hr.Stream = getattr(pipeline, f"from_{connector}")(name=name, **options)
        return made

    def sink(self, stream: hr.Stream, name: str, section: Section) -> hr.Job:
        connector, settings = check_sink(section, name)
        secrets = secret_options(settings)
        own = {key: value_of(each.value, key, secrets) for key, each in section.entries.items() if key not in _OF_SINK}
        with placed(section):
            made: hr.Job = getattr(stream, f"to_{connector}")(name=name, **own)
        return made

    def dead_letters(self, stream: hr.Stream, section: Section | None) -> hr.Job | None:
        return None if section is None else self.sink(stream, "dead_letters_sink", section)


_OF_SINK = frozenset(key.name for key in SINK)


def plugin_of(section: Section, kind: str, keys: Sequence[Key], *, of: str) -> tuple[str, list[type[Settings]]]:
    """Return the name of a source's or sink's plug-in, and the options that it and its format declare. Raises PipelineError."""
    named = section.required("connector", of=of)
    connector = named.text()
    with placed(named):
        found = [default_registry().find(kind, connector).Settings]
    if kind == "source":
        format_named = section.get("format")
        if format_named is not None:
            with placed(format_named):
                found.append(default_registry().find("codec", format_named.text()).Settings)
        section.check_keys(["connector", *(key.name for key in keys), *_names(found)], of=of)
    return connector, found


def check_sink(section: Section, name: str) -> tuple[str, list[type[Settings]]]:
    """Return the name of a sink's plug-in and the options that it declares. Raises PipelineError for a key that is not known."""
    connector, settings = plugin_of(section, "sink", (), of=f"sink {name!r}")
    section.check_keys([*_OF_SINK, *_names(settings)], of=f"sink {name!r}")
    return connector, settings


def source_options(section: Section, settings: list[type[Settings]]) -> dict[str, Any]:
    """Return the options of a source as ``from_<name>`` takes them, without its connector."""
    secrets = secret_options(settings)
    options = {
        key: value_of(entry.value, key, secrets)
        for key, entry in section.entries.items()
        if key not in ("connector", "schema")
    }
    schema, metadata = section.get("schema"), section.get("metadata")
    if schema is not None:
        options["schema"] = schema_of(schema)
    if metadata is not None:
        options["metadata"] = {column: entry.value.text() for column, entry in metadata.section().entries.items()}
    return options


def schema_of(value: Value) -> dict[str, str]:
    """Return columns and the texts of their types. Raises PipelineError at a type that means nothing."""
    found = {}
    for column, entry in value.section().entries.items():
        text = entry.value.text()
        with placed(entry.value):
            data_type(text, column=column)
        found[column] = text
    if not found:
        value.fail("a schema needs a column", option="schema")
    return found


def value_of(value: Value, key: str, secrets: Collection[str]) -> Any:
    """Return the value of an option. A secret keeps its place, also one in a mapping of a driver's own properties."""
    if isinstance(value, Section):
        return {name: _property(each.value, name) for name, each in value.entries.items()}
    if isinstance(value, Scalar) and key in secrets and isinstance(value.value, str):
        return value.file.variables.secret(value)
    return value.plain()


def _property(value: Value, name: str) -> Any:
    if isinstance(value, Scalar) and isinstance(value.value, str) and is_secret_name(name):
        text = value.file.variables.secret(value)
        # The plug-in refuses a secret that is written into the file itself, if it shows such properties.
        return hr.Secret(text) if is_secret_place(value.source) else text
    return value_of(value, name, ())


def _names(settings: list[type[Settings]]) -> list[str]:
    return [option.name for each in settings for option in describe_options(each)]


def secret_options(settings: list[type[Settings]]) -> set[str]:
    """Return the names of the options that are declared as secrets."""
    return {option.name for each in settings for option in describe_options(each) if "Secret" in option.type}
