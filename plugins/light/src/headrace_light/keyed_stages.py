"""The keyed stages of a job in one process: all shards of all shuffles, driven one entry after the other."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.clock import Clock
from headrace.faults import fault_point
from headrace.lane import Delivery, Shipment
from headrace.messages import Queue, ReadPosition
from headrace.plan import Plan, ShuffleNode
from headrace.shard import Shard
from headrace.shuffle import Envelope
from headrace.stages import needs_ticks
from headrace.state_store import StateStore

from headrace_light.order_log import Entry, EntryKind, OrderLog
from headrace_light.routing import Pending, route, shard_counts
from headrace_light.shard_storage import ShardStorage
from headrace_light.state_directory import NoStateStore

_TICK_SECONDS = 1.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KeyedStages:
    """Takes what lanes ship, entry by entry, and gives what shards deliver. Used by the engine's thread.

    ``store`` keeps the shards' state, ``log`` the order of entries since the last checkpoint.
    """

    def __init__(self, plan: Plan, clock: Clock, *, shards: int, store: StateStore, directory: Path | None) -> None:
        self._plan = plan
        self._clock = clock
        self._storage = ShardStorage(store)
        self._log = OrderLog(directory)
        self._shuffles: dict[str, ShuffleNode] = plan.shuffles
        #: The number of shards per shuffle.
        self.shard_counts = shard_counts(plan, shards)
        self._shards: dict[str, list[Shard]] = {
            name: [Shard(plan, name, number) for number in range(count)] for name, count in self.shard_counts.items()
        }
        self._needs_ticks = needs_ticks(plan)
        self._ticked_seconds = clock.monotonic()
        self.sequence = int(clock.now() * 1_000_000)
        self._replaying = False
        self._keeps_state = not isinstance(store, NoStateStore)
        self._at_end = False

    # ----------------------------------------------------------------------------------------------- recovery

    def restore(self, checkpoint_id: int, sequence: int | None) -> list[Entry]:
        """Take the state of a checkpoint; return the entries since, which the engine is to do again.

        ``sequence`` None: the job begins; its entries are numbered from the clock, so that they come behind those of any
        earlier run that sinks remember.
        """
        if checkpoint_id:
            for shard in self._all():
                self._storage.load(shard, checkpoint_id)
        if sequence is not None:
            self.sequence = sequence
        entries = list(self._log.entries(checkpoint_id))
        if entries:
            # What sinks hold may carry these numbers: go on behind them even if the clock has been put back.
            self.sequence = max(self.sequence, entries[0].sequence - 1) if sequence is None else sequence
        self._log.begin(checkpoint_id)
        self._replaying = bool(entries)
        return entries

    def end_replay(self) -> None:
        """The logged entries have been done again: log what comes."""
        self._replaying = False

    # ------------------------------------------------------------------------------------------------ entries

    def begin(
        self,
        kind: EntryKind,
        queue: Queue | None = None,
        start: ReadPosition | None = None,
        end: ReadPosition | None = None,
        *,
        again: Entry | None = None,
    ) -> Entry:
        """Number and log an entry; ``again`` is the logged one when it is done again. Call ``finish`` with it."""
        self._at_end = kind == "end"
        if again is not None:
            self.sequence = again.sequence
            return again
        self.sequence += 1
        entry = Entry(self.sequence, int(self._clock.now() * 1_000_000), kind, queue, start, end)
        self._log.add(entry)
        return entry

    def finish(self, entry: Entry, shipments: Iterable[Shipment]) -> list[Delivery]:
        """Take what came of an entry through the shards; return what is for sinks."""
        pending: Pending = {}
        self._route(shipments, pending)
        if entry.kind == "idle":
            assert entry.queue is not None
            for name, node in self._shuffles.items():
                for side in range(len(node.sides)):
                    for shard in self._shards[name]:
                        if shard.knows(entry.queue, side):
                            pending.setdefault((name, shard.number), []).append(Envelope("idle", entry.queue, side))
        deliveries: list[Delivery] = []
        to_all = entry.kind in ("tick", "end")
        for name in self._shuffles:
            for shard in self._shards[name]:
                envelopes = pending.pop((name, shard.number), [])
                if envelopes or to_all:
                    output = shard.process(entry.sequence, entry.time_us, envelopes, end_of_input=entry.kind == "end")
                    deliveries += output.deliveries
                    self._route(output.shipments, pending)
        fault_point("shard.after_process")
        return deliveries

    def tick_due(self) -> bool:
        """Whether operators wait for the clock and it is time to tell them."""
        if not self._needs_ticks or self._clock.monotonic() - self._ticked_seconds < _TICK_SECONDS:
            return False
        self._ticked_seconds = self._clock.monotonic()
        return True

    def _route(self, shipments: Iterable[Shipment], pending: Pending) -> None:
        route(shipments, self._shuffles, self.shard_counts, pending)

    # -------------------------------------------------------------------------------------------- checkpoints

    def save(self, checkpoint_id: int) -> None:
        """Store what has changed in the shards under the id of a checkpoint that is about to be made."""
        for shard in self._all():
            shard.checkpoint(checkpoint_id)
            # Without a store what has changed is asked for now and then only so that operators need not remember it.
            if self._keeps_state or not self._at_end:
                self._storage.save(shard, checkpoint_id)
        fault_point("shard.after_save")

    def saved(self, checkpoint_id: int) -> None:
        """The checkpoint is made: what came before it is not needed any more."""
        self._log.begin(checkpoint_id)
        for shard in self._all():
            self._storage.remove_old(shard, checkpoint_id)

    # -------------------------------------------------------------------------------------------------- status

    def watermark_us(self) -> int | None:
        """Return the least watermark of the shards of the first stage that has one."""
        found = [each.watermark_us for each in self._all()]
        known = [each for each in found if each is not None]
        return min(known) if known else None

    def state_rows(self) -> int:
        """Return how many rows the operators remember."""
        return sum(shard.state_rows() for shard in self._all())

    def late_rows(self) -> int:
        """Return how many rows came too late in this run."""
        return sum(shard.late_rows() for shard in self._all())

    def close(self) -> None:
        """Close shards, log and store."""
        for shard in self._all():
            shard.close()
        self._log.close()
        self._storage.close()

    def _all(self) -> Iterable[Shard]:
        return [shard for shards in self._shards.values() for shard in shards]


def as_time(time_us: int | None) -> datetime | None:
    """Return an event time as people read it; None when it is none or lies beyond the calendar."""
    if time_us is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return None
