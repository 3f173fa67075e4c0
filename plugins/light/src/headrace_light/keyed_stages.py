"""The keyed stages of a job in one process: all shards of all shuffles, driven one entry after the other."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import CheckpointError, RetriableError
from headrace.foundation.faults import fault_point
from headrace.interfaces.sink import Sink
from headrace.interfaces.state_store import StateStore
from headrace.plan.graph import Plan, ShuffleNode
from headrace.plan.stages import tick_seconds
from headrace.plan.state_check import check_definitions
from headrace.runtime.lane import Delivery, Shipment
from headrace.runtime.patience import WaitFor
from headrace.runtime.shard import Shard
from headrace.runtime.shuffle import Envelope
from headrace.runtime.sinks_ahead import newest_rows, sink_is_ahead
from headrace.runtime.waiting import waiting

from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.order_log import Entry, EntryKind, OrderLog
from headrace_light.routing import Pending, route, shard_counts
from headrace_light.savepoint_requests import OpenSavepoint
from headrace_light.shard_storage import ShardStorage
from headrace_light.state_directory import NoStateStore
from headrace_light.storing import Storing

logger = logging.getLogger(__name__)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KeyedStages:
    """Takes what lanes ship, entry by entry, and gives what shards deliver. Used by the engine's thread.

    ``store`` keeps the shards' state, in ``directory`` is the log of the order of entries since the last checkpoint. ``storing`` says how
    long disks, and servers that operators ask, are waited for.
    """

    def __init__(
        self, plan: Plan, clock: Clock, *, shards: int, store: StateStore, directory: Path | None, storing: Storing
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._storing = storing
        self._storage = ShardStorage(store, until_stored=storing.until_stored)
        self._log = OrderLog(directory)
        self._shuffles: dict[str, ShuffleNode] = plan.shuffles
        #: The number of shards per shuffle.
        self.shard_counts = shard_counts(plan, shards)
        self._shards: dict[str, list[Shard]] = {
            name: [Shard(plan, name, number) for number in range(count)] for name, count in self.shard_counts.items()
        }
        self._tick_seconds = tick_seconds(plan)
        self._ticked_seconds = clock.monotonic()
        self.sequence = int(clock.now() * 1_000_000)
        self._replaying = False
        self._keeps_state = not isinstance(store, NoStateStore)
        self._at_end = False
        self._waiting = storing.waiting(away=self._tell_away, back=self._tell_back)

    # ----------------------------------------------------------------------------------------------- recovery

    def restore(
        self,
        checkpoint_id: int,
        sequence: int | None,
        states: Mapping[str, Sequence[tuple[int, str]]] | None,
        wait_for: WaitFor,
    ) -> list[Entry]:
        """Take the state of a checkpoint; return the entries since, which the engine is to do again.

        ``states``: the versions that the checkpoint stands on (``states_stored``); None: not known. ``sequence`` None: the job begins;
        its entries are numbered from the clock, so that they come behind those of any earlier run that sinks remember. The store may be
        away at every shard. Raises CheckpointError when something is missing, damaged or of another checkpoint.
        """
        if checkpoint_id:
            for shard in self._all():
                wait_for("its state store", partial(self._load, shard.queue, checkpoint_id, states))
        if sequence is not None:
            self.sequence = sequence
        entries = list(self._log.entries(checkpoint_id))
        if entries and sequence is not None and entries[0].sequence != sequence + 1:
            raise CheckpointError(
                f"the order log of checkpoint {checkpoint_id} begins with entry {entries[0].sequence}, not {sequence + 1}: it is of "
                "another checkpoint, or a part of it is missing",
                job=self._plan.job_name,
                hint="restore the whole checkpoint directory from one copy, or begin with a new one",
            )
        if entries:
            # What sinks hold may carry these numbers: go on behind them even if the clock has been put back.
            self.sequence = max(self.sequence, entries[0].sequence - 1) if sequence is None else sequence
        self._log.begin(checkpoint_id)
        self._replaying = bool(entries)
        return entries

    def _load(self, queue: Queue, checkpoint_id: int, states: Mapping[str, Sequence[tuple[int, str]]] | None) -> None:
        """Give a shard its state. Raises RetriableError, and the shard is as new then, when the store is away."""
        shards = self._shards[queue.source]
        shard = shards[int(queue.name)]
        try:
            self._storage.load(shard, checkpoint_id, None if states is None else states.get(queue.id, ()))
        except RetriableError:
            shard.close()  # it may have taken a part
            shards[shard.number] = Shard(self._plan, queue.source, shard.number)
            raise

    def begin_at(
        self, states: Iterable[tuple[str, int, bytes]], checkpoint_id: int, sequence: int, wait_for: WaitFor
    ) -> None:
        """Begin with the states of a savepoint, of each shard one; entries are numbered behind ``sequence``. They are stored at once."""
        for shard in self._all():
            wait_for("its state store", partial(self._storage.forget_stored, shard))
        for shuffle, number, state in states:
            self._shards[shuffle][number].apply(state)
            self._shards[shuffle][number].end_restore()
        self.sequence = sequence
        wait_for("its state store", partial(self.save, checkpoint_id, whole=True))
        self._log.begin(checkpoint_id)

    def stand_behind(self, sinks: Mapping[str, Sink], *, begins: bool, write: bool) -> bool:
        """See that no sink has rows of entries that are still to come: they would be taken for replays of those, and dropped.

        Called behind the replay, with opened sinks. Where the job begins anew (``begins``) or that was chosen (``write``) entries are
        numbered behind what the sinks have; returns whether a checkpoint must be made because of that. Raises CheckpointError;
        RetriableError when a server is away.
        """
        shards = {name: range(count) for name, count in self.shard_counts.items()}
        found = newest_rows(self._plan, sinks, shards)
        if found is None or found.entry <= self.sequence:
            return False
        if not (begins or write):
            raise sink_is_ahead(self._plan, found, self.sequence)
        if not begins:
            logger.warning(
                "job %s: %s has rows up to entry %d, the state is at %d: results since then are written once more",
                self._plan.job_name, found.sink_id, found.entry, self.sequence,
            )  # fmt: skip
        self.sequence = found.entry
        return not begins

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
        self._storing.until_stored(partial(self._log.add, entry))
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
                    with waiting(self._waiting):
                        is_end = entry.kind == "end"
                        output = shard.process(entry.sequence, entry.time_us, envelopes, end_of_input=is_end)
                    deliveries += output.deliveries
                    self._route(output.shipments, pending)
        fault_point("shard.after_process")
        return deliveries

    def tick_due(self) -> bool:
        """Whether operators wait for the clock and it is time to tell them."""
        now = self._clock.monotonic()
        if self._tick_seconds is None or now - self._ticked_seconds < self._tick_seconds:
            return False
        self._ticked_seconds = now
        return True

    def _tell_away(self, error: RetriableError) -> None:
        logger.warning("job %s: an operator waits for its server: %s; trying again", self._plan.job_name, error.message)

    def _tell_back(self) -> None:
        logger.info("job %s: the server of an operator is there again", self._plan.job_name)

    def _route(self, shipments: Iterable[Shipment], pending: Pending) -> None:
        route(shipments, self._shuffles, self.shard_counts, pending)

    # -------------------------------------------------------------------------------------------- checkpoints

    def save(self, checkpoint_id: int, savepoints: Collection[OpenSavepoint] = (), *, whole: bool = False) -> None:
        """Store what has changed in the shards under the id of a checkpoint that is about to be made.

        With savepoints, or ``whole``, all of each shard is stored, and given to them.
        """
        for shard in self._all():
            shard.checkpoint(checkpoint_id)
            if savepoints or whole:
                with waiting(self._waiting):  # operators may call user aggregates now, of rows that they have put off
                    state = self._storage.save_whole(shard, checkpoint_id)
                for each in savepoints:
                    each.add_state(shard.queue.source, shard.number, state)
                continue
            # Without a store what has changed is asked for now and then only so that operators need not remember it.
            if self._keeps_state or not self._at_end:
                with waiting(self._waiting):
                    self._storage.save(shard, checkpoint_id)
        fault_point("shard.after_save")

    def states_stored(self) -> dict[str, list[tuple[int, str]]]:
        """Return per shard the versions that the state that was saved last stands on, each with its checksum."""
        return {shard.queue.id: self._storage.chain(shard) for shard in self._all()}

    def saved(self, checkpoint_id: int) -> None:
        """The checkpoint is made: what came before it is not needed any more."""
        self._storing.until_stored(partial(self._log.begin, checkpoint_id))
        for shard in self._all():
            self._storing.until_stored(partial(self._storage.remove_old, shard, checkpoint_id))

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

    def _all(self) -> list[Shard]:
        return [shard for shards in self._shards.values() for shard in shards]


def check_checkpoint(plan: Plan, stored: StoredCheckpoint, counts: Mapping[str, int], *, place: str) -> None:
    """Compare the keyed stages that a checkpoint is of with those of now. Raises CheckpointError when they cannot go on with it."""
    # Without keyed stages a job has stored nothing of them, though it has read rows.
    check_definitions(plan, {} if stored.sequence is None else stored.definitions, place=place)
    if stored.sequence is not None and dict(stored.shards) != dict(counts):
        raise CheckpointError(
            f"the checkpoint is of a job with shards {dict(stored.shards)}, now they are {dict(counts)}",
            job=plan.job_name,
            option="shards",
            hint="keys cannot move to other shards: use the number of before, or another checkpoint directory",
        )


def as_time(time_us: int | None) -> datetime | None:
    """Return an event time as people read it; None when it is none or lies beyond the calendar."""
    if time_us is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return None
