"""When jobs start by themselves: cron expressions and intervals, what happens when a run overlaps or was missed, and the history.

``Scheduler.tick`` does everything that is due; the server calls it about once a second. Pure logic over a clock and a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.foundation.lazy_names import lazy_names

_MODULES = {
    "headrace_server.schedules.expressions": ("CronTimes", "IntervalTimes", "Times"),
    "headrace_server.schedules.history": ("HistoryEntry", "RunState"),
    "headrace_server.schedules.scheduler": ("JobStarter", "Scheduler"),
    "headrace_server.schedules.settings": ("ScheduleSettings",),
    "headrace_server.schedules.tables": ("metadata",),
}
# The process of a job reads settings from this package. It must not import what only the server needs, SQLAlchemy above all.
__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)

if TYPE_CHECKING:
    from headrace_server.schedules.expressions import CronTimes as CronTimes
    from headrace_server.schedules.expressions import IntervalTimes as IntervalTimes
    from headrace_server.schedules.expressions import Times as Times
    from headrace_server.schedules.history import HistoryEntry as HistoryEntry
    from headrace_server.schedules.history import RunState as RunState
    from headrace_server.schedules.scheduler import JobStarter as JobStarter
    from headrace_server.schedules.scheduler import Scheduler as Scheduler
    from headrace_server.schedules.settings import ScheduleSettings as ScheduleSettings
    from headrace_server.schedules.tables import metadata as metadata
