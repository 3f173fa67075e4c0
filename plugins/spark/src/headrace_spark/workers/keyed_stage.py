"""A keyed stage as a worker process runs it: the shards of one number take a micro-batch and store their state.

Shards are kept in the process between micro-batches, though Spark gives a partition to any process. A kept shard is
taken out before it is given anything, and is put back only when its new state is stored: after an error nothing is kept.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from headrace.flow.messages import Queue
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import CheckpointError
from headrace.foundation.faults import fault_point
from headrace.runtime import shuffle
from headrace.runtime.shard import Shard, ShardOutput
from headrace.runtime.waiting import Waiting, waiting

from headrace_spark.shards.shard_state import StateChain, StateVersion
from headrace_spark.shards.topology import Address, Topology
from headrace_spark.transit.envelopes import Envelope, of_delivery
from headrace_spark.transit.payload import JobPayload
from headrace_spark.transit.troubles import TroubleNotes
from headrace_spark.workers.frame_stage import control_of_frames, is_of_frame, marks_of_frames, rows_of_frames
from headrace_spark.workers.lanes import begin_counting
from headrace_spark.workers.shipping import Outbox, ShardControl, addressed, concatenated, with_mark

#: Shards of other jobs are kept while those run: not for longer than this after they were last used.
_OTHERS_SECONDS = 60.0
#: The smallest watermark: it says only that a queue must be waited for.
_NEVER = -(2**63)


@dataclass
class _KeptShard:
    shard: Shard
    at: StateVersion
    used_at: float = 0.0


_kept: dict[tuple[str, Address], _KeptShard] = {}


def run_shards(
    payload: JobPayload,
    level: int,
    number: int,
    envelopes: Iterable[Envelope],
    batch_id: int,
    time_us: Callable[[], int] = lambda: 0,
) -> Iterator[Envelope]:
    """Take the shards of one number and level through a micro-batch.

    Yields their results, and the rows that only pass through this stage, with their destinations. Called once per task, in the
    process that runs it. ``time_us`` tells the micro-batch's time when all envelopes have come, where no planner tells it.
    """
    made = _run_shards(payload, level, number, envelopes, batch_id, time_us)
    return addressed(made, payload.topology(), level)


def _run_shards(
    payload: JobPayload,
    level: int,
    number: int,
    envelopes: Iterable[Envelope],
    batch_id: int,
    time_us: Callable[[], int],
) -> Iterator[Envelope]:
    begin_counting(payload, batch_id)
    topology = payload.topology()
    addresses = [Address(name, number) for name in topology.levels[level - 1]]
    own: dict[Address, list[Envelope]] = {address: [] for address in addresses}
    passing: list[Envelope] = []
    for each in envelopes:
        at_home = each.kind in ("ship", "control") and Address(each.target, each.shard) in own
        (own[Address(each.target, each.shard)] if at_home else passing).append(each)
    yield from sorted(passing, key=lambda each: (each.queue.source, each.queue.name, each.place))
    for address in addresses:
        control = _control_of(payload, address, own[address], batch_id, time_us)
        yield from _run_shard(payload, address, own.pop(address), batch_id, control)


def _control_of(
    payload: JobPayload, address: Address, own: Iterable[Envelope], batch_id: int, time_us: Callable[[], int]
) -> ShardControl:
    controls = [each for each in own if each.kind == "control"]
    assert len(controls) == 1 or (payload.frames is not None and not controls), (
        f"{address} was told of {len(controls)} micro-batches at once"
    )
    told = msgspec.msgpack.decode(controls[0].payload, type=ShardControl) if controls else None
    if payload.frames is not None:
        return control_of_frames(payload.frames, batch_id, time_us(), told, ends=payload.batch)
    assert told is not None
    return told


def _run_shard(
    payload: JobPayload, address: Address, own: Sequence[Envelope], batch_id: int, control: ShardControl
) -> Iterator[Envelope]:
    plan, topology = payload.plan(), payload.topology()
    chain = payload.chain(address)
    kept = _shard_before(payload, address, chain, batch_id)
    shard, late_before = kept.shard, kept.shard.late_rows()
    first, frames = kept.at.batch_id is None, payload.frames
    if frames is None:
        entry = shard_entry(topology, address, control, own, first=first)
    else:
        others = [each for each in own if not is_of_frame(each, frames)]
        entry = itertools.chain(
            arrivals(topology, address, control, first=first),
            rows_of_frames(topology, address, frames, own, control, first=first),
            shipped(others),
            marks_of_frames(topology, address, frames, own),
            departures(control),
        )
    sizes: list[int] = []
    with waiting(_how_to_wait(payload, shard)):
        weighed = _weighed(entry, sizes)
        output = shard.process(control.sequence, control.time_us, weighed, end_of_input=control.end_of_input)
    fault_point("shard.after_process")
    late = shard.late_rows() - late_before
    shard.checkpoint(control.sequence)
    fault_point("shard.before_state")
    payload.check_owned_in_worker(batch_id)
    if payload.in_user_query:
        _check_not_overtaken(chain, address, payload, batch_id)
    # Operators may call user aggregates now, for rows that they have kept back.
    with waiting(_how_to_wait(payload, shard)):
        kept.at = chain.save(shard, kept.at, batch_id)
    fault_point("shard.after_state")
    figures: dict[str, Any] = {
        "watermark_us": shard.watermark_us,
        "state_rows": shard.state_rows(),
        # Not the same when a micro-batch is run again: the first file that a process writes is larger.
        "state_bytes": kept.at.snapshot_bytes + kept.at.delta_bytes,
        "late_rows": late,
        "entry_bytes": sum(sizes),
    }
    if plan.meter.enabled:
        figures["metrics"] = plan.meter.take()
    if payload.batch:
        shard.close()
    else:
        _keep(payload, address, kept)
    outbox = Outbox(plan, topology, shard.queue)
    yield from _leaving(shard.queue, control.sequence, output, outbox, figures)


def _how_to_wait(payload: JobPayload, shard: Shard) -> Waiting:
    notes, what = TroubleNotes(payload.run_directory), f"the server of an operator of shard {shard.queue.id}"
    return Waiting(
        SystemClock(),
        payload.retry_seconds,
        away=lambda error: notes.away(what, error.message),
        back=lambda: notes.back(what),
    )


def shard_entry(
    topology: Topology, address: Address, control: ShardControl, own: Iterable[Envelope], *, first: bool
) -> Iterator[shuffle.ShardMessage]:
    """Yield a shard's entry, in an order that depends on nothing but the micro-batch.

    Queues that are new, or idle no longer, come first: the watermark is the least of all, so none may be missing when
    rows are looked at.
    """
    yield from arrivals(topology, address, control, first=first)
    yield from shipped(own)
    yield from departures(control)


def arrivals(
    topology: Topology, address: Address, control: ShardControl, *, first: bool
) -> Iterator[shuffle.ShardMessage]:
    """Yield which queues and shards are to be waited for from now on."""
    if first:
        for queue, side in topology.upstream_shards(address.shuffle):
            yield shuffle.ShardMessage("added", queue, side)
    for source, name, side in control.added:
        yield shuffle.ShardMessage("added", Queue(name, source), side)
    for source, name, side in control.awake:
        yield shuffle.ShardMessage("watermark", Queue(name, source), side, time_us=_NEVER)


def shipped(own: Iterable[Envelope]) -> Iterator[shuffle.ShardMessage]:
    """Yield the rows and watermarks that lanes and other shards have sent, queue by queue."""
    ships = sorted((each for each in own if each.kind == "ship"), key=lambda each: (each.side, each.queue, each.place))
    for (side, queue), group in itertools.groupby(ships, key=lambda each: (each.side, each.queue)):
        parts = list(group)
        frames, mark = [], None
        for each in parts:
            if each.count:
                frames.append(with_mark(each.frame(), mark))
            if each.mark is not None:  # ends a piece of the queue's range: it is behind all rows so far
                mark = each.mark if mark is None else max(mark, each.mark)
        if frames:
            yield shuffle.ShardMessage("rows", queue, side, concatenated(frames))
        if mark is not None:
            yield shuffle.ShardMessage("watermark", queue, side, time_us=mark)


def _weighed(entry: Iterable[shuffle.ShardMessage], sizes: list[int]) -> Iterator[shuffle.ShardMessage]:
    """Yield an entry, and add the bytes of each of its frames to ``sizes``."""
    for each in entry:
        if each.frame is not None:
            sizes.append(int(each.frame.estimated_size()))
        yield each


def departures(control: ShardControl) -> Iterator[shuffle.ShardMessage]:
    """Yield which queues are not to be waited for any more."""
    for source, name, side in control.removed:
        yield shuffle.ShardMessage("removed", Queue(name, source), side)
    for source, name, side in control.idle:
        yield shuffle.ShardMessage("idle", Queue(name, source), side)


def _shard_before(payload: JobPayload, address: Address, chain: StateChain, batch_id: int) -> _KeptShard:
    """Return the shard as it was before a micro-batch: the one that is kept, brought up to date, or a new one."""
    kept = _kept.pop((payload.token, address), None)
    if kept is not None and not chain.leads_on_from(kept.at, batch_id):
        kept.shard.close()
        kept = None
    if kept is None:
        if payload.state_by_query:
            check_state_fits(chain, address, payload, batch_id)
        kept = _KeptShard(Shard(payload.plan(), address.shuffle, address.shard), StateVersion())
    for state, at in chain.after(kept.at, batch_id):
        kept.shard.apply(state)
        kept.at = at
    kept.shard.end_restore()
    return kept


def check_state_fits(chain: StateChain, address: Address, payload: JobPayload, batch_id: int) -> None:
    """Compare the stored state with the micro-batch that Spark runs, where Spark's checkpoint does not say what belongs to it.

    Raises CheckpointError: one of the two directories was removed, replaced or put back to an older copy.
    """
    assert payload.keyed is not None
    newest = chain.newest()
    if newest is None and batch_id == 0:
        return
    if newest is not None and batch_id - 1 <= newest <= batch_id:
        return
    stored = "has no state" if newest is None else f"has the state after micro-batch {newest}"
    raise CheckpointError(
        f"Spark's checkpoint of the query {payload.keyed.checkpoint} is at micro-batch {batch_id}, but the state directory "
        f"{payload.keyed.state_uri} {stored} of shard {address}",
        job=payload.identity.job,
        option="checkpoint",
        hint="restore Spark's checkpointLocation and this directory from copies of one moment, or begin anew with another "
        "checkpointLocation",
    )


def _check_not_overtaken(chain: StateChain, address: Address, payload: JobPayload, batch_id: int) -> None:
    """Check that no other driver has continued the same query. A user's query makes no claim. Raises CheckpointError."""
    if chain.is_followed(batch_id):
        assert payload.keyed is not None
        raise CheckpointError(
            f"another driver has completed micro-batch {batch_id} of the query {payload.keyed.checkpoint} and continued: the state of "
            f"shard {address} after a later one is stored already, so this task stores nothing",
            job=payload.identity.job,
            option="checkpoint",
            hint="no row is lost or doubled. Run only one driver of a query at a time",
        )


def _keep(payload: JobPayload, address: Address, kept: _KeptShard) -> None:
    kept.used_at = time.monotonic()
    _kept[payload.token, address] = kept
    ended = [
        key
        for key, other in _kept.items()
        if key[0] != payload.token and kept.used_at - other.used_at > _OTHERS_SECONDS
    ]
    for key in ended:
        _kept.pop(key).shard.close()


def _leaving(
    queue: Queue, sequence: int, output: ShardOutput, outbox: Outbox, figures: dict[str, Any]
) -> Iterator[Envelope]:
    yield from outbox.take(output.shipments)
    yield from outbox.rest()
    yield Envelope("begin", queue, sequence, sequence + 1)
    for delivery in output.deliveries:
        yield from of_delivery(delivery)
    yield Envelope("shard", queue, sequence, sequence + 1, payload=json.dumps(figures).encode())
