"""Finds the Python workers of a job on Spark, for tests that kill them."""

from __future__ import annotations

import psutil


def python_workers(pid: int) -> list[psutil.Process]:
    """Return the Python processes that Spark's worker daemons have forked.

    The daemons themselves are Java's children, or forked by the fork server, which is a child of the driver ``pid``.
    """
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            parent = child.parent()
            if "python" not in child.name() or parent is None or "python" not in parent.name():
                continue
            if pid not in (parent.pid, parent.ppid()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found
