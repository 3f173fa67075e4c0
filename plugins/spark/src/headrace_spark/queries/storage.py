"""Whether a query has failed because its checkpoint cannot be written: a device that is full or read-only."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.foundation.errors import JobFailedError
from headrace.foundation.storage_faults import storage_trouble

#: Spark writes a few small files per micro-batch; with less than this the next one would fail again.
_ROOM_BYTES = 64 * 1024


class StorageFullError(JobFailedError):
    """A checkpoint cannot be written for now. Stays inside this package until the job gives up."""


def storage_full(text: str, job: str, checkpoint: str | None) -> StorageFullError | None:
    """Return the error of a query of which Spark says ``text``, if it is that a device is full or read-only."""
    found = storage_trouble(text)
    if found is None:
        return None
    why, hint = found
    place = "Spark's temporary directory" if checkpoint is None else repr(checkpoint)
    again = "the next start continues after the last completed micro-batch"
    return StorageFullError(
        f"the checkpoint cannot be written to {place}: {why}",
        job=job,
        option="checkpoint",
        hint=hint if checkpoint is None else f"{hint}; {again}",
    )


def is_storage_full(error: BaseException) -> bool:
    """Return whether an error of a start says so."""
    return storage_trouble(str(error)) is not None


def check_room(checkpoint: str) -> None:
    """Write a file of some size into the directory and remove it. Raises OSError. Only where it is on this machine."""
    if "://" in checkpoint:
        return
    probe = Path(checkpoint) / f".room-{os.getpid()}"
    try:
        with open(probe, "wb") as file:
            file.write(bytes(_ROOM_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)
