"""Outputs that have all results of keyed stages from an earlier run: checks whether the results of this run are the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.flow.messages import Queue, ReadPosition
from headrace.interfaces.output_definition import InputRead
from headrace.plan.graph import Plan
from headrace.plan.outputs import check_same_input, tell_completed
from headrace.runtime.patience import WaitFor

from headrace_light.queue_run import QueueRun


class KnownResults:
    """Compares the input of a run without checkpoint with the input whose results the outputs already have. Used by the engine.

    ``known``: what ``tell_outputs`` gave. ``begins``: whether the keyed stages begin without state.
    """

    def __init__(self, plan: Plan, known: Mapping[str, InputRead], shards: Mapping[str, int], *, begins: bool) -> None:
        self._plan = plan
        self._known = known
        self._shards = shards
        self._begins = begins
        self._beginnings: dict[Queue, ReadPosition] = {}

    def begin(self, runs: Iterable[QueueRun]) -> None:
        """The queues have been opened, and nothing is read yet. Raises JobError when outputs have the results of another input."""
        if not self._begins:
            return
        ends = {run.queue: run.end for run in runs}
        self._beginnings = {run.queue: run.position for run in runs if run.end is not None}
        now = self._read({queue: end for queue, end in ends.items() if end is not None})
        check_same_input(self._plan, self._known, now if None not in ends.values() else None)

    def end(self, runs: Iterable[QueueRun], wait_for: WaitFor) -> None:
        """The run has come to the end of its input, and everything is stored. Raises as sinks do, RetriableError after a while."""
        if self._begins:
            tell_completed(self._plan, self._read({run.queue: run.position.offset for run in runs}), wait_for)

    def _read(self, ends: Mapping[Queue, int]) -> InputRead:
        ranges = {queue: (begin, ends[queue]) for queue, begin in self._beginnings.items() if queue in ends}
        return InputRead.of(ranges, self._shards)
