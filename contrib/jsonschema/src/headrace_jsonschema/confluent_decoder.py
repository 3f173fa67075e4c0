"""Decodes bodies with ids of schemas to one frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import polars as pl
from headrace.interfaces.codec import Decoder
from headrace_schemaregistry import RegisteredDecoder, RegisteredSchema, UnusableSchemaError

from headrace_jsonschema.documents import SchemaError, read_document
from headrace_jsonschema.settings import ConfluentSettings
from headrace_jsonschema.validating import ValidatingDecoder


class ConfluentDecoder(RegisteredDecoder):
    """Checks each body by the schema of its id. ``inner`` decodes the objects of all bodies."""

    kind = "JSON"

    def __init__(
        self,
        settings: ConfluentSettings,
        columns: Mapping[str, pl.DataType],
        inner: Decoder,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings, columns, monotonic=monotonic)
        self._check_formats = settings.check_formats
        self._inner = inner

    def decoder_of(self, schema_id: int, schema: RegisteredSchema) -> Decoder:
        """Return the decoder that decodes and checks the objects of a schema; see ``RegisteredDecoder``."""
        try:
            document = read_document(schema.text, [(one.name, one.text) for one in schema.references])
            return ValidatingDecoder(self._inner, document.validator(self._check_formats))
        except SchemaError as error:
            raise UnusableSchemaError(f": {error}") from error
