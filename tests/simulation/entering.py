"""How a history is entered and left: fault points are seams, nothing is logged, and no finalizer runs at a moment that no seed decides."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.foundation import faults as fault_points

from tests.simulation.limits import small_limits
from tests.simulation.world.disk import Disk
from tests.simulation.world.scheduler import World
from tests.simulation.world.seams import Entered


class _Points:
    """Makes the named fault points of headrace seams of the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def passed(self, place: str) -> None:
        self._world.step(place)


def memory() -> str | None:
    """Return where files are in memory; None: the usual place for temporary files."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


@contextmanager
def inside(world: World, disk: Disk) -> Iterator[None]:
    """Run the body as the driver of a world."""
    faults, collects, logs = fault_points._faults, gc.isenabled(), logging.root.manager.disable
    fault_points._faults = _Points(world)  # type: ignore[assignment]
    gc.disable()
    logging.disable(logging.CRITICAL)  # servers are away all the time
    try:
        with small_limits(world.seed), Entered(world, disk):
            yield
    finally:
        fault_points._faults = faults
        logging.disable(logs)
        if collects:
            gc.enable()
