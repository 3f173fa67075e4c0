"""Objects that the garbage collector of Python leaves alone while jobs run."""

from __future__ import annotations

import gc
import threading
from collections.abc import Hashable

_lock = threading.Lock()
#: The jobs for which objects are spared.
_jobs: set[Hashable] = set()
#: Whether the program has excluded objects itself, as was seen when no job ran. They stay excluded. Once seen it is not asked again: Python
#: counts them one by one, which takes 0.1 s for two million, at each start of a job.
_others_are_spared = False


def spare_the_collector(job: Hashable) -> None:
    """Exclude all objects that exist now from garbage collections while a job runs. Called when the job has started.

    Python's garbage collector visits all objects of the process now and then, with the interpreter's lock held: 30 ms for what headrace
    itself imports, more in a larger program or with 1,000 rules, and no record goes on meanwhile. After this call it visits
    only newer objects. Reference cycles among the older objects are freed only after the last such job.

    Does nothing from then on when the program itself has excluded objects (``gc.freeze``): they could not be told from others at the end.
    """
    global _others_are_spared
    with _lock:
        if not _jobs and not _others_are_spared:
            _others_are_spared = gc.get_freeze_count() > 0
        if not _jobs and not _others_are_spared:
            gc.freeze()
            # It visits nothing, but Python then forgets the number of old objects. Otherwise the next full collection would
            # wait until there are a quarter as many new objects as old ones, and would take long.
            gc.collect()
        _jobs.add(job)


def use_the_collector_again(job: Hashable) -> None:
    """Undo ``spare_the_collector`` when the last of its jobs has ended. Does nothing for other jobs."""
    with _lock:
        if job in _jobs:
            _jobs.remove(job)
            if not _jobs and not _others_are_spared:
                gc.unfreeze()
