"""Where a job begins that starts from a savepoint."""

from __future__ import annotations

from headrace.flow.messages import Queue
from headrace.runtime.savepoint_start import SavepointStart

from headrace_spark.checkpoints.offsets import JobIdentity, JobOffsets, KeyedMarks
from headrace_spark.transit.payload import KeyedPlan


def offsets_at(
    start: SavepointStart, keyed: KeyedPlan | None, identity: JobIdentity, sequence: int, now_us: int, known: set[Queue]
) -> JobOffsets:
    """Return where the job begins. Queues that the shards do not wait for are gone: they are added when they are there."""
    place = start.savepoint.place
    queues = {queue: at for queue, at in place.positions.items() if keyed is None or queue in known}
    gone = {queue: at for queue, at in place.positions.items() if queue not in queues}
    marks = None
    if keyed is not None:
        idle = tuple(sorted(queue for queue in place.idle if queue in queues))
        marks = KeyedMarks(keyed.shards, keyed.levels, sequence + 1, max(now_us, place.time_us), idle)
    sources = {name: kind for name, kind in identity.sources.items() if name in start.savepoint.sources}
    return JobOffsets(identity.job, identity.fingerprint, sources, dict(sorted(queues.items())), gone, keyed=marks)
