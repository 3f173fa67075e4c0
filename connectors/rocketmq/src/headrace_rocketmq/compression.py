"""Compressed bodies: zlib, and LZ4 frames and Zstandard where these packages are installed.

A body's `sysFlag` says that it is compressed (bit 0) and how (bits 8 to 10).
"""

from __future__ import annotations

import importlib
import zlib
from enum import IntEnum
from typing import Any

from headrace_rocketmq.codes import MessageFlag
from headrace_rocketmq.errors import ConfigurationError, InvalidMessageError

BODY_BYTES_MAX = 64 * 1024 * 1024
"""A body that would unpack to more is refused: a few kilobytes can be made to unpack to gigabytes."""

_KIND_SHIFT = 8
_KIND_MASK = 7
_ZLIB_LEVEL = 5
_ZSTD_LEVEL = 3
_ZSTD_PIECE_BYTES = 512


class Compression(IntEnum):
    """How bodies are compressed; the number is the one in the protocol."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def message_flag(self) -> int:
        """The bits of `sysFlag` for a body compressed in this way."""
        return MessageFlag.COMPRESSED | self << _KIND_SHIFT


def _package(name: str, distribution: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigurationError(
            f"bodies compressed with {distribution} need it installed: pip install headrace-rocketmq[{distribution}]"
        ) from error


def compress(body: bytes, kind: Compression) -> bytes:
    """The compressed body. Raises ConfigurationError if the package for this kind is not installed."""
    match kind:
        case Compression.ZLIB:
            return zlib.compress(body, _ZLIB_LEVEL)
        case Compression.LZ4:
            packed: bytes = _package("lz4.frame", "lz4").compress(body)
            return packed
        case Compression.ZSTD:
            packed = _package("zstandard", "zstandard").ZstdCompressor(level=_ZSTD_LEVEL).compress(body)
            return packed


def decompress(body: bytes, message_flag: int, body_bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The decompressed body of a message with that `sysFlag`.

    Raises InvalidMessageError if it cannot be decompressed or is larger than allowed, ConfigurationError if the package for
    it is not installed.
    """
    if not message_flag & MessageFlag.COMPRESSED:
        return body
    kind = message_flag >> _KIND_SHIFT & _KIND_MASK
    try:
        match kind:
            case Compression.ZLIB | 0:  # 0: written by older clients, which had no choice
                unpacked = _drain(zlib.decompressobj(), body, body_bytes_max)
            case Compression.LZ4:
                unpacked = _drain(_package("lz4.frame", "lz4").LZ4FrameDecompressor(), body, body_bytes_max)
            case Compression.ZSTD:
                unpacked = _unpack_zstd(body, body_bytes_max)
            case _:
                raise InvalidMessageError(f"the body is compressed by an unknown method ({kind})")
    except (InvalidMessageError, ConfigurationError):
        raise
    except Exception as error:  # each library has its own exceptions, some of them bare RuntimeError
        raise InvalidMessageError(f"the body cannot be decompressed: {error}") from error
    return unpacked


def _drain(decompressor: Any, body: bytes, body_bytes_max: int) -> bytes:
    unpacked: bytes = decompressor.decompress(
        body, body_bytes_max + 1
    )  # one byte more than the limit shows whether the output was cut
    _check_unpacked(len(unpacked), decompressor.eof, body_bytes_max)
    return unpacked


def _unpack_zstd(body: bytes, body_bytes_max: int) -> bytes:
    # This library limits either memory or notices a missing end, not both. So it gets small pieces: the smallest
    # block takes 4 bytes and makes 128 KiB, so that one piece cannot make more than 16 MiB.
    decompressor = _package("zstandard", "zstandard").ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    for at in range(0, len(body), _ZSTD_PIECE_BYTES):
        parts.append(decompressor.decompress(body[at : at + _ZSTD_PIECE_BYTES]))
        size += len(parts[-1])
        if size > body_bytes_max or decompressor.eof:
            break
    _check_unpacked(size, decompressor.eof, body_bytes_max)
    return b"".join(parts)


def _check_unpacked(size: int, at_end: bool, body_bytes_max: int) -> None:
    if size > body_bytes_max:
        raise InvalidMessageError(f"the body cannot be decompressed: it is larger than {body_bytes_max} bytes")
    if not at_end:
        raise InvalidMessageError("the body cannot be decompressed: it is truncated")
