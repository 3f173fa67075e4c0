"""The format ``json-schema-confluent``: a byte 0, the id of the schema in a registry (4 bytes), and the JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.codecs.json import JsonCodec, JsonSettings
from headrace.foundation.errors import OptionError
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Codec, Decoder, Encoder

from headrace_jsonschema.settings import CONFLUENT, ConfluentSettings, schema_text

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

    from headrace_jsonschema.documents import Document

_KIND = "JSON"


class JsonSchemaConfluentCodec(Codec):
    """JSON objects whose schemas are in a registry. Each body must conform to the schema of its id."""

    Settings: ClassVar[type[declared.Settings]] = ConfluentSettings

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._text = schema_text(settings, CONFLUENT)
        option = "json_schema" if settings.json_schema_file is None else "json_schema_file"
        self._document = None if self._text is None else _document(self._text, option)
        shared = {name: getattr(settings, name) for name in JsonSettings.__struct_fields__}
        self._json = JsonCodec(JsonSettings(**shared))

    def default_schema(self) -> Schema | None:
        """Return the columns of the given schema; without one, those of the latest version of the subject, which the
        registry gives; otherwise None.
        """
        from headrace_jsonschema.column_types import columns_of

        if self._document is not None:
            return columns_of(self._document)
        return None if self.settings.subject is None else columns_of(self._latest()[1])

    def _latest(self) -> tuple[int, Document]:
        from headrace_schemaregistry import latest_schema

        schema_id, found = latest_schema(self.settings, _KIND)
        return schema_id, _document(found.text, "subject", tuple((one.name, one.text) for one in found.references))

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError for a type that JSON does not have. It does not ask the registry."""
        from headrace_jsonschema.confluent_decoder import ConfluentDecoder

        chosen = {name: schema[name] for name in (schema if columns is None else columns)}
        return ConfluentDecoder(self.settings, chosen, self._json.decoder(schema, columns))

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder. Raises OptionError when no schema is known.

        The registry is asked when the first rows are written. It is asked earlier only for the latest version, if this
        is the version to write.
        """
        from headrace_schemaregistry import RegisteringEncoder, check_subject, prefix_of

        from headrace_jsonschema.column_types import schema_of
        from headrace_jsonschema.validating import ValidatingEncoder

        options = self.settings
        check_subject(options)
        inner = self._json.encoder(schema)
        text = self._text
        if text is None and not options.register_schema:
            schema_id, latest = self._latest()
            return ValidatingEncoder(inner, latest.validator(options.check_formats), CONFLUENT, prefix_of(schema_id))
        if text is None:
            if schema is None:
                raise options.refused(
                    "json_schema",
                    "the columns are not known when the job is built",
                    "give the schema, or name the columns with select() before the sink",
                )
            text = _written(schema_of(schema, options.subject))
        validator = _document(text, "json_schema").validator(options.check_formats)
        return RegisteringEncoder(
            options, text, _KIND, lambda prefix: ValidatingEncoder(inner, validator, CONFLUENT, prefix)
        )


def _written(document: Mapping[str, Any]) -> str:
    import msgspec

    return msgspec.json.encode(document).decode()


def _document(text: str, option: str, references: Sequence[tuple[str, str]] = ()) -> Document:
    from headrace_jsonschema.documents import SchemaError, read_document

    try:
        return read_document(text, references)
    except SchemaError as error:
        raise OptionError(f"the schema cannot be used: {error}", plugin=CONFLUENT, option=option) from error
