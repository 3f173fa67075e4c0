"""``keyed``: rows of which some columns are in the record's key and the others in its value.

Flink's connector ``kafka`` with ``'value.fields-include' = 'EXCEPT_KEY'`` is this format. It works for every source that gives keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Codec, Decoder, Encoder
from headrace.interfaces.settings import option

from headrace_changes.key_and_value import KeyAndValueDecoder, KeyAndValueSettings, named_in_key

_FORMAT = "keyed"


class KeyedSettings(KeyAndValueSettings, frozen=True, kw_only=True):
    """Options of the format ``keyed``."""

    key_columns: Annotated[
        list[str], option("Columns that are read from the record's key; NULL where a record has none.")
    ]

    def validate(self) -> None:
        if not self.key_columns:
            raise OptionError("the list of columns is empty", plugin=_FORMAT, option="key_columns")


class KeyedCodec(Codec):
    """Key columns from the record's key, the others from its value. Every record is a row that is added."""

    Settings: ClassVar[type[declared.Settings]] = KeyedSettings
    header_fields = frozenset({"key"})

    def __init__(self, settings: KeyedSettings) -> None:
        self._options = settings
        super().__init__(settings)
        self._key_codec, self._value_codec = settings.codecs(_FORMAT)

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError if the formats of key and value cannot handle these columns."""
        from headrace.codecs.text_columns import check_columns

        options, wanted = self._options, check_columns(schema, columns, _FORMAT)
        for name in options.key_columns:
            if name not in schema:
                hint = did_you_mean(name, schema, known="columns")
                raise OptionError(
                    f"column {name!r} is not in the schema", plugin=_FORMAT, option="key_columns", hint=hint
                )
        inner = named_in_key(options.key_columns, options.key_prefix, _FORMAT)
        values = schema.part(name for name in schema if name not in inner)
        needs_key = any(name in inner for name in wanted)
        return KeyAndValueDecoder(
            wanted,
            inner,
            self._key_codec.decoder(schema.part(inner, inner)) if needs_key else None,
            self._value_codec.decoder(values, [name for name in wanted if name not in inner]),
            {name: schema[name] for name in schema},
        )

    def encoder(self, schema: Schema | None) -> Encoder:
        """Raise OptionError: a sink that has keys writes such records with the format of its values."""
        raise OptionError(
            "keyed can only be read", plugin=_FORMAT, option="format",
            hint="to_kafka(…, key=['id'], key_format='json', value_fields_include='except_key') writes such records",
        )  # fmt: skip
