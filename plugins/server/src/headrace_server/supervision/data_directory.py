"""Where a server keeps what: one directory for all of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from pathlib import Path

from headrace.foundation.durable_files import replace_durably, write_durably
from headrace.foundation.errors import JobError
from headrace.foundation.private_files import FILE_MODE, make_private_directory

from headrace_server.runner.protocol import socket_directory

#: Checkpoints of jobs that were taken from a process which may wake up: this, and the token of the lease with ten digits.
FENCED = "checkpoint-"


class DataDirectory:
    """The paths of a server. The directory belongs to one server at a time: ``lock``."""

    def __init__(self, path: Path, *, shared: Path | None = None) -> None:
        self.path = path.absolute()
        #: What all servers of the registry reach: checkpoints, savepoints, rules. None: all of it is here.
        self.shared = None if shared is None else shared.absolute()
        make_private_directory(self.path)
        if self.shared is not None:
            make_private_directory(self.shared)
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
                hint="stop it with headrace stop, or give this server its own directory",
            ) from None
        self._lock = descriptor

    def unlock(self) -> None:
        """Give the directory back. May be called twice. A short directory of sockets is removed if no runner is left in it."""
        if self.sockets.parent != self.path:
            with contextlib.suppress(OSError):  # sockets of runners that continue, or of a next server
                self.sockets.rmdir()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def identity(self) -> str:
        """Return the id of the directory, which is made with it: a server with another one does not have the state of its jobs."""
        return identity_of(self.path)

    def note_address(self, url: str | None, *, health: str | None = None) -> None:
        """Note where the server of this directory listens, and its port of health, for clients on this machine."""
        replace_durably(self.address, json.dumps({"url": url, "health": health, "pid": os.getpid()}).encode())

    def of_job(self, job: str) -> Path:
        """Return the directory of a job on this server: its logs, its work directory."""
        return self.path / "jobs" / job

    def state_of_job(self, job: str) -> Path:
        """Return the directory of the files that a job needs on each server that runs it."""
        return (self.shared or self.path) / "jobs" / job

    def checkpoint(self, job: str) -> Path:
        """Return where a job keeps its checkpoint, whichever process runs it.

        A process that lost the job and may wake up keeps its directory; the next one has another, with a greater number.
        """
        place = self.state_of_job(job)
        return max(place.glob(f"{FENCED}*[0-9]"), default=place / "checkpoint")

    def rules(self, job: str) -> Path:
        """Return where the sets of rules lie that were put while a job ran, the newest with the greatest name."""
        return self.state_of_job(job) / "rules"

    def newest_rules(self, job: str) -> Path | None:
        """Return the file of the rules that were put last; None if there is none."""
        return max((each for each in self.rules(job).glob("*") if each.suffix in (".yaml", ".sql")), default=None)

    def roll_out_note(self, unit: str, *, group: bool) -> Path:
        """Return where it is noted which versions of a unit are watched."""
        root = self.shared or self.path
        return root / ("groups" if group else "jobs") / unit / "roll-out.json"

    def savepoint(self, job: str, name: str) -> Path:
        """Return where a savepoint of a job is written, if the client names no place."""
        return self.state_of_job(job) / "savepoints" / name

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


def identity_of(directory: Path) -> str:
    """Return the id of a directory; make one if it has none. Of several servers that do so at once one wins. Raises OSError."""
    file = directory / "headrace-id"
    if not file.exists():
        beside = directory / f".headrace-id.{uuid.uuid4().hex}"
        write_durably(beside, uuid.uuid4().hex.encode())
        with contextlib.suppress(FileExistsError):
            os.link(beside, file)  # unlike a rename it never replaces
        beside.unlink()
    return file.read_text(encoding="ascii").strip()
