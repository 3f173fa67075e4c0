"""A unit: what runs in one process. A job by itself, or the jobs of a group."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.foundation.errors import HeadraceError

from headrace_server.registry.records import Desired, JobRecord, RunRecord
from headrace_server.runner.protocol import RefusedError, RunnerAwayError
from headrace_server.supervision.processes import RunnerProcess
from headrace_server.supervision.restart_policy import RestartPolicy
from headrace_server.supervision.specifications import Services, own_environment

logger = logging.getLogger(__name__)
#: How often a job that just runs is asked for its figures.
STEADY_LOOK_SECONDS = 1.0
RUNS = frozenset({"running", "starting", "stopping"})
_ENDED = frozenset({"stopped", "finished", "failed", "refused", "killed"})
#: Beside the time that a job may take to stop: a process that is there after it hangs, and is killed.
_EXIT_GRACE_SECONDS = 15.0


class Unit:
    """Keeps one runner as it is wanted. ``tick`` is called again and again by the server's loop; it waits for nothing.

    A roll-out holds ``lock`` for as long as it takes; ticks do nothing meanwhile.
    """

    def __init__(self, name: str, services: Services, *, group: bool) -> None:
        self.name = name
        self.group = group
        self.lock = threading.RLock()
        #: How often versions of it were changed: what was read of the registry before such a change is old.
        self.changes = 0
        #: Not set: versions that an earlier server has rolled out are to be watched first. Until then ticks do nothing.
        self.settled = threading.Event()
        self.settled.set()
        self.runner: RunnerProcess | None = None
        #: What the runner said last of each job.
        self.statuses: dict[str, Mapping[str, Any]] = {}
        self._services = services
        self._policies: dict[str, RestartPolicy] = {}
        self._runs: dict[str, int] = {}
        self._leaving: list[tuple[RunnerProcess, float]] = []
        self._exit_asked: float | None = None
        self._looked = float("-inf")
        #: Bounded jobs that the last look found finished: what this tick was given says still that they are wanted.
        self._finished: set[str] = set()
        #: Jobs that failed and do not run again yet.
        self._troubled: set[str] = set()

    # ------------------------------------------------------------------------------------------------- what is known

    def policy(self, job: str) -> RestartPolicy:
        """Return what counts the failures of a job."""
        return self._policies.setdefault(job, RestartPolicy(self._services.clock))

    def begin_anew(self, job: str) -> None:
        """Forget the failures of a job: a person starts it, or another version of it runs."""
        self.policy(job).begin_anew()
        self._troubled.discard(job)

    def running_versions(self) -> dict[str, int]:
        """Return the versions that the runner has, of jobs that have not ended."""
        if self.runner is None:
            return {}
        return {each.name: each.version for each in self.runner.specification.jobs if each.name in self._runs}

    @property
    def is_of_another_server(self) -> bool:
        """Return whether the process has the headrace of a server before, which was another one."""
        return self.runner is not None and self.runner.specification.environment != own_environment()

    def phase(self, job: str) -> str | None:
        """Return the phase that the runner gave for a job; None if no process has it."""
        status = self.statuses.get(job)
        if status is None or (status["phase"] in RUNS and job not in self._runs):
            return None  # its end is being noted now, by another thread
        return str(status["phase"])

    # ------------------------------------------------------------------------------------------------------ the loop

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep ticks out while versions change, and let none act on what it has read before."""
        with self.lock:
            try:
                yield
            finally:
                self.changes += 1

    def tick(self, jobs: Mapping[str, JobRecord], *, changes: int | None = None) -> None:
        """Look at the runner and do the next step towards what is wanted.

        ``jobs`` are those of this unit, as they were when it had seen so many ``changes``; None: they are as they are now.
        """
        if not self.settled.is_set() or not self.lock.acquire(blocking=False):
            return
        try:
            if changes is not None and changes != self.changes:
                return  # a roll-out has ended since: the jobs are others
            self._finished.clear()
            self.look(steady_seconds=STEADY_LOOK_SECONDS)
            self._drive(jobs)
        finally:
            self.lock.release()

    def look(self, *, steady_seconds: float = 0.0) -> None:
        """Ask the runner how its jobs are, and note what has ended. Jobs that just run are asked again after ``steady_seconds``."""
        self._reap()
        runner = self.runner
        if runner is None:
            return
        now = self._services.clock.monotonic()
        steady = bool(self.statuses) and all(each["phase"] == "running" for each in self.statuses.values())
        if steady and now - self._looked < steady_seconds and runner.is_alive():
            return
        self._looked = now
        # The order matters: a process that ends between the two is looked at again.
        alive = runner.is_alive()
        if alive:
            try:
                self.statuses = dict(runner.ask("status")["jobs"])
            except RunnerAwayError:
                return  # it begins, ends, or is too busy to answer: the process decides
            for job, status in self.statuses.items():
                if status["phase"] in _ENDED:
                    self._note_end(job, str(status["phase"]), status["error"])
                elif status["phase"] == "running" and job in self._troubled:
                    self._troubled.discard(job)
                    self._services.registry.change_job(job, problem=None)
            return
        for job, outcome in runner.outcomes().items():
            if job in self._runs:
                known = outcome.outcome if outcome.outcome in _ENDED else "killed"
                self._note_end(job, known, outcome.reason)
        runner.release()
        Path(runner.specification.socket).unlink(missing_ok=True)  # one that was killed has left it
        self.runner, self.statuses, self._exit_asked = None, {}, None

    def _drive(self, jobs: Mapping[str, JobRecord]) -> None:
        wanted = self.wanted(jobs)
        if self.runner is None:
            if wanted and all(self.policy(job).may_start for job in wanted):
                self._try_to_start(wanted)
            return
        if self._exit_asked is not None:
            if self._services.clock.monotonic() >= self._exit_asked:
                logger.warning("runner of %s does not end: it is killed", self.name)
                self.runner.kill()
            return
        if not wanted:
            self.ask_to_exit()
            return
        has = {each.name: each.version for each in self.runner.specification.jobs}
        for job in self.running_versions():
            if job not in wanted and self.phase(job) == "running":
                self._stop_one(job)
        for job, version in wanted.items():
            # The process of a single job ends with it: the next look finds that out, and a new process is started.
            if self.group and job not in self._runs and has.get(job) == version and self.policy(job).may_start:
                self._start_one(job, version)

    def wanted(self, jobs: Mapping[str, JobRecord]) -> dict[str, int]:
        """Return the jobs that should run now, with their versions: without those that rest."""
        return {
            name: job.current_version
            for name, job in jobs.items()
            if job.desired is Desired.RUNNING
            and job.current_version is not None
            and name not in self._finished
            and not self.policy(name).rests
        }

    def missing(self, jobs: Mapping[str, JobRecord]) -> dict[str, int]:
        """Return wanted jobs that the running process does not have: they need a roll-out of the unit."""
        if self.runner is None or self._exit_asked is not None or not self.settled.is_set():
            return {}
        has = {each.name: each.version for each in self.runner.specification.jobs}
        return {job: version for job, version in self.wanted(jobs).items() if has.get(job) != version}

    # ---------------------------------------------------------------------------------------------------- its steps

    def _try_to_start(self, wanted: Mapping[str, int]) -> None:
        try:
            self.take(self._services.launch(self.name, wanted, group=self.group, wait=False))
        except HeadraceError as error:
            logger.error("unit %s: %s", self.name, error)
            for job in wanted:
                self._note_failure(job, str(error))

    def take(self, runner: RunnerProcess) -> None:
        """Make a process the runner of this unit, and note the runs that begin with it."""
        self.runner, self.statuses, self._exit_asked = runner, {}, None
        for each in runner.specification.jobs:
            self._begin_run(each.name, each.version)

    def adopt(self, runner: RunnerProcess, runs: Mapping[str, RunRecord]) -> None:
        """Take over a runner of an earlier server, with the runs that the registry has of it."""
        self.runner = runner
        self._runs = {job: run.id for job, run in runs.items()}
        for job in runs:
            self.policy(job).started()
        self.look()

    def leave(self) -> None:
        """Let the runner go whose jobs have stopped: it ends by itself, and is killed if it does not."""
        if self.runner is not None:
            deadline = self._services.clock.monotonic() + _EXIT_GRACE_SECONDS
            self._leaving.append((self.runner, deadline))
        self.runner, self.statuses = None, {}

    def ask_to_exit(self) -> None:
        """Ask the runner to stop its jobs and to end. The next ticks look after it."""
        runner = self.runner
        if runner is None or self._exit_asked is not None:
            return
        if self._runs and not runner.is_alive():
            return
        patience = max((each.stop_timeout_seconds for each in runner.specification.jobs), default=0.0)
        try:
            runner.ask("exit")
        except (RunnerAwayError, RefusedError) as error:
            logger.warning("runner of %s: %s", self.name, error.message)
        self._exit_asked = self._services.clock.monotonic() + patience + _EXIT_GRACE_SECONDS

    def _stop_one(self, job: str) -> None:
        """Stop one job of a group, whose process goes on. It may take long, so it gets a thread of its own."""
        runner = self.runner
        assert runner is not None
        seconds = max(each.stop_timeout_seconds for each in runner.specification.jobs) + _EXIT_GRACE_SECONDS

        def stop() -> None:
            try:
                runner.ask("stop", job=job, timeout_seconds=seconds)
            except (RunnerAwayError, RefusedError) as error:
                logger.warning("job %s: %s", job, error.message)

        self.statuses[job] = {**self.statuses[job], "phase": "stopping"}
        threading.Thread(target=stop, name=f"stop {job}", daemon=True).start()

    def _start_one(self, job: str, version: int) -> None:
        assert self.runner is not None
        try:
            self.runner.ask("start", job=job, timeout_seconds=60.0)
        except (RunnerAwayError, RefusedError) as error:
            logger.warning("job %s: %s", job, error.message)
            return
        self._begin_run(job, version)

    # -------------------------------------------------------------------------------------------------------- notes

    def _begin_run(self, job: str, version: int) -> None:
        assert self.runner is not None
        self._runs[job] = self._services.registry.begin_run(
            unit=self.name, job=job, version=version, server=self._services.server, pid=self.runner.pid,
            process_started_seconds=self.runner.started_seconds, socket=self.runner.specification.socket,
        )  # fmt: skip
        self.policy(job).started()

    def _note_end(self, job: str, outcome: str, reason: str | None) -> None:
        run = self._runs.pop(job, None)
        if run is None:
            return
        self._services.registry.end_run(run, outcome, reason)
        if outcome in ("failed", "killed", "refused"):
            self._note_failure(job, reason or outcome)
            return
        self.policy(job).ended(failed=False)
        if outcome == "finished":
            self._finished.add(job)
            self._services.registry.change_job(job, desired=Desired.FINISHED.value, problem=None)

    def _note_failure(self, job: str, reason: str) -> None:
        policy = self.policy(job)
        policy.ended(failed=True)
        if policy.rests:
            problem = f"rests after {policy.failures} failures in a row; the last one: {reason}"
        else:
            problem = f"failed {policy.failures} times in a row, starts again in {policy.pause_seconds:.0f} s: {reason}"
        self._troubled.add(job)
        logger.warning("job %s: %s", job, problem)
        self._services.registry.change_job(job, problem=problem)

    def end_runs(self, outcome: str, reason: str | None) -> None:
        """Note the end of all runs of the runner, without counting it as a failure: a roll-out has ended them."""
        for job, run in self._runs.items():
            self._services.registry.end_run(run, outcome, reason)
            self.policy(job).ended(failed=False)
        self._runs.clear()

    def _reap(self) -> None:
        now = self._services.clock.monotonic()
        still = []
        for runner, deadline in self._leaving:
            if runner.is_alive():
                if now >= deadline:
                    logger.warning("runner of %s does not end: it is killed", self.name)
                    runner.kill()
                still.append((runner, deadline))
            else:
                runner.release()
        self._leaving = still
