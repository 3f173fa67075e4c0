"""The machine: which start of it this is, and how many of its cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path


def available_cores() -> int:
    """Return the cores that this process is bound to; all of the machine where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def boot_id() -> str:
    """Return what changes when the machine starts again; an empty text where that is not known.

    What was not written through to the disk is there only until the next start.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
