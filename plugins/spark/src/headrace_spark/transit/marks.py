"""What the planner stores in the offsets of a job with keyed stages: processing time, idle queues, the end of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.flow.messages import Queue
from headrace.foundation.clock import Clock

from headrace_spark.checkpoints.offsets import JobOffsets, KeyedMarks
from headrace_spark.transit.payload import KeyedPlan


@dataclass(frozen=True)
class Control:
    """Control data of a micro-batch for the shards, beside its rows. Made by the planner; the same when a micro-batch is repeated."""

    #: What the number of the micro-batch is added to.
    base: int
    time_us: int
    end_of_input: bool = False
    added: Sequence[Queue] = field(default_factory=list)
    removed: Sequence[Queue] = field(default_factory=list)
    idle: Sequence[Queue] = field(default_factory=list)
    #: Queues that were idle: something comes from them again.
    awake: Sequence[Queue] = field(default_factory=list)


class MarkKeeper:
    """Keeps the marks of one run. Used by the planner's thread."""

    def __init__(self, keyed: KeyedPlan, clock: Clock, *, bounded: bool) -> None:
        self._keyed = keyed
        self._clock = clock
        self._bounded = bounded
        self._ended = False
        #: When each queue moved last or, if it has not yet, was first seen.
        self._silent_since: dict[Queue, float] = {}

    def put_on(
        self, start: JobOffsets, end: JobOffsets, *, all_read: bool, left_out: Collection[Queue] = ()
    ) -> JobOffsets:
        """Return ``end`` with its marks: those of ``start`` if there is nothing new for the shards.

        ``all_read``: this micro-batch comes to the end of a bounded run. ``left_out``: queues that no records come from, which
        windows are not to wait for.
        """
        now_us = int(self._clock.now() * 1_000_000)
        keyed, moved_base = self._keyed, self._keyed.base_moved
        before = start.keyed or KeyedMarks(keyed.shards, keyed.levels, max(now_us, keyed.base_least), now_us)
        idle = () if self._bounded else self._idle(start, end, before, left_out)
        ending = self._bounded and all_read and not self._ended
        moved = end.queues != start.queues or end.gone != start.gone or end.broken != start.broken
        tick_seconds = self._keyed.tick_seconds
        since_us = now_us - before.time_us
        ticking = tick_seconds is not None and not self._bounded and since_us >= tick_seconds * 1_000_000
        if start.keyed is not None and not (moved or ending or ticking or idle != before.idle):
            return replace(end, keyed=before)
        self._ended = self._ended or ending
        if moved_base is not None and before.base == moved_base[0]:
            before = replace(before, base=moved_base[1])
        marks = replace(before, time_us=max(before.time_us, now_us), idle=idle, ends=before.ends + ending)
        return replace(end, keyed=marks)

    def _idle(
        self, start: JobOffsets, end: JobOffsets, before: KeyedMarks, left_out: Collection[Queue]
    ) -> tuple[Queue, ...]:
        """Return the queues that have been silent for long. Silence counts from when this process first saw a queue."""
        now = self._clock.monotonic()
        idle = []
        for queue, position in end.queues.items():
            timeout_us = self._keyed.idle_timeouts_us.get(queue.source)
            known = start.queues.get(queue)
            if known is not None and known != position:
                self._silent_since[queue] = now
            elif (
                queue in before.idle
                or queue in left_out
                or (
                    timeout_us is not None
                    and (now - self._silent_since.setdefault(queue, now)) * 1_000_000 >= timeout_us
                )
            ):
                idle.append(queue)
        for queue in self._silent_since.keys() - end.queues.keys():
            del self._silent_since[queue]
        return tuple(sorted(idle))


def control_of(start: JobOffsets, end: JobOffsets) -> Control | None:
    """Return the control data for the shards of the micro-batch from ``start`` to ``end``; None without keyed stages.

    In the first one of a job all queues are new to the shards.
    """
    marks = end.keyed
    if marks is None:
        return None
    before = start.keyed
    known: Mapping[Queue, object] = {} if before is None else start.queues
    idle_before: Collection[Queue] = () if before is None else before.idle
    return Control(
        base=marks.base,
        time_us=marks.time_us,
        end_of_input=marks.ends > (0 if before is None else before.ends),
        added=[queue for queue in end.queues if queue not in known],
        removed=[queue for queue in known if queue not in end.queues],
        idle=[queue for queue in marks.idle if queue not in idle_before],
        awake=[queue for queue in idle_before if queue not in marks.idle and queue in end.queues],
    )
