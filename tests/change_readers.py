"""What tests of sources share that read a table and then its changes: an open reader, and all up to the end of the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from headrace.flow.messages import Queue, RawBatch
from headrace.interfaces.source import Reader, Source, StartPosition

SECOND = timedelta(seconds=1)


@contextmanager
def opened_reader(source: Source, start: StartPosition) -> Iterator[Reader]:
    """Give a reader of the source's one queue; reader and source are closed afterwards."""
    reader = source.open(Queue(source.settings.table), start)
    try:
        yield reader
    finally:
        reader.close()
        source.close()


def read_to_end(reader: Reader, *, per_poll: int = 1000) -> list[RawBatch]:
    """Read to where the log ends now."""
    batches, end, idle = [], reader.latest, 0
    while reader.position.offset < end:
        raw = reader.poll(per_poll, SECOND)
        idle = idle + 1 if raw is None else 0
        assert idle < 20, f"nothing comes after {reader.position}, up to {end}"
        if raw is not None and len(raw):
            batches.append(raw)
    return batches
