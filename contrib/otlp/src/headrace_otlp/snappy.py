"""Decompresses Snappy as remote write uses it: one block, which begins with its length after decompression."""

from __future__ import annotations

import cramjam


class NotSnappyError(ValueError):
    """The bytes are not a block of Snappy, or the block is too large after decompression."""


class TooLargeError(NotSnappyError):
    """A block is larger than allowed after decompression."""


def unsnappy(body: bytes, bytes_max: int) -> bytes:
    """Return the decompressed bytes of a block. Raises NotSnappyError, and TooLargeError before anything is
    decompressed.
    """
    try:
        length = cramjam.snappy.decompress_raw_len(body)
        if length > bytes_max:
            raise TooLargeError(f"the body has {length} bytes after decompression, more than {bytes_max}")
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise NotSnappyError(f"the body is not compressed with Snappy: {error}") from None
