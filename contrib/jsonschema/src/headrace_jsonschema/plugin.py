"""What headrace-jsonschema offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_codecs() -> Mapping[str, str]:
    return {
        "json-schema": "headrace_jsonschema.codec:JsonSchemaCodec",
        "json-schema-confluent": "headrace_jsonschema.confluent:JsonSchemaConfluentCodec",
    }
