"""The format ``avro-confluent``: a byte 0, the id of the schema in a registry (4 bytes), and the record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import OptionError, RetriableError, did_you_mean
from headrace.foundation.retrying import Tries, until_done
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Codec, Decoder, Encoder

from headrace_avro.registry_settings import FORMAT, ConfluentSettings
from headrace_avro.settings import schema_text

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

    from headrace_avro.registry import SchemaRegistry
    from headrace_avro.schemas import AvroType

T = TypeVar("T")
#: While a job is built, the registry is waited for so long. A running job waits as it does for other servers.
_BUILD_WAIT = timedelta(seconds=30)


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
        """Return the columns of the reader's schema, else of the latest version of the subject, else None. Asks the registry for that."""
        from headrace_avro.column_types import columns_of

        if self._wanted is not None:
            return columns_of(self._wanted)
        if self.settings.subject is None:
            return None
        return columns_of(self._latest()[2])

    def _latest(self) -> tuple[int, str, AvroType]:
        """Return the latest version of the subject. Raises JobError when there is none."""
        from headrace_avro.registry import SchemaRegistry
        from headrace_avro.schemas import parse_schema

        registry, subject = SchemaRegistry(self.settings), self.settings.subject
        try:
            found = _waited_for(lambda: registry.latest(subject))
        finally:
            registry.close()
        if found is None:
            hint = "check its name (for values of a topic: the topic's name and '-value'), or declare the columns"
            raise OptionError(f"the registry has no subject {subject!r}", plugin=FORMAT, option="subject", hint=hint)
        schema_id, schema = found
        if schema.kind != "AVRO":
            raise OptionError(
                f"the latest schema of {subject!r} is of type {schema.kind}", plugin=FORMAT, option="subject"
            )
        return (
            schema_id,
            schema.text,
            parse_schema(schema.text, plugin=FORMAT, option="subject", references=schema.references),
        )

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError for columns that the reader's schema does not have. Does not ask the registry."""
        from headrace_avro.confluent_decoder import ConfluentDecoder
        from headrace_avro.conversions import TypeMismatchError, conversion

        if self._wanted is not None:
            for name, kind in schema.items():
                found = self._wanted.field(name)
                if found is None:
                    hint = did_you_mean(name, [each.name for each in self._wanted.fields], known="fields")
                    raise OptionError(
                        f"column {name!r} is no field of the Avro schema", plugin=FORMAT, option="schema", hint=hint
                    )
                try:
                    conversion(found.type, kind)
                except TypeMismatchError as error:
                    raise OptionError(f"column {name!r}: {error}", plugin=FORMAT, option="schema") from error
        chosen = {name: schema[name] for name in (schema if columns is None else columns)}
        return ConfluentDecoder(self.settings, self._wanted, chosen)

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder. Raises OptionError when no schema is known, or the columns do not fit it.

        The registry is asked when the first rows are written; before that only for the latest version, where that is what is written.
        """
        from headrace_avro.column_types import record_of
        from headrace_avro.encoder import RecordEncoder
        from headrace_avro.schemas import canonical_text

        options = self.settings
        if options.subject is None:
            hint = "for the values of a Kafka topic: the topic's name and '-value'"
            raise OptionError("a sink needs the subject of its schema", plugin=FORMAT, option="subject", hint=hint)
        if self._written is not None:
            assert self._written_text is not None
            record, text = self._written, self._written_text
        elif not options.register_schema:
            schema_id, _, record = self._latest()
            return RecordEncoder(record, schema, FORMAT, _prefix(schema_id))
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
        return _RegisteringEncoder(options, record, text, schema)


class _RegisteringEncoder(Encoder):
    """Looks up or registers its schema with the first rows."""

    def __init__(self, settings: ConfluentSettings, record: AvroType, text: str, schema: Schema | None) -> None:
        self._settings = settings
        self._record = record
        self._text = text
        self._schema = schema
        self._encoder: Encoder | None = None

    def encode(self, frame: Any) -> Sequence[bytes]:
        """Encode rows. Raises RetriableError while the registry is away, JobError when it refuses the schema."""
        return self._made().encode(frame)

    def encode_lines(self, frame: Any) -> bytes:
        """Raise OptionError; see ``RecordEncoder``."""
        return self._made().encode_lines(frame)

    def _made(self) -> Encoder:
        if self._encoder is None:
            from headrace_avro.encoder import RecordEncoder
            from headrace_avro.registry import SchemaRegistry

            registry = SchemaRegistry(self._settings)
            try:
                schema_id = self._id(registry)
            finally:
                registry.close()
            self._encoder = RecordEncoder(self._record, self._schema, FORMAT, _prefix(schema_id))
        return self._encoder

    def _id(self, registry: SchemaRegistry) -> int:
        subject = self._settings.subject
        assert subject is not None
        if self._settings.register_schema:
            return registry.register(subject, self._text)
        found = registry.registered(subject, self._text)
        if found is None:
            raise OptionError(
                f"the schema is no version of the subject {subject!r}",
                plugin=FORMAT,
                option="register_schema",
                hint="register it, let the sink do it with register_schema=True, or leave out avro_schema to write the latest version",
            )
        return found


def _prefix(schema_id: int) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big")


def _waited_for(action: Callable[[], T]) -> T:
    """Return what an action gives; while the registry is away it is tried again, for a while."""

    def failed(error: RetriableError, tries: Tries) -> None:
        left = _BUILD_WAIT.total_seconds() - tries.waited_seconds
        if left <= 0:
            raise error
        tries.pause_seconds = min(tries.pause_seconds, left)

    return until_done(action, clock=SystemClock(), stopping=threading.Event(), retriable=RetriableError, failed=failed)
