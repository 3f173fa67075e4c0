"""Decides on the driver what each micro-batch reads: which queues there are, and from where to where in each.

Pure Python; ``spark_source`` lets Spark call it. It opens a reader per queue to ask about it and never polls one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import BrokenQueueError, CheckpointError, JobFailedError, RetriableError
from headrace.foundation.retrying import Tries, until_done
from headrace.interfaces.source import EARLIEST, GroupSource, Reader, Source, StartPosition
from headrace.runtime.broken_queues import BrokenQueues

from headrace_spark.checkpoints.offsets import JobOffsets
from headrace_spark.planning.micro_batch_size import FOUND_BY_PLANNER, MicroBatchSize
from headrace_spark.planning.queue_ends import (
    ANY_NUMBER,
    ENDS,
    QueueEnd,
    end_of,
    ends_from_json,
    in_parallel,
    or_broken,
)
from headrace_spark.transit.marks import MarkKeeper
from headrace_spark.transit.payload import JobPayload
from headrace_spark.transit.ranges import PIECE_RECORDS_MIN, Cuts, QueueRange, cut, numbered, packed, pieces_of
from headrace_spark.transit.run_directory import RunDirectory
from headrace_spark.transit.totals import Totals
from headrace_spark.transit.troubles import TroubleNotes

logger = logging.getLogger(__name__)
T = TypeVar("T")
#: How long Spark waits for an answer when there is nothing to read; it asks again at once.
_IDLE_SECONDS_MAX = 1.0
_IDLE_SECONDS_BESIDE_FRAMES = 0.1
#: How often a waiting planner looks whether the job is to stop.
_STOP_LOOK_SECONDS = 0.05
#: An idle planner spends at most one part in this many of its time asking sources.
_IDLE_RATIO = 100
_TELL_SECONDS = 1.0
_ENDS_LOOK_SECONDS = 0.002
_REASON_LENGTH_MAX = 500


class Planner:
    """Plans micro-batches of one run. Used by one thread of one process on the driver's machine."""

    def __init__(
        self, payload: JobPayload, sources: Mapping[str, Source] | None = None, clock: Clock | None = None
    ) -> None:
        self._payload = payload
        self._job = payload.identity.job
        self._sources = sources if sources is not None else payload.sources()
        self._clock = clock or SystemClock()
        self._run = RunDirectory.at(payload.run_directory)
        self._run.note_planner()
        self._notes = TroubleNotes(payload.run_directory)
        self._never = threading.Event()
        self._readers: dict[Queue, Reader] = {}
        self._latest: dict[Queue, int] = {}
        #: Queues that exist, as of the last look.
        self._existing: set[Queue] | None = None
        self._looked_at = 0.0
        #: Of a bounded run: where each queue ended when the run began.
        self._ends: Mapping[Queue, QueueEnd] | None = None
        self._broken = BrokenQueues(self._job, self._clock, payload.retry_seconds, logs=payload.run_directory is None)
        self._restored = False
        self._cuts = Cuts()
        self._size = MicroBatchSize(
            self._clock,
            keyed=payload.keyed is not None,
            interval_seconds=None if payload.in_user_query else payload.trigger_seconds,
            bounded=payload.until == "end",
            shuffles=payload.shuffles,
        )
        keyed = payload.keyed
        self._marks = None if keyed is None else MarkKeeper(keyed, self._clock, bounded=payload.closes_windows)
        #: The last micro-batch that was completed when Spark asked last.
        self._completed_before = -1
        self._totals = Totals(() if keyed is None else keyed.levels[0])
        #: Where the micro-batch ends that was planned last.
        self._planned: Mapping[Queue, ReadPosition] = {}
        self._told_stored: Mapping[Queue, ReadPosition] = {}
        self._latest_told: dict[Queue, int] = {}
        self._latest_told_at = self._clock.monotonic() - _TELL_SECONDS

    # -------------------------------------------------------------------------------------------- called by Spark

    def initial(self) -> JobOffsets:
        """Return where a job without checkpoint begins.

        Spark asks for it several times, and again after a crash in the first micro-batch, and takes every answer to be
        the same. So the planner asks no source now: it was done when the job was started first, and kept. Where that was
        not possible nothing is known yet, and the first micro-batch does nothing but note where queues begin.
        """
        if self._payload.beginning is not None:
            return JobOffsets.from_json(self._payload.beginning)
        return JobOffsets.unknown(self._payload.identity)

    def next_end(self, start: JobOffsets, records_max: int | None) -> JobOffsets:
        """Return the end of the micro-batch that begins at ``start``; ``start`` itself when there is nothing to do.

        Reads at most ``records_max``; None: all; ``FOUND_BY_PLANNER``: as much as takes a few seconds. Waits a little for
        records when there are none, so that an idle job costs nothing.
        """
        if not self._restored:
            self._restore(start)
        if records_max == FOUND_BY_PLANNER:
            self._take_events()
            self._size.held(self._totals.shard_bytes)
            records_max = self._size.records()
        if self._payload.until == "end" and self._ends is None:
            early = self._end_while_ends_are_sought(start, records_max)
            if early is not None:
                return early
            self._fix_ends(start)
        begun, idle_seconds_max = self._clock.monotonic(), self._idle_seconds()
        while True:
            if self._run.stop_asked:
                self._run.mark_drained()
                if self._payload.frames is not None:
                    self._run.wait_for_release(self._clock)
                return _of_nothing(start)
            looked = self._clock.monotonic()
            end = self._end_from(start, records_max)
            self._size.planned(end.records_from(start))
            self._tell_latest()
            now = self._clock.monotonic()
            if end != start or self._payload.until == "end" or now - begun >= idle_seconds_max:
                return self._as_planned(end)
            seconds = max(self._payload.idle_wait_seconds, min((now - looked) * _IDLE_RATIO, _IDLE_SECONDS_MAX))
            self._rest(min(seconds, idle_seconds_max))

    def _idle_seconds(self) -> float:
        """Return how long an answer may take when there is nothing to read.

        Spark asks DataFrames after it: they are not held up for long, and not at all while something comes of them.
        """
        if self._payload.frames is None:
            return _IDLE_SECONDS_MAX
        self._take_events()
        before, self._completed_before = self._completed_before, self._totals.batch_id
        return _IDLE_SECONDS_BESIDE_FRAMES if self._completed_before == before else 0.0

    def _as_planned(self, end: JobOffsets) -> JobOffsets:
        self._retrying(self._payload.check_owned_on_driver, "the checkpoint")
        self._planned = end.queues
        return end

    def stored(self, end: JobOffsets) -> None:
        """Tell the sources that all micro-batches up to here are done: Spark has stored that, and never reads before it.

        That is so where Spark asks for the end of the next one. (It tells a source by itself only when it has planned that one, so never of
        the last one of a run.)
        """
        if end.queues == self._told_stored:
            return
        self._told_stored = end.queues
        for source_id, source in self._sources.items():
            own = {queue: position for queue, position in end.queues.items() if queue.source == source_id}
            if not own or isinstance(source, GroupSource):
                continue
            try:
                source.stored(own)
            except RetriableError as error:  # its server keeps more until the next micro-batch
                logger.warning(
                    "source %s: its server could not be told which records are stored: %s", source_id, error.message
                )

    def whole_input(self) -> tuple[JobOffsets, JobOffsets]:
        """Return where the queues begin and where they end now: for a plain batch query, which reads all at once."""
        begin = self.initial()
        end = self.next_end(begin, None)
        if not begin.sources:  # the queues were not known yet: the first answer says where they begin
            begin, end = replace(end, keyed=None), self.next_end(end, None)
        while (further := self.next_end(end, None)) != end:
            end = further
        return begin, end

    def partitions(self, start: JobOffsets, end: JobOffsets) -> list[list[QueueRange]]:
        """Return the ranges of a micro-batch, packed into at most as many parts as there are cores.

        What they hold is a function of the arguments only: after a crash it is asked again about a batch that was planned
        before. Into which pieces they are cut is not, and changes no result.
        """
        self.check_follows(start, end, self._job)
        ranges = []
        for queue, position in end.queues.items():
            begin = start.queues.get(queue)
            if begin is None:
                ranges.append(QueueRange(queue, position, position, added=True))
            elif begin != position:
                ranges += self._cuts.pieces(QueueRange(queue, begin, position))
        for queue, why in end.broken.items():
            if queue not in start.broken:
                at = end.queues.get(queue, ReadPosition(0))
                ranges.append(QueueRange(queue, at, at, broken=why))
        for queue, position in start.queues.items():
            if queue not in end.queues:
                ranges.append(QueueRange(queue, position, position, gone=True))
        return packed(numbered(ranges), self._payload.parallelism)

    @staticmethod
    def check_follows(start: JobOffsets, end: JobOffsets, job: str) -> None:
        """Check that one micro-batch leads from ``start`` to ``end``. Raises CheckpointError."""
        if not end.leads_on_from(start):
            raise CheckpointError(
                f"the offsets of two micro-batches are not consecutive ({start.number}, {end.number}): files of the checkpoint "
                "were replaced or removed",
                job=job,
                hint="restore the whole checkpoint directory from one copy, or start from the beginning with another checkpoint directory",
            )

    def latest(self) -> Mapping[Queue, int]:
        """Return the end of each queue as it was when last looked at, for the lag."""
        return self._latest

    def figures(self) -> dict[str, Any]:
        """Return the figures of the run as a JSON object: those of completed micro-batches, and the lag behind the planned one."""
        self._take_events()
        lag = dict.fromkeys(self._sources, 0)
        for queue, latest in self._latest.items():
            at = self._planned.get(queue)
            lag[queue.source] += 0 if at is None else max(0, latest - at.offset)
        return self._totals.to_json(lag)

    def _take_events(self) -> None:
        for event in self._run.new_events():
            self._totals.take(event)

    def close(self) -> None:
        """Give readers and sources back."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        for source in self._sources.values():
            source.close()

    # ------------------------------------------------------------------------------------------------- queues

    def _restore(self, offsets: JobOffsets) -> None:
        """Give each source its positions from the checkpoint, before the first call of ``queues``."""
        self._restored = True
        offsets.check_belongs_to(self._payload.identity)
        known = {**offsets.gone, **offsets.queues}
        for source_id, source in self._sources.items():
            source.restore({queue: position for queue, position in known.items() if queue.source == source_id})
        self._tell_queues(offsets.queues)

    def _look_for_queues(self) -> None:
        """Ask the sources for their queues. A bounded run uses only those that existed at its start."""
        now = self._clock.monotonic()
        first = self._existing is None
        if not first and (self._ends is not None or now - self._looked_at < self._payload.discovery_seconds):
            return
        self._looked_at = now
        found: set[Queue] = set()
        for source_id, source in self._sources.items():
            try:
                names = self._retrying(source.queues, source_id) if first else source.queues()
                self._notes.back(source_id)
            except (RetriableError, BrokenQueueError) as error:
                if first or (isinstance(error, BrokenQueueError) and self._payload.stops_on_broken_queues):
                    raise
                self._notes.away(source_id, error.message)
                names = [queue for queue in self._existing or () if queue.source == source_id]
            found.update(replace(queue, source=source_id) for queue in names)
        self._existing = found

    def _open(self, queue: Queue, start: StartPosition) -> Reader:
        reader = self._readers.get(queue)
        if reader is None:
            source = self._sources[queue.source]
            reader = self._retrying(lambda: source.open(queue, start), queue.id)
            if self._ends is not None and queue in self._ends:
                reader.use_waypoints(self._ends[queue].waypoints)
            self._readers[queue] = reader
        elif isinstance(start, ReadPosition) and reader.position != start:
            reader.seek(start)
        return reader

    def _opened_if_whole(self, queue: Queue, start: StartPosition) -> Reader | None:
        """Return the reader of a queue; None, and the queue is set aside, when it cannot be opened as it is."""
        if not self._broken.is_due(queue):
            return None
        try:
            return self._open(queue, start)
        except BrokenQueueError as error:
            self._set_aside(queue, error, start.offset if isinstance(start, ReadPosition) else None)
            return None

    def _set_aside(self, queue: Queue, error: BrokenQueueError, offset: int | None) -> None:
        """Set the queue aside, so that only the others are read. Raises the error if such queues must stop the job."""
        if self._payload.stops_on_broken_queues:
            error.job, error.queue = error.job or self._job, error.queue or queue.id
            error.offset = offset if error.offset is None else error.offset
            raise error
        if self._broken.set_aside(queue, error, offset):
            self._run.add_event("broken", queue=queue.id, offset=offset, text=error.message, hint=error.hint)
        self._forget(queue)

    def _note_whole(self, queues: Iterable[Queue]) -> None:
        for queue in queues:
            if self._broken.mended(queue):
                self._run.add_event("whole", queue=queue.id)

    def _tell_queues(self, added: Mapping[Queue, ReadPosition], gone: Iterable[Queue] = ()) -> None:
        """Let the driver know which queues are read, and from where."""
        gone = list(gone)
        if added or gone:
            self._run.add_event(
                "queues",
                added=[[queue.source, queue.name, position.offset] for queue, position in added.items()],
                gone=[[queue.source, queue.name] for queue in gone],
            )

    def _tell_latest(self) -> None:
        """Let the driver know where queues end, for the lag; not too often."""
        now = self._clock.monotonic()
        if self._latest != self._latest_told and now - self._latest_told_at >= _TELL_SECONDS:
            self._run.add_event("latest", offsets={queue.id: offset for queue, offset in self._latest.items()})
            self._latest_told, self._latest_told_at = dict(self._latest), now

    # ------------------------------------------------------------------------------------------------- ranges

    def _end_from(self, start: JobOffsets, records_max: int | None) -> JobOffsets:
        self._look_for_queues()
        assert self._existing is not None
        # What a source had that the job has no more is forgotten.
        gone = {queue: at for queue, at in start.gone.items() if queue.source in self._sources}
        positions: dict[Queue, ReadPosition] = {}
        for queue in [each for each in self._broken.reasons() if each not in self._existing]:
            self._broken.forget(queue)
            self._run.add_event("whole", queue=queue.id)
        for queue, position in start.queues.items():
            if queue in self._existing:
                positions[queue] = position
            elif queue.source in self._sources:
                gone[queue] = position
                self._forget(queue)
        added = []
        for queue in sorted(self._existing - start.queues.keys()):
            # It is read from the next batch on: its first position must be in a checkpoint before anything of it is.
            reader = self._opened_if_whole(queue, self._start_of_new(queue, start, gone.get(queue)))
            if reader is not None:
                self._note_whole([queue])
                positions[queue] = reader.position
                gone.pop(queue, None)
                added.append(queue)
        read = {queue: position for queue, position in positions.items() if queue in start.queues}
        positions.update(self._ends_within(read, records_max))
        self._tell_queues({queue: positions[queue] for queue in added}, start.queues.keys() - positions.keys())
        broken = {
            queue: start.broken.get(queue) or why[:_REASON_LENGTH_MAX]
            for queue, (_, why) in self._broken.reasons().items()
        }
        return self._from_to(start, positions, gone, broken)

    def _from_to(
        self,
        start: JobOffsets,
        positions: Mapping[Queue, ReadPosition],
        gone: Mapping[Queue, ReadPosition],
        broken: Mapping[Queue, str],
    ) -> JobOffsets:
        """Return the end of the micro-batch from ``start`` to these positions; of none when nothing has changed."""
        end = JobOffsets.of(self._payload.identity, positions, gone, broken)
        end = replace(end, checkpoint=start.checkpoint, number=start.number)
        if self._marks is not None:
            given_up = {queue for queue in broken if self._broken.is_given_up(queue)}
            left_out = given_up | self._ended_by_themselves(end)
            end = self._marks.put_on(start, end, all_read=self._all_read(end), left_out=left_out)
        if end == start:
            return _of_nothing(start)
        return end if start.number is None else replace(end, number=start.number + 1)

    def _end_while_ends_are_sought(self, start: JobOffsets, records_max: int | None) -> JobOffsets | None:
        """Return the end of a micro-batch of a bounded run that begins while the driver still counts what there is to read.

        None: the ends are known, or a queue has less than its part of ``records_max``, so that they must be known now.
        """
        if not self._payload.driver_finds_ends or records_max is None or not start.queues or start.broken or start.gone:
            return None
        if self._run.stop_asked or self._run.find(ENDS) is not None:
            return None
        self._look_for_queues()
        share = records_max // len(start.queues)
        if self._existing != set(start.queues) or share < PIECE_RECORDS_MIN:
            return None
        pieces = pieces_of(dict.fromkeys(start.queues, share), self._parallelism)

        def end_of_share(queue: Queue) -> ReadPosition:
            reader = self._open(queue, start.queues[queue])
            end = reader.position_after(share)
            if end.offset == start.queues[queue].offset + share:
                self._cut(queue, reader, start.queues[queue], end, pieces[queue])
            return end

        try:
            positions = in_parallel(end_of_share, start.queues)
        except (RetriableError, BrokenQueueError):  # the usual way waits, or sets the queue aside
            return None
        if any(position.offset < start.queues[queue].offset + share for queue, position in positions.items()):
            return None
        end = self._from_to(start, positions, dict(start.gone), {})
        self._size.planned(end.records_from(start))
        return self._as_planned(end)

    def _all_read(self, end: JobOffsets) -> bool:
        """Return whether a micro-batch comes to the end of a bounded run."""
        return self._ends is not None and all(
            queue in end.queues and end.queues[queue].offset >= fixed.position.offset
            for queue, fixed in self._ends.items()
            if queue in (self._existing or ()) and queue not in self._broken
        )

    def _ended_by_themselves(self, end: JobOffsets) -> set[Queue]:
        """Return the queues of bounded sources that have been read to their end."""
        return {
            queue
            for queue, position in end.queues.items()
            if self._sources[queue.source].bounded and position.offset >= self._latest.get(queue, position.offset + 1)
        }

    def _start_of_new(self, queue: Queue, start: JobOffsets, before: ReadPosition | None) -> StartPosition:
        """Return where a queue begins: where it was when it went away, else at the beginning.

        A source that the checkpoint does not know at all begins where its ``start`` says.
        """
        if before is not None:
            return before
        return EARLIEST if queue.source in start.sources else self._sources[queue.source].start

    def _ends_within(
        self, positions: Mapping[Queue, ReadPosition], records_max: int | None
    ) -> Mapping[Queue, ReadPosition]:
        """Return where each queue's range ends, so that all together hold at most ``records_max`` records."""
        self._set_damaged_ends_aside(positions)
        due = {queue: position for queue, position in positions.items() if self._broken.is_due(queue)}
        for queue in due:
            if queue in self._broken:
                self._forget(queue)  # the next try opens it again
        latest = self._latest_of(due)
        lags = {queue: end - due[queue].offset for queue, end in latest.items() if end > due[queue].offset}
        shares = _shares(lags, records_max)
        pieces = pieces_of(shares, self._parallelism)

        def end_of_range(queue: Queue) -> ReadPosition:
            start, share = positions[queue], shares[queue]
            fixed = self._ends.get(queue) if self._ends is not None else None
            if fixed is not None and fixed.in_one_step and share == lags[queue]:
                end = fixed.position
            else:
                reader = self._open(queue, start)
                end = self._retrying(partial(reader.position_after, share), queue.id)
            if pieces[queue] > 1:  # else the reader is not needed where the end is known
                self._cut(queue, self._open(queue, start), start, end, pieces[queue])
            return end

        ends = self._of_whole(in_parallel(or_broken(end_of_range), shares), positions)
        self._note_whole(queue for queue in latest if queue in ends or queue not in shares)
        return ends

    @property
    def _parallelism(self) -> int:
        """The number of tasks that may share the range of one queue."""
        return self._payload.parallelism if self._payload.cuts_ranges else 1

    def _cut(self, queue: Queue, reader: Reader, start: ReadPosition, end: ReadPosition, pieces: int) -> None:
        if pieces > 1:
            self._cuts.add(queue, start, end, cut(reader, start, end, pieces))

    def _set_damaged_ends_aside(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """In a bounded run, set aside the queues that end with damage, when everything before the damage was planned."""
        for queue, fixed in (self._ends or {}).items():
            at = positions.get(queue)
            if fixed.broken is None or at is None or at.offset < fixed.position.offset or queue in self._broken:
                continue
            message, hint = fixed.broken
            self._set_aside(queue, BrokenQueueError(message, plugin=queue.source, hint=hint), at.offset)

    def _of_whole(
        self, found: Mapping[Queue, T | BrokenQueueError], positions: Mapping[Queue, ReadPosition]
    ) -> dict[Queue, T]:
        """Return the results for the queues that can be read; set the others aside."""
        whole = {}
        for queue, value in found.items():
            if isinstance(value, BrokenQueueError):
                self._set_aside(queue, value, positions[queue].offset)
            else:
                whole[queue] = value
        return whole

    def _latest_of(self, positions: Mapping[Queue, ReadPosition]) -> Mapping[Queue, int]:
        """Return up to where each queue may be read now; those that cannot be are set aside and left out."""
        if self._ends is not None:
            ends = self._ends
            return {
                queue: ends[queue].position.offset if queue in ends else p.offset
                for queue, p in positions.items()
                if queue not in self._broken or (queue in ends and ends[queue].broken is None)
            }

        def latest_of(queue: Queue) -> int:
            reader = self._open(queue, positions[queue])
            try:
                latest = reader.latest
                self._notes.back(queue.id)
                return latest
            except BrokenQueueError:
                return reader.position_after(ANY_NUMBER).offset  # the records before the damage, if there are any
            except RetriableError as error:
                self._notes.away(queue.id, error.message)
                return self._latest.get(queue, positions[queue].offset)

        found = self._of_whole(in_parallel(or_broken(latest_of), positions), positions)
        self._latest.update(found)
        return found

    def _fix_ends(self, start: JobOffsets) -> None:
        """Take the present ends of the queues as the ends of the run."""
        self._look_for_queues()
        assert self._existing is not None
        ends = self._ends_from_driver() if self._payload.driver_finds_ends else None
        if ends is None:
            opened = {}
            for queue in sorted(self._existing):
                known = start.queues.get(queue) or start.gone.get(queue)
                reader = self._opened_if_whole(queue, known or self._start_of_new(queue, start, None))
                if reader is not None:
                    opened[queue] = reader
            ends = in_parallel(lambda queue: self._retrying(partial(end_of, opened[queue]), queue.id), opened)
            for queue, found in ends.items():
                if found.broken is not None:
                    self._forget(queue)
        self._ends = ends
        for queue, reader in self._readers.items():
            if queue in ends:
                reader.use_waypoints(ends[queue].waypoints)
        self._latest = {queue: end.position.offset for queue, end in ends.items()}

    def _ends_from_driver(self) -> Mapping[Queue, QueueEnd] | None:
        """Return the ends that the driver has found in the meantime; None if it could not find them."""
        while (left := self._run.find(ENDS)) is None:
            if self._run.stop_asked:
                return None
            self._clock.wait(self._never, _ENDS_LOOK_SECONDS)
        return None if left[0] is None else ends_from_json(left[0])

    def _forget(self, queue: Queue) -> None:
        reader = self._readers.pop(queue, None)
        if reader is not None:
            reader.close()
        self._latest.pop(queue, None)

    def _rest(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while not self._run.stop_asked and (left := until - self._clock.monotonic()) > 0:
            self._clock.wait(self._never, min(left, _STOP_LOOK_SECONDS))

    def _retrying(self, action: Callable[[], T], what: str) -> T:
        def failed(error: RetriableError, tries: Tries) -> None:
            if tries.waited_seconds >= self._payload.retry_seconds or self._run.stop_asked:
                raise JobFailedError(
                    f"the source was not available for {tries.waited_seconds:.0f} s: {error.message}",
                    job=self._job,
                    queue=what,
                    hint="repair the server and start the job again: it continues from its checkpoint",
                ) from error
            self._notes.away(what, error.message)

        result = until_done(action, clock=self._clock, stopping=self._never, retriable=RetriableError, failed=failed)
        self._notes.back(what)
        return result


def _shares(lags: Mapping[Queue, int], records_max: int | None) -> dict[Queue, int]:
    """Divide the records of a micro-batch among queues: small queues are read whole, the others share the rest equally."""
    left = sum(lags.values()) if records_max is None else records_max
    shares = {}
    ordered = sorted(lags, key=lambda queue: (lags[queue], queue))
    for number, queue in enumerate(ordered):
        share = min(lags[queue], max(1, left // (len(ordered) - number)))
        shares[queue] = share
        left -= share
    return shares


def _of_nothing(start: JobOffsets) -> JobOffsets:
    """Return where a micro-batch ends for which there is nothing to do: Spark runs the very first one even so, and it has a number."""
    return replace(start, number=1) if start.number == 0 else start
