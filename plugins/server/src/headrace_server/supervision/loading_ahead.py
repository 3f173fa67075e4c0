"""Lets a prepared process load the state of its jobs while the running version still has it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable

from headrace_server.runner.protocol import RefusedError, RunnerAwayError
from headrace_server.supervision.going_back import KeptCheckpoint
from headrace_server.supervision.processes import RunnerProcess
from headrace_server.supervision.specifications import Services

logger = logging.getLogger(__name__)


def load_ahead(services: Services, new: RunnerProcess, changes: Iterable[str], stopping: threading.Event) -> str | None:
    """Let a process load the state of its jobs, and then the few changes that were stored in the meantime.

    Called by a roll-out before it stops the running version, whose changed jobs make no snapshot from now on. Returns why that one must
    go on: the new process has ended, as it may where there is not enough memory for both. None: it is there, with or without state.
    """
    for job in changes:
        with contextlib.suppress(
            OSError
        ):  # then a snapshot may be stored in between, and the whole state is loaded again
            KeptCheckpoint(services.data, job).guard()
    for each in (*new.specification.jobs, *new.specification.jobs):
        if stopping.is_set() or not new.is_alive():
            break
        allowed = services.settings(each.name, each.version).prepare_timeout
        try:
            new.ask("load_ahead", job=each.name, timeout_seconds=allowed)
        except (RunnerAwayError, RefusedError) as error:
            logger.info("job %s: its state is loaded when it starts: %s", each.name, error.message)
    if new.is_alive():
        return None
    reasons = {str(each.reason) for each in new.outcomes().values() if each.reason}
    return f"its process has ended while it loaded the state of the running version: {'; '.join(sorted(reasons))}"


def give_up(services: Services, new: RunnerProcess, changes: Iterable[str]) -> None:
    """End a process that will not take over: the running version continues, and makes snapshots as usual."""
    new.kill()
    for job in changes:
        with contextlib.suppress(OSError):  # the mark is removed later, with what nobody needs
            KeptCheckpoint(services.data, job).unguard()
