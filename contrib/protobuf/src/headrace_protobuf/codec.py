"""The format ``protobuf``: each body is one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.foundation.errors import OptionError
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Codec, Decoder, Encoder

from headrace_protobuf.settings import ProtobufSettings

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

_FORMAT = "protobuf"


class ProtobufCodec(Codec):
    """Messages of a descriptor set. Its fields are the columns."""

    Settings: ClassVar[type[declared.Settings]] = ProtobufSettings

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        from headrace_protobuf.descriptors import read_descriptor_file

        #: The descriptor set travels with the job; classes of messages do not.
        self._descriptors = read_descriptor_file(settings.descriptor_file)
        self._made: Any = None
        self._message()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def _message(self) -> Any:
        from headrace_protobuf.descriptors import message_class

        if self._made is None:
            self._made = message_class(self._descriptors, self.settings.message)
        return self._made

    def default_schema(self) -> Schema:
        """Return the fields of the message. A field without a column type becomes JSON text."""
        import polars as pl
        from headrace.flow.schema import Schema

        from headrace_protobuf.fields import column_type

        types = {each.name: column_type(each) for each in self._message().DESCRIPTOR.fields}
        texts = [name for name, kind in types.items() if kind is None]
        return Schema({name: kind or pl.String() for name, kind in types.items()}, json_columns=texts)

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError for columns that the message does not have."""
        from headrace_protobuf.decoder import ProtobufDecoder

        chosen = {name: schema[name] for name in (schema if columns is None else columns)}
        ProtobufDecoder(self._message(), dict(schema), self.settings.max_body_bytes)
        return ProtobufDecoder(self._message(), chosen, self.settings.max_body_bytes)

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder. Raises OptionError when the columns are not known, or do not fit the message."""
        from headrace_protobuf.encoder import ProtobufEncoder

        if schema is None:
            raise OptionError(
                "the columns are not known when the job is built",
                plugin=_FORMAT,
                option="message",
                hint="name them with select() before the sink",
            )
        return ProtobufEncoder(self._message(), schema, null_as_default=self.settings.null_as_default)
