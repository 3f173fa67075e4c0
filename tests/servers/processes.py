"""The operating system's processes of one server: started detached, found again by any process, stopped, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from tests.servers.errors import ServerStartError

# The server becomes a child of init instead of ours: it may outlive the test process that happened to start it, and
# nobody has to reap it. `$!` is the server's own process id, because sh replaces itself for a simple command.
_DETACH = 'umask 022; "$@" </dev/null >&2 & echo $!'
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class ProcessRecord:
    """A started process; its start time (in clock ticks since boot) tells it from a later one with the same id."""

    label: str
    pid: int
    started_ticks: int

    def is_alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        return start_ticks(self.pid) == self.started_ticks

    def memory_mb(self) -> int:
        """Resident memory in MiB; 0 if it has ended."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return 0
        sizes = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
        return int(sizes[0]) // 1024 if sizes else 0


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if there is none or it has ended."""
    process = Path(f"/proc/{pid}")
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        # A killed process is a zombie as soon as its first thread has ended; its ports and files stay open until the
        # last one has.
        ended = fields[0] == "Z" and len(list((process / "task").iterdir())) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if ended else int(fields[19])


@dataclass(frozen=True)
class Account:
    """A user and group id to run as; only root can ask for it."""

    uid: int
    gid: int


class ProcessGroup:
    """The processes of one server directory, remembered in its `processes.json`."""

    def __init__(self, directory: Path, *, record_classes: bool = False) -> None:
        self.directory = directory
        self.record_classes = record_classes
        self._log_offsets: dict[str, int] = {}

    def spawn(
        self,
        label: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        account: Account | None = None,
    ) -> None:
        """Start a detached process in the server's directory; its output is appended to LABEL.log there."""
        log = self.log(label)
        with log.open("ab") as output:
            self._log_offsets[label] = output.tell()
            shell = ["sh", "-c", _DETACH, "sh", *map(str, command)]
            started = subprocess.run(
                shell,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=self.directory,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # Ctrl-C in the terminal is for the tests, not for the server under them
                text=True,
                check=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        pid = int(started.stdout)
        ticks = start_ticks(pid)
        if ticks is None:
            raise ServerStartError(label, log, "the process ended at once")
        self._write([*(r for r in self.records() if r.label != label), ProcessRecord(label, pid, ticks)])

    def log(self, label: str) -> Path:
        """Where the process's output goes."""
        return self.directory / f"{label}.log"

    def wait_until_logged(self, label: str, marker: str, timeout: timedelta) -> None:
        """Wait until the process has written `marker` since it was spawned; raises ServerStartError."""
        offset = self._log_offsets[label]

        def logged() -> bool:
            with self.log(label).open("rb") as log:
                log.seek(offset)
                return marker.encode() in log.read()

        self.wait_until(label, logged, timeout)

    def wait_until(self, label: str, ready: Callable[[], bool], timeout: timedelta) -> None:
        """Wait until `ready()`; raises ServerStartError if the process ends first or the time is over."""
        deadline = time.monotonic() + timeout.total_seconds()
        while not ready():
            if not self.is_alive(label):
                raise ServerStartError(label, self.log(label), "the process ended")
            if time.monotonic() > deadline:
                raise ServerStartError(label, self.log(label), f"not ready after {timeout.total_seconds():.0f} s")
            time.sleep(_POLL_SECONDS)

    def records(self) -> list[ProcessRecord]:
        """Every process that was started last under its label, in order of start, dead or alive."""
        path = self._path
        return [ProcessRecord(**record) for record in json.loads(path.read_text())] if path.exists() else []

    def is_alive(self, *labels: str) -> bool:
        """Whether all processes with these labels run; without labels: whether any process runs."""
        alive = {record.label for record in self._alive(())}
        return alive.issuperset(labels) if labels else bool(alive)

    def stop(self, *labels: str, timeout: timedelta) -> bool:
        """SIGTERM, last started first, and wait; what is left after `timeout` is killed. True if all ended cleanly.

        Without labels: all of them. Stopping what does not run is not an error.
        """
        self._signal(labels, signal.SIGTERM)
        if self._wait_ended(labels, timeout):
            return True
        self.kill(*labels)
        return False

    def kill(self, *labels: str) -> None:
        """SIGKILL, and wait until they are gone."""
        self._signal(labels, signal.SIGKILL)
        if not self._wait_ended(labels, timedelta(seconds=30)):
            raise TimeoutError(f"processes in {self.directory} survive SIGKILL: {self._alive(labels)}")

    def _alive(self, labels: Sequence[str]) -> list[ProcessRecord]:
        return [r for r in self.records() if (not labels or r.label in labels) and r.is_alive()]

    def _signal(self, labels: Sequence[str], number: signal.Signals) -> None:
        for record in reversed(self._alive(labels)):
            try:
                os.kill(record.pid, number)
            except ProcessLookupError:
                continue  # it ended between the look and the signal, which is what was wanted

    def _wait_ended(self, labels: Sequence[str], timeout: timedelta) -> bool:
        deadline = time.monotonic() + timeout.total_seconds()
        while self._alive(labels):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    @property
    def _path(self) -> Path:
        return self.directory / "processes.json"

    def _write(self, records: Sequence[ProcessRecord]) -> None:
        self._path.write_text(json.dumps([asdict(record) for record in records], indent=1))
