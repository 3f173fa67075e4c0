"""One job in a runner: prepared, started, watched, stopped."""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from headrace.foundation.errors import HeadraceError, JobError, JobFailedError
from headrace.interfaces.backend import JobHandle, JobState, JobStatus
from headrace.interfaces.metrics import CHECKPOINT_TIME
from headrace.interfaces.state_definition import definitions_from_json, definitions_to_json
from headrace.jobs.job import PreparedJob
from headrace.plan.explain import plan_as_text
from headrace.plan.graph import Plan
from headrace.plan.state_check import check_definitions

from headrace_server.runner.limits import Limits, is_out_of_memory, over_memory
from headrace_server.runner.live_picture import LivePicture
from headrace_server.runner.specification import JobOutcome, JobSpecification

logger = logging.getLogger(__name__)
_LOOK = timedelta(milliseconds=500)


class Phase(enum.StrEnum):
    """Where a job of a runner is."""

    LOADING = "loading"
    PREPARED = "prepared"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    #: It could not be prepared: nothing of it has run.
    REFUSED = "refused"


ENDED = frozenset({Phase.STOPPED, Phase.FINISHED, Phase.FAILED, Phase.REFUSED})


class JobRun:
    """A job and its handle. ``prepare`` is called first; then ``start``, which may be called again after a failure.

    The methods may be called from any thread. ``ended`` is called without a lock whenever the job has come to an end.
    """

    def __init__(self, specification: JobSpecification, *, shares_process: bool, limits: Limits | None = None) -> None:
        self.specification = specification
        self._limits = limits or Limits()
        self._shares_process = shares_process
        self._lock = threading.RLock()
        #: Held while state is loaded ahead: a start waits for it, and uses what was loaded.
        self._loading = threading.Lock()
        self._prepared: PreparedJob | None = None
        self._handle: JobHandle | None = None
        self._stop_asked = False
        self.phase = Phase.LOADING
        self._error: HeadraceError | None = None
        self._reason: str | None = None
        self.changed = threading.Event()
        self._picture = LivePicture()
        #: Where the state is if a copy of the checkpoint is no way back to it.
        self._state_outside: str | None = None
        self._notices: list[str] = []

    # ------------------------------------------------------------------------------------------------ the way of it

    def prepare(self) -> None:
        """Load the job's file and prepare its start. Afterwards the phase is PREPARED or REFUSED. Does not raise."""
        try:
            with _modules_of_its_own(Path(self.specification.file).parent, enabled=self._shares_process):
                self._prepared = self._make()
                self._state_outside = self._prepared.backend.state_outside(self._prepared.plan)
        except Exception as error:  # whatever the code of the job raises
            self._fail(error, Phase.REFUSED)
        else:
            self._move(Phase.PREPARED)

    def load_ahead(self) -> None:
        """Load the checkpoint of a prepared job while another process still runs it. Raises the errors of loading."""
        with self._loading:
            prepared = self._prepared
            if prepared is not None and self.phase is Phase.PREPARED:
                prepared.load_ahead()

    def start(self) -> None:
        """Start the prepared job in a new thread: waiting for an unavailable server may take a minute. Does not raise."""
        with self._lock:
            if self.phase in (Phase.LOADING, Phase.STARTING, Phase.RUNNING, Phase.STOPPING) or self._prepared is None:
                return
            self._move(Phase.STARTING)
            self._error, self._reason, self._stop_asked = None, None, False
            prepared, self._prepared, self._handle = self._prepared, None, None
        threading.Thread(target=self._run, args=(prepared,), name=f"run {self.specification.name}", daemon=True).start()

    def start_again(self) -> None:
        """Start a job that has ended, in the same process. Called for jobs of a group; the server decides when."""
        if self.phase not in ENDED:
            return
        try:
            with _modules_of_its_own(Path(self.specification.file).parent, enabled=True):
                self._prepared = self._make()
        except Exception as error:  # as above
            self._fail(error, Phase.FAILED)
        else:
            self.start()

    def stop(self, savepoint: str | None = None) -> None:
        """Ask for a graceful stop; with ``savepoint`` write one of the moment. Returns when the job has stopped.

        Raises TimeoutError, and errors of the savepoint; the job has stopped in that case, too.
        """
        with self._lock:
            if self.phase in ENDED:
                if savepoint is not None:
                    raise JobError("the job has ended already", job=self.specification.name)
                return
            self._stop_asked = True
            if self._handle is None:
                if self.phase in (Phase.PREPARED, Phase.LOADING):
                    self._move(Phase.STOPPED)
                return  # while it starts, the thread of ``_run`` stops it
            handle = self._handle
            self._move(Phase.STOPPING)
        handle.stop(timedelta(seconds=self.specification.stop_timeout_seconds), savepoint=savepoint)

    def savepoint(self, path: str) -> str:
        """Write a savepoint while the job continues; return its path."""
        return str(self._running().savepoint(path))

    def update_rules(self, rules: Any, *, node: str | None, who: str | None) -> Any:
        """Replace the rules of a verb; return the new version and which rules were rejected."""
        found = self._running().update_rules(rules, node=node, who=who)
        return {"version": found.version, "rejected": [str(each) for each in found.rejected]}

    def _run(self, prepared: PreparedJob) -> None:
        try:
            with self._loading:
                handle = prepared.start()
            with self._lock:
                self._handle = handle
                stop_asked = self._stop_asked
                if not stop_asked:
                    self._move(Phase.RUNNING)
            if stop_asked:
                handle.stop(timedelta(seconds=self.specification.stop_timeout_seconds))
            report = handle.wait()
        except Exception as error:  # the server gets the reason; the process continues for other jobs
            self._fail(error, Phase.FAILED)
        else:
            self._move(Phase.FINISHED if report.state is JobState.FINISHED else Phase.STOPPED)
            logger.info("%s", report)

    # ---------------------------------------------------------------------------------------------------- what it is

    def status(self) -> dict[str, Any]:
        """Return phase, error and, if the job has started, the figures of its handle as JSON values."""
        with self._lock:
            handle = self._handle
            found: dict[str, Any] = {
                "version": self.specification.version,
                "phase": self.phase.value,
                "error": self._reason,
            }
        if handle is not None:
            found["figures"] = figures_of(handle.status())
            # When the checkpoint was last up to date, in seconds since the Unix epoch. Read by itself: this is asked for every second.
            found["figures"]["checkpoint_seconds"] = handle.plan and handle.plan.meter.gauge(CHECKPOINT_TIME)
        return found

    def picture(self) -> str:
        """Return the plan as SVG, with rates and lag if the job runs. Raises JobError."""
        with self._lock:
            handle = self._handle
            return self._picture.draw(self._plan(), handle.metrics() if handle is not None else None)

    def metrics(self) -> Any:
        """Return the figures of the running job, as ``Snapshot.from_json`` reads them. Raises JobError."""
        return self._running().metrics().to_json()

    def outcome(self) -> JobOutcome:
        """Return how the job has ended."""
        return JobOutcome(outcome=self.phase.value, reason=self._reason)

    def plan(self) -> dict[str, Any]:
        """Return the plan of the job, prepared or running, and the definitions of its state. Raises JobError."""
        plan = self._plan()
        return {
            "job": plan.job_name,
            "text": plan_as_text(plan),
            "fingerprint": plan.fingerprint,
            "definitions": definitions_to_json(plan.state_definitions),
            "state_outside": self._state_outside,
            "notices": self._notices,
        }

    def compare(self, running: Mapping[str, Any], place: str = "the running version") -> list[str]:
        """Check that this version, prepared or running, can continue with the state of another one, which runs, has run or will run.

        ``place`` names that one in messages. Returns the operators that can only if their state is empty. Raises JobError that says
        what differs.
        """
        plan = self._plan()
        if plan.job_name != running["job"]:
            raise JobError(
                f"the new version is the job {plan.job_name!r}, the running one is {running['job']!r}",
                job=self.specification.name,
                hint="give it the namespace and name of the running job; or write it to a new file: a different job has its own checkpoint",
            )
        stored = definitions_from_json(running["definitions"])
        return sorted(check_definitions(plan, stored, place=place))

    # -------------------------------------------------------------------------------------------------------- inside

    def _make(self) -> PreparedJob:
        from headrace_console.job_files import load_job

        wanted = self.specification
        # Counted for the server, which shows rates and hits; a job that names an exporter counts anyway.
        options = {
            "metrics": True,
            **wanted.options,
            "until": "end" if wanted.bounded else None,
            "checkpoint": wanted.checkpoint,
        }
        job = load_job(wanted.file, wanted.variables)
        self._notices = list(job.notices)
        return job.prepare(wanted.backend, **options)

    def _plan(self) -> Plan:
        plan = self._prepared.plan if self._prepared is not None else self._handle and self._handle.plan
        if not plan:
            raise JobError(self._reason or "the job has no plan yet", job=self.specification.name)
        return plan

    def _running(self) -> JobHandle:
        if self._handle is None or self.phase is not Phase.RUNNING:
            raise JobError(f"the job is not running: it is {self.phase.value}", job=self.specification.name)
        return self._handle

    def _move(self, phase: Phase) -> None:
        with self._lock:
            self.phase = phase
            if phase in ENDED:
                self.changed.set()

    def _fail(self, error: BaseException, phase: Phase) -> None:
        while isinstance(error, JobFailedError) and error.__cause__ is not None:
            error = error.__cause__
        reason = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
        if is_out_of_memory(error) and self._limits.memory_max_bytes is not None:
            reason = over_memory(self._limits)
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        logger.error("job %s: %s%s", self.specification.name, reason, notes, exc_info=error)
        with self._lock:
            self._reason = reason + notes
            self._move(phase)


@contextlib.contextmanager
def _modules_of_its_own(folder: Path, *, enabled: bool) -> Iterator[None]:
    """Forget the modules of a job's folder after it is loaded: another job of the process may have modules of the same names.

    A helper that is imported later, inside of a function, is not found then, which is an error instead of a wrong module.
    """
    yield
    if not enabled:
        return
    inside = str(folder.resolve()) + os.sep
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(inside):
            del sys.modules[name]
    sys.path[:] = [each for each in sys.path if each != str(folder.resolve())]


def figures_of(status: JobStatus) -> dict[str, Any]:
    """Return a job's status as JSON values, with the lag of each queue."""
    found: dict[str, Any] = msgspec.to_builtins(status)
    for made, queue in zip(found["queues"], status.queues, strict=True):
        made["lag"] = queue.lag
    return found
