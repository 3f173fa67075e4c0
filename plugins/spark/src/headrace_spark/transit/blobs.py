"""Rows between two stages on one machine: written to a file and read from it, while Java passes on only where they are.

Through Java rows are compressed, go through two sockets and a shuffle file, and are copied about eight times. A file in the run's
directory is written and read once, mostly in the system's page cache. The files of a micro-batch stay until it is completed: until
then a task may run again and read them again. A task that writes again writes other files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.foundation.errors import RetriableError

if TYPE_CHECKING:
    import polars as pl

#: What a place begins with. An Arrow IPC stream begins with other bytes.
_MARK = b"\0headrace blob\0"
_DIRECTORY = "blobs"
#: Smaller frames go through Java: a file costs more.
_BYTES_MIN = 64 * 1024


class Blobs:
    """Writes the frames of a task of one micro-batch to files."""

    def __init__(self, run_directory: str, batch_id: int) -> None:
        self._directory = Path(run_directory) / _DIRECTORY / str(batch_id)

    def put(self, frame: pl.DataFrame) -> bytes | None:
        """Write a frame and return its place; None when it is small or cannot be written: then it goes through Java."""
        if frame.estimated_size() < _BYTES_MIN:
            return None
        path = self._directory / f"{os.getpid()}-{uuid.uuid4().hex}"
        try:
            # Not the run's directory: if that is gone, so is the run, and the directory would not be this user's alone.
            for directory in (self._directory.parent, self._directory):
                directory.mkdir(mode=0o700, exist_ok=True)
            frame.write_ipc_stream(path, compression="uncompressed")
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None
        return _MARK + os.fsencode(path)


def is_place(payload: bytes) -> bool:
    """Return whether a payload is the place of a frame, not the frame itself."""
    return payload.startswith(_MARK)


def frame_at(place: bytes, rows: int) -> pl.DataFrame:
    """Return the frame of so many rows at a place. Raises RetriableError when it is not there, or not as it was written."""
    import polars as pl  # not at the top: the committing process only removes files

    path = os.fsdecode(place[len(_MARK) :])
    try:
        frame = pl.read_ipc_stream(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    else:
        if frame.height == rows:
            return frame
        reason = f"it has {frame.height} rows of {rows}"
    raise RetriableError(
        f"rows of a micro-batch that is not completed cannot be read from {path}: {reason}",
        hint="do not remove files from the temporary directory while a job runs",
    )


def remove_blobs(run_directory: str, batch_id: int) -> None:
    """Remove the files of a micro-batch. Called when it is completed."""
    shutil.rmtree(Path(run_directory) / _DIRECTORY / str(batch_id), ignore_errors=True)
