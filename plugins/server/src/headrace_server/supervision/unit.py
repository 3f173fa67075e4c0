"""A unit: what runs in one process. A job by itself, or the jobs of a group."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.foundation.errors import HeadraceError, RetriableError

from headrace_server.registry.records import Desired, JobRecord, RunRecord
from headrace_server.runner.protocol import RefusedError, RunnerAwayError
from headrace_server.sharing.member import Taken
from headrace_server.supervision.processes import RunnerProcess
from headrace_server.supervision.restart_policy import RestartPolicy
from headrace_server.supervision.specifications import Services, own_environment

logger = logging.getLogger(__name__)
#: How often a job that just runs is asked for its figures.
STEADY_LOOK_SECONDS = 1.0
#: One that does not answer holds up the looks at all others for so long.
_STATUS_TIMEOUT_SECONDS = 2.0
#: One that did not answer the last time, such as one that is paused, holds them up for so long.
_SILENT_TIMEOUT_SECONDS = 0.2
#: But now and then it is given all of its time again: it may only be slow.
_PATIENT_AGAIN_SECONDS = 10.0
RUNS = frozenset({"running", "starting", "stopping"})
_ENDED = frozenset({"stopped", "finished", "failed", "refused", "killed"})
#: Beside the time that a job may take to stop: a process that is there after it hangs, and is killed.
_EXIT_GRACE_SECONDS = 15.0


class UnitElsewhereError(RetriableError):
    """Another process may be running a unit: on another server, or one that has not ended yet."""


class Unit:
    """Keeps one runner as it is wanted. ``tick`` is called again and again by the server's loop; it waits for nothing.

    A roll-out holds ``lock`` until it ends; ticks do nothing during that time.
    """

    def __init__(self, name: str, services: Services, *, group: bool) -> None:
        self.name = name
        self.group = group
        self.lock = threading.RLock()
        #: How often versions of it were changed: records that were read from the registry before such a change are outdated.
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
        #: Whether the process has heard that it is to end.
        self._exit_heard = False
        self._looked = float("-inf")
        self._answers = True
        #: When it was last given all of its time to answer.
        self._patient_at = float("-inf")
        #: The process was ended because it showed no sign of life.
        self._was_silent = False
        #: Bounded jobs that the last look found finished: what this tick was given says still that they are wanted.
        self._finished: set[str] = set()
        #: Jobs that failed and do not run again yet.
        self._troubled: set[str] = set()
        #: The token of the lease of the last process here; of the last one that has ended.
        self._token: int | None = None
        self._dead_token: int | None = None
        #: The process before the last lease may wake up, and its jobs do not have another directory yet.
        self._must_fence = False
        #: By job, how often a person had started it when it was last looked at.
        self._starts: dict[str, int] = {}

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
        """Keep ticks out while versions change, and let none use records that it read before."""
        with self.lock:
            try:
                yield
            finally:
                self.changes += 1

    def tick(self, jobs: Mapping[str, JobRecord], *, changes: int | None = None) -> None:
        """Look at the runner and do the next step towards the wanted state.

        ``jobs`` are those of this unit, as they were when it had seen so many ``changes``; None: they are as they are now.
        """
        if not self.settled.is_set() or not self.lock.acquire(blocking=False):
            return
        try:
            if changes is not None and changes != self.changes:
                return  # a roll-out has ended since: the jobs are others
            self._finished.clear()
            self._count_starts(jobs)
            self.look(steady_seconds=STEADY_LOOK_SECONDS)
            self._drive(jobs)
        finally:
            self.lock.release()

    def _count_starts(self, jobs: Mapping[str, JobRecord]) -> None:
        """Reset the count of failures of jobs that a person has started, on any server."""
        for name, job in jobs.items():
            if self._starts.setdefault(name, job.starts or 0) != (job.starts or 0):
                self._starts[name] = job.starts or 0
                self.begin_anew(name)

    def look(self, *, steady_seconds: float = 0.0) -> None:
        """Ask the runner for the state of its jobs, and record ended ones. Running jobs are asked again after ``steady_seconds``."""
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
                answer = runner.ask("status", timeout_seconds=self._patience_seconds(now, hurried=steady_seconds > 0))
                self.statuses = dict(answer["jobs"])
            except RunnerAwayError:
                self._answers = False
                return  # it begins, ends, or is too busy to answer: the process decides
            self._answers = True
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
        self.runner, self.statuses, self._exit_asked, self._was_silent = None, {}, None, False
        self.note_ended()

    def _patience_seconds(self, now: float, *, hurried: bool) -> float:
        """Return how long the process may take to answer. ``hurried``: looks at others wait for it."""
        if hurried and not self._answers and now - self._patient_at < _PATIENT_AGAIN_SECONDS:
            return _SILENT_TIMEOUT_SECONDS
        self._patient_at = now
        return _STATUS_TIMEOUT_SECONDS

    def end_silent(self) -> None:
        """End the process, which shows no sign of life. Its jobs are started again at once, unless this happens again and again."""
        assert self.runner is not None
        logger.warning("unit %s: its process %d does not respond and is killed", self.name, self.runner.pid)
        self._was_silent = True
        self.runner.kill()

    def _drive(self, jobs: Mapping[str, JobRecord]) -> None:
        wanted = self.wanted(jobs)
        if self.runner is None:
            if wanted and all(self.policy(job).may_start for job in wanted):
                self._try_to_start(wanted)
            return
        if self._exit_asked is not None:
            if self._services.clock.monotonic() >= self._exit_asked:
                logger.warning("runner of %s does not stop and is killed", self.name)
                self.runner.kill()
            elif not self._exit_heard:
                self._tell_to_exit(self.runner)
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
            self.start(wanted)
        except RetriableError as error:  # the database of the leases: the next tick tries again
            logger.warning("unit %s: %s", self.name, error)
        except HeadraceError as error:
            logger.error("unit %s: %s", self.name, error)
            for job in wanted:
                self._note_failure(job, str(error))

    def start(self, versions: Mapping[str, int]) -> None:
        """Start a process with these versions, if no other one can be running the unit. Raises JobError, RetriableError."""
        taken = self.obtain()
        if taken is None:
            self.take(self._services.launch(self.name, versions, group=self.group, wait=False))
            return
        self.prepare_places(versions, taken)
        try:
            token = taken.lease.token
            runner = self._services.launch(self.name, versions, group=self.group, wait=False, token=token)
        except BaseException:
            taken.lease.release()
            raise
        self.take(runner)

    def obtain(self) -> Taken | None:
        """Take the lease of the unit; None: it needs none. Raises UnitElsewhereError if another process may be running it."""
        member = self._services.member
        if member is None or not member.is_leased(self.name):
            return None
        taken = member.obtain(self.name, dead_token=self._dead_token)
        if taken is None:
            raise UnitElsewhereError(f"another process may still be running the unit {self.name!r}")
        self._token = taken.lease.token
        return taken if not self._must_fence else replace(taken, fenced=True)

    def prepare_places(self, versions: Mapping[str, int], taken: Taken) -> None:
        """Ensure that a process with the lease finds its files, and none that another process may still write.

        Raises OSError, RetriableError. After an error the lease is not released: whoever takes a released one would not know that a
        process may wake up.
        """
        self._must_fence, self._dead_token = taken.fenced, taken.lease.token  # no process has this token yet
        self._services.prepare_places(versions, taken)
        self._must_fence = False

    def take(self, runner: RunnerProcess) -> None:
        """Make a process the runner of this unit, and note the runs that begin with it."""
        self.runner, self.statuses, self._exit_asked = runner, {}, None
        self._answers, self._was_silent = True, False
        try:
            for each in runner.specification.jobs:
                self._begin_run(each.name, each.version)
        except BaseException:
            # A process of which the registry knows nothing would not be found again.
            runner.kill()
            raise

    def secure_places(self, versions: Mapping[str, int]) -> None:
        """Prepare the places of jobs that no process has, before processes for them are prepared. Raises OSError, RetriableError."""
        taken = self.obtain() if self.runner is None else None
        if taken is not None:
            self.prepare_places(versions, taken)
            taken.lease.release()

    def adopt(self, runner: RunnerProcess, runs: Mapping[str, RunRecord], *, token: int | None = None) -> None:
        """Take over a runner of an earlier server, with the runs that the registry has of it, and the token of its lease."""
        self.runner, self._token = runner, token
        self._runs = {job: run.id for job, run in runs.items()}
        for job in runs:
            self.policy(job).started()
        self.look()

    @property
    def token(self) -> int | None:
        """The token of the lease that the last process here was started with."""
        return self._token

    def let_go(self) -> bool:
        """Forget the process, which another server of this machine looks after from now on. False: something is done to it now."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            logger.info("unit %s: another server of this machine has its process now", self.name)
            self.runner, self.statuses, self._exit_asked = None, {}, None
            self._runs.clear()
            return True
        finally:
            self.lock.release()

    @property
    def is_idle(self) -> bool:
        """Whether no process of the unit is known here, also none that is about to end."""
        return self.runner is None and not self._leaving and not self._runs

    def note_ended(self) -> None:
        """Note that the unit's process is dead, so that its lease can be taken at once."""
        self._dead_token = self._token

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
        self._exit_asked = self._services.clock.monotonic() + patience + _EXIT_GRACE_SECONDS
        self._exit_heard = False
        self._tell_to_exit(runner)

    def _tell_to_exit(self, runner: RunnerProcess) -> None:
        """Tell a runner to end. One that begins does not listen yet: the next ticks tell it again."""
        try:
            runner.ask("exit")
        except RunnerAwayError as error:
            logger.debug("runner of %s: %s", self.name, error.message)
        except RefusedError as error:
            self._exit_heard = True
            logger.warning("runner of %s: %s", self.name, error.message)
        else:
            self._exit_heard = True

    def _stop_one(self, job: str) -> None:
        """Stop one job of a group, whose process continues. It may take long, so it runs in a separate thread."""
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
        run = self._runs.get(job)
        if run is None:
            return
        # Noted before it is forgotten here: if the database is away, the next look tries again.
        self._services.registry.end_run(run, outcome, reason)
        if outcome == "finished":
            self._finished.add(job)
            self._services.registry.move(job, Desired.RUNNING, Desired.FINISHED)
        self._runs.pop(job, None)
        if outcome in ("failed", "killed", "refused"):
            self._note_failure(job, reason or outcome)
        else:
            self.policy(job).ended(failed=False)

    def _note_failure(self, job: str, reason: str) -> None:
        policy = self.policy(job)
        policy.ended(failed=True, waited=self._was_silent)
        if policy.rests:
            problem = f"rests after {policy.failures} failures in a row; the last one: {reason}"
        else:
            problem = f"failed {policy.failures} times in a row, starts again in {policy.pause_seconds:.0f} s: {reason}"
        self._troubled.add(job)
        logger.warning("job %s: %s", job, problem)
        self._services.registry.change_job(job, problem=problem)

    def end_finished_runs(self, ended: RunnerProcess) -> None:
        """Note the end of runs whose jobs had finished when a roll-out wanted to stop them; ``ended``: their process, which is dead."""
        for job, outcome in ended.outcomes().items():
            if outcome.outcome == "finished" and (run := self._runs.pop(job, None)) is not None:
                self._services.registry.end_run(run, outcome.outcome, outcome.reason)
                self.policy(job).ended(failed=False)

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
                    logger.warning("runner of %s does not stop and is killed", self.name)
                    runner.kill()
                still.append((runner, deadline))
            else:
                runner.release()
        self._leaving = still
