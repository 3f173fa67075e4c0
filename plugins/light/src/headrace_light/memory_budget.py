"""A limit for the memory of the process, and the actions before the system would end it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobFailedError, OptionError
from headrace.foundation.freed_memory import trim_freed_memory
from headrace.interfaces.meter import Meter
from headrace.interfaces.metrics import MEMORY_PART, MEMORY_USED
from headrace.plan.graph import Plan
from headrace.runtime.outlets import Outlets

from headrace_light.process_memory import resident_bytes

logger = logging.getLogger(__name__)
#: Parts of the budget: from the first on a warning names what takes most, from the second on memory is given back, and less is read.
_WARNED, _PRESSED = 0.8, 0.9
#: So often memory is looked at, at most.
_LOOK_SECONDS = 0.02
#: Whether a batch may be larger than this part of the budget: as rows it takes several times as much, and not only once.
_BATCH_PART = 1 / 32
#: So often all that costs time is done again while memory stays near the budget. Rows that wait are written out from this part of it on.
_RELIEF_SECONDS, _WORTH_WRITING = 0.5, 0.01
#: How long the process may stay above its budget after all that can be given back was given back: allocators give pages back late.
_OVER_SECONDS_MAX = 15.0


#: How long figures of nodes hold: to find them objects are looked at.
_NODES_SECONDS = 10.0


class Held(Protocol):
    """Returns the memory that a job holds: see ``HeldMemory``."""

    def in_workers(self) -> int: ...
    def read_ahead(self) -> int: ...
    def by_node(self) -> Mapping[str, int]: ...


class MemoryBudget:
    """Looks at the memory of this process and of its workers, and acts when it comes near to the budget. Used by the engine's thread alone.

    ``waiting`` tells how many bytes wait for each sink; ``write_out`` inserts what waits, and returns when it is stored.
    """

    def __init__(
        self,
        job: str,
        bytes_max: int,
        clock: Clock,
        meter: Meter,
        *,
        waiting: Callable[[], Mapping[str, int]],
        write_out: Callable[[], None],
        used: Callable[[], int] | None = None,
    ) -> None:
        self._job = job
        self._bytes_max = bytes_max
        self._clock = clock
        self._meter = meter
        self._waiting = waiting
        self._write_out = write_out
        self._held: Held | None = None
        #: What nodes hold, and when that was found.
        self._nodes: Mapping[str, int] = {}
        self._nodes_seconds = float("-inf")
        self._used = used or resident_bytes
        self._looked_seconds = float("-inf")
        self._warned = False
        self._over_since: float | None = None
        self._relieved_seconds = float("-inf")
        #: By which part of them batches are smaller now.
        self._smaller = 1
        #: Bytes of a record in each source, as of its last batch.
        self._record_bytes: dict[str, float] = {}

    def max_records(self, source: str, wanted: int) -> int:
        """Return how many records of a source to read at once."""
        known = self._record_bytes.get(source)
        fitting = wanted if not known else int(self._bytes_max * _BATCH_PART / known)
        return max(1, min(wanted, fitting) // self._smaller)

    def came(self, source: str, records: int, size: int) -> None:
        """A batch of a source had so many records and bytes."""
        if records:
            self._record_bytes[source] = size / records

    def check(self, held: Held | None = None) -> None:
        """Look at the memory now and then, and act. Raises JobFailedError when the budget is not enough, and what sinks raise.

        ``held`` returns the memory of the parts of the job.
        """
        self._held = held
        now = self._clock.monotonic()
        if now - self._looked_seconds < _LOOK_SECONDS:
            return
        self._looked_seconds = now
        used = self._taken()
        if self._meter.enabled:
            self._meter.set(MEMORY_USED, used)
            if now - self._nodes_seconds >= _NODES_SECONDS:
                self._find_nodes(now)
            for name, size in self._parts().items():
                self._meter.set(MEMORY_PART, size, name)
        part = used / self._bytes_max
        if part < _WARNED:
            self._warned = self._warned and part >= _WARNED * 0.9
            self._smaller, self._over_since = 1, None
            return
        if not self._warned:
            self._warned = True
            self._find_nodes(now)
            logger.warning(
                "job %s: %s; from %.0f %% on, the job reads less", self._job, self._told(used), 100 * _PRESSED
            )
        if part >= _PRESSED:
            self._relieve(now)
        else:
            self._over_since = None

    def _relieve(self, now: float) -> None:
        waits = sum(self._waiting().values()) >= self._bytes_max * _WORTH_WRITING
        if waits:
            self._write_out()
        if now - self._relieved_seconds >= _RELIEF_SECONDS:
            self._relieved_seconds = now
            self._smaller = min(2 * self._smaller, 1 << 20)
            gc.collect()
        elif not waits:
            return  # allocators return freed memory with a delay
        trim_freed_memory()
        used = self._taken()
        if used <= self._bytes_max:
            self._over_since = None
            return
        self._over_since = now if self._over_since is None else self._over_since
        if now - self._over_since >= _OVER_SECONDS_MAX:
            self._find_nodes(now)
            raise JobFailedError(
                f"{self._told(used)}, although caches are empty and batches are small",
                job=self._job,
                option="memory_max_bytes",
                hint="raise the limit, or reduce what the job keeps: fewer keys, shorter windows, a smaller dimension table, smaller "
                "records, fewer workers; when the job is started again, it continues from its checkpoint",
            )

    def _taken(self) -> int:
        return self._used() + (0 if self._held is None else self._held.in_workers())

    def _find_nodes(self, now: float) -> None:
        self._nodes_seconds = now
        self._nodes = {} if self._held is None else self._held.by_node()

    def _parts(self) -> dict[str, int]:
        parts = {f"rows that wait for sink {name}": size for name, size in self._waiting().items()}
        parts |= {f"node {name}": size for name, size in self._nodes.items()}
        if self._held is not None:
            parts["batches that were read for workers"] = self._held.read_ahead()
            parts["worker processes"] = self._held.in_workers()
        return parts

    def _told(self, used: int) -> str:
        """Say how much is used, and by what."""
        parts = self._parts()
        known = sum(parts.values())
        name, size = max(
            [*parts.items(), ("rules, libraries and the rest", max(0, used - known))], key=lambda each: each[1]
        )
        return (
            f"{_megabytes(used)} of the {_megabytes(self._bytes_max)} of memory_max_bytes are used, "
            f"most of it by {name}: {_megabytes(size)}"
        )


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def budget_of(plan: Plan, bytes_max: int, clock: Clock, outlets: Outlets) -> MemoryBudget | None:
    """Return the budget of a job, or None. Raises OptionError when the process has taken as much already."""
    if not bytes_max:
        return None
    used = resident_bytes()
    if used >= bytes_max * _PRESSED:
        raise OptionError(
            f"the process takes {_megabytes(used)} before the job begins",
            plugin="light",
            option="memory_max_bytes",
            hint="Python and its libraries need about 150 MiB; dimension tables and rules come on top",
        )
    return MemoryBudget(
        plan.job_name, bytes_max, clock, plan.meter, waiting=outlets.waiting_bytes, write_out=outlets.flush
    )
