"""The options of both formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from headrace.codecs.json import JsonSettings
from headrace.foundation.errors import OptionError
from headrace.interfaces.format_parts import JsonColumns, TextTimestampFormat, TimestampUnit
from headrace.interfaces.settings import option
from headrace_schemaregistry import RegistrySettings

FORMAT = "json-schema"
CONFLUENT = "json-schema-confluent"

CheckFormats = Annotated[
    bool, option("Whether the keyword format (date-time, email, uuid, …) is checked. False: it is a note for readers.")
]


class JsonSchemaSettings(JsonSettings, frozen=True, kw_only=True):
    """Options of the format ``json-schema``: those of ``json``, and the schema."""

    json_schema: Annotated[str | None, option("JSON Schema, as JSON text, that bodies must conform to.")] = None
    json_schema_file: Annotated[
        str | None,
        option(
            "File with this schema, in place of json_schema. It is read when the job is built, with files beside it that it refers to."
        ),
    ] = None
    check_formats: CheckFormats = True

    def validate(self) -> None:
        """Check that exactly one schema is given."""
        if self.json_schema is not None and self.json_schema_file is not None:
            raise OptionError(
                "it cannot be combined with json_schema", plugin=FORMAT, option="json_schema_file", hint="give one"
            )
        if self.json_schema is None and self.json_schema_file is None:
            hint = "give json_schema_file='order.schema.json', or the text as json_schema"
            raise OptionError("the format needs a schema", plugin=FORMAT, option="json_schema", hint=hint)


class ConfluentSettings(RegistrySettings, frozen=True, kw_only=True):
    """Options of the format ``json-schema-confluent``: those of the registry and of ``json``."""

    format_name: ClassVar[str] = CONFLUENT

    # As in ``json``.
    timestamp_unit: TimestampUnit = "ms"
    timestamp_format: TextTimestampFormat = None
    json_columns: JsonColumns = ()
    json_schema: Annotated[
        str | None,
        option(
            "JSON Schema, as JSON text, that a sink registers and its bodies conform to. Default: one that is made of the columns; with "
            "register_schema=False the latest version of the subject."
        ),
    ] = None
    json_schema_file: Annotated[
        str | None, option("File with this schema, in place of json_schema. It is read when the job is built.")
    ] = None
    check_formats: CheckFormats = True

    def validate(self) -> None:
        """Check the address, and that options do not contradict each other."""
        if self.json_schema is not None and self.json_schema_file is not None:
            raise self.refused("json_schema_file", "it cannot be combined with json_schema", "give one")
        super().validate()


def schema_text(settings: JsonSchemaSettings | ConfluentSettings, plugin: str) -> str | None:
    """Return the text of the schema that is given. Raises OptionError for a file that cannot be read."""
    if settings.json_schema_file is None:
        return settings.json_schema
    try:
        return Path(settings.json_schema_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = f"cannot read {settings.json_schema_file!r}: {getattr(error, 'strerror', None) or error}"
        raise OptionError(why, plugin=plugin, option="json_schema_file") from error
