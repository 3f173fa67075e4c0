"""Runners as processes of the operating system: started, found again, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
from headrace.foundation.errors import JobError
from headrace.foundation.private_files import make_private_directory
from headrace.foundation.secrecy import is_secret_name

from headrace_server.runner.limits import over_memory, says_out_of_memory
from headrace_server.runner.protocol import ask
from headrace_server.runner.specification import JobOutcome, RunnerSpecification, read_result
from headrace_server.supervision.cgroups import remove, was_out_of_memory

#: The URL of the registry may have a password.
REGISTRY_VARIABLE = "HEADRACE_REGISTRY"


class RunnerProcess(ABC):
    """A runner, as seen by the server. A test may have one that is no process."""

    specification: RunnerSpecification
    pid: int
    started_seconds: float

    @abstractmethod
    def ask(self, do: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> Any:
        """Send a request and return its answer. Raises RunnerAwayError, RefusedError."""

    @abstractmethod
    def is_alive(self) -> bool:
        """Return whether the process is there."""

    @abstractmethod
    def kill(self) -> None:
        """End the process and those that it has started, at once. Does nothing if it has ended."""

    @abstractmethod
    def release(self) -> None:
        """Release the system resources of a process that has ended. Does nothing while it runs; may be called again."""

    @abstractmethod
    def outcomes(self) -> Mapping[str, JobOutcome]:
        """Return how the jobs of an ended process have ended."""


class Launcher(ABC):
    """Starts runners and finds those that an earlier server has started."""

    @abstractmethod
    def launch(
        self, specification: RunnerSpecification, file: Path, environment: Mapping[str, str], *, given: bytes = b""
    ) -> RunnerProcess:
        """Start a runner, with ``given`` on its standard input. Raises JobError if that is not possible."""

    @abstractmethod
    def find(self, file: Path, *, pid: int, started_seconds: float) -> RunnerProcess:
        """Return a runner of an earlier server; it may have ended since. Raises JobError if its specification is lost."""


class ChildProcess(RunnerProcess):
    """A runner in a new session: it gets no signal from the server's terminal and outlives the server."""

    def __init__(
        self, specification: RunnerSpecification, file: Path, *, pid: int, started_seconds: float,
        child: subprocess.Popen[bytes] | None,
    ) -> None:  # fmt: skip
        self.specification = specification
        self.pid = pid
        self.started_seconds = started_seconds
        self._file = file
        self._child = child
        self._ended: Mapping[str, JobOutcome] | None = None

    def ask(self, do: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> Any:
        return ask(self.specification.socket, do, timeout_seconds=timeout_seconds, **arguments)

    def is_alive(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        try:
            found = psutil.Process(self.pid)
            if found.status() == psutil.STATUS_ZOMBIE:
                return False
            # Not the time at which it began: the system derives that from its clock, which may have been set since.
            return str(self._file) in found.cmdline()
        except psutil.NoSuchProcess:
            return False

    def kill(self) -> None:
        if not self.is_alive():
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)  # its own session: the group has its number
        except ProcessLookupError:
            return
        if self._child is not None:
            self._child.wait()
            self.release()

    def outcomes(self) -> Mapping[str, JobOutcome]:
        found = read_result(self._file)
        if found is not None:
            return found
        if self._ended is None:
            self._ended = self._why()
        return self._ended

    def _why(self) -> Mapping[str, JobOutcome]:
        code = None if self._child is None else self._child.poll()
        specification = self.specification
        if self._was_out_of_memory(code):
            reason = f"{over_memory(specification.limits)}: the system has ended its process"
        elif code is None:
            reason = "the process has ended without saying why"
        elif code < 0:
            reason = f"the process was ended by {_signal_name(-code)}"
        else:
            reason = f"the process has ended with code {code} before its jobs had begun"
        ended = JobOutcome(outcome="killed", reason=f"{reason}; its log: {self.specification.log}")
        return {job.name: ended for job in specification.jobs}

    def _was_out_of_memory(self, code: int | None) -> bool:
        limits, group = self.specification.limits, self.specification.control_group
        if limits.memory_max_bytes is None:
            return False
        if group is not None:
            return was_out_of_memory(group)
        # Without a group its own process is refused memory: Rust and C++ end it then.
        return code != -signal.SIGKILL and says_out_of_memory(self.specification.log)

    def release(self) -> None:
        if not self.is_alive():
            self.outcomes()  # while its group can tell
            remove(self.specification.control_group)


class ChildLauncher(Launcher):
    """Starts runners as children of this process."""

    def launch(
        self, specification: RunnerSpecification, file: Path, environment: Mapping[str, str], *, given: bytes = b""
    ) -> RunnerProcess:
        try:
            for directory in (Path(specification.log).parent, Path(specification.work_directory)):
                make_private_directory(directory)
            specification.write(file)
            log = _log(specification)
            try:
                child = subprocess.Popen(
                    [specification.python or sys.executable, "-m", "headrace_server.runner", str(file)],
                    stdin=subprocess.PIPE if given else subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=dict(environment),
                )
                _give(child, given)
            finally:
                os.close(log)
        except OSError as error:
            raise JobError(f"a runner of {specification.unit} cannot be started: {error}") from error
        try:
            started_seconds = psutil.Process(child.pid).create_time()
        except psutil.NoSuchProcess:
            started_seconds = 0.0  # it has ended at once: the next look tells
        return ChildProcess(specification, file, pid=child.pid, started_seconds=started_seconds, child=child)

    def find(self, file: Path, *, pid: int, started_seconds: float) -> RunnerProcess:
        try:
            specification = RunnerSpecification.read(file)
        except (OSError, msgspec.MsgspecError) as error:
            raise JobError(f"the specification of a runner cannot be read: {error}") from error
        return ChildProcess(specification, file, pid=pid, started_seconds=started_seconds, child=None)


def _give(child: subprocess.Popen[bytes], given: bytes) -> None:
    """Write a few bytes to a child that has just begun; one that has ended already is found by the next look."""
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError), child.stdin as stream:
            stream.write(given)


def _log(specification: RunnerSpecification) -> int:
    """Open the log for output of a runner before it opens the log itself, such as an error of an import."""
    return os.open(specification.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def environment_of_jobs(own: Mapping[str, str], given: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a runner: the server's without its secrets, then what job.yaml gives and the secrets that it names."""
    kept = {name: value for name, value in own.items() if not is_secret_name(name) and name != REGISTRY_VARIABLE}
    return {**kept, **given, **secrets, "PYTHONUNBUFFERED": "1"}
