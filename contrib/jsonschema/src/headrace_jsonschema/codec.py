"""The format ``json-schema``: one JSON object per body, which conforms to a schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.codecs.json import JsonCodec
from headrace.foundation.errors import OptionError
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Decoder, Encoder

from headrace_jsonschema.settings import FORMAT, JsonSchemaSettings, schema_text

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class JsonSchemaCodec(JsonCodec):
    """JSON objects that conform to a schema. Its properties are the columns."""

    Settings: ClassVar[type[declared.Settings]] = JsonSchemaSettings

    def __init__(self, settings: Any = None) -> None:
        from headrace_jsonschema.documents import SchemaError, read_document

        super().__init__(settings)
        option = "json_schema" if settings.json_schema_file is None else "json_schema_file"
        text = schema_text(settings, FORMAT)
        assert text is not None
        try:
            self._document = read_document(text, file=settings.json_schema_file)
        except SchemaError as error:
            raise OptionError(f"the schema cannot be used: {error}", plugin=FORMAT, option=option) from error

    def default_schema(self) -> Schema | None:
        """Return the columns of the properties; None if the schema has no properties."""
        from headrace_jsonschema.column_types import columns_of

        return columns_of(self._document)

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError in the same cases as the format ``json``."""
        from headrace_jsonschema.validating import ValidatingDecoder

        return ValidatingDecoder(
            super().decoder(schema, columns), self._document.validator(self.settings.check_formats)
        )

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder."""
        from headrace_jsonschema.validating import ValidatingEncoder

        return ValidatingEncoder(super().encoder(schema), self._document.validator(self.settings.check_formats), FORMAT)
