"""The light backend: makes an engine for a plan and hands out its handle."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from headrace.flow.messages import Queue
from headrace.foundation import at_work
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import CheckpointError
from headrace.foundation.freed_memory import keep_freed_memory
from headrace.interfaces.backend import Backend, JobHandle, JobReport, JobStatus, RunOptions
from headrace.interfaces.registry import default_registry
from headrace.interfaces.settings import Settings
from headrace.interfaces.state_store import ReadableStateStore, StateStore
from headrace.plan.graph import Plan
from headrace.runtime.lane import Lane

from headrace_light.checkpoint_directory import CheckpointDirectory, StoredCheckpoint
from headrace_light.engine import Engine
from headrace_light.moved_offsets import moved_checkpoint, opened
from headrace_light.settings import KEPT_BYTES_MAX, KEPT_BYTES_WITH_LIMIT, LightSettings
from headrace_light.stages.interface import Host, Stages
from headrace_light.stages.loaded_ahead import LoadedAhead
from headrace_light.stages.local import LocalStages
from headrace_light.stages.none import NoStages
from headrace_light.stages.routing import shard_counts
from headrace_light.state_memory import StateMemory, check_spills
from headrace_light.usable_cores import processes_for

logger = logging.getLogger(__name__)


class LightBackend(Backend):
    """Runs a job in this process, in one thread beside the sinks' flush threads."""

    Settings: ClassVar[type[Settings]] = LightSettings

    def __init__(self, settings: LightSettings | None = None, clock: Clock | None = None) -> None:
        super().__init__(settings)
        self._clock = clock or SystemClock()
        #: State that was loaded ahead of the start, and of which plan.
        self._ahead: tuple[Plan, LoadedAhead] | None = None

    def _kind_of_store(self) -> tuple[str, Any]:
        """Return the name and the class of the state store that the options name."""
        name = self.settings.state_store or "directory"
        return name, default_registry().find("state store", name)

    def _state_store(self, job: str, directory: Path) -> StateStore:
        """Make the state store that the options name; each knows its defaults."""
        name, kind = self._kind_of_store()
        given = {**kind.defaults(job, str(directory)), **self.settings.state_options}
        store: StateStore = kind(kind.Settings.of(given, plugin=name))
        return store

    def _stages_of(self, plan: Plan, options: RunOptions) -> Callable[[Host, StoredCheckpoint], Stages]:
        """Return what makes the keyed stages of a plan. Raises JobError when the options do not fit it."""
        assert isinstance(self.settings, LightSettings)
        shards, store = self.settings.shards, partial(self._state_store, plan.job_name)
        if not plan.shuffles:
            return lambda host, checkpoint: NoStages()
        memory = self._state_memory(plan)
        if self.settings.reliability is None:
            ahead = self._ahead[1] if self._ahead is not None and self._ahead[0] is plan else None
            return partial(LocalStages.of, plan, shards=shards, make_store=store, ahead=ahead, memory=memory)
        # Most jobs run alone, and it takes a while to import this.
        from headrace_light.shared.elasticity import elasticity_of
        from headrace_light.shared.stages import SharedStages

        elasticity = elasticity_of(plan, options, self.settings, store)
        return partial(SharedStages.of, plan, elasticity=elasticity, shards=shards, memory=memory)

    def _state_memory(self, plan: Plan) -> StateMemory | None:
        """Return how the memory of keyed state is limited. Raises JobError when the plan cannot be run so."""
        assert isinstance(self.settings, LightSettings)
        limit_bytes = self.settings.state_memory_bytes
        if limit_bytes is None:
            return None
        check_spills(plan)
        return StateMemory(plan, limit_bytes)

    def make_ready(self, plan: Plan, options: RunOptions) -> None:
        """Open the operators of every stage once, so that their imports and compiled code are ready when the job starts."""
        import polars  # noqa: F401

        self._stages_of(plan, options)
        for root in (*plan.sources.values(), *plan.shuffles.values()):
            Lane(plan, root, Queue("ready", plan.id_of(root))).close()

    def load_ahead(self, plan: Plan, options: RunOptions) -> None:
        """Load the state of the newest checkpoint, where the state store can be read beside the process that writes it."""
        assert isinstance(self.settings, LightSettings)
        directory = CheckpointDirectory(options.checkpoint, plan.job_name)
        if directory.path is None or not plan.shuffles or self.settings.reliability is not None:
            return
        if self.settings.state_memory is not None:
            return  # the running job's rows on disk are loaded after it has stopped
        if self._ahead is None:
            # Another store is not even created: it might lock files that the running job needs.
            if not issubclass(self._kind_of_store()[1], ReadableStateStore):
                return
            store = self._state_store(plan.job_name, directory.path)
            assert isinstance(store, ReadableStateStore)
            self._ahead = plan, LoadedAhead(plan, shard_counts(plan, self.settings.shards), store)
        try:
            self._ahead[1].load(directory.look())
        except CheckpointError as error:  # the start says it, if it is so then
            logger.debug("job %s: nothing is loaded ahead: %s", plan.job_name, error)

    def state_outside(self, plan: Plan) -> str | None:
        assert isinstance(self.settings, LightSettings)
        if self.settings.reliability is None or not plan.shuffles:
            return None
        named = f", state_store={self.settings.state_store!r}" if self.settings.state_store else ""
        return f"with topics of the source's broker that instances share (reliability={self.settings.reliability!r}{named})"

    def stored_positions(self, checkpoint: str) -> Mapping[str, int]:
        with opened(checkpoint) as (_, stored):
            return {queue.id: position.offset for queue, position in sorted(stored.positions.items())}

    def move_positions(self, plan: Plan, checkpoint: str, offsets: Mapping[str, int]) -> Mapping[str, int]:
        with opened(checkpoint) as (directory, stored):
            moved = moved_checkpoint(plan, stored, offsets, has_begun=directory.has_begun)
            directory.save(moved)
            return {queue.id: position.offset for queue, position in sorted(moved.positions.items())}

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        assert isinstance(self.settings, LightSettings)
        keep_freed_memory(KEPT_BYTES_MAX if self.settings.state_memory is None else KEPT_BYTES_WITH_LIMIT)
        if self.settings.shared_reading:
            from headrace_light.shared_reading.source import with_shared_sources  # here: most jobs read by themselves

            given, plan = plan, with_shared_sources(plan)
            if self._ahead is not None and self._ahead[0] is given:
                self._ahead = plan, self._ahead[1]
        engine = Engine(
            plan,
            options,
            clock=self._clock,
            retry_timeout=self.settings.retry_timeout,
            idle_wait_max=self.settings.idle_wait_max,
            make_stages=self._stages_of(plan, options),
            workers=processes_for(plan, self.settings.workers),
            memory_bytes_max=self.settings.memory_max_bytes,
        )
        engine.prepare()
        engine.start()
        return LightHandle(engine)


class LightHandle(JobHandle):
    """The handle of a job on the light backend."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def status(self) -> JobStatus:
        return self._engine.status()

    def savepoint(self, path: str | os.PathLike[str], timeout: timedelta = timedelta(minutes=5)) -> Path:
        try:
            return self._engine.savepoint(path).result(timeout.total_seconds())
        except TimeoutError:
            raise TimeoutError(f"no savepoint within {timeout.total_seconds():g} s") from None

    def stop(
        self, timeout: timedelta = timedelta(seconds=30), *, savepoint: str | os.PathLike[str] | None = None
    ) -> None:
        answer = None if savepoint is None else self._engine.savepoint(savepoint)
        self._engine.stop()
        if not self._engine.join(timeout):
            work = at_work.described(self._engine.job_name)
            raise TimeoutError(
                f"job {self._engine.job_name} has not stopped within {timeout.total_seconds():g} s"
                + (f": {work}" if work else "")
            )
        if answer is not None:
            answer.result(0)

    def wait(self, timeout: timedelta | None = None) -> JobReport:
        if not self._engine.join(timeout):
            assert timeout is not None
            raise TimeoutError(f"job {self._engine.job_name} has not ended within {timeout.total_seconds():g} s")
        return self._engine.report()
