"""The format ``avro-confluent``: a byte 0, the id of the schema in a registry (4 bytes), and the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Codec, Decoder, Encoder

from headrace_avro.registry_settings import FORMAT, ConfluentSettings
from headrace_avro.settings import schema_text

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

    from headrace_avro.schemas import AvroType


class AvroConfluentCodec(Codec):
    """Records of Avro whose schemas are in a registry."""

    Settings: ClassVar[type[declared.Settings]] = ConfluentSettings

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._written_text = self._text("avro_schema")
        self._written = self._parsed("avro_schema", self._written_text)
        self._wanted = self._parsed("reader_schema", self._text("reader_schema"))

    def _option(self, name: str) -> str:
        return f"{name}_file" if getattr(self.settings, f"{name}_file") is not None else name

    def _text(self, name: str) -> str | None:
        options = self.settings
        return schema_text(
            getattr(options, name), getattr(options, f"{name}_file"), plugin=FORMAT, option=self._option(name)
        )

    def _parsed(self, name: str, text: str | None) -> AvroType | None:
        if text is None:
            return None
        from headrace_avro.schemas import parse_schema

        return parse_schema(text, plugin=FORMAT, option=self._option(name))

    def default_schema(self) -> Schema | None:
        """Return the columns of the reader's schema; without one, those of the latest version of the subject, which
        the registry gives; otherwise None.
        """
        from headrace_avro.column_types import columns_of

        if self._wanted is not None:
            return columns_of(self._wanted)
        if self.settings.subject is None:
            return None
        return columns_of(self._latest()[2])

    def _latest(self) -> tuple[int, str, AvroType]:
        """Return the latest version of the subject. Raises JobError when there is none."""
        from headrace_schemaregistry import latest_schema

        from headrace_avro.schemas import parse_schema

        schema_id, schema = latest_schema(self.settings, "AVRO")
        references = tuple(each.text for each in schema.references)
        return schema_id, schema.text, parse_schema(schema.text, plugin=FORMAT, option="subject", references=references)

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError for columns that the reader's schema does not have. Does not ask the
        registry.
        """
        from headrace_avro.confluent_decoder import ConfluentDecoder
        from headrace_avro.conversions import TypeMismatchError, conversion

        if self._wanted is not None:
            for name, kind in schema.items():
                found = self._wanted.field(name)
                if found is None:
                    hint = did_you_mean(name, [each.name for each in self._wanted.fields], known="fields")
                    raise OptionError(
                        f"column {name!r} is not a field of the Avro schema", plugin=FORMAT, option="schema", hint=hint
                    )
                try:
                    conversion(found.type, kind)
                except TypeMismatchError as error:
                    raise OptionError(f"column {name!r}: {error}", plugin=FORMAT, option="schema") from error
        chosen = {name: schema[name] for name in (schema if columns is None else columns)}
        return ConfluentDecoder(self.settings, self._wanted, chosen)

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder. Raises OptionError when no schema is known, or the columns do not fit it.

        The registry is asked when the first rows are written. It is asked earlier only for the latest version, if this
        is the version to write.
        """
        from headrace_schemaregistry import RegisteringEncoder, check_subject, prefix_of

        from headrace_avro.column_types import record_of
        from headrace_avro.encoder import RecordEncoder
        from headrace_avro.schemas import canonical_text

        options = self.settings
        check_subject(options)
        if self._written is not None:
            assert self._written_text is not None
            record, text = self._written, self._written_text
        elif not options.register_schema:
            schema_id, _, record = self._latest()
            return RecordEncoder(record, schema, FORMAT, prefix_of(schema_id))
        elif schema is not None:
            record = record_of(schema, options.record_name, FORMAT)
            text = canonical_text(record)
        else:
            raise OptionError(
                "the columns are not known when the job is built",
                plugin=FORMAT,
                option="avro_schema",
                hint="give the schema, or name the columns with select() before the sink",
            )
        RecordEncoder(record, schema, FORMAT)
        return RegisteringEncoder(options, text, "AVRO", lambda prefix: RecordEncoder(record, schema, FORMAT, prefix))
