"""Where a server keeps what: one directory for all of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path

from headrace.foundation.durable_files import replace_durably
from headrace.foundation.errors import JobError
from headrace.foundation.private_files import FILE_MODE, make_private_directory

from headrace_server.runner.protocol import socket_directory


class DataDirectory:
    """The paths of a server. The directory belongs to one server at a time: ``lock``."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        make_private_directory(self.path)
        self.versions = self.path / "versions"
        self.token = self.path / "token"
        self.address = self.path / "server.json"
        self.sockets = socket_directory(self.path)
        self._lock: int | None = None

    def lock(self) -> None:
        """Take the directory for this process. Raises JobError if a server runs with it."""
        descriptor = os.open(self.path / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise JobError(
                f"a server runs with the data directory {self.path}",
                option="data",
                hint="stop it with headrace stop, or give this one a directory of its own",
            ) from None
        self._lock = descriptor

    def unlock(self) -> None:
        """Give the directory back. May be called twice. A short directory of sockets is removed if no runner is left in it."""
        if self.sockets.parent != self.path:
            with contextlib.suppress(OSError):  # sockets of runners that go on, or of a next server
                self.sockets.rmdir()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def note_address(self, url: str | None, *, health: str | None = None) -> None:
        """Note where the server of this directory listens, and its port of health, for clients on this machine."""
        replace_durably(self.address, json.dumps({"url": url, "health": health, "pid": os.getpid()}).encode())

    def of_job(self, job: str) -> Path:
        """Return the directory of a job."""
        return self.path / "jobs" / job

    def checkpoint(self, job: str) -> Path:
        """Return where a job keeps its checkpoint, whichever process runs it."""
        return self.of_job(job) / "checkpoint"

    def rules(self, job: str) -> Path:
        """Return where the sets of rules lie that were put while a job ran, the newest with the greatest name."""
        return self.of_job(job) / "rules"

    def newest_rules(self, job: str) -> Path | None:
        """Return the file of the rules that were put last; None if there is none."""
        return max((each for each in self.rules(job).glob("*") if each.suffix in (".yaml", ".sql")), default=None)

    def roll_out_note(self, unit: str, *, group: bool) -> Path:
        """Return where it is noted which versions of a unit are watched."""
        return self.of_unit(unit, group=group) / "roll-out.json"

    def savepoint(self, job: str, name: str) -> Path:
        """Return where a savepoint of a job is written, if the client names no place."""
        return self.of_job(job) / "savepoints" / name

    def of_unit(self, unit: str, *, group: bool) -> Path:
        """Return where a unit has its work directory and its log: that of its job, or that of the group."""
        return self.path / "groups" / unit if group else self.of_job(unit)

    def log(self, unit: str, *, group: bool) -> Path:
        """Return the log of a unit's runner."""
        return self.of_unit(unit, group=group) / "logs" / "job.log"

    def specification(self, unit: str, generation: str, *, group: bool) -> Path:
        """Return where the specification of a runner is written."""
        return self.of_unit(unit, group=group) / "run" / f"{generation}.json"

    def socket(self, generation: str) -> Path:
        """Return the address of a runner."""
        return self.sockets / f"{generation}.sock"
