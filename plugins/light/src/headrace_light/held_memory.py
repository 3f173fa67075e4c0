"""What the parts of a running job hold in memory: operators by node, batches that were read ahead, worker processes."""

from __future__ import annotations

import logging
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from headrace.interfaces.meter import Meter
from headrace.interfaces.operator import Operator
from headrace.plan.graph import Node, Plan

from headrace_light.process_memory import private_bytes
from headrace_light.queue_run import QueueRun
from headrace_light.stages.interface import Stages

if TYPE_CHECKING:
    from headrace_light.workers.reading_ahead import ReadingAhead

#: Of a longer container so many elements are looked at; each other element counts as their mean.
_SAMPLED = 500
#: Nothing that holds much lies deeper than this below an operator.
_DEPTH_MAX = 14
#: They belong to the job, not to one of its nodes, or hold no data.
_SKIPPED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    logging.Logger,
    Meter,
    Plan,
    Node,
)
_FLAT = (bytes, bytearray, str)
_CONTAINERS = (list, tuple, set, frozenset, deque)


class HeldMemory:
    """Tells what holds memory. Used by the engine's thread, when memory is looked at."""

    def __init__(self, runs: Mapping[Any, QueueRun], stages: Callable[[], Stages], ahead: ReadingAhead | None) -> None:
        self._runs = runs
        self._stages = stages
        self._ahead = ahead

    def in_workers(self) -> int:
        """Return the memory of the worker processes that they share with nobody."""
        return 0 if self._ahead is None else sum(map(private_bytes, self._ahead.process_ids))

    def read_ahead(self) -> int:
        """Return the size of the batches that were read for workers."""
        return 0 if self._ahead is None else self._ahead.size_bytes

    def by_node(self) -> Mapping[str, int]:
        """Return about how much the operators of each node hold: state, tables, rows that wait. It looks at their objects."""
        return bytes_by_name(self._operators())

    def _operators(self) -> Iterable[tuple[str, Operator]]:
        for run in self._runs.values():
            yield from run.lane.operators.items()
        yield from self._stages().operators()


def bytes_by_name(named: Iterable[tuple[str, object]]) -> Mapping[str, int]:
    """Return about how many bytes objects hold, by name. What several hold counts for the first.

    It finds numpy arrays, Arrow, polars and Python objects in attributes and containers; what compiled libraries hold is not seen.
    """
    seen: set[int] = set()
    found: dict[str, int] = {}
    for name, each in named:
        found[name] = found.get(name, 0) + _held(each, seen, 0)
    return {name: size for name, size in found.items() if size}


def _held(each: Any, seen: set[int], depth: int) -> int:
    if each is None or isinstance(each, _SKIPPED) or id(each) in seen or depth > _DEPTH_MAX:
        return 0
    seen.add(id(each))
    if isinstance(each, _FLAT):
        return sys.getsizeof(each)
    if isinstance(each, np.ndarray):
        return _of_array(each, seen)
    if isinstance(each, pl.DataFrame | pl.Series):
        return int(each.estimated_size())
    if type(each).__module__.startswith("pyarrow"):  # which is not installed everywhere
        total = getattr(each, "get_total_buffer_size", None)  # types and memory pools hold nothing
        return 0 if total is None else int(total())
    if isinstance(each, dict):
        pairs = [part for pair in islice(each.items(), _SAMPLED) for part in pair]
        return sys.getsizeof(each) + _scaled(pairs, 2 * len(each), seen, depth)
    if isinstance(each, _CONTAINERS):
        return sys.getsizeof(each) + _scaled(list(islice(each, _SAMPLED)), len(each), seen, depth)
    return sum(_held(value, seen, depth + 1) for value in _attributes(each))


def _scaled(sample: list[Any], count: int, seen: set[int], depth: int) -> int:
    size = sum(_held(value, seen, depth + 1) for value in sample)
    return size if count <= len(sample) else size * count // len(sample)


def _of_array(array: np.ndarray[Any, Any], seen: set[int]) -> int:
    owner: Any = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner is not array and id(owner) in seen:
        return 0
    seen.add(id(owner))
    # Pages of mapped files are the kernel's, which takes them away when it needs memory.
    return 0 if type(owner.base).__module__ == "mmap" or isinstance(owner, np.memmap) else int(owner.nbytes)


def _attributes(each: Any) -> Iterable[Any]:
    own = getattr(each, "__dict__", None)
    if isinstance(own, dict):
        yield from list(own.values())
    for kind in type(each).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                yield getattr(each, name, None)
