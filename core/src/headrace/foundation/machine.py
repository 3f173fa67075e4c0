"""Which start of the machine this is: what was not written through to its disk is there only until the next one."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """Return what changes when the machine starts again; an empty text where that is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
