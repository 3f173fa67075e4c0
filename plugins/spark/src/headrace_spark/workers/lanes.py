"""The source stage in a worker process: reads ranges of queues and takes them through their lanes.

Readers and lanes are kept between micro-batches. Spark may give a queue's next range to any process. So a kept reader
is first set to the beginning of the range. It is kept again only when the range is done: after an error nothing is
kept.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from headrace.flow.dead_letters import of_queue
from headrace.flow.messages import Checkpoint, Queue, QueueAdded, QueueRemoved, RawBatch
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import BrokenQueueError, HeadraceError, RetriableError
from headrace.foundation.faults import fault_point
from headrace.foundation.retrying import Backoff, Tries, until_done
from headrace.interfaces.source import Reader
from headrace.runtime.lane import DEAD_LETTERS, Delivery, Lane

from headrace_spark.transit.envelopes import Envelope, of_delivery
from headrace_spark.transit.marks import Control
from headrace_spark.transit.payload import JobPayload
from headrace_spark.transit.ranges import QueueRange
from headrace_spark.transit.troubles import TroubleNotes
from headrace_spark.workers.shipping import PLACES_PER_RANGE, Gathered, Outbox, addressed, control_envelopes

T = TypeVar("T")
#: Lanes kept per process.
_LANES_MAX = 256
_POLL_TIMEOUT = timedelta(seconds=1)
_PAUSE_SECONDS_FIRST = 0.05
_PAUSE_SECONDS_MAX = 2.0
_CLOCK = SystemClock()
#: Spark kills a task that it wants to end.
_NEVER = threading.Event()


@dataclass
class _KeptLane:
    reader: Reader
    lane: Lane

    def close(self) -> None:
        self.lane.close()
        self.reader.close()


_kept: OrderedDict[tuple[str, Queue], _KeptLane] = OrderedDict()


def read_ranges(
    payload: JobPayload, ranges: Iterable[QueueRange], batch_id: int, control: Control | None = None
) -> Iterator[Envelope]:
    """Yield the output of the lanes for the ranges. Called once per task, in the process that runs it.

    ``control`` is given to one task of a micro-batch: the control data for all shards of keyed stages.
    """
    begin_counting(payload, batch_id)
    topology = payload.topology()
    if control is not None:
        yield from addressed(control_envelopes(topology, control, batch_id), topology, 0)
    for part in ranges:
        yield from addressed(_read_range(payload, part, batch_id), topology, 0, first=part.number * PLACES_PER_RANGE)


def _read_range(payload: JobPayload, part: QueueRange, batch_id: int) -> Iterator[Envelope]:
    queue, end = part.queue, part.end.offset
    kept = _kept.pop((payload.token, queue), None)
    if part.gone:
        yield from _remove(payload, part, kept)
        return
    if part.broken is not None:
        if kept is not None:
            kept.close()  # it is opened again when it can be read again
        yield from _told(payload, part)
        return
    yield Envelope("begin", queue, part.start.offset, end)
    if kept is None:
        kept = _opened(payload, part)
        yield from _of(kept.lane.on_system(QueueAdded(queue)))
    outbox = Outbox(payload.plan(), payload.topology(), queue) if payload.keyed is not None else None
    gathered = Gathered() if payload.shuffles else None
    try:
        if kept.reader.position != part.start:
            # Another process read the records in between. The operators of this stage have no state that could be outdated.
            _waiting_for(payload, queue, partial(kept.reader.seek, part.start))
        kept.reader.limit(part.end)
        count = 0
        for raw in _raw_batches(payload, kept.reader, part):
            count += len(raw)
            deliveries = processed(payload, kept.lane, raw)
            yield from _of(deliveries) if gathered is None else gathered.take(deliveries)
            if outbox is not None:
                yield from outbox.take(kept.lane.take_shipments())
            fault_point("lane.after_process")
        if gathered is not None:
            yield from gathered.rest()
        yield from _of(kept.lane.on_system(Checkpoint(batch_id)))
        if outbox is not None:
            yield from outbox.take(kept.lane.take_shipments())
            yield from outbox.rest()
    except BaseException:
        kept.close()
        raise
    yield Envelope("end", queue, part.start.offset, end, count, payload=counted(payload))
    _keep(payload, queue, kept)


def begin_counting(payload: JobPayload, batch_id: int) -> None:
    """Forget what an attempt has counted that failed in this process. Called at the begin of a task."""
    meter = payload.plan().meter
    if meter.enabled:
        meter.take()
        meter.group = batch_id


def counted(payload: JobPayload) -> bytes:
    """Return the counts of this process. The last stage sends them to the driver. Empty if metrics are off."""
    meter = payload.plan().meter
    return json.dumps(meter.take()).encode() if meter.enabled else b""


def _opened(payload: JobPayload, part: QueueRange) -> _KeptLane:
    plan = payload.plan()
    node = plan.sources[part.queue.source]
    columns = plan.decode_columns()[part.queue.source]
    reader = _waiting_for(payload, part.queue, lambda: node.source.open(part.queue, part.start))
    return _KeptLane(reader, Lane(plan, node, part.queue, decode_columns=columns))


def _remove(payload: JobPayload, part: QueueRange, kept: _KeptLane | None) -> Iterator[Envelope]:
    """Let the lane end. If this process has no lane of the queue, a new one ends: stateless operators give nothing at the end."""
    if kept is not None:
        yield from _of(kept.lane.on_system(QueueRemoved(part.queue)))
        kept.close()
    yield Envelope("gone", part.queue, part.start.offset, part.end.offset)


def _told(payload: JobPayload, part: QueueRange) -> Iterator[Envelope]:
    """Write a dead letter about a queue that was set aside, if the job has a sink for dead letters."""
    queue, offset = part.queue, part.start.offset
    yield Envelope("begin", queue, offset, offset)
    if payload.plan().dead_letters_id is not None:
        assert part.broken is not None
        letter = of_queue(queue, queue.source, offset, BrokenQueueError(part.broken))
        yield from _of([Delivery(DEAD_LETTERS, letter)])
    yield Envelope("end", queue, offset, offset, 0)


def _of(deliveries: Iterable[object]) -> Iterator[Envelope]:
    for delivery in deliveries:
        yield from of_delivery(delivery)  # type: ignore[arg-type]


def _keep(payload: JobPayload, queue: Queue, kept: _KeptLane) -> None:
    _kept[payload.token, queue] = kept
    for key in [key for key in _kept if key[0] != payload.token] if len(_kept) > _LANES_MAX else []:
        _kept.pop(key).close()
    while len(_kept) > _LANES_MAX:
        _kept.popitem(last=False)[1].close()


def processed(payload: JobPayload, lane: Lane, raw: RawBatch) -> list[Delivery]:
    """Take records through the lane. The server of a function or table may be unavailable: raises RetriableError when it stays so."""
    notes, what = TroubleNotes(payload.run_directory), f"the server of an operator of queue {lane.queue.id}"

    def process() -> list[Delivery]:
        try:
            return lane.process(raw)
        except RetriableError:
            lane.take_shipments()  # they come again
            raise

    return _until_there(process, notes, what, lambda error: payload.retry_seconds, RetriableError)


def _waiting_for(payload: JobPayload, queue: Queue, action: Callable[[], T]) -> T:
    """Return the result of an action that needs the queue. The queue existed when the range was planned, so the action is tried again.

    A planned range cannot be left out: its results and its changes of state must be the same again.
    Raises RetriableError or BrokenQueueError when it is still not available.
    """
    notes = TroubleNotes(payload.run_directory)
    return _until_there(action, notes, queue.id, payload.patience_seconds, RetriableError, BrokenQueueError)


def _until_there(
    action: Callable[[], T],
    notes: TroubleNotes,
    what: str,
    patience_seconds: Callable[[Any], float],
    *retriable: type[HeadraceError],
) -> T:
    """Return the result of an action; it is tried again for as long as ``patience_seconds`` gives for the error."""

    def failed(error: HeadraceError, tries: Tries) -> None:
        notes.away(what, error.message)
        if tries.waited_seconds >= patience_seconds(error):
            raise error

    backoff = _backoff()
    made = until_done(action, clock=_CLOCK, stopping=_NEVER, retriable=retriable, failed=failed, backoff=backoff)
    notes.back(what)
    return made


def _backoff() -> Backoff:
    return Backoff(first_seconds=_PAUSE_SECONDS_FIRST, seconds_max=_PAUSE_SECONDS_MAX, monotonic=_CLOCK.monotonic)


def _raw_batches(payload: JobPayload, reader: Reader, part: QueueRange) -> Iterator[RawBatch]:
    """Yield the records of a range. Raises RetriableError when they do not come for a long time."""
    end = part.end.offset
    notes = TroubleNotes(payload.run_directory)
    moved_at, backoff = _CLOCK.monotonic(), _backoff()
    while (before := reader.position.offset) < end:
        try:
            raw = reader.poll(min(payload.batch_records, end - before), _POLL_TIMEOUT)
            fault_point("reader.after_poll")
            backoff.succeeded()
            notes.back(part.queue.id)
        except (RetriableError, BrokenQueueError) as error:
            notes.away(part.queue.id, error.message)
            if _CLOCK.monotonic() - moved_at >= payload.patience_seconds(error):
                raise
            _CLOCK.wait(_NEVER, backoff.failed())
            continue
        if raw is not None and len(raw):
            yield raw.until(part.end)
        if reader.position.offset > before:
            moved_at = _CLOCK.monotonic()
        elif _CLOCK.monotonic() - moved_at >= payload.retry_seconds:
            raise RetriableError(
                f"the source reported records up to {end}, but gave none after {before} "
                f"for {payload.retry_seconds:.0f} s",
                queue=part.queue.id,
                offset=before,
            )
