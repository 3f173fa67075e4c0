"""Rows that change earlier ones, as records of a compacted topic.

The last record of a key is its row; a tombstone means that the key has no row.
"""

from __future__ import annotations

from headrace.flow.changelog import collapsed
from headrace.flow.messages import CHANGE, INDEX, OFFSET
from headrace.foundation.errors import JobError
from headrace.interfaces.operator import Changes
from headrace.interfaces.sink import SinkBatch

from headrace_kafka.settings import KafkaSinkSettings


def accepts(settings: KafkaSinkSettings) -> str:
    """Return which changes the sink takes: by key, when there is a key and the stream writes no tombstones itself."""
    return "append" if settings.key is None or settings.tombstone is not None else "upsert"


def check_changes(settings: KafkaSinkSettings, changes: Changes) -> None:
    """Raise JobError unless the record's key is the key of the stream's result."""
    if changes.key == (settings.key,):
        return
    named = ", ".join(changes.key or ()) or "of no column (it has one row)"
    raise JobError(
        f"the stream is a changelog with the key {named}, but records have the key {settings.key!r}",
        plugin="kafka",
        option="key",
        hint="give the stream a key of one column, made of all columns of the key: key_by(id=\"CONCAT(a, '-', b)\")",
    )


def split_changes(batch: SinkBatch, key: str) -> tuple[SinkBatch, SinkBatch]:
    """Return the final state of the batch: rows to write, and rows whose keys get tombstones; each key is in one of them, once."""
    difference = collapsed(batch.frame, (key,))
    frames = (each.drop(CHANGE).sort(OFFSET, INDEX) for each in (difference.upserts, difference.deletes))
    written, deleted = (SinkBatch(batch.queue, frame, batch.after, batch.writer) for frame in frames)
    return written, deleted
