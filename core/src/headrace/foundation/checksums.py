"""Checksums of stored bytes: CRC-32 behind them, and of JSON values among them.

They detect accidental damage: flipped bits, truncated files, exchanged files. They do not protect against somebody who can write the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from headrace.foundation.errors import CheckpointError

_MARK = b"\xc1HRC"
_TRAILER_BYTES = len(_MARK) + 4


def sealed(content: bytes, place: bytes = b"", *, head: bytes = b"") -> bytes:
    """Return ``head`` and ``content`` with a checksum behind them, which is right at this place only."""
    return b"".join(sealed_parts(content, place, head=head))


def sealed_parts(content: bytes, place: bytes = b"", *, head: bytes = b"") -> tuple[bytes, ...]:
    """Return what ``sealed`` returns in parts: state may have hundreds of megabytes, which are not copied then."""
    return head, content, trailer(content, crc32(head, crc32(place)))


def trailer(content: bytes | memoryview, before: int = crc32(b"")) -> bytes:
    """Return the checksum that ``sealed`` appends to a content. ``before``: the checksum of the preceding bytes."""
    return _MARK + crc32(content, before).to_bytes(4, "big")


def unsealed(content: bytes, what: str, place: bytes = b"", *, required: bool = False) -> bytes:
    """Return what ``sealed`` was given; bytes without a checksum, of an older version, as they are unless one is ``required``.

    The mark is no beginning of a MessagePack value, so a checksum whose mark is damaged leaves bytes that cannot be decoded.
    Raises CheckpointError that says ``what`` is damaged.
    """
    has_checksum = content[-_TRAILER_BYTES:-4] == _MARK
    if not (has_checksum or required):
        return content
    found = content[:-_TRAILER_BYTES]
    if not has_checksum or crc32(found, crc32(place)).to_bytes(4, "big") != content[-4:]:
        raise CheckpointError(
            f"{what} is damaged, or of another job: its checksum does not match",
            hint="go back to an older checkpoint, or start from the beginning with another checkpoint directory",
        )
    return found


def checksum_of(values: Mapping[str, Any]) -> str:
    """Return the checksum of JSON values without their own ``checksum``, as 8 hexadecimal digits."""
    own = {name: value for name, value in values.items() if name != "checksum"}
    return f"{crc32(json.dumps(own, sort_keys=True).encode()):08x}"
