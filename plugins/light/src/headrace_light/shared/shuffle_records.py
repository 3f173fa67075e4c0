"""Records of a shuffle's topic: the messages that one instance sends to one shard at one moment.

A record is a MessagePack map: ``format``, ``time_us`` (when it was made, microseconds since the Unix epoch) and
``envelopes``, each a list of kind, source, queue, side, time and rows, the last as an Arrow IPC stream compressed with LZ4. A checksum
stands behind the map.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from headrace.flow.messages import Queue
from headrace.foundation.checksums import sealed, unsealed
from headrace.foundation.errors import CheckpointError, DataError
from headrace.runtime.shuffle import ShardMessage

if TYPE_CHECKING:
    import polars as pl

FORMAT_VERSION = 1
#: The largest size of a record without its rows: names of queues are short.
_OVERHEAD_BYTES = 2_000
_MESSAGES_MAX = 200


def encoded(messages: Iterable[ShardMessage], time_us: int, max_bytes: int) -> list[bytes]:
    """Return the messages, in order, as few records of at most ``max_bytes``. Raises DataError for a row larger than that."""
    records: list[bytes] = []
    waiting: list[list[Any]] = []
    size = 0
    for message in messages:
        for packed in _packed(message, max_bytes - _OVERHEAD_BYTES):
            added = len(packed[-1]) + 100 + len(packed[2])
            if waiting and (size + added > max_bytes - _OVERHEAD_BYTES or len(waiting) >= _MESSAGES_MAX):
                records.append(_record(waiting, time_us))
                waiting, size = [], 0
            waiting.append(packed)
            size += added
    if waiting or not records:
        records.append(_record(waiting, time_us))
    return records


def decoded(record: bytes) -> tuple[int, list[ShardMessage]]:
    """Return the time and the messages of a record. Raises DataError when it is something else."""
    import polars as pl

    try:
        stored = msgspec.msgpack.decode(unsealed(record, "a record of a shuffle"))
        if stored["format"] > FORMAT_VERSION:
            raise DataError(
                f"a record of a shuffle was written by a newer version of headrace (format {stored['format']})",
                hint="run all instances of the job with that version",
            )
        messages = [
            ShardMessage(
                kind,
                Queue(name, source),
                side,
                pl.read_ipc_stream(io.BytesIO(rows)) if kind == "rows" else None,
                time_us,
            )
            for kind, source, name, side, time_us, rows in stored["envelopes"]
        ]
        return int(stored["time_us"]), messages
    except (
        msgspec.DecodeError, KeyError, TypeError, ValueError, OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException,
        CheckpointError,
    ) as error:  # fmt: skip
        why = error.message if isinstance(error, CheckpointError) else repr(error)
        raise DataError(
            f"a record of a shuffle is damaged, or was not written by headrace: {why:.200}",
            hint="the topic belongs to the job: no other program may write to it",
        ) from error


def _packed(message: ShardMessage, max_bytes: int) -> Iterator[list[Any]]:
    head = [message.kind, message.queue.source, message.queue.name, message.side, message.time_us]
    if message.frame is None:
        yield [*head, b""]
        return
    for rows in _streams(message.frame, max_bytes - len(message.queue.name)):
        yield [*head, rows]


def _streams(frame: pl.DataFrame, max_bytes: int) -> Iterator[bytes]:
    """Yield a frame as Arrow streams, divided in halves until each fits."""
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="lz4")
    rows = buffer.getvalue()
    if len(rows) <= max_bytes:
        yield rows
        return
    if frame.height == 1:
        raise DataError(
            f"a row of {len(rows):,} bytes is larger than a record of the shuffle's topic may be ({max_bytes:,})",
            hint="leave large columns out before key_by, or let the broker accept larger messages",
        )
    half = frame.height // 2
    yield from _streams(frame.slice(0, half), max_bytes)
    yield from _streams(frame.slice(half), max_bytes)


def _record(messages: Sequence[list[Any]], time_us: int) -> bytes:
    return sealed(msgspec.msgpack.encode({"format": FORMAT_VERSION, "time_us": time_us, "envelopes": messages}))
