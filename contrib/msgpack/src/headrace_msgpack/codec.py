"""The formats ``msgpack`` and ``cbor``: each body is one map whose keys are the columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.codecs.json import JsonCodec, JsonSettings
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Decoder, Encoder

if TYPE_CHECKING:
    from headrace.flow.schema import Schema

    from headrace_msgpack.notations import Notation


class BinarySettings(JsonSettings, frozen=True, kw_only=True):
    """Options of the formats ``msgpack`` and ``cbor``: those of ``json``."""


class _BinaryCodec(JsonCodec):
    """Base of both formats. Values follow the rules of ``json``, whose decoder makes the columns."""

    Settings: ClassVar[type[declared.Settings]] = BinarySettings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)

    @abstractmethod
    def notation(self) -> Notation:
        """Return the object that reads and writes the bytes."""

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError in the same cases as the format ``json``."""
        from headrace_msgpack.decoder import BinaryDecoder

        return BinaryDecoder(self.notation(), super().decoder(schema, columns), self.settings.max_body_bytes)

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder."""
        from headrace_msgpack.encoder import BinaryEncoder

        super().encoder(schema)  # checks json_columns
        texts = frozenset(self.settings.json_columns) | (frozenset() if schema is None else schema.json_columns)
        return BinaryEncoder(self.notation(), texts)


class MsgpackCodec(_BinaryCodec):
    """MessagePack."""

    def notation(self) -> Notation:
        """Return MessagePack."""
        from headrace_msgpack.notations import Msgpack

        return Msgpack()


class CborCodec(_BinaryCodec):
    """CBOR (RFC 8949)."""

    def notation(self) -> Notation:
        """Return CBOR."""
        from headrace_msgpack.notations import Cbor

        return Cbor()
