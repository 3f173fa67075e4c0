"""The options of a schedule in job.yaml."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from headrace.foundation.errors import OptionError
from headrace.interfaces.settings import Settings, option

from headrace_server.schedules.expressions import CronTimes, IntervalTimes, Times

_DEFINITION_LENGTH_MAX = 500


class ScheduleSettings(Settings, frozen=True, kw_only=True):
    """When a job starts, and what happens when it cannot. One of ``cron`` and ``every`` is given."""

    cron: Annotated[str | None, option("minute hour day-of-month month day-of-week")] = None
    every: Annotated[timedelta | None, option("interval, counted from midnight UTC")] = None
    time_zone: Annotated[str, option("time zone of cron")] = "UTC"
    overlap: Annotated[
        Literal["skip", "queue", "replace"],
        option("when the run before is still at work: skip this one, start it afterwards, or stop the run before"),
    ] = "skip"
    catch_up: Annotated[
        Literal["none", "last", "all"], option("which runs that were missed while no server ran are started")
    ] = "last"
    catch_up_max: Annotated[int, option("with all: the most runs that are caught up", ge=1, le=1000)] = 100
    late_max: Annotated[timedelta, option("a run that is later than this was missed")] = timedelta(minutes=1)
    queue_max: Annotated[int, option("with queue: the most runs that wait", ge=1, le=1000)] = 100

    def validate(self) -> None:
        """See Settings.validate."""
        if (self.cron is None) == (self.every is None):
            raise OptionError("give either cron or every", option="schedule")
        if self.cron is None and self.time_zone != "UTC":
            raise OptionError("timezone has no effect on an interval (every)", option="time_zone", hint="use cron")
        if self.late_max < timedelta(seconds=1):
            raise OptionError(f"{self.late_max} is too short", option="late_max", hint="1 s or more")
        if len(self.definition()) > _DEFINITION_LENGTH_MAX:
            raise OptionError(
                "the cron expression is too long", option="cron", hint="use several jobs with shorter expressions"
            )
        self.times()

    def definition(self) -> str:
        """Return a text that differs for schedules with different instants."""
        return f"every {self.every}" if self.cron is None else f"cron {self.cron} in {self.time_zone}"

    def times(self) -> Times:
        """Return the instants. Raises OptionError."""
        if self.cron is not None:
            return CronTimes(self.cron, self.time_zone)
        assert self.every is not None
        return IntervalTimes(self.every)
