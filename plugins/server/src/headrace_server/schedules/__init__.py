"""When jobs start by themselves: cron expressions and intervals, what happens when a run overlaps or was missed, and the history.

``Scheduler.tick`` does everything that is due; the server calls it about once a second. Pure logic over a clock and a table.
"""

from __future__ import annotations

from headrace_server.schedules.expressions import CronTimes, IntervalTimes, Times
from headrace_server.schedules.history import HistoryEntry, RunState
from headrace_server.schedules.scheduler import JobStarter, Scheduler
from headrace_server.schedules.settings import ScheduleSettings
from headrace_server.schedules.tables import metadata

__all__ = [
    "CronTimes", "HistoryEntry", "IntervalTimes", "JobStarter", "RunState", "ScheduleSettings", "Scheduler", "Times", "metadata",
]  # fmt: skip
