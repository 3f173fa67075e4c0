"""What the processes of one run on the driver's machine tell each other: a directory with a few small files.

The driver program, Spark's planning process and its commit process are three Python processes on one machine that
Spark gives no way to talk to each other. It exists only while a job runs and is no part of its checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.foundation.clock import Clock

_STOP = "stop"
_DRAINED = "drained"
_RELEASED = "released"
_EVENTS = "events.jsonl"
_PLANNER = "planner"


#: How long a job over DataFrames stands still for its savepoint, at most, and for Spark to stop it.
_HOLD_SECONDS_MAX = 600.0
_RELEASE_SECONDS = 0.5
_HOLD_LOOK_SECONDS = 0.05


class RunDirectory:
    """The directory of one run. Cheap to make from its path in any process of the driver's machine.

    A query of the user's has none, because nobody follows it: what its processes tell with ``NoRunDirectory`` is dropped.
    """

    @staticmethod
    def at(path: str | None) -> RunDirectory:
        """Return the directory at a path; None: the one of a query that has none."""
        return NoRunDirectory() if path is None else RunDirectory(path)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._read_bytes = 0

    def ask_to_stop(self) -> None:
        """Ask the planning process to hand out no more records. Called by the driver."""
        (self.path / _STOP).touch()

    @property
    def stop_asked(self) -> bool:
        return (self.path / _STOP).exists()

    def mark_drained(self) -> None:
        """Say that no batch is running and none will come. Called by the planning process, between two batches."""
        (self.path / _DRAINED).touch()

    @property
    def drained(self) -> bool:
        return (self.path / _DRAINED).exists()

    def release(self) -> None:
        """Release a planning process that holds a drained job. Called by the driver when it stops the query."""
        with contextlib.suppress(FileNotFoundError):  # the job has ended
            (self.path / _RELEASED).touch()

    def wait_for_release(self, clock: Clock) -> None:
        """Wait until the driver stops the query of a drained job. Called by the planning process of a job over DataFrames.

        If Spark got an answer before that, it would process rows that have arrived in DataFrames since.
        """
        never, begun = threading.Event(), clock.monotonic()
        while self.path.exists() and not (self.path / _RELEASED).exists():
            if clock.monotonic() - begun >= _HOLD_SECONDS_MAX:
                return
            clock.wait(never, _HOLD_LOOK_SECONDS)
        clock.wait(never, _RELEASE_SECONDS)  # the driver releases it and asks Spark to stop at the same moment

    def note_planner(self) -> None:
        """Leave the id of this process. Called by the planning process."""
        self.put(_PLANNER, os.getpid())

    @property
    def planner_has_ended(self) -> bool:
        """Whether there was a planning process and it is gone. Called on its machine."""
        found = self.find(_PLANNER)
        return found is not None and not _lives(found[0])

    def put(self, name: str, value: Any) -> None:
        """Leave a value for another process, which sees all of it or nothing."""
        new = self.path / f"{name}.new"
        new.write_text(json.dumps(value), encoding="utf-8")
        new.replace(self.path / name)

    def find(self, name: str) -> tuple[Any] | None:
        """Return the value that was left under a name, in a tuple; None while there is none."""
        try:
            return (json.loads((self.path / name).read_text(encoding="utf-8")),)
        except FileNotFoundError:
            return None

    def add_event(self, kind: str, **values: Any) -> None:
        """Append an event. One write of one line: writers in several processes do not mix."""
        line = json.dumps({"kind": kind, **values}) + "\n"
        events = os.open(self.path / _EVENTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(events, line.encode())
        finally:
            os.close(events)

    def new_events(self) -> Iterator[dict[str, Any]]:
        """Yield the events that came since the last call, in order. Called by one thread of the driver."""
        try:
            with open(self.path / _EVENTS, "rb") as events:
                events.seek(self._read_bytes)
                content = events.read()
        except FileNotFoundError:
            return
        complete = content[: content.rfind(b"\n") + 1]
        self._read_bytes += len(complete)
        for line in complete.splitlines():
            yield json.loads(line)

    def remove(self) -> None:
        """Remove it. Late writers of a job that was stopped then fail, which changes nothing any more."""
        shutil.rmtree(self.path, ignore_errors=True)


class NoRunDirectory(RunDirectory):
    """Stands for the directory of a query that nobody follows. There would be no moment at which to remove it."""

    def __init__(self) -> None:
        super().__init__(os.devnull)

    @property
    def stop_asked(self) -> bool:
        return False

    def put(self, name: str, value: Any) -> None:
        """Drop the value: nobody looks for it."""

    def find(self, name: str) -> tuple[Any] | None:
        return None

    def add_event(self, kind: str, **values: Any) -> None:
        """Drop the event: nobody reads it."""

    def new_events(self) -> Iterator[dict[str, Any]]:
        return iter(())


def _lives(process_id: int) -> bool:
    """Return whether one of our processes has this number and has not ended, waited for or not."""
    if not _exists(process_id):
        return False
    try:
        status = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has just been waited for; or the system does not tell
        return _exists(process_id)
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def _exists(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except (ProcessLookupError, PermissionError):  # another user's process has the number now
        return False
    return True
