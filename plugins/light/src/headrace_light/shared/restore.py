"""The state of shards that move: how a shard begins with the state that another instance has stored, and how it is stored.

A state is stored as of an offset of the shard's queue. The new owner of the shard reads on from there. With a quick start the
shard begins before its state is loaded: parts of it are fetched when a row needs them, and the rest step by step between polls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import CheckpointError, RetriableError
from headrace.interfaces.sink import Sink
from headrace.interfaces.source import EARLIEST, StartPosition
from headrace.plan.graph import Plan
from headrace.plan.state_check import check_definitions
from headrace.runtime.shard import Shard
from headrace.runtime.sinks_ahead import newest_rows, sink_is_ahead

from headrace_light.shared.elasticity import Elasticity
from headrace_light.shared.outages import SharedOutages
from headrace_light.shared.shard_run import HEADER_BYTES, ShardRun
from headrace_light.shared.transport import Transport
from headrace_light.stages.shard_storage import ShardStorage
from headrace_light.state_memory import StateMemory

logger = logging.getLogger(__name__)
#: Some brokers delete records after some days; state must be stored again before that.
_SNAPSHOT_SECONDS_MAX = 6 * 3600.0
#: The assumed age of a snapshot that another instance has stored.
_SNAPSHOT_SECONDS_FOUND = 5.5 * 3600.0


class ShardRestore:
    """Begins shards with their stored state, and stores it. Used by the engine's thread.

    ``sinks`` gives those that can be asked for their positions, opened. ``memory``: how the memory of the state is limited, opened.
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        elasticity: Elasticity,
        transport: Transport,
        outages: SharedOutages,
        *,
        directory: Path | None,
        sinks: Callable[[], Mapping[str, Sink]],
        memory: StateMemory | None = None,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._elasticity = elasticity
        self._transport = transport
        self._outages = outages
        self._directory = directory
        self._sinks = sinks
        self._memory = memory
        self._storages: dict[str, ShardStorage] = {}
        #: The committed offset of a shard when this instance got it.
        self._committed: dict[str, int | None] = {}
        #: Until when incoming records have priority over restoring.
        self._rests_until = clock.monotonic()
        self._warned_of_undefined = False

    def open(self) -> None:
        """Open the state stores of the shuffles. Raises RetriableError when one is away: call it again then."""
        for name, count in self._transport.shard_counts.items():
            if name not in self._storages:
                state_name = f"{self._transport.topic_of(name)}-state"
                store = self._elasticity.store(self._directory, state_name, count, self._committed.get)
                self._storages[name] = ShardStorage(
                    store, header_bytes=HEADER_BYTES, quick_start=self._elasticity.quick_start
                )

    def close(self) -> None:
        """Close the stores. May be called twice."""
        for storage in self._storages.values():
            storage.close()

    # -------------------------------------------------------------------------------------------- begin a shard

    def begin(self, name: str, queue: Queue) -> ShardRun:
        """Begin with a shard of a shuffle, whose records are in ``queue``, at the offset of its stored state.

        Raises RetriableError when broker, store or sink is away; CheckpointError when a state that must exist is missing.
        """
        begun = self._clock.monotonic()
        source, number = self._transport.sources[name], self._transport.number_of(queue)
        shard = self._new_shard(name, number)
        try:
            committed = source.committed(queue)
            found = self._load(shard, committed)
            if self._is_outdated(found, committed):
                shard.close()
                shard, found = self._new_shard(name, number), None
                self._storages[name].begin_without(shard)
            self._check_found(shard, found, committed)
            start: StartPosition = committed or EARLIEST
            if found is not None:
                start = ReadPosition(found[0])
            reader = source.open(queue, start)
            run = ShardRun(queue, shard, reader, None if found is None else found[1], self._checks_entries(shard))
            run.begun_seconds, run.restoring = begun, shard.restoring
            # Its present definitions are stored with it, so that the next start compares with them.
            run.whole = run.whole or shard.has_other_definitions
        except BaseException:
            shard.close()
            raise
        run.snapshot_seconds = self._clock.monotonic() - _SNAPSHOT_SECONDS_FOUND
        logger.info(
            "job %s: shard %s starts at offset %d with %d rows of state%s, after %.2f s", self._plan.job_name, shard.queue.id,
            run.position.offset, shard.state_rows(), " (the rest is loaded later)" if shard.restoring else "",
            self._clock.monotonic() - begun,
        )  # fmt: skip
        return run

    def _new_shard(self, name: str, number: int) -> Shard:
        shard = Shard(self._plan, name, number)
        if self._memory is not None:
            self._memory.use(shard, rolls=self._storages[name].forgets)
        return shard

    def _load(self, shard: Shard, committed: ReadPosition | None) -> tuple[int, bytes] | None:
        """Load the stored state into a shard. Return its version and header, or None if nothing is stored."""
        self._committed[shard.queue.id] = None if committed is None else committed.offset
        found = self._storages[shard.queue.source].load(shard)
        if found is not None:
            shard.check_inputs()
            self._warn_of_undefined(shard)
        return found

    def _is_outdated(self, found: tuple[int, bytes] | None, committed: ReadPosition | None) -> bool:
        """Whether another instance has processed a shard since its state was stored here, and has stored its state elsewhere."""
        moves = self._elasticity.state_moves
        return found is not None and not moves and committed is not None and committed.offset > found[0]

    def _check_found(self, shard: Shard, found: tuple[int, bytes] | None, committed: ReadPosition | None) -> None:
        """Check that a shard can continue with the state that was found. Raises CheckpointError when a state that must exist is missing."""
        if committed is None:
            return
        if found is None and not self._elasticity.state_moves:
            logger.warning(
                "job %s: shard %s belonged to another instance for some time: its state from that time is lost",
                self._plan.job_name, shard.queue.id,
            )  # fmt: skip
            # The records that announced these queues come before its position.
            existing = self._transport.upstream_queues()
            shard.expect(
                (each, side)
                for side, ids in enumerate(self._transport.upstream[shard.queue.source])
                for upstream_id in ids
                for each in existing[upstream_id]
            )
        elif self._elasticity.state_moves and (found is None or found[0] < committed.offset):
            topic = self._transport.topic_of(shard.queue.source)
            raise CheckpointError(
                f"shard {shard.queue.id} was read up to {committed.offset}, but its state is stored "
                + (f"only up to {found[0]}" if found else "nowhere"),
                job=self._plan.job_name,
                option="state_store",
                hint=f"restore its state, or delete the topic {topic!r} and its group to begin anew",
            )

    def _checks_entries(self, shard: Shard) -> Callable[[int], None]:
        """Return a check that raises when a sink has rows of entries that the shard's topic does not have."""
        known = newest_rows(self._plan, self._sinks(), {shard.queue.source: [shard.number]})

        def check(last_entry: int) -> None:
            if known is not None and known.entry > last_entry:
                raise sink_is_ahead(self._plan, known, last_entry, can_write=False)

        return check

    def _warn_of_undefined(self, shard: Shard) -> None:
        """Log once that the definitions of a state are not known, because an older version stored it."""
        if shard.has_undefined_state and not self._warned_of_undefined:
            self._warned_of_undefined = True
            check_definitions(self._plan, None, place=f"shard {shard.queue.id}")

    def step(self, runs: Collection[ShardRun], *, idle: bool, begin_again: Callable[[ShardRun], None]) -> bool:
        """Fetch a part of the state of one shard that does not have all of it; return whether there is one.

        Incoming records wait for one step at most. While records come in (not ``idle``), steps take half of the time. A shard
        whose store is not available is given to ``begin_again``.
        """
        run = next((run for run in runs if run.restoring), None)
        begun = self._clock.monotonic()
        if run is None or (not idle and begun < self._rests_until):
            return run is not None
        restored = self._outages.trying("restore a shard", run.restore_some)
        now = self._clock.monotonic()
        self._rests_until = now + (now - begun)
        if restored is None:
            begin_again(run)
        elif not run.shard.restoring:
            run.restoring = False
            logger.info(
                "job %s: shard %s has all of its %d rows of state, after %.2f s", self._plan.job_name,
                run.shard.queue.id, run.shard.state_rows(), now - run.begun_seconds,
            )  # fmt: skip
        return True

    # ------------------------------------------------------------------------------------------------- storing

    def to_store(self, run: ShardRun) -> bool:
        """Whether a shard's state is to be stored: it has changed, or the broker may forget it because it is old."""
        return run.changed or self._snapshot_is_old(run)

    def store(self, run: ShardRun) -> None:
        """Store the state of a shard. Raises RetriableError; then the next version holds the whole state."""
        outdated = self._snapshot_is_old(run)
        storage = self._storages[run.shard.queue.source]
        try:
            if storage.save(run.shard, run.position.offset, run.header(), whole=run.whole or outdated):
                run.snapshot_seconds = self._clock.monotonic()
        except RetriableError:
            run.whole = True  # the delta was taken from the shard, but was not stored
            raise
        run.saved, run.whole = run.position, False
        storage.settle(run.shard)
        storage.remove_old(run.shard, run.position.offset)

    def forget(self, shard: Shard) -> None:
        """Called when the shard moves to another instance, or begins again."""
        self._storages[shard.queue.source].forget(shard)
        shard.forget_local()

    def _snapshot_is_old(self, run: ShardRun) -> bool:
        return run.saved is not None and self._clock.monotonic() - run.snapshot_seconds >= _SNAPSHOT_SECONDS_MAX
