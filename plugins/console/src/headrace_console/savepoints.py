"""``headrace savepoint``: of a job on this machine by its checkpoint, or of a job by its name."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from headrace.foundation.errors import OptionError
from headrace.runtime.control import ask_for_savepoint

#: An entry point of this group is a function (name of the job, name of the savepoint or None, stop). It returns where the savepoint is, or
#: None if it knows no jobs by name here.
SAVEPOINTS_GROUP = "headrace.savepoints"


def take(checkpoint: Path, path: Path | None, *, stop: bool) -> str:
    """Have a savepoint written and return its path. What is no directory is the name of a job, if a distribution knows jobs by name.

    Raises CheckpointError, and the errors of the job.
    """
    if not checkpoint.is_dir():
        for entry in metadata.entry_points(group=SAVEPOINTS_GROUP):
            found = entry.load()(checkpoint.as_posix(), None if path is None else str(path), stop)
            if found is not None:
                return str(found)
    if path is None:
        raise OptionError(
            "the directory for the savepoint is missing", option="path", hint="headrace savepoint CHECKPOINT PATH"
        )
    return str(ask_for_savepoint(checkpoint, path, stop=stop))
