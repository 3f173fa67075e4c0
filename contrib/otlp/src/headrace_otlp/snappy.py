"""Snappy, as remote write uses it: one block, whose length is said at its beginning."""

from __future__ import annotations

import cramjam


class NotSnappyError(ValueError):
    """Bytes are no block of Snappy, or become too many."""


class TooLargeError(NotSnappyError):
    """A block becomes more bytes than allowed."""


def unsnappy(body: bytes, bytes_max: int) -> bytes:
    """Return what a block holds. Raises TooLargeError before it is decompressed, and NotSnappyError."""
    try:
        length = cramjam.snappy.decompress_raw_len(body)
        if length > bytes_max:
            raise TooLargeError(f"the body has {length} bytes after decompression, more than {bytes_max}")
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise NotSnappyError(f"the body is not compressed with Snappy: {error}") from None
