"""Rows that change earlier ones: as records of a compacted topic, or in a format of changes.

In a compacted topic the last record of a key is its row, and a tombstone means that the key has no row. A format of changes
(``Codec.encodes_changes``) says of each record what it changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.flow.changelog import collapsed
from headrace.flow.messages import CHANGE, INDEX, OFFSET
from headrace.foundation.errors import JobError
from headrace.interfaces.operator import Changes
from headrace.interfaces.sink import SinkBatch

from headrace_kafka.settings import KafkaSinkSettings


def accepts(settings: KafkaSinkSettings, *, encodes_changes: bool) -> str:
    """Return which changes the sink takes: all where the format says what changes, else by key.

    A stream that writes tombstones itself only adds rows.
    """
    if settings.tombstone is not None:
        return "append"
    return "changelog" if encodes_changes else "append" if settings.key is None else "upsert"


def check_changes(settings: KafkaSinkSettings, changes: Changes, *, encodes_changes: bool, partitions: int) -> None:
    """Raise JobError unless readers of the topic get the changes of a row in order.

    Without a format of changes the record's key must be the key of the stream's result. With one, all changes of a row must
    be in one partition: their key must not be changed by an update.
    """
    key = settings.key_columns
    named = ", ".join(changes.key or ()) or "of no column (it has one row)"
    if not encodes_changes:
        if changes.key is None or set(changes.key) != set(key):
            raise JobError(
                f"the stream is a changelog with the key {named}, but records have the key {', '.join(key)}",
                plugin="kafka",
                option="key",
                hint="name all columns of the stream's key, and no others: key=['...']",
            )
        return
    if partitions == 1 and settings.partition is None:
        return
    if settings.partition is not None or not key or (changes.key is not None and not set(key) <= set(changes.key)):
        raise JobError(
            f"the stream is a changelog with the key {named}: changes of one row would go to several partitions of the topic "
            f"{settings.topic!r}, and could be read in another order",
            plugin="kafka",
            option="key" if settings.partition is None else "partition",
            hint="name columns of the stream's key as the key of the records, and no partition: key=['...']",
        )


def split_changes(batch: SinkBatch, key: Sequence[str]) -> tuple[SinkBatch, SinkBatch]:
    """Return the final state of the batch: rows to write, and rows whose keys get tombstones; each key is in one of them, once."""
    difference = collapsed(batch.frame, key)
    frames = (each.drop(CHANGE).sort(OFFSET, INDEX) for each in (difference.upserts, difference.deletes))
    written, deleted = (SinkBatch(batch.queue, frame, batch.after, batch.writer) for frame in frames)
    return written, deleted
