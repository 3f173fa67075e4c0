"""Finds the Python workers of a job on Spark, for tests that kill them."""

from __future__ import annotations

import psutil


def python_workers(pid: int) -> list[psutil.Process]:
    """Return the Python processes that a Python process (Spark's worker daemon) has forked."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            parent = child.parent()
            if "python" in child.name() and parent is not None and parent.pid != pid and "python" in parent.name():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found
