"""Reads the memory of processes from Linux; other systems give 0."""

from __future__ import annotations

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not tell it (other than Linux)."""
    return _pages("self")[0] * _PAGE_BYTES


def private_bytes(process_id: int) -> int:
    """Return the resident memory of another process without the pages of files and of shared memory; 0 when it has ended."""
    resident, shared = _pages(str(process_id))
    return (resident - shared) * _PAGE_BYTES


def _pages(process: str) -> tuple[int, int]:
    try:
        with open(f"/proc/{process}/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
            return resident, shared
    except (OSError, ValueError):  # a process that is ending has an empty file
        return 0, 0
