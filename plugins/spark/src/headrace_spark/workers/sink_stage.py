"""The sink stage in a worker process: gives envelopes to the sinks and counts.

The sinks' writers are kept between micro-batches, and with them what they know of each queue. Another process may have written
a queue's rows meanwhile; then this knowledge is outdated. The ranges of a queue follow one another, so it is current exactly if
the new range follows the last one that this process wrote.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.flow.messages import Checkpoint, Queue, QueueAdded, QueueRemoved
from headrace.foundation.faults import fault_point
from headrace.runtime.outlets import Outlets

from headrace_spark.transit.envelopes import Envelope
from headrace_spark.transit.payload import JobPayload
from headrace_spark.transit.task_counts import TaskCounts
from headrace_spark.workers.lanes import begin_counting

#: Queues whose state in the sinks' writers is kept per process.
_QUEUES_MAX = 1_024


@dataclass
class _KeptOutlets:
    outlets: Outlets
    #: The end of the last range that was written of each queue.
    ends: OrderedDict[Queue, int] = field(default_factory=OrderedDict)

    def begin(self, queue: Queue, start: int) -> None:
        if self.ends.get(queue, start) != start:
            self.forget(queue)
        if queue not in self.ends:
            self.outlets.on_system(QueueAdded(queue))

    def forget(self, queue: Queue) -> None:
        self.ends.pop(queue, None)
        self.outlets.on_system(QueueRemoved(queue))


_kept: OrderedDict[str, _KeptOutlets] = OrderedDict()
#: Jobs whose writers are kept per process.
_JOBS_MAX = 4


def write_envelopes(payload: JobPayload, envelopes: Iterable[Envelope], batch_id: int, *, repeated: bool) -> TaskCounts:
    """Write a task's envelopes; on return everything is stored. ``repeated``: an earlier attempt may have stored a part.

    Rows that such an attempt stored are counted as written: Spark has thrown its counts away.
    """
    begin_counting(payload, batch_id)
    plan = payload.plan()
    kept = _kept.pop(payload.token, None) or _KeptOutlets(Outlets(plan, auto_flush=False, write_behind=True))
    kept.outlets.known = payload.known_outputs
    try:
        counts = _write(payload, kept, envelopes, batch_id, repeated=repeated)
    except BaseException:
        kept.outlets.close(flush=False)
        raise
    while len(kept.ends) > _QUEUES_MAX:
        kept.forget(next(iter(kept.ends)))
    _kept[payload.token] = kept
    while len(_kept) > _JOBS_MAX:
        _kept.popitem(last=False)[1].outlets.close()
    return counts


def _write(
    payload: JobPayload, kept: _KeptOutlets, envelopes: Iterable[Envelope], batch_id: int, *, repeated: bool
) -> TaskCounts:
    outlets = kept.outlets
    written_before, skipped_before = dict(outlets.rows_written()), dict(_skipped(outlets))
    dead_before = dict(outlets.dead_letters_by_queue)
    counts = TaskCounts()
    meter = payload.plan().meter
    outlets.take_reasons()  # an attempt that failed may have left some
    for envelope in envelopes:
        queue = envelope.queue
        if envelope.kind == "rows":
            payload.check_owned_in_worker(batch_id)  # a full cache is flushed
            outlets.deliver([envelope.delivery()])
        elif envelope.kind == "begin":
            kept.begin(queue, envelope.first)
        elif envelope.kind in ("end", "shard", "stored"):
            kept.ends[queue] = envelope.last
            kept.ends.move_to_end(queue)
            if envelope.kind == "shard":
                counts.shards[queue.id] = figures = json.loads(envelope.payload)
                counts.metrics += [figures.pop("metrics")] if "metrics" in figures else []
            if envelope.kind != "end":
                continue
            counts.metrics += [json.loads(envelope.payload)] if envelope.payload else []
            counts.records[queue.id] = counts.records.get(queue.id, 0) + envelope.count
            counts.ends[queue.id] = envelope.last
        elif envelope.kind == "gone":
            kept.forget(queue)
        else:
            raise ValueError(f"envelope of kind {envelope.kind!r} did not reach its shard")
    payload.check_owned_in_worker(batch_id)
    outlets.on_system(Checkpoint(batch_id))
    fault_point("checkpoint.after_flush")
    for sink_id, total in outlets.rows_written().items():
        skipped = _skipped(outlets)[sink_id] - skipped_before[sink_id]
        counts.written[sink_id] = total - written_before[sink_id] + (skipped if repeated else 0)
        counts.skipped += 0 if repeated else skipped
    for queue_id, total in outlets.dead_letters_by_queue.items():
        if total != dead_before.get(queue_id, 0):
            counts.dead_letters[queue_id] = total - dead_before.get(queue_id, 0)
    counts.metrics += [meter.take()] if meter.enabled else []
    counts.reasons = [(each.origin, each.error, each.reason, each.count) for each in outlets.take_reasons()]
    return counts


def _skipped(outlets: Outlets) -> Mapping[str, int]:
    return {sink_id: outlets.writers[sink_id].counts.duplicates_dropped for sink_id in outlets.rows_written()}
