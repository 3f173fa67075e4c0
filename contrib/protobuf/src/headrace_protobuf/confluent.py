"""The format ``protobuf-confluent``: a byte 0, the id of a schema (4 bytes), the index of the message in the schema,
and the message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from headrace.flow.messages import Bodies
from headrace.foundation.errors import did_you_mean
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import BadBody, Decoded, Decoder, Encoder
from headrace.interfaces.settings import option
from headrace_schemaregistry import (
    RegisteredDecoder,
    RegisteredSchema,
    RegisteringEncoder,
    RegistrySettings,
    check_subject,
    latest_schema,
    prefix_of,
)

from headrace_protobuf.codec import ProtobufCodec
from headrace_protobuf.proto_texts import Place, messages_of, read, written

if TYPE_CHECKING:
    import polars as pl
    from headrace.flow.schema import Schema

FORMAT = "protobuf-confluent"
_KIND = "PROTOBUF"


class ConfluentSettings(RegistrySettings, frozen=True, kw_only=True):
    """Options of the format ``protobuf-confluent``."""

    format_name: ClassVar[str] = FORMAT

    descriptor_file: Annotated[
        str,
        option(
            "File with the descriptor set, made by protoc --include_imports --descriptor_set_out. It is read when the job is built."
        ),
    ]
    message: Annotated[str, option("Full name of the message that a body holds, such as shop.Order.")]
    proto_file: Annotated[
        str | None,
        option(
            "The .proto file of the message, which a sink registers. With register_schema=False it may be left out."
        ),
    ] = None
    null_as_default: Annotated[
        bool, option("Whether a sink leaves out a field for NULL that has no presence. False: such a row is refused.")
    ] = False


class ProtobufConfluentCodec(ProtobufCodec):
    """Messages with ids of schemas. The descriptor set of the job decodes all bodies, whichever version wrote them."""

    Settings: ClassVar[type[declared.Settings]] = ConfluentSettings

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._text: str | None = None
        if settings.proto_file is not None:
            try:
                self._text = Path(settings.proto_file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise settings.refused("proto_file", f"cannot read {settings.proto_file!r}: {error}") from error
            self._place(self._text, "proto_file")

    def _place(self, text: str, naming: str) -> Place:
        """Return the index of the message in a schema text. Raises OptionError if the text does not have it."""
        found = {name: place for place, name in messages_of(text).items()}
        if self.settings.message not in found:
            hint = did_you_mean(self.settings.message, found, known="messages")
            raise self.settings.refused(naming, f"it declares no message {self.settings.message!r}", hint)
        return found[self.settings.message]

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError for columns that the message does not have. It does not ask the
        registry.
        """
        chosen = {name: schema[name] for name in (schema if columns is None else columns)}
        return ConfluentDecoder(self.settings, chosen, super().decoder(schema, columns))

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder. Raises OptionError when the columns are not known, do not fit, or no schema is given.

        The registry is asked when the first rows are written. It is asked earlier only for the latest version, if this
        is the version to write.
        """
        options = self.settings
        check_subject(options)
        inner = super().encoder(schema)
        if self._text is not None:
            place = written(self._place(self._text, "proto_file"))
            return RegisteringEncoder(
                options, self._text, _KIND, lambda prefix: _PrefixedEncoder(inner, prefix + place)
            )
        if options.register_schema:
            hint = "give the .proto file; with register_schema=False the latest version of the subject is written"
            raise options.refused(
                "proto_file", "a sink that registers its schema needs the schema's text (proto_file)", hint
            )
        schema_id, latest = latest_schema(options, _KIND)
        return _PrefixedEncoder(inner, prefix_of(schema_id) + written(self._place(latest.text, "subject")))


class _PrefixedEncoder(Encoder):
    def __init__(self, inner: Encoder, prefix: bytes) -> None:
        self._inner = inner
        self._prefix = prefix

    def encode(self, frame: Any) -> Sequence[bytes]:
        return [self._prefix + body for body in self._inner.encode(frame)]

    def encode_lines(self, frame: Any) -> bytes:
        return self._inner.encode_lines(frame)


class ConfluentDecoder(RegisteredDecoder):
    """Accepts messages with the configured name; ``inner`` decodes them."""

    kind = _KIND

    def __init__(
        self,
        settings: ConfluentSettings,
        columns: Mapping[str, pl.DataType],
        inner: Decoder,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings, columns, monotonic=monotonic)
        self._message = settings.message
        self._inner = inner

    def decoder_of(self, schema_id: int, schema: RegisteredSchema) -> Decoder:
        """Return the decoder for the messages of a schema; see ``RegisteredDecoder``."""
        return _OfOneSchema(messages_of(schema.text), self._message, self._inner)


class _OfOneSchema(Decoder):
    """Decodes the bodies of one schema. Each body begins with the index of its message in the schema."""

    def __init__(self, messages: Mapping[Place, str], wanted: str, inner: Decoder) -> None:
        self._messages = messages
        self._wanted = wanted
        self._inner = inner
        self._first_is_wanted = messages.get((0,)) == wanted

    def decode(self, bodies: Bodies) -> Decoded:
        if self._first_is_wanted and self._all_first(bodies):
            return self._inner.decode(Bodies(bodies.buffer, bodies.starts + 1, bodies.ends))
        reasons: dict[int, str] = {}
        rows: list[int] = []
        lengths: list[int] = []
        for row, body in enumerate(bodies):
            found = read(body)
            name = None if found is None else self._messages.get(found[0])
            if found is None:
                reasons[row] = "the place of the message in its schema is missing, or cannot be read"
            elif name is None:
                reasons[row] = f"the schema has no message at the place {'.'.join(map(str, found[0]))}"
            elif name != self._wanted:
                reasons[row] = f"the body is a message {name}, not {self._wanted}"
            else:
                rows.append(row)
                lengths.append(found[1])
        places = np.array(rows, dtype=np.int64)
        starts = bodies.starts[places] + np.array(lengths, dtype=np.int64)
        decoded = self._inner.decode(Bodies(bodies.buffer, starts, bodies.ends[places]))
        reasons.update({int(places[bad.row]): bad.reason for bad in decoded.bad})
        kept = places if decoded.rows is None else places[decoded.rows]
        return Decoded(decoded.frame, kept, [BadBody(row, reasons[row]) for row in sorted(reasons)])

    @staticmethod
    def _all_first(bodies: Bodies) -> bool:
        """Return whether each body begins with a byte 0: the first message of its schema."""
        if not len(bodies) or bool((bodies.ends <= bodies.starts).any()):
            return False
        return not np.frombuffer(bodies.buffer, dtype=np.uint8)[bodies.starts].any()
