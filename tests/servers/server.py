"""What all test servers have in common: made in a directory, started, stopped, killed, started again, removed."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

import msgspec

from tests.servers import holders
from tests.servers.directories import cache_directory, locked, run_directory
from tests.servers.errors import ExternalServerError, SharedServerError, TestServerError
from tests.servers.ports import release_ports
from tests.servers.processes import ProcessGroup

OptionsT = TypeVar("OptionsT")

START_TIMEOUT = timedelta(seconds=120)
_PREPARATION_STOP_TIMEOUT = timedelta(seconds=180)


def remove_server(directory: Path) -> None:
    """Kill the processes of the server in `directory`, give its ports back and remove it, whatever its state."""
    ProcessGroup(directory).kill()
    release_ports(str(directory))
    if directory.exists():
        shutil.rmtree(directory)


@dataclass(kw_only=True)
class Server(ABC, Generic[OptionsT]):
    """Addresses of one server, with the means to stop and start it if it is ours.

    Subclasses are dataclasses whose fields are all that a client needs; they are saved as JSON in the server's
    directory, so that any process can `load` a server that another one started.
    """

    directory: Path | None
    """Data, configuration and logs; None for a server that somebody else runs."""

    kind: ClassVar[str]
    """The name on the command line: kafka, rocketmq, mysql, postgresql, elasticsearch, spark-cluster, s3 or schema-registry."""
    variable: ClassVar[str]
    """The environment variable that names a server which already runs."""
    stop_timeout: ClassVar[timedelta] = timedelta(seconds=30)
    """How long a clean stop may take before `stop` kills."""

    @classmethod
    @abstractmethod
    def create(cls, directory: Path, options: OptionsT | None = None) -> Self:
        """Choose ports and write data and configuration below `directory`; starts nothing."""

    @classmethod
    @abstractmethod
    def from_variable(cls, value: str) -> Self:
        """A server that somebody else runs, from the text in the environment variable `variable`."""

    @abstractmethod
    def to_variable(self) -> str:
        """The text for the environment variable that lets tests use this server; may contain its password."""

    @classmethod
    @abstractmethod
    def prepared_marker(cls) -> Path:
        """The file whose presence says that `prepare` is done for the version in use (may download to find out)."""

    @abstractmethod
    def _launch(self, processes: ProcessGroup) -> None:
        """Spawn the processes that do not run, and return when clients can use them."""

    def start(self) -> None:
        """Start what does not run, on the same ports and with the same data; returns when clients can connect."""
        self._launch(self._processes())

    def stop(self, *labels: str, timeout: timedelta | None = None) -> bool:
        """Stop cleanly, keeping ports and data; True if no process had to be killed.

        `labels` picks some of the server's processes (see `labels()`); without them all are stopped. Raises
        SharedServerError while other test processes use the server, ExternalServerError if it is not ours.
        """
        self._check_exclusive()
        return self._processes().stop(*labels, timeout=timeout or self.stop_timeout)

    def kill(self, *labels: str) -> None:
        """As `stop`, but with SIGKILL: the crash that chaos tests want."""
        self._check_exclusive()
        self._processes().kill(*labels)

    def is_running(self, *labels: str) -> bool:
        """Whether the processes with these labels (without labels: any) run; does not ask whether they answer."""
        return self._processes().is_alive(*labels)

    def labels(self) -> list[str]:
        """The names of the server's processes, in the order of their start."""
        return [record.label for record in self._processes().records()]

    def destroy(self) -> None:
        """Kill whatever runs, give the ports back and remove the directory. Fit to be called twice."""
        remove_server(self._own_directory())

    def save(self) -> None:
        """Write the server's description into its directory, for `load`."""
        path = self._own_directory() / "server.json"
        path.touch(mode=0o600)  # it holds the passwords
        path.write_bytes(msgspec.json.encode(self, enc_hook=str))

    @classmethod
    def load(cls, directory: Path) -> Self:
        """The server whose `save` wrote into `directory`, in this or another process."""
        text = (directory / "server.json").read_bytes()
        return msgspec.json.decode(text, type=cls, dec_hook=lambda type_, value: type_(value))

    @classmethod
    def prepare(cls) -> None:
        """Download and build what the server needs, and start it once so that later starts are quick.

        Needs the network, the first time only, and takes up to a minute; at once if it was done before. Processes
        that ask at the same time wait for the first.
        """
        with locked(cache_directory() / f"{cls.kind}.prepare.lock"):
            marker = cls.prepared_marker()
            if marker.exists():
                return
            parent = run_directory() / "prepare"
            parent.mkdir(mode=0o755, exist_ok=True)
            directory = Path(tempfile.mkdtemp(prefix=f"{cls.kind}-", dir=parent))
            directory.chmod(0o755)
            holders.add_me(directory)
            try:
                server = cls.create(directory)
                processes = ProcessGroup(directory, record_classes=True)
                server._launch(processes)
                if not processes.stop(timeout=_PREPARATION_STOP_TIMEOUT):
                    raise TestServerError(f"{cls.kind} did not stop cleanly while it was prepared")
            finally:
                remove_server(directory)
            for archive in marker.parent.glob("*.jsa.recording"):
                archive.rename(archive.with_suffix(""))
            marker.touch()

    def _processes(self) -> ProcessGroup:
        return ProcessGroup(self._own_directory())

    def _own_directory(self) -> Path:
        if self.directory is None:
            raise ExternalServerError(
                f"this {self.kind} server is not ours to start or stop: {self.variable} is set; "
                f"unset it to let the tests run a server of their own"
            )
        return self.directory

    def _check_exclusive(self) -> None:
        others = holders.others(self._own_directory())
        if others:
            raise SharedServerError(
                f"the {self.kind} server in {self.directory} is also used by the processes {others}; "
                f"a test that stops a server takes one of its own from the fixture start_{self.kind}_server"
            )
