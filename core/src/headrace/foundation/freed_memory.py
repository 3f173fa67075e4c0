"""How much freed memory this process keeps for its next batches instead of giving it back to the system at once.

Sources: ``malloc_trim(3)`` and ``mallopt(3)`` of glibc, parameters M_MMAP_THRESHOLD and M_TRIM_THRESHOLD.
"""

from __future__ import annotations

import ctypes
import os
import sys

#: Of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Before version 2.35, glibc takes no more for M_MMAP_THRESHOLD.
_MMAP_BYTES_MAX = 32 * 1024**2
#: Who sets one of them has chosen.
_CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory(bytes_max: int) -> bool:
    """Let this process, and what it forks, keep up to ``bytes_max`` bytes of freed memory for later.

    Backends call it before they read. Without it, glibc gives the buffers of each batch back to the system, and takes new pages for the
    next batch, which the kernel must clear: a tenth to a fifth of the processor time of a job. It holds for the whole process, and
    does nothing where the environment sets malloc's limits, or where the C library is not glibc. Returns whether it was set.
    """
    if sys.platform != "linux" or any(os.environ.get(name) for name in _CHOSEN):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None or not any(mallopt(_M_MMAP_THRESHOLD, most) for most in (bytes_max, _MMAP_BYTES_MAX)):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, bytes_max))


def trim_freed_memory() -> None:
    """Let the C library give freed memory back to the system now. Called when memory is short; does nothing where it is not glibc."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)
