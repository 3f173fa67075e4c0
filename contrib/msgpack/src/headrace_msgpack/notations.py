"""Converts bytes to Python objects and back: msgspec for MessagePack, cbor2 for CBOR."""

from __future__ import annotations

import datetime as dt
import io
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import cbor2
import msgspec


class NotationError(ValueError):
    """A body is not valid in the format, or the format cannot hold a row."""


class Notation(ABC):
    """One of the formats."""

    name: ClassVar[str]

    @abstractmethod
    def read(self, body: bytes) -> dict[str, Any]:
        """Return the map of a body. Raises NotationError for bytes that are not exactly one map."""

    @abstractmethod
    def write(self, row: dict[str, Any]) -> bytes:
        """Return the body of a row. Raises NotationError."""


class Msgpack(Notation):
    """MessagePack, by msgspec. Bytes and timestamps have types of their own; dates, times and decimals are texts."""

    name = "msgpack"

    def __init__(self) -> None:
        self._decode = msgspec.msgpack.Decoder(dict[str, Any]).decode
        self._encode = msgspec.msgpack.Encoder().encode

    def read(self, body: bytes) -> dict[str, Any]:
        try:
            return self._decode(body)
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
            raise NotationError(f"not a map of MessagePack: {error}") from error

    def write(self, row: dict[str, Any]) -> bytes:
        try:
            return self._encode(row)
        except (msgspec.EncodeError, ValueError, TypeError, OverflowError) as error:
            raise NotationError(str(error)) from error


_SELF_DESCRIBED = b"\xd9\xd9\xf7"


class Cbor(Notation):
    """CBOR, by cbor2. Bytes, timestamps and decimals have types of their own; dates, times and durations are texts."""

    name = "cbor"

    def read(self, body: bytes) -> dict[str, Any]:
        # The tag of self-described CBOR, with which files may begin.
        body = body.removeprefix(_SELF_DESCRIBED)
        file = io.BytesIO(body)
        try:
            made = cbor2.CBORDecoder(file, read_size=1).decode()
        except (cbor2.CBORError, ValueError, OverflowError, RecursionError, TypeError, MemoryError) as error:
            raise NotationError(f"not a map of CBOR: {error}") from error
        if type(made) is not dict or not all(type(key) is str for key in made):
            raise NotationError("the body is not a map with texts as keys")
        left = len(body) - file.tell()
        if left:
            raise NotationError(f"{left} bytes follow the map")
        return made

    def write(self, row: dict[str, Any]) -> bytes:
        try:
            return cbor2.dumps(row, default=_text, encoders={dt.datetime: _moment})
        except (cbor2.CBORError, ValueError, TypeError, OverflowError) as error:
            raise NotationError(str(error)) from error


def _text(encoder: Any, value: Any) -> None:
    """Write a value for which CBOR has no type as JSON writes it."""
    encoder.encode(msgspec.to_builtins(value))


def _moment(encoder: Any, value: dt.datetime) -> None:
    """Write an instant with CBOR's tag 0, and a time without a zone as a text."""
    text = msgspec.to_builtins(value)
    encoder.encode(cbor2.CBORTag(0, text) if value.tzinfo else text)
