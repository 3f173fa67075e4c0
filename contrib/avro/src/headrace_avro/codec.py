"""The format ``avro``: each body is one record, without a header. Both sides know the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Codec, Decoder, Encoder

from headrace_avro.settings import AvroSettings, schema_text

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

    from headrace_avro.schemas import AvroType

_FORMAT = "avro"


class AvroCodec(Codec):
    """Single records of Avro in binary encoding."""

    Settings: ClassVar[type[declared.Settings]] = AvroSettings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._written = self._schema("avro_schema")
        self._wanted = self._schema("reader_schema") or self._written

    def _schema(self, name: str) -> AvroType | None:
        options = self.settings
        option = f"{name}_file" if getattr(options, f"{name}_file") is not None else name
        text = schema_text(getattr(options, name), getattr(options, f"{name}_file"), plugin=_FORMAT, option=option)
        if text is None:
            return None
        from headrace_avro.schemas import parse_schema

        return parse_schema(text, plugin=_FORMAT, option=option)

    def default_schema(self) -> Schema | None:
        """Return the columns of the schema, or None when there is none."""
        if self._wanted is None:
            return None
        from headrace_avro.column_types import columns_of

        return columns_of(self._wanted)

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError for columns that the Avro schema does not have."""
        from headrace_avro.column_types import record_of
        from headrace_avro.conversions import TypeMismatchError
        from headrace_avro.decoder import RecordDecoder

        written = self._written or record_of(schema, self.settings.record_name, _FORMAT)
        wanted = self._wanted or written
        for name in schema:
            if wanted.field(name) is None:
                hint = did_you_mean(name, [each.name for each in wanted.fields], known="fields")
                raise OptionError(
                    f"column {name!r} is not a field of the Avro schema", plugin=_FORMAT, option="schema", hint=hint
                )
        chosen = {name: schema[name] for name in (schema if columns is None else columns)}
        try:
            return RecordDecoder(written, wanted, chosen, self.settings.max_body_bytes)
        except TypeMismatchError as error:
            raise OptionError(str(error), plugin=_FORMAT, option="schema", hint="declare another type") from error

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder. Raises OptionError when no schema is known, or the columns do not fit it."""
        from headrace_avro.column_types import record_of
        from headrace_avro.encoder import RecordEncoder

        if self._written is None and schema is None:
            raise OptionError(
                "the columns are not known when the job is built",
                plugin=_FORMAT,
                option="avro_schema",
                hint="give the schema, or name the columns with select() before the sink",
            )
        if self._written is not None:
            record = self._written
        else:
            assert schema is not None
            record = record_of(schema, self.settings.record_name, _FORMAT)
        return RecordEncoder(record, schema, _FORMAT)
