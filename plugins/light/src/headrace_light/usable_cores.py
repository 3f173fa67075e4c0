"""How many processes at work this machine, or the limits of this process, have cores for."""

from __future__ import annotations

import logging
from pathlib import Path

from headrace.foundation.errors import PlanError
from headrace.foundation.machine import available_cores
from headrace.plan.graph import Plan

logger = logging.getLogger(__name__)
_GROUPS = Path("/sys/fs/cgroup")


def usable_cores(groups: Path = _GROUPS) -> int:
    """Return the cores that this process may use: those it is bound to, and no more than its control group is given time for."""
    cores = available_cores()
    return max(1, min(cores, int(_quota(groups) or cores)))


def _quota(groups: Path) -> float | None:
    """Return how many cores a control group is given time for, of version 2 or 1, as a container sees its own."""
    try:
        quota, period = (groups / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (groups / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (groups / "cpu" / "cpu.cfs_period_us").read_text()
        except OSError:
            return None
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except ValueError:  # "max"
        return None


def processes_for(plan: Plan, workers: int) -> int:
    """Return in how many processes lanes run. ``workers`` 0: as many as there are cores, one if the job cannot be copied."""
    if workers:
        return workers
    cores = usable_cores()
    if cores > 1:
        from headrace_light.workers.travelling_plan import packed  # here: most jobs have no workers

        try:
            packed(plan)
        except PlanError as error:
            logger.info("job %s runs in one process: %s", plan.job_name, error.message)
            return 1
    return cores
