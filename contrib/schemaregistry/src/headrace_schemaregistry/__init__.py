"""Shared code of formats with a schema registry of Confluent's protocol: the client, its options, and bodies with ids
of schemas.

A format derives its settings from ``RegistrySettings``, and its decoder from ``RegisteredDecoder``, which asks it for a
decoder of each schema. Its sinks use ``RegisteringEncoder``. Nothing here is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_schemaregistry.client import Reference, RegisteredSchema, SchemaRegistry
    from headrace_schemaregistry.decoding import RegisteredDecoder, UnusableSchemaError
    from headrace_schemaregistry.encoding import RegisteringEncoder, check_subject, latest_schema, prefix_of
    from headrace_schemaregistry.settings import RegistrySettings

__all__ = [
    "Reference",
    "RegisteredDecoder",
    "RegisteredSchema",
    "RegisteringEncoder",
    "RegistrySettings",
    "SchemaRegistry",
    "UnusableSchemaError",
    "check_subject",
    "latest_schema",
    "prefix_of",
]

_PLACES = {
    "Reference": "client",
    "RegisteredDecoder": "decoding",
    "RegisteredSchema": "client",
    "RegisteringEncoder": "encoding",
    "RegistrySettings": "settings",
    "SchemaRegistry": "client",
    "UnusableSchemaError": "decoding",
    "check_subject": "encoding",
    "latest_schema": "encoding",
    "prefix_of": "encoding",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headrace_schemaregistry.{_PLACES[name]}"), name)
