"""Which source objects of this process a running job reads with.

A source object keeps its connections, its membership of a consumer group and what it has learned of its queues. Two jobs that
read with one object at the same time would take all of this away from each other, and miss records without an error.
"""

from __future__ import annotations

import threading
from typing import Literal

from headrace.foundation.errors import PlanError
from headrace.interfaces.source import Source
from headrace.plan.graph import Plan

_lock = threading.Lock()
#: The object itself is kept too: the id of one that is gone may be given to another.
_in_use: dict[int, tuple[Source, str]] = {}


def check_sources_free(plan: Plan) -> None:
    """Raise PlanError when a running job reads with a source object of the plan.

    Called by a backend that makes copies of the sources: an object that is in use cannot be copied.
    """
    with _lock:
        _check(plan)


class SourcesInUse:
    """The source objects of one job, from its start to its end. Made by a backend that reads with the plan's own objects."""

    def __init__(self, plan: Plan) -> None:
        """Take the objects for this job. Raises PlanError when another running job reads with one of them."""
        with _lock:
            _check(plan)
            self._taken = {id(node.source): (node.source, plan.job_name) for node in plan.sources.values()}
            _in_use.update(self._taken)

    def begin(self, until: Literal["end"] | None) -> None:
        """Call ``use_run`` of the sources; those that listen begin to listen. Raises their errors."""
        for source, _ in self._taken.values():
            source.use_run(until=until)
            source.begin_listening()

    def release(self) -> None:
        """Let other jobs read with them, once they are closed. May be called twice."""
        with _lock:
            for taken in self._taken:
                del _in_use[taken]
            self._taken = {}


def _check(plan: Plan) -> None:
    for source_id, node in plan.sources.items():
        if id(node.source) in _in_use:
            reader = _in_use[id(node.source)][1]
            raise PlanError(
                f"the running job {reader!r} reads with the same source object",
                job=plan.job_name,
                plugin=source_id,
                hint="make one job of both with headrace.job(one, other), which reads the source once; or give each job its own source "
                "object",
            )
