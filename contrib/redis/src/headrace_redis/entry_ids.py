"""Converts ids of entries to offsets: integers in the same order.

An id has milliseconds and a sequence number. An offset has the milliseconds in its upper 42 bits, which is enough until the year
2109, and the sequence number in the lower 21: up to 2,097,151 entries of one millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from headrace.foundation.errors import DataError
from numpy.typing import NDArray

from headrace_redis.settings import PLUGIN

SEQUENCE_BITS = 21
_SEQUENCE_END = 1 << SEQUENCE_BITS
_MILLISECONDS_END = 1 << (63 - SEQUENCE_BITS)


def offset_of(entry_id: bytes | str, stream: str) -> int:
    """Return the offset of an id. Raises DataError, naming both, for an id that does not fit."""
    text = entry_id.decode() if isinstance(entry_id, bytes) else entry_id
    milliseconds, _, sequence = text.partition("-")
    if int(milliseconds) >= _MILLISECONDS_END or int(sequence) >= _SEQUENCE_END:
        raise DataError(
            f"entry {text} of stream {stream!r} cannot be used as an offset: the part before '-f' must be less than {_MILLISECONDS_END}, "
            f"and the part after it less than {_SEQUENCE_END}",
            plugin=PLUGIN,
            queue=stream,
            hint="let the server choose ids (XADD with *); if the server's clock is set back, the server increases only the second part "
            "until the clock has caught up",
        )
    return int(milliseconds) << SEQUENCE_BITS | int(sequence)


def offsets_of(entry_ids: Sequence[bytes], stream: str) -> NDArray[np.int64]:
    """Return the offsets of many ids. Raises DataError for one that does not fit."""
    return np.fromiter((offset_of(each, stream) for each in entry_ids), dtype=np.int64, count=len(entry_ids))


def id_of(offset: int) -> str:
    """Return the id of an offset."""
    return f"{offset >> SEQUENCE_BITS}-{offset & (_SEQUENCE_END - 1)}"


def times_of(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the times of entries by their offsets, in microseconds since the Unix epoch."""
    return (offsets >> SEQUENCE_BITS) * 1000
