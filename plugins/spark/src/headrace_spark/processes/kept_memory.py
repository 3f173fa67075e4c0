"""What a worker lets polars keep of the memory that it has freed, for its next batches.

polars' allocator is jemalloc, which reads its options from the environment when polars is imported. By default blocks of 8 MB and more go
back to the system at once, and others within half a second: then each batch is written to new pages, which the kernel must clear.
"""

from __future__ import annotations

import os

_VARIABLE = "_RJEM_MALLOC_CONF"
#: How long, roughly, unused memory is kept: longer than a micro-batch, because each needs as much again. The allocator has no thread
#: in a worker, so an idle worker keeps its memory.
_KEPT_MS = 60_000
#: One arena: what one thread of a worker frees, its others take.
_OPTIONS = f"narenas:1,oversize_threshold:0,dirty_decay_ms:{_KEPT_MS},muzzy_decay_ms:-1"
#: What polars itself puts before the options whenever it is imported. The driver has imported it, and workers inherit its environment.
_OF_POLARS = frozenset({"dirty_decay_ms:500", "muzzy_decay_ms:1000", "thp:always", "metadata_thp:always"})


def keep_memory_of_polars(*, threads: bool) -> None:
    """Set the options, unless the user has. Called in a worker before it imports polars.

    ``threads``: whether the allocator may start a thread; it must not if the process forks afterwards.
    """
    chosen = [each for each in os.environ.get(_VARIABLE, "").split(",") if each and each not in _OF_POLARS]
    if not chosen:
        os.environ[_VARIABLE] = _OPTIONS if threads else f"background_thread:false,{_OPTIONS}"
