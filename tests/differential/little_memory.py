"""Every keyed job of light keeps its state beyond memory: rows in RocksDB, the rest in mapped files, however little it is."""

from __future__ import annotations

import headrace.interfaces.mapped_memory as mapped_memory
from headrace.foundation.errors import OptionError
from headrace.plan.graph import Plan
from headrace_light import storing_behind
from headrace_light.backend import LightBackend
from headrace_light.state_memory import StateMemory, check_spills

_BYTES = 1_000_000


def limit_memory() -> None:
    """Let jobs of this process run so, except those with a verb that refuses ``state_memory``."""

    def limited(self: LightBackend, plan: Plan) -> StateMemory | None:
        try:
            check_spills(plan)
        except OptionError:
            return None
        return StateMemory(plan, _BYTES)

    LightBackend._state_memory = limited  # type: ignore[method-assign]
    mapped_memory._LEAST_BYTES = 1
    storing_behind.BEHIND_ROWS_MIN = 0  # every checkpoint but the first is stored by another thread
