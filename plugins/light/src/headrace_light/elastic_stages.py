"""The keyed stages of a job that several instances share: shuffles are topics, shards and their state move.

source lane ─▶ topic of the shuffle (queue = shard) ─▶ whichever instance has the shard ─▶ sinks, or the next topic

A shard's input is the log of its queue, the same for every owner, and so are its results and their numbers: an owner that
does not know yet that it has lost the shard does no harm. State is stored as of an offset of that log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar
from zlib import crc32

from headrace.flow.messages import Queue, QueueRemoved, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import CheckpointError, JobFailedError, RetriableError
from headrace.foundation.faults import fault_point
from headrace.foundation.retrying import Outages
from headrace.interfaces.backend import QueueStatus
from headrace.interfaces.sink import Sink
from headrace.interfaces.source import EARLIEST, GroupListener, GroupSource, StartPosition
from headrace.interfaces.state_store import StateStore
from headrace.interfaces.topics import Topics
from headrace.plan.graph import Plan
from headrace.plan.stages import tick_seconds, upstream_of
from headrace.plan.state_check import check_definitions
from headrace.runtime.lane import Delivery, Shipment
from headrace.runtime.patience import WaitFor
from headrace.runtime.shard import Shard
from headrace.runtime.shuffle import Envelope
from headrace.runtime.sinks_ahead import newest_rows, sink_is_ahead

from headrace_light.membership import Membership
from headrace_light.routing import Pending, route, shard_counts
from headrace_light.shard_run import HEADER_BYTES, ShardRun
from headrace_light.shard_storage import ShardStorage
from headrace_light.shuffle_records import encoded

logger = logging.getLogger(__name__)
_TRIM_SECONDS = 60.0
_FLUSH_SECONDS = 0.05
#: Brokers that forget records after some days must not forget state.
_SNAPSHOT_SECONDS_MAX = 6 * 3600.0
#: How old the snapshot of a shard is taken to be that came from another instance.
_SNAPSHOT_SECONDS_FOUND = 5.5 * 3600.0
_NO_WAIT = timedelta(0)
T = TypeVar("T")


@dataclass
class _Shuffle:
    """A shuffle's topic, and this instance's part in it."""

    topic: str
    source: GroupSource
    membership: Membership
    storage: ShardStorage


#: Tells by the id of a shard's queue which version of its state must be there, or None.
Known = Callable[[str], int | None]


@dataclass(frozen=True)
class Elasticity:
    """What a job has that its instances share.

    ``store`` makes the state store of a shuffle from the checkpoint directory, a name, the number of shards, and what tells
    which version of a shard must be there. ``state_moves``: the stores are shared by all instances; else a shard that moves
    begins without state. ``quick_start``: a shard begins before its state is here, where it can.
    """

    topics: Topics
    store: Callable[[Path | None, str, int, Known], StateStore]
    state_moves: bool
    quick_start: bool = False


class ElasticStages:
    """This instance's part in the keyed stages of a job. Used by the engine's thread.

    ``checkpoint`` makes a checkpoint of the whole instance: it is called before shards are given away; ``on_moved`` when one
    has gone, with its queue. ``sinks`` gives those that can be asked for their positions, opened.
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        elasticity: Elasticity,
        *,
        directory: Path | None,
        shards: int,
        retry_seconds: float,
        checkpoint: Callable[[], None],
        on_moved: Callable[[Queue], None],
        sinks: Callable[[], Mapping[str, Sink]],
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._topics = elasticity.topics
        self._elasticity = elasticity
        self._directory = directory
        self._state_moves = elasticity.state_moves
        self._retry_seconds = retry_seconds
        self._checkpoint = checkpoint
        self._on_moved = on_moved
        self._sinks = sinks
        #: The number of shards per shuffle.
        self.shard_counts = shard_counts(plan, shards)
        self._nodes = plan.shuffles
        self._upstream = upstream_of(plan)
        self._shuffles: dict[str, _Shuffle] = {}
        self._runs: dict[Queue, ShardRun] = {}
        #: Shards of this instance, with their shuffles, that have to begin again from what is stored.
        self._again: dict[Queue, str] = {}
        self._announced: set[Queue] = set()
        #: Up to where the group had done a shard when this instance was given it.
        self._committed: dict[str, int | None] = {}
        self._tick_seconds = tick_seconds(plan)
        now = clock.monotonic()
        self._ticked_seconds, self._trimmed_seconds, self._flushed_seconds = now, now, now
        self._unflushed = False
        #: Whether nothing has come of the shuffles at the last look; until when what comes in has precedence over restoring.
        self._idle = True
        self._rests_until = now
        self._outages = Outages(clock)
        self._warned_of_undefined = False

    # ------------------------------------------------------------------------------------------ begin and end

    def open(self) -> None:
        """Make the topics, and tell every shard which queues there are, before the first row.

        Raises JobError; RetriableError when the broker is away: call it again then.
        """
        self._make_topics()
        self._announce()
        self._topics.flush()

    def _make_topics(self) -> None:
        for name, count in self.shard_counts.items():
            if name in self._shuffles:
                continue
            topic = topic_name(self._plan.job_name, name)
            self._topics.create(topic, count)
            source = self._topics.source(topic, topic)
            source.node_name = topic
            membership = Membership(topic, source, self._clock, self._retry_seconds)
            store = self._elasticity.store(self._directory, f"{topic}-state", count, self._committed.get)
            storage = ShardStorage(store, header_bytes=HEADER_BYTES, quick_start=self._elasticity.quick_start)
            self._shuffles[name] = _Shuffle(topic, source, membership, storage)

    def join(self, wait_for: WaitFor) -> None:
        """Become a member of the groups that share the shards."""
        for name, shuffle in self._shuffles.items():
            join = partial(shuffle.membership.join, _ShardAssignments(self, name))
            wait_for(f"the group of {shuffle.topic}", join)

    def leave(self) -> None:
        """Leave the groups, so that others take over at once."""
        for shuffle in self._shuffles.values():
            shuffle.membership.leave()

    def close(self) -> None:
        """Close shards, stores and connections. May be called twice."""
        runs = list(self._runs.values())
        self._runs.clear()
        for run in runs:
            run.close()
        for shuffle in self._shuffles.values():
            shuffle.source.close()
            shuffle.storage.close()
        self._topics.close()

    # ------------------------------------------------------------------------------------------------ sending

    def ship(self, shipments: Iterable[Shipment]) -> None:
        """Send what lanes have for shuffles. That a queue is no longer read here does not mean that it is gone."""
        pending: Pending = {}
        there = [each for each in shipments if not isinstance(each.content, QueueRemoved)]
        route(there, self._nodes, self.shard_counts, pending)
        self._send(pending)

    def tell_idle(self, queue: Queue) -> None:
        """Tell all shards that get rows of a source's queue not to wait for it."""
        self._send(self._to_all("idle", queue.source, [queue]))

    def discover(self) -> None:
        """Look which queues the sources have now, and tell the shards. What cannot be told now is told the next time."""
        self._trying("tell of queues", self._announce)
        for run in list(self._runs.values()):
            self._trying("tell the lag", run.refresh_latest)

    def _announce(self) -> None:
        existing = self._upstream_queues()
        for upstream_id, queues in existing.items():
            new = sorted(queues - self._announced)
            if new:
                self._send(self._to_all("added", upstream_id, new))
        self._announced = {queue for queues in existing.values() for queue in queues}
        for run in self._runs.values():
            gone = [
                Envelope("removed", queue, side)
                for queue, side in run.shard.upstreams
                if queue.source in existing and queue not in existing[queue.source]
            ]
            if gone:
                self._send({(run.shard.queue.source, run.shard.number): gone})

    def _upstream_queues(self) -> Mapping[str, set[Queue]]:
        """Return the queues that there are, by the source or shuffle that they are of."""
        existing: dict[str, set[Queue]] = {}
        for source_id, node in self._plan.sources.items():
            existing[source_id] = {Queue(queue.name, source_id) for queue in node.source.queues()}
        for name, count in self.shard_counts.items():
            existing[name] = {Queue(str(number), name) for number in range(count)}
        return existing

    def _to_all(self, kind: Literal["added", "idle"], upstream_id: str, queues: Iterable[Queue]) -> Pending:
        pending: Pending = {}
        for name, sides in self._upstream.items():
            envelopes = [
                Envelope(kind, queue, side) for side, ids in enumerate(sides) if upstream_id in ids for queue in queues
            ]
            if envelopes:
                pending |= {(name, number): envelopes for number in range(self.shard_counts[name])}
        return pending

    def _send(self, pending: Mapping[tuple[str, int], list[Envelope]]) -> None:
        time_us = int(self._clock.now() * 1_000_000)
        for (name, number), envelopes in pending.items():
            records = encoded(envelopes, time_us, self._topics.max_record_bytes)
            self._topics.append(self._shuffles[name].topic, number, records)
            self._unflushed = True

    # ---------------------------------------------------------------------------------------------- receiving

    def poll(self, deliver: Callable[[Iterable[Delivery]], None]) -> bool:
        """Take some records of each shard through it; return whether there were any. Results go to ``deliver`` at once."""
        progressed = False
        for queue, name in list(self._again.items()):
            run = self._trying("restore a shard", partial(self._begin, self._shuffles[name], name, queue))
            if run is not None:
                del self._again[queue]
                self._runs[queue] = run
        for run in list(self._runs.values()):
            # A group may have taken it away, and given it again, while another shard was polled.
            if self._runs.get(run.topic_queue) is not run:
                continue
            outputs = self._trying("read a shuffle", run.poll)
            if outputs is not None:
                progressed = True
                fault_point("shard.after_process")
                self.ship(outputs.shipments)
                deliver(outputs.deliveries)
            elif run.broken:
                self._begin_again(run)
        self._idle = not progressed
        return self._restore_some() or progressed

    def _restore_some(self) -> bool:
        """Take a step of one shard whose state is not here yet; return whether there is one.

        What comes in waits for one step at most, and while something comes in steps take half of the time.
        """
        run = next((run for run in self._runs.values() if run.restoring), None)
        begun = self._clock.monotonic()
        if run is None or (not self._idle and begun < self._rests_until):
            return run is not None
        restored = self._trying("restore a shard", run.restore_some)
        now = self._clock.monotonic()
        self._rests_until = now + (now - begun)
        if restored is None:
            self._begin_again(run)
        elif not run.shard.restoring:
            run.restoring = False
            logger.info(
                "job %s: shard %s has all of its %d rows of state, after %.2f s", self._plan.job_name,
                run.shard.queue.id, run.shard.state_rows(), now - run.begun_seconds,
            )  # fmt: skip
        return True

    def _begin_again(self, run: ShardRun) -> None:
        """Let a shard whose state is not certain any more begin anew from what is stored: what it gave then comes again."""
        if self._runs.get(run.topic_queue) is run:
            self._drop(run)
            self._again[run.topic_queue] = run.shard.queue.source

    def _drop(self, run: ShardRun) -> None:
        del self._runs[run.topic_queue]
        self._shuffles[run.shard.queue.source].storage.forget(run.shard)
        self._on_moved(run.shard.queue)
        run.close()

    def keep_up(self, *, idle: bool) -> None:
        """Do what is due between polls: memberships, sending, ticks."""
        for shuffle in self._shuffles.values():
            shuffle.membership.poll(_NO_WAIT)
        now = self._clock.monotonic()
        if self._tick_seconds is not None and now - self._ticked_seconds >= self._tick_seconds:
            self._ticked_seconds = now
            self._send({(run.shard.queue.source, run.shard.number): [] for run in self._runs.values()})
        # A restore keeps the engine busy, but what came in before its step does not wait for more.
        idle = idle or (self._idle and any(run.restoring for run in self._runs.values()))
        if self._unflushed and (idle or now - self._flushed_seconds >= _FLUSH_SECONDS):
            self.flush()

    # -------------------------------------------------------------------------------------------- checkpoints

    def flush(self) -> bool:
        """Make durable what was sent; return whether it is."""
        if not self._unflushed:
            return True
        self._flushed_seconds = self._clock.monotonic()
        if self._trying("send to a shuffle", self._flushed) is None:
            return False
        self._unflushed = False
        return True

    def _flushed(self) -> bool:
        self._topics.flush()
        return True

    def save(self) -> bool:
        """Store the state of the shards, then tell the groups how far they are; return whether that was possible.

        Called when the sinks have stored what the shards gave, and the next shuffles what they shipped.
        """
        if self._trying("store state", self._saved) is None:
            return False
        fault_point("shard.after_save")
        for shuffle in self._shuffles.values():
            done = {
                run.topic_queue: run.saved
                for run in self._runs.values()
                if run.saved is not None and run.topic_queue.source == shuffle.topic
            }
            if done:
                shuffle.membership.commit(done)
        if self._clock.monotonic() - self._trimmed_seconds >= _TRIM_SECONDS:
            self._trimmed_seconds = self._clock.monotonic()
            self._trying("trim a shuffle", self._trim)
        return True

    def _saved(self) -> bool:
        now = self._clock.monotonic()
        for run in list(self._runs.values()):
            outdated = self._snapshot_is_old(run, now)
            if not run.changed and not outdated:
                continue
            storage = self._shuffles[run.shard.queue.source].storage
            try:
                if storage.save(run.shard, run.position.offset, run.header(), whole=run.whole or outdated):
                    run.snapshot_seconds = now
            except RetriableError:
                run.whole = True  # what had changed was taken out of the shard and is not stored
                if run.shard.restoring:  # nothing but a delta can be stored of it
                    self._begin_again(run)
                raise
            run.saved, run.whole = run.position, False
            storage.remove_old(run.shard, run.position.offset)
        return True

    @staticmethod
    def _snapshot_is_old(run: ShardRun, now: float) -> bool:
        """Whether a shard's state is to be stored anew, though perhaps nothing has come, so that no broker forgets it."""
        return run.saved is not None and now - run.snapshot_seconds >= _SNAPSHOT_SECONDS_MAX

    def _trim(self) -> None:
        for run in self._runs.values():
            if run.saved is not None:
                topic = self._shuffles[run.shard.queue.source].topic
                self._topics.trim(topic, run.shard.number, before=run.saved.offset)

    # ------------------------------------------------------------------------------------------------- moving

    def assigned(self, name: str, queues: Iterable[Queue]) -> None:
        """These shards are this instance's. Raises RetriableError when the broker or the store of one is away."""
        for queue in queues:
            if queue not in self._runs and queue not in self._again:
                self._runs[queue] = self._begin(self._shuffles[name], name, queue)

    def revoked(self, queues: Iterable[Queue], *, lost: bool) -> None:
        """These shards go to another instance, after a checkpoint unless they are lost already."""
        taken = list(queues)
        if not lost and any(queue in self._runs for queue in taken):
            self._checkpoint()
        for queue in taken:
            if queue in self._again:
                self._shuffles[self._again.pop(queue)].membership.forget(queue)
            if queue not in self._runs:
                continue
            run = self._runs[queue]
            self._drop(run)
            self._shuffles[run.shard.queue.source].membership.forget(queue)
            logger.info(
                "job %s: shard %s has gone, at %d", self._plan.job_name, run.shard.queue.id, run.position.offset
            )

    def _begin(self, shuffle: _Shuffle, name: str, queue: Queue) -> ShardRun:
        begun = self._clock.monotonic()
        number = self._topics.number_of(queue)
        shard = Shard(self._plan, name, number)
        try:
            committed = shuffle.source.committed(queue)
            self._committed[shard.queue.id] = None if committed is None else committed.offset
            found = shuffle.storage.load(shard)
            if found is not None:
                shard.check_inputs()
                self._warn_of_undefined(shard)
            if found is not None and not self._state_moves and committed and committed.offset > found[0]:
                logger.warning(
                    "job %s: shard %s was with another instance meanwhile: what it remembered then is lost",
                    self._plan.job_name, shard.queue.id,
                )  # fmt: skip
                shard.close()
                shard, found = Shard(self._plan, name, number), None
            if found is None and committed is not None and not self._state_moves:
                # The records that told of these queues are behind it.
                existing = self._upstream_queues()
                shard.expect(
                    (each, side)
                    for side, ids in enumerate(self._upstream[name])
                    for upstream_id in ids
                    for each in existing[upstream_id]
                )
            elif self._state_moves and committed and (found is None or found[0] < committed.offset):
                raise CheckpointError(
                    f"shard {shard.queue.id} was read up to {committed.offset}, but its state is stored "
                    + (f"only up to {found[0]}" if found else "nowhere"),
                    job=self._plan.job_name,
                    option="state_store",
                    hint=f"bring its state back, or delete the topic {shuffle.topic!r} and its group to begin anew",
                )
            start: StartPosition = committed or EARLIEST
            if found is not None:
                start = ReadPosition(found[0])
            reader = shuffle.source.open(queue, start)
            run = ShardRun(queue, shard, reader, None if found is None else found[1], self._checks_entries(shard))
            run.begun_seconds, run.restoring = begun, shard.restoring
            # What it is of now is stored with it, so that the next start compares with that.
            run.whole = run.whole or shard.has_other_definitions
        except BaseException:
            shard.close()
            raise
        run.snapshot_seconds = self._clock.monotonic() - _SNAPSHOT_SECONDS_FOUND
        logger.info(
            "job %s: shard %s begins at %d with %d rows of state%s, after %.2f s", self._plan.job_name, shard.queue.id,
            run.position.offset, shard.state_rows(), " and more to come" if shard.restoring else "",
            self._clock.monotonic() - begun,
        )  # fmt: skip
        return run

    def _checks_entries(self, shard: Shard) -> Callable[[int], None]:
        """Return what refuses to go on when a sink has rows of entries that the shard's topic does not have."""
        known = newest_rows(self._plan, self._sinks(), {shard.queue.source: [shard.number]})

        def check(last_entry: int) -> None:
            if known is not None and known.entry > last_entry:
                raise sink_is_ahead(self._plan, known, last_entry, can_write=False)

        return check

    def _warn_of_undefined(self, shard: Shard) -> None:
        """Say once that what a state is of is not known, as an older version stored it."""
        if shard.has_undefined_state and not self._warned_of_undefined:
            self._warned_of_undefined = True
            check_definitions(self._plan, None, place=f"shard {shard.queue.id}")

    # ------------------------------------------------------------------------------------------------- status

    @property
    def changed(self) -> bool:
        """Whether a checkpoint would store something."""
        now = self._clock.monotonic()
        return self._unflushed or any(run.changed or self._snapshot_is_old(run, now) for run in self._runs.values())

    def statuses(self) -> tuple[QueueStatus, ...]:
        """Return how far this instance's shards are in their topics. From any thread, as the rest of this part."""
        return tuple(run.status() for run in list(self._runs.values()))

    def watermark_us(self) -> int | None:
        """Return the least watermark of this instance's shards that have one."""
        found = [run.shard.watermark_us for run in list(self._runs.values())]
        return min((each for each in found if each is not None), default=None)

    def state_rows(self) -> int:
        """Return how many rows the operators of this instance's shards remember."""
        return sum(run.shard.state_rows() for run in list(self._runs.values()))

    def late_rows(self) -> int:
        """Return how many rows came too late in this run, to the shards that are here now."""
        return sum(run.shard.late_rows() for run in list(self._runs.values()))

    # ----------------------------------------------------------------------------------------------- failures

    def wait(self, timeout: timedelta) -> None:
        """Wait for records of a shuffle."""
        next(iter(self._shuffles.values())).membership.poll(timeout)

    def _trying(self, what: str, action: Callable[[], T]) -> T | None:
        """Return what an action gives; None when the broker is away. Raises JobFailedError when it has been for too long."""
        try:
            result = action()
        except RetriableError as error:
            away = self._outages.goes_on(what)
            if away is None:
                away = 0.0
                logger.warning("job %s cannot %s: %s; trying again", self._plan.job_name, what, error.message)
            if away >= self._retry_seconds:
                raise JobFailedError(
                    f"for {away:.0f} s it was not possible to {what}: {error.message}",
                    job=self._plan.job_name,
                    hint="mend the server and start the job again: it goes on from what was committed",
                ) from error
            return None
        if self._outages.is_over(what):
            logger.info("job %s can %s again", self._plan.job_name, what)
        return result


class _ShardAssignments(GroupListener):
    """Hands the changes of a shuffle's group to the stages. Called on the engine's thread."""

    def __init__(self, stages: ElasticStages, name: str) -> None:
        self._stages = stages
        self._name = name

    def assigned(self, queues: Iterable[Queue]) -> None:
        self._stages.assigned(self._name, queues)

    def revoked(self, queues: Iterable[Queue], *, lost: bool = False) -> None:
        self._stages.revoked(queues, lost=lost)


def topic_name(job: str, shuffle: str) -> str:
    """Return the name of the topic of a job's shuffle: of letters, digits, ``-`` and ``_``, which all brokers take."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", f"headrace-{job}-{shuffle}")[:90]
    # Jobs whose names have become the same do not share it.
    return f"{plain}-{crc32(f'{job}/{shuffle}'.encode()):08x}"
