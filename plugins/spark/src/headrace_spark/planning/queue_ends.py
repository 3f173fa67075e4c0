"""Where the queues of a run begin and end: asked of readers, by the driver when a job starts and by the planner.

Pure Python. What the driver has found goes to the planner as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import BrokenQueueError, JobError
from headrace.interfaces.source import Reader, Source

from headrace_spark.checkpoints.offsets import JobIdentity, JobOffsets

T = TypeVar("T")
_THREADS_MAX = 16
#: Under this name the driver leaves the ends of a bounded run's queues.
ENDS = "ends"
#: More records than any queue holds.
ANY_NUMBER = 2**48


@dataclass(frozen=True)
class QueueEnd:
    """Where a queue ended when a bounded run began."""

    position: ReadPosition
    #: Whether the reader found the end in one step from its position, so that a single range may end there.
    in_one_step: bool
    #: Why it cannot be read further if it is damaged there, and how to repair it.
    broken: tuple[str, str | None] | None = None
    #: Positions that were passed on the way there, for whoever plans ranges.
    waypoints: Sequence[ReadPosition] = ()


def end_of(reader: Reader) -> QueueEnd:
    """Return where the reader's queue ends now. Raises RetriableError when the server is away.

    A reader that has met damage is not to be used further.
    """
    position = reader.position
    steps = 0
    try:
        end = reader.position_after(ANY_NUMBER)
        while end.offset > reader.position.offset:
            # A reader may know the end of its current file only.
            steps += 1
            reader.seek(end)
            end = reader.position_after(ANY_NUMBER)
    except BrokenQueueError as error:
        return QueueEnd(reader.position, steps <= 1, (error.message, error.hint))
    reader.seek(position)
    return QueueEnd(end, steps <= 1, waypoints=reader.waypoints())


def ends_to_json(ends: Mapping[Queue, QueueEnd]) -> list[Any]:
    """Return a JSON value; ``ends_from_json`` reads it."""
    return [
        [
            queue.source, queue.name, end.position.to_json(), end.in_one_step, end.broken,
            [position.to_json() for position in end.waypoints],
        ]
        for queue, end in ends.items()
    ]  # fmt: skip


def ends_from_json(value: list[Any]) -> Mapping[Queue, QueueEnd]:
    return {
        Queue(name, source): QueueEnd(
            ReadPosition.from_json(at),
            one,
            None if broken is None else tuple(broken),
            [ReadPosition.from_json(each) for each in waypoints],
        )
        for source, name, at, one, broken, waypoints in value
    }


def in_parallel(function: Callable[[Queue], T], queues: Iterable[Queue]) -> dict[Queue, T]:
    """Return the result of a function for each queue. It is called in several threads, so that servers are asked at the same time."""
    listed = list(queues)
    if len(listed) < 2:
        return {queue: function(queue) for queue in listed}
    with ThreadPoolExecutor(min(len(listed), _THREADS_MAX)) as threads:
        return dict(zip(listed, threads.map(function, listed), strict=True))


def or_broken(function: Callable[[Queue], T]) -> Callable[[Queue], T | BrokenQueueError]:
    """Return a function that gives the error of a queue that cannot be read, where the given one raises it."""

    def called(queue: Queue) -> T | BrokenQueueError:
        try:
            return function(queue)
        except BrokenQueueError as error:
            return error

    return called


def beginning_of(identity: JobIdentity, sources: Mapping[str, Source]) -> JobOffsets:
    """Return where the queues that exist now begin, but for those that cannot be opened as they are.

    Raises RetriableError when a server is away, JobError as sources do, and when no queue can be opened.
    """
    positions = {}
    broken: BrokenQueueError | None = None
    for source_id, source in sources.items():
        try:
            names = source.queues()
        except BrokenQueueError as error:
            raise JobError(error.message, plugin=error.plugin or source_id, hint=error.hint) from error
        for queue in names:
            named = replace(queue, source=source_id)
            try:
                reader = source.open(named, source.start)
            except BrokenQueueError as error:  # the planner sets it aside
                broken = broken or error
                continue
            positions[named] = reader.position
            reader.close()
    if broken is not None and not positions:
        raise JobError(broken.message, plugin=broken.plugin, queue=broken.queue, hint=broken.hint) from broken
    return JobOffsets.of(identity, positions)


def ends_of(beginning: JobOffsets, sources: Mapping[str, Source]) -> Mapping[Queue, QueueEnd]:
    """Return where the queues end now. Raises RetriableError when a server is away, JobError as sources do."""
    readers = {queue: sources[queue.source].open(queue, at) for queue, at in beginning.queues.items()}
    try:
        return in_parallel(lambda queue: end_of(readers[queue]), readers)
    finally:
        for reader in readers.values():
            reader.close()
