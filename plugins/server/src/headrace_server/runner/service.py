"""A runner: its jobs, the socket on which the server asks, and the end of the process."""

from __future__ import annotations

import logging
import os
import socketserver
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import HeadraceError, JobError

from headrace_server.runner.job_run import ENDED, JobRun, Phase
from headrace_server.runner.log_file import LogFile
from headrace_server.runner.protocol import LINE_MAX_BYTES
from headrace_server.runner.specification import RunnerSpecification, write_result

if TYPE_CHECKING:
    from headrace_server.runner.unit_lease import Access, UnitLease

logger = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class Runner:
    """Runs the jobs of a specification until all have ended. ``run`` is called once, in the main thread."""

    def __init__(
        self, specification: RunnerSpecification, file: Path, *, clock: Clock | None = None, access: Access | None = None
    ) -> None:  # fmt: skip
        self.specification = specification
        self._file = file
        self._clock = clock or SystemClock()
        self._parent = os.getppid()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._go = threading.Event()
        #: Held while it is decided that the process ends, and while a job of it is started again.
        self._deciding = threading.Lock()
        self._jobs = {
            each.name: JobRun(each, shares_process=specification.group, limits=specification.limits)
            for each in specification.jobs
        }
        for run in self._jobs.values():
            run.changed = self._wake
        self._access = access
        self._lease = None if access is None else self._unit_lease(access)
        self._requests: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "status": self._status,
            "plan": lambda asked: self._job(asked).plan(),
            "compare": lambda asked: self._job(asked).compare(
                asked["running"], asked.get("place", "the running version")
            ),
            "load_ahead": lambda asked: self._job(asked).load_ahead(),
            "go": self._begin,
            "release": self._release,
            "adopt": self._adopt,
            "start": self._start_again,
            "stop": self._stop,
            "savepoint": lambda asked: self._job(asked).savepoint(asked["path"]),
            "rules": self._rules,
            "picture": lambda asked: self._job(asked).picture(),
            "metrics": lambda asked: self._job(asked).metrics(),
            "log_level": _set_log_level,
            "exit": lambda asked: self.ask_to_stop(),
        }

    def _unit_lease(self, access: Access) -> UnitLease:
        # Only a process with a lease needs a database, whose modules are half of all imported modules.
        from headrace_server.runner.unit_lease import UnitLease

        return UnitLease(access, self.specification, str(self._file), stop=self.ask_to_stop)

    def ask_to_stop(self, *_: object) -> None:
        """Stop all jobs gracefully and end: also the handler of SIGTERM."""
        self._stopping.set()
        self._wake.set()
        self._go.set()

    def run(self, log: LogFile) -> None:
        """Prepare the jobs, start them, and return when all have ended."""
        server = _Server(self.specification.socket, self.answer)
        threading.Thread(target=server.serve_forever, name="requests", daemon=True).start()
        try:
            prepared = threading.Event()
            if self.specification.wait:
                threading.Thread(target=self._end_with_server, args=(prepared,), name="server", daemon=True).start()
            if self._lease is not None and self._access is not None and self._access.token is not None:
                self._lease.begin(self._access.token)  # before any code of a job is loaded
            for run in self._jobs.values():
                run.prepare()
            prepared.set()
            if self.specification.wait:
                self._wait_for_go()
            if not self._stopping.is_set():
                for run in self._jobs.values():
                    run.start()
            self._watch(log)
            self._end_jobs()
        finally:
            outcomes = {name: run.outcome() for name, run in self._jobs.items()}
            write_result(self._file, outcomes)
            if self._lease is not None:
                self._lease.end({name: (each.outcome, each.reason) for name, each in outcomes.items()})
            server.shutdown()
            server.server_close()
            Path(self.specification.socket).unlink(missing_ok=True)

    def answer(self, line: bytes) -> dict[str, Any]:
        """Carry out a request and return its answer or error. Does not raise: the error is sent to the client."""
        try:
            asked = msgspec.json.decode(line)
            do = self._requests.get(asked["do"])
            if do is None:
                return {"error": f"a runner does not know the request {asked['do']!r}", "hint": None}
            return {"answer": msgspec.to_builtins(do(asked), enc_hook=str)}
        except HeadraceError as error:
            return {"error": error.message, "hint": error.hint}
        except Exception as error:  # the error can be reported only through the socket
            logger.exception("a request has failed")
            return {"error": f"{type(error).__name__}: {error}", "hint": None}

    # ------------------------------------------------------------------------------------------------------ requests

    def _job(self, asked: Mapping[str, Any]) -> JobRun:
        found = self._jobs.get(asked["job"])
        if found is None:
            raise JobError(f"this runner has no job {asked['job']!r}")
        return found

    def _status(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "unit": self.specification.unit,
            "generation": self.specification.generation,
            "pid": os.getpid(),
            "jobs": {name: run.status() for name, run in self._jobs.items()},
        }

    def _begin(self, asked: Mapping[str, Any]) -> None:
        """Start the prepared jobs. A leased unit is given the token of its lease."""
        if self._lease is not None and asked.get("token") is not None:
            self._lease.begin(int(asked["token"]))
        self._go.set()

    def _release(self, _: Mapping[str, Any]) -> None:
        """Give the lease back, as all jobs have stopped: another process waits for it. This one starts nothing any more."""
        with self._deciding:
            going = [name for name, run in self._jobs.items() if run.phase not in ENDED]
            if going:
                raise JobError(f"{going[0]} has not ended", job=going[0])
            self._stopping.set()
            if self._lease is not None:
                self._lease.end(
                    {name: (run.outcome().outcome, run.outcome().reason) for name, run in self._jobs.items()}
                )
        self._wake.set()

    def _adopt(self, asked: Mapping[str, Any]) -> None:
        if self._lease is not None:
            self._lease.adopt(str(asked["server"]))

    def _start_again(self, asked: Mapping[str, Any]) -> None:
        with self._deciding:
            if self._stopping.is_set():
                raise JobError("this process is ending", job=asked["job"])
            self._job(asked).start_again()

    def _stop(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        run = self._job(asked)
        run.stop(asked.get("savepoint"))
        return run.status()

    def _rules(self, asked: Mapping[str, Any]) -> Any:
        return self._job(asked).update_rules(asked["rules"], node=asked.get("node"), who=asked.get("who"))

    # --------------------------------------------------------------------------------------------------- the process

    def _end_with_server(self, prepared: threading.Event) -> None:
        """End the process if its server goes while jobs are loaded: nobody would end an import that loops."""
        while not self._clock.wait(prepared, _LOOK_SECONDS):
            if os.getppid() != self._parent:
                logger.warning("the server disconnected while jobs were being loaded")
                os._exit(1)

    def _wait_for_go(self) -> None:
        """Wait until the server says ``go``. A prepared runner without its server would wait for ever, so it ends."""
        while not self._clock.wait(self._go, _LOOK_SECONDS):
            if os.getppid() != self._parent:
                logger.warning("the server disconnected before it released the jobs to run")
                self._stopping.set()
                return

    def _watch(self, log: LogFile) -> None:
        while not self._stopping.is_set():
            lasting = ENDED - {Phase.FAILED} if self.specification.group else ENDED
            with self._deciding:
                if all(run.phase in lasting for run in self._jobs.values()):
                    self._stopping.set()
                    return
            self._clock.wait(self._wake, _LOOK_SECONDS)
            if not self._stopping.is_set():
                self._wake.clear()
            try:
                log.rotate()
            except OSError as error:  # a full disk must not end the jobs; the next look tries again
                logger.error("the log could not be rotated: %s", error)

    def _end_jobs(self) -> None:
        threads = [threading.Thread(target=self._end_job, args=(run,)) for run in self._jobs.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for run in self._jobs.values():  # one that was still starting ends by itself
            while run.phase not in ENDED:
                self._wake.clear()
                self._clock.wait(self._wake, _LOOK_SECONDS)

    @staticmethod
    def _end_job(run: JobRun) -> None:
        try:
            run.stop()
        except (HeadraceError, TimeoutError) as error:
            logger.error("job %s: %s", run.specification.name, error)


def _set_log_level(asked: Mapping[str, Any]) -> str:
    level = str(asked["level"]).upper()
    if level not in _LEVELS:
        raise JobError(f"{level!r} is not a log level", hint=", ".join(_LEVELS))
    logging.getLogger().setLevel(level)
    return level


class _Server(socketserver.ThreadingUnixStreamServer):
    """Listens for requests. Its socket can be opened by this user only."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, answer: Callable[[bytes], dict[str, Any]]) -> None:
        self.answer = answer
        Path(address).unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            super().__init__(address, _Connection)
        finally:
            os.umask(before)


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        while line := self.rfile.readline(LINE_MAX_BYTES):
            if not line.endswith(b"\n"):
                return
            try:
                self.wfile.write(msgspec.json.encode(server.answer(line)) + b"\n")
            except (BrokenPipeError, ConnectionResetError):
                return  # the client does not wait for the answer any more
