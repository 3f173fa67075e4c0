"""The keyed stages of a job in one process: all shards of all shuffles, driven one entry after the other.

An entry is a range that was read of a queue, or an event: a queue that came or went, a tick of the clock, the end of input.
Each entry is numbered and logged before it is processed, so that a start after a crash processes the same entries in the same
order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import CheckpointError, RetriableError
from headrace.foundation.faults import fault_point
from headrace.foundation.machine import boot_id
from headrace.interfaces.metrics import CHECKPOINT_IO, STATE_SIZE
from headrace.interfaces.operator import Operator
from headrace.interfaces.state_store import StateStore
from headrace.plan.graph import Plan, ShuffleNode
from headrace.plan.stages import tick_seconds
from headrace.plan.state_check import check_definitions
from headrace.runtime.kept_versions import keeps_versions
from headrace.runtime.lane import Delivery, Shipment
from headrace.runtime.patience import WaitFor
from headrace.runtime.shard import Shard
from headrace.runtime.shuffle import ShardMessage
from headrace.runtime.sinks_ahead import newest_rows, sink_is_ahead
from headrace.runtime.waiting import waiting

from headrace_light.checkpoint_directory import StoredCheckpoint
from headrace_light.savepoint_requests import OpenSavepoint
from headrace_light.stages.interface import Host, Saving, Stages
from headrace_light.stages.loaded_ahead import LoadedAhead
from headrace_light.stages.order_log import Entry, EntryKind, OrderLog
from headrace_light.stages.routing import Pending, route, shard_counts
from headrace_light.stages.shard_storage import ShardSaving, ShardStorage
from headrace_light.state_directory import NoStateStore
from headrace_light.state_memory import StateMemory

logger = logging.getLogger(__name__)
#: The maximum number of rows in the snapshots of one checkpoint (or one shard): they are copied while nothing is read.
_SNAPSHOT_ROWS_MAX = 1_000_000


class LocalStages(Stages):
    """Takes what lanes ship through all shards of the job.

    ``store`` keeps the state of the shards; the host's directory keeps the log of the order of entries since the last checkpoint.
    """

    in_checkpoint: ClassVar[bool] = True
    needs_clock: ClassVar[bool] = True

    def __init__(
        self, plan: Plan, host: Host, *, shards: int, store: StateStore, ahead: LoadedAhead | None = None,
        memory: StateMemory | None = None,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._clock = host.clock
        self._outlets = host.outlets
        self._storing = host.storing
        self._storage = ShardStorage(store, until_stored=host.storing.until_stored)
        self._ahead = ahead
        self._make_checkpoint = host.make_checkpoint
        #: Opened; None: all state is in memory.
        self._memory = memory
        self._rolls = store.forgets
        #: Whether this process has taken over from another one a moment ago: a snapshot that is due waits for the next checkpoint.
        self._took_over = False
        self._checkpoint = None if host.directory is None else host.directory.parent
        self._log = OrderLog(host.directory)
        self._shuffles: dict[str, ShuffleNode] = plan.shuffles
        self._counts = shard_counts(plan, shards)
        self._shards: dict[str, list[Shard]] = {
            name: [self._new_shard(name, number) for number in range(count)] for name, count in self._counts.items()
        }
        self._tick_seconds = tick_seconds(plan)
        self._ticked_seconds = self._clock.monotonic()
        # A job that begins numbers its entries from the clock: so they come behind those of any earlier run that sinks remember.
        self._sequence = int(self._clock.now() * 1_000_000)
        #: The logged entry that is processed again now.
        self._again: Entry | None = None
        #: The entry of the range that was read last, until its results are taken.
        self._read: Entry | None = None
        #: Whether the last entries may be missing in the log: it does not wait for the disk, and the machine has started again since.
        self._entries_lost = False
        #: Whether the job begins with nothing: no checkpoint, no entries.
        self._begins = True
        #: Whether the shards got the end of input, and no records came since.
        self._at_end = False
        self._waiting = host.storing.waiting(away=self._tell_away, back=self._tell_back)

    @classmethod
    def of(
        cls,
        plan: Plan,
        host: Host,
        checkpoint: StoredCheckpoint,
        *,
        shards: int,
        make_store: Callable[[Path], StateStore],
        ahead: LoadedAhead | None = None,
        memory: StateMemory | None = None,
    ) -> LocalStages:
        """Make the stages of a job. Raises CheckpointError if they cannot use the checkpoint; RetriableError.

        ``ahead``: shards whose state was loaded before the process that had the checkpoint stopped. ``memory``: how the memory of the
        state is limited.
        """
        store: StateStore = NoStateStore() if host.directory is None else make_store(host.directory)
        try:
            if memory is not None:
                memory.open(host.directory, shards, stored=host.storing.until_stored)
            stages = cls(plan, host, shards=shards, store=store, ahead=ahead, memory=memory)
        except BaseException:
            store.close()
            if memory is not None:
                memory.close()
            raise
        try:
            if checkpoint.id:
                _check_checkpoint(plan, checkpoint, stages.shard_counts, place=str(host.directory))
        except BaseException:
            stages.close()
            raise
        return stages

    # ----------------------------------------------------------------------------------------------- recovery

    def replay(self, checkpoint: StoredCheckpoint, wait_for: WaitFor) -> Iterator[Entry]:
        """See ``Stages``. The store may be unavailable at every shard."""
        if checkpoint.id:
            for shard in self._all():
                wait_for("its state store", partial(self._load, shard.queue, checkpoint.id, checkpoint.states))
        else:
            for shard in self._all():
                self._storage.begin_without(shard)  # the rows on disk belong to another run
        if self._ahead is not None:
            self._ahead.close()
        if checkpoint.sequence is not None:
            self._sequence = checkpoint.sequence
        entries = list(self._log.entries(checkpoint.id, after=checkpoint.sequence))
        if entries and checkpoint.sequence is not None and entries[0].sequence != checkpoint.sequence + 1:
            raise CheckpointError(
                f"the order log of checkpoint {checkpoint.id} begins with entry {entries[0].sequence}, not "
                f"{checkpoint.sequence + 1}: it belongs to another checkpoint, or a part of it is missing",
                job=self._plan.job_name,
                hint="restore the whole checkpoint directory from one copy, or start with a new one",
            )
        if entries and checkpoint.sequence is None:
            # Rows in sinks may have these numbers: use greater ones, even if the clock was set back.
            self._sequence = max(self._sequence, entries[0].sequence - 1)
        self._log.begin(checkpoint.id)
        self._begins = not (checkpoint.id or entries)
        self._entries_lost = bool(entries) if not checkpoint.id else (checkpoint.boot or boot_id()) != boot_id()
        lost = {entry.queue.source for entry in entries if entry.queue is not None} - set(self._plan.sources)
        if lost:
            raise CheckpointError(
                f"records that were read from the source {min(lost)!r} since the last checkpoint must be processed again, but the job no "
                "longer "
                "has it",
                job=self._plan.job_name,
                option="checkpoint",
                hint="start the job once with the source and stop it; after that it can run without the source",
            )
        for entry in entries:
            self._again = entry
            yield entry
            if entry.kind == "removed" and self._sequence < entry.sequence:  # the queue had gone before it was read
                self._finish(self._begin("removed", entry.queue), ())
        self._again = None

    def _load(self, queue: Queue, checkpoint_id: int, states: Mapping[str, Sequence[tuple[int, str]]] | None) -> None:
        """Give a shard its state. Raises RetriableError, and and leaves the shard as new, when the store is not available."""
        shards = self._shards[queue.source]
        shard = shards[int(queue.name)]
        expected = None if states is None else states.get(queue.id, ())
        found = None if self._ahead is None or expected is None else self._ahead.take(queue.id, expected)
        try:
            if found is not None and expected is not None:
                shard.close()
                shard, stored = found
                shards[shard.number] = shard
                self._storage.go_on(shard, stored, checkpoint_id, expected)
                self._took_over = True
            else:
                self._storage.load(shard, checkpoint_id, expected)
            if self._memory is not None:
                self._memory.trim()
        except RetriableError:
            shard.close()  # it may have taken a part
            shards[shard.number] = self._new_shard(queue.source, shard.number)
            raise

    def _new_shard(self, shuffle: str, number: int) -> Shard:
        shard = Shard(self._plan, shuffle, number)
        if self._memory is not None:
            self._memory.use(shard, rolls=self._rolls)
        return shard

    def begin_at(
        self, states: Iterable[tuple[str, int, bytes]], checkpoint_id: int, sequence: int, wait_for: WaitFor
    ) -> None:
        if self._ahead is not None:
            self._ahead.close()
        for shard in self._all():
            wait_for("its state store", partial(self._storage.forget_stored, shard))
        for shuffle, number, state in states:
            shard = self._shards[shuffle][number]
            shard.begin_local(())
            shard.apply(state)
            shard.restored(None)
            shard.end_restore()
        self._sequence = sequence
        wait_for("its state store", partial(self._save_all, checkpoint_id))

    def stand_behind_sinks(self, *, write: bool, wait_for: WaitFor) -> bool:
        """See ``Stages``. If the job begins without a checkpoint, or the user chose it, entries get numbers after those in the sinks."""
        sinks = wait_for("its sinks", self._outlets.sinks_to_ask)
        shards = {name: range(count) for name, count in self._counts.items()}
        found = wait_for("its sinks", partial(newest_rows, self._plan, sinks, shards))
        if found is None or found.entry <= self._sequence:
            return self._skip_lost_entries()
        if not (self._begins or write):
            raise sink_is_ahead(self._plan, found, self._sequence)
        if not self._begins:
            logger.warning(
                "job %s: %s has rows up to entry %d, but the state is that of entry %d: the results since then are written again",
                self._plan.job_name, found.sink_id, found.entry, self._sequence,
            )  # fmt: skip
        self._sequence = found.entry
        return self._skip_lost_entries() or not self._begins

    def _skip_lost_entries(self) -> bool:
        """Number the next entries after entries that may be lost; return whether that changes a number.

        Sinks may have results of lost entries under their numbers. One that keeps the first of two rows with one id would lose a row.
        """
        now = int(
            self._clock.now() * 1_000_000
        )  # a job that begins has numbers of the clock, and entries are fewer than microseconds
        if not self._entries_lost or now <= self._sequence:
            return False
        self._sequence = now
        return True

    # ------------------------------------------------------------------------------------------------ entries

    def log_read(self, queue: Queue, start: ReadPosition, end: ReadPosition) -> None:
        self._read = self._begin("read", queue, start, end)

    def take(self, shipments: Iterable[Shipment]) -> None:
        assert self._read is not None, "a range is logged before anything is made of it"
        entry, self._read = self._read, None
        self._finish(entry, shipments)

    def add_queue(self, queue: Queue, shipments: Iterable[Shipment]) -> None:
        self._finish(self._begin("added", queue), shipments)

    def remove_queue(self, queue: Queue, shipments: Iterable[Shipment]) -> None:
        self._finish(self._begin("removed", queue), shipments)

    def let_go_of_others(self, queues: Collection[Queue]) -> None:
        known = {queue for shard in self._all() for queue, _ in shard.upstreams if queue.source not in self._shuffles}
        for queue in sorted(known.difference(queues)):
            self._finish(self._begin("removed", queue), ())

    def skip_idle(self, queue: Queue) -> bool:
        self._finish(self._begin("idle", queue), ())
        return True

    def wait_again(self, queue: Queue) -> None:
        self._finish(self._begin("awake", queue), ())

    @property
    def at_end(self) -> bool:
        return self._at_end

    def end_input(self) -> None:
        if self._again is not None or not self._at_end:
            self._finish(self._begin("end"), ())

    def tick(self) -> None:
        self._finish(self._begin("tick"), ())

    def keep_up(self, *, idle: bool) -> None:
        now = self._clock.monotonic()
        if self._tick_seconds is not None and now - self._ticked_seconds >= self._tick_seconds:
            self._ticked_seconds = now
            self.tick()
        if self._memory is not None and any(shard.wants_checkpoint for shard in self._all()):
            self._make_checkpoint()

    def _begin(
        self,
        kind: EntryKind,
        queue: Queue | None = None,
        start: ReadPosition | None = None,
        end: ReadPosition | None = None,
    ) -> Entry:
        """Number and log an entry; during a replay, return the logged one."""
        self._at_end = kind == "end"
        if self._again is not None:
            self._sequence = self._plan.meter.group = self._again.sequence
            return self._again
        self._sequence += 1
        self._plan.meter.group = self._sequence
        entry = Entry(self._sequence, int(self._clock.now() * 1_000_000), kind, queue, start, end)
        self._storing.until_stored(partial(self._log.add, entry))
        return entry

    def _finish(self, entry: Entry, shipments: Iterable[Shipment]) -> None:
        """Process the shipments of an entry in the shards, and give their results to the outlets."""
        pending: Pending = {}
        self._route(shipments, pending)
        if entry.kind in ("idle", "awake", "removed"):  # no lane says so
            kind: Literal["idle", "added", "removed"] = "added" if entry.kind == "awake" else entry.kind
            for name, node in self._shuffles.items():
                for side in range(len(node.sides)):
                    for shard in self._shards[name]:
                        if shard.knows(entry.of_queue, side):
                            told = ShardMessage(kind, entry.of_queue, side)
                            pending.setdefault((name, shard.number), []).append(told)
        deliveries: list[Delivery] = []
        to_all = entry.kind in ("tick", "end")
        for name in self._shuffles:
            for shard in self._shards[name]:
                messages = pending.pop((name, shard.number), [])
                if messages or to_all:
                    with waiting(self._waiting):
                        is_end = entry.kind == "end"
                        output = shard.process(entry.sequence, entry.time_us, messages, end_of_input=is_end)
                    if self._memory is not None:
                        self._memory.trim()
                    deliveries += output.deliveries
                    self._route(output.shipments, pending)
        fault_point("shard.after_process")
        self._outlets.deliver(deliveries)

    def _tell_away(self, error: RetriableError) -> None:
        logger.warning("job %s: an operator waits for its server: %s; trying again", self._plan.job_name, error.message)

    def _tell_back(self) -> None:
        logger.info("job %s: the server of an operator is available again", self._plan.job_name)

    def _route(self, shipments: Iterable[Shipment], pending: Pending) -> None:
        route(shipments, self._shuffles, self._counts, pending)

    # -------------------------------------------------------------------------------------------- checkpoints

    @property
    def sequence(self) -> int:
        return self._sequence

    @property
    def shard_counts(self) -> Mapping[str, int]:
        return self._counts

    def begin_save(self, checkpoint_id: int, savepoints: Collection[OpenSavepoint], *, last: bool = False) -> Saving:
        found = self._begin_save(checkpoint_id, savepoints, last=last)

        def store() -> Mapping[str, list[tuple[int, str]]]:
            while found:  # each has rows of its own: they can go when they are stored
                found.pop(0).store()
                if self._memory is not None:
                    self._memory.trim()
            self._count_stored()
            return {shard.queue.id: self._storage.chain(shard) for shard in self._all()}

        return Saving(store, sum(each.rows for each in found))

    def begin_next_log(self, checkpoint_id: int) -> None:
        self._storing.until_stored(partial(self._log.begin_next, checkpoint_id))

    def _begin_save(
        self, checkpoint_id: int, savepoints: Collection[OpenSavepoint] = (), *, whole: bool = False, last: bool = False
    ) -> list[ShardSaving]:  # fmt: skip
        """Return what stores the changes of each shard. With savepoints, or ``whole``, all of it is stored at once, and given to them."""
        last, self._took_over = last or self._took_over or self._is_watched(), False
        made, snapshot_rows = [], 0
        for shard in self._all():
            shard.checkpoint(checkpoint_id)
            if savepoints or whole:
                with waiting(
                    self._waiting
                ):  # operators may call user aggregates now, for rows that they have kept back
                    state = self._storage.save_whole(shard, checkpoint_id)
                for each in savepoints:
                    each.add_state(shard.queue.source, shard.number, state)
                continue
            # Without a store, operators are asked for changes now and then, so that they need not keep them.
            if self._storage.keeps or not self._at_end:
                with waiting(self._waiting):
                    # Snapshots are due together: of a large state only one is made in a checkpoint.
                    waits = snapshot_rows > 0 and snapshot_rows + shard.state_rows() > _SNAPSHOT_ROWS_MAX
                    saving = self._storage.begin_save(shard, checkpoint_id, last=last, may_wait=waits)
                snapshot_rows += shard.state_rows() if saving.whole else 0
                made.append(saving)
        return made

    def _save_all(self, checkpoint_id: int) -> None:
        """Store all of each shard."""
        self._begin_save(checkpoint_id, whole=True)
        self._count_stored()

    def _count_stored(self) -> None:
        if self._storage.keeps:
            self._plan.meter.add(CHECKPOINT_IO, self._storage.bytes_written)
            self._plan.meter.set(STATE_SIZE, self._storage.stored_bytes())
        self._storage.bytes_written = 0
        fault_point("shard.after_save")

    def saved(self, checkpoint_id: int) -> None:
        self._storing.until_stored(partial(self._log.begin, checkpoint_id))
        for shard in self._all():
            self._storage.settle(shard)
        fault_point("shard.after_settle")
        if self._is_watched():
            return
        for shard in self._all():
            self._storing.until_stored(partial(self._storage.remove_old, shard, checkpoint_id))

    def _is_watched(self) -> bool:
        """Whether somebody needs the versions of now, to load them ahead or to go back to them: no snapshot is to replace them."""
        return self._checkpoint is not None and keeps_versions(self._checkpoint)

    # -------------------------------------------------------------------------------------------------- status

    def watermark_us(self) -> int | None:
        found = [each.watermark_us for each in self._all()]
        known = [each for each in found if each is not None]
        return min(known) if known else None

    def state_rows(self) -> int:
        return sum(shard.state_rows() for shard in self._all())

    def operators(self) -> Iterable[tuple[str, Operator]]:
        return (each for shard in self._all() for each in shard.operators.items())

    def late_rows(self) -> int:
        return sum(shard.late_rows() for shard in self._all())

    def close(self) -> None:
        for shard in self._all():
            shard.close()
        if self._ahead is not None:
            self._ahead.close()
        self._log.close()
        self._storage.close()
        if self._memory is not None:
            self._memory.close()

    def _all(self) -> list[Shard]:
        return [shard for shards in self._shards.values() for shard in shards]


def _check_checkpoint(plan: Plan, stored: StoredCheckpoint, counts: Mapping[str, int], *, place: str) -> None:
    """Compare the keyed stages of a checkpoint with the present ones. Raises CheckpointError if they cannot use it."""
    # Without keyed stages a job has stored nothing of them, though it has read rows.
    check_definitions(plan, {} if stored.sequence is None else stored.definitions, place=place)
    if stored.sequence is not None and dict(stored.shards) != dict(counts):
        raise CheckpointError(
            f"the checkpoint is of a job with shards {dict(stored.shards)}, now they are {dict(counts)}",
            job=plan.job_name,
            option="shards",
            hint="keys cannot move between shards: use the previous number of shards, or another checkpoint directory",
        )
