"""The light backend: makes an engine for a plan and hands out its handle."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from headrace.backend import Backend, JobHandle, JobReport, JobStatus, RunOptions
from headrace.clock import Clock, SystemClock
from headrace.plan import Plan
from headrace.settings import Settings, option

from headrace_light.engine import Engine


class LightSettings(Settings, frozen=True, kw_only=True):
    """Options of the light backend."""

    retry_timeout: Annotated[timedelta, option("how long a source may be away before the job fails")] = timedelta(
        minutes=5
    )
    idle_wait_max: Annotated[timedelta, option("longest pause between two looks at queues that had nothing new")] = (
        timedelta(milliseconds=200)
    )
    shards: Annotated[int, option("partitions of keyed state, fixed for a checkpoint", ge=1)] = 1


class LightBackend(Backend):
    """Runs a job in this process, in one thread beside the sinks' flush threads."""

    Settings: ClassVar[type[Settings]] = LightSettings

    def __init__(self, settings: LightSettings | None = None, clock: Clock | None = None) -> None:
        super().__init__(settings)
        self._clock = clock or SystemClock()

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        assert isinstance(self.settings, LightSettings)
        engine = Engine(
            plan,
            options,
            clock=self._clock,
            retry_timeout=self.settings.retry_timeout,
            idle_wait_max=self.settings.idle_wait_max,
            shards=self.settings.shards,
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

    def stop(self, timeout: timedelta = timedelta(seconds=30)) -> None:
        self._engine.stop()
        if not self._engine.join(timeout):
            raise TimeoutError(f"job {self._engine.job_name} has not stopped within {timeout.total_seconds():g} s")

    def wait(self, timeout: timedelta | None = None) -> JobReport:
        if not self._engine.join(timeout):
            assert timeout is not None
            raise TimeoutError(f"job {self._engine.job_name} has not ended within {timeout.total_seconds():g} s")
        return self._engine.report()
