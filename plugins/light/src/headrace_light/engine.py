"""The engine: one thread that polls queues in turn, drives their lanes, and makes checkpoints.

discover ─▶ poll a queue ─▶ its lane ─▶ outlets (sink caches) ─▶ … next queue … ─▶ checkpoint when due
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from headrace.flow.messages import Checkpoint, Queue, QueueAdded, QueueRemoved, ReadPosition
from headrace.foundation.clock import Clock
from headrace.foundation.errors import BrokenQueueError, HeadraceError, JobError, JobFailedError, RetriableError
from headrace.foundation.faults import fault_point
from headrace.interfaces.backend import JobReport, JobState, JobStatus, RunOptions
from headrace.interfaces.registry import default_registry
from headrace.interfaces.source import GroupSource
from headrace.interfaces.state_store import StateStore
from headrace.plan.graph import Plan
from headrace.plan.outputs import tell_outputs
from headrace.plan.stages import idle_timeouts_us
from headrace.plan.state_check import check_definitions
from headrace.runtime.lane import Lane, Shipment
from headrace.runtime.outlets import Outlets
from headrace.runtime.patience import Patience
from headrace.runtime.progress import ProgressLine

from headrace_light.beginnings import commit_without_group, start_of
from headrace_light.checkpoint_directory import CheckpointDirectory, StoredCheckpoint
from headrace_light.elastic_stages import Elasticity, ElasticStages
from headrace_light.keyed_stages import KeyedStages, as_time, check_checkpoint
from headrace_light.known_results import KnownResults
from headrace_light.membership import Assignments, Membership, goes_on_in_groups
from headrace_light.order_log import Entry, EntryKind
from headrace_light.pauses import Pauses
from headrace_light.quarantine import Quarantine
from headrace_light.queue_run import QueueFigures, QueueRun, with_dead_letters
from headrace_light.savepoint_places import begin_at, not_all_queues, not_of_instances, place_of, savepoint_start
from headrace_light.savepoint_requests import OpenSavepoint, SavepointRequests
from headrace_light.state_directory import NoStateStore
from headrace_light.storing import Storing

logger = logging.getLogger(__name__)
_NO_WAIT = timedelta(0)
#: An idle engine looks for new records of the sources at least so often while it waits for those of a shuffle.
_SHUFFLE_WAIT_MAX = timedelta(milliseconds=50)


class Engine:
    """Runs one plan. ``prepare`` and ``start`` are called once, by one thread; the rest from anywhere."""

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        *,
        clock: Clock,
        retry_timeout: timedelta,
        idle_wait_max: timedelta,
        shards: int = 1,
        state_store: Callable[[Path], StateStore] | None = None,
        elastic: Elasticity | None = None,
    ) -> None:
        self._plan = plan
        self.job_name = plan.job_name
        self._options = options
        self._clock = clock
        self._retry_seconds = retry_timeout.total_seconds()
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._pauses = Pauses(clock, self._stopping, idle_wait_max, bounded=options.until == "end")
        self._outlets = Outlets(plan, clock=clock, stopping=self._stopping)
        self._directory = CheckpointDirectory(options.checkpoint, plan.job_name)
        self._storing = Storing(plan.job_name, self._directory.path, clock, self._stopping, self._retry_seconds)
        self._checkpoint = StoredCheckpoint()
        # The first checkpoint is made at once, on a machine that has just booted too.
        self._checkpoint_seconds = float("-inf")
        self._discovery_seconds = 0.0
        self._runs: dict[Queue, QueueRun] = {}
        self._figures = QueueFigures()
        self._broken = Quarantine(plan, options, clock, self._retry_seconds, self._outlets.deliver)
        self._decode_columns = plan.decode_columns()
        self._groups: dict[str, Membership] = {}
        self._closing = False
        self._state = JobState.STARTING
        self._error: BaseException | None = None
        self._patience = Patience(plan.job_name, options.start_timeout, clock, stopping=self._stopping)
        self._begun = clock.monotonic()
        self._seconds = 0.0
        self._progress = ProgressLine(enabled=options.show_progress, clock=clock)
        self._hooks = default_registry().load_all()
        self._shards = shards
        self._make_state_store = state_store
        self._keyed: KeyedStages | None = None
        self._elasticity = elastic if plan.shuffles else None
        self._elastic: ElasticStages | None = None
        self._idle_timeouts_us = idle_timeouts_us(plan) if plan.shuffles else {}
        self._again: Entry | None = None
        self._known = KnownResults(plan, {}, {}, begins=False)
        self._savepoints = SavepointRequests(plan.job_name)
        #: Whether nothing was taken in since the keyed stages were told of the end of input.
        self._end_told = False

    # ---------------------------------------------------------------------------------------- called by the handle

    def prepare(self) -> None:
        """Check the outside world and take the checkpoint directory: raises JobError before anything is read."""
        self._checkpoint = self._directory.open()
        wait_for = self._patience.wait_for
        try:
            start, self._checkpoint = savepoint_start(
                self._plan, self._options, self._checkpoint, shared=self._elasticity is not None
            )
            if self._elasticity is not None:
                self._elastic = self._make_elastic(self._elasticity)
            elif self._plan.shuffles:
                self._keyed = wait_for("its state store", self._open_keyed)
            for name, node in self._plan.sinks.items():
                wait_for(f"sink {name}", partial(node.sink.prepare, node.schema))
            self._tell_outputs(goes_on=bool(self._checkpoint.id or start))
            for source_id, source_node in self._plan.sources.items():
                own = {q: p for q, p in self._checkpoint.positions.items() if q.source == source_id}
                source_node.source.use_run(until=self._options.until)
                source_node.source.restore(own)
                if isinstance(source_node.source, GroupSource) and self._options.until is None and not self._keyed:
                    member = partial(Membership, source_id, source_node.source, self._clock, self._retry_seconds)
                    self._groups[source_id] = wait_for(f"source {source_id}", member)
            wait_for("its sinks", self._outlets.open)
            if self._elastic is not None:
                wait_for("the broker of its shuffles", self._elastic.open)
            if start is None:
                self._repeat_entries()
            else:
                self._checkpoint = begin_at(
                    start, self._checkpoint, self._keyed, self._groups.values(), self._clock, wait_for
                )
                self._directory.save(self._checkpoint)
            wait_for("its sources", partial(self._discover, first=True))
            self._broken.check_start(self._runs.values())
            self._known.begin(self._runs.values())
        except BaseException:
            self._close_parts()
            self._directory.close()
            raise

    def start(self) -> None:
        """Start the engine's thread."""
        threading.Thread(target=self._run, name=f"headrace {self.job_name}", daemon=True).start()

    def savepoint(self, path: str | os.PathLike[str]) -> Future[Path]:
        """Ask for a savepoint. Raises JobError when the job has ended, or cannot be saved so."""
        if self._elastic is not None:
            raise not_of_instances(self.job_name)
        return self._savepoints.ask(path)

    def stop(self) -> None:
        """Ask for a graceful stop."""
        self._stopping.set()

    def join(self, timeout: timedelta | None) -> bool:
        """Wait until the job has ended; return whether it has."""
        return self._ended.wait(None if timeout is None else timeout.total_seconds())

    def status(self) -> JobStatus:
        """Return the picture at this moment; lags are as of the last look at the sources."""
        queues = self._broken.with_broken(self._figures.statuses(self._runs.values()))
        stages = self._keyed or self._elastic
        return JobStatus(
            job=self.job_name,
            backend="light",
            state=self._state,
            records_read=sum(queue.records for queue in queues),
            rows_written=dict(self._outlets.rows_written()),
            rows_skipped=self._outlets.rows_skipped(),
            dead_letters=self._outlets.dead_letters,
            dead_letter_reasons=self._outlets.frequent_reasons(),
            dead_letter_places=self._outlets.dead_letter_places,
            queues=with_dead_letters(queues, self._outlets.dead_letters_by_queue),
            checkpoint_id=self._checkpoint.id,
            seconds=self._seconds or self._clock.monotonic() - self._begun,
            error=None if self._error is None else str(self._error),
            watermark=None if stages is None else as_time(stages.watermark_us()),
            state_rows=0 if stages is None else stages.state_rows(),
            late_rows=0 if stages is None else stages.late_rows(),
            shards=() if self._elastic is None else self._elastic.statuses(),
        )

    def report(self) -> JobReport:
        """Return what the job did. Raises JobFailedError when it failed."""
        if self._error is not None:
            message = self._error.message if isinstance(self._error, HeadraceError) else repr(self._error)
            hint = getattr(self._error, "hint", None)
            place = {name: getattr(self._error, name, None) for name in ("queue", "offset")}
            raise JobFailedError(f"the job failed: {message}", job=self.job_name, hint=hint, **place) from self._error
        return JobReport.of(self.status())

    # ------------------------------------------------------------------------------------------ the engine's thread

    def _run(self) -> None:
        self._state = JobState.RUNNING
        self._hooks.headrace_job_started(job=self.job_name, backend="light")
        try:
            self._join()
            self._loop()
            self._take_savepoints()
            self._state = JobState.STOPPING
            if self._options.until == "end" and not self._stopping.is_set():
                self._broken.check_end(self.status())
                if not self._end_told:
                    self._entry("end")
            self._make_checkpoint()
            for group in self._groups.values():
                group.leave()
            if self._elastic is not None:
                self._elastic.leave()
            if not self._stopping.is_set():
                self._known.end(self._runs.values())
            self._closing = True
            for queue in list(self._runs):
                self._remove(queue)
            self._outlets.close()
            self._state = JobState.STOPPED if self._stopping.is_set() else JobState.FINISHED
        except BaseException as error:  # whatever it is, it ends the job and is raised by wait()
            logger.debug("job %s failed", self.job_name, exc_info=True)
            self._error, self._state = error, JobState.FAILED
        finally:
            self._seconds = self._clock.monotonic() - self._begun
            self._savepoints.end(self._error)
            self._close_parts()
            self._directory.close()
            self._progress.end(self.status())
            try:
                self._hooks.headrace_job_stopped(job=self.job_name, report=JobReport.of(self.status()))
            finally:
                self._ended.set()

    def _join(self) -> None:
        """Become a member of the groups. Brokers that are away are waited for, as at the start, unless the job is stopped."""
        try:
            for source_id, group in self._groups.items():
                join = partial(group.join, Assignments(self.assigned, self.revoked))
                self._patience.wait_for(f"the group of source {source_id}", join)
            if self._elastic is not None:
                self._elastic.join(self._patience.wait_for)
        except RetriableError:
            if not self._stopping.is_set():
                raise

    def _loop(self) -> None:
        while not self._stopping.is_set():
            begun = self._clock.monotonic()
            # A single queue waits inside its reader, which wakes at once when a record comes.
            waits_in_reader = len(self._runs) == 1 and not self._groups
            progressed = self._poll_all(self._pauses.inside() if waits_in_reader else _NO_WAIT)
            looked_seconds = self._clock.monotonic() - begun if waits_in_reader else 0.0
            if self._options.until == "end" and all(run.done for run in self._runs.values()):
                return
            if self._elastic is not None:
                progressed |= self._elastic.poll(self._outlets.deliver)
                self._elastic.keep_up(idle=not progressed)
            now = self._clock.monotonic()
            if self._keyed is not None or self._elastic is not None:
                self._tell_time(now)
            for group in self._groups.values():
                group.poll(_NO_WAIT)
            if now - self._discovery_seconds >= self._options.discovery_interval.total_seconds():
                self._discover()
            if now - self._checkpoint_seconds >= self._options.checkpoint_interval.total_seconds():
                self._make_checkpoint()
            self._take_savepoints()
            self._progress.show(self.status)
            if progressed:
                self._pauses.begin_anew()
            else:
                self._rest(looked_seconds)

    def _rest(self, looked_seconds: float) -> None:
        """Pause before the next look. A group on its own waits in its source, which may know when a record comes."""
        if self._elastic is not None:
            rested = self._pauses.rest_in(self._elastic.wait, _SHUFFLE_WAIT_MAX)
        elif len(self._groups) == len(self._plan.sources) == 1:
            [group] = self._groups.values()
            rested = self._pauses.rest_in(group.poll)
        else:
            rested = False
        if not rested:
            self._pauses.rest(looked_seconds, ticking=bool(self._groups) or self._keyed is not None)

    def _poll_all(self, wait: timedelta) -> bool:
        progressed = False
        for run in list(self._runs.values()):
            if self._stopping.is_set():
                break
            # A group may have taken it away, and given it again, while another queue was polled.
            if self._runs.get(run.queue) is not run or run.done or run.paused:
                continue
            if self._broken.is_due(run.queue):
                progressed |= self._poll(run, wait)
        return progressed

    def _poll(self, run: QueueRun, wait: timedelta) -> bool:
        try:
            entries: list[Entry] = []
            if run.broken:
                run.go_on_with(self._plan.sources[run.queue.source].source.open(run.queue, run.position))
            deliveries = run.poll(self._options.max_batch_records, wait, self._logging(run, entries))
            run.broken = run.broken and not self._broken.mended(run.queue)
        except RetriableError as error:
            if self._runs.get(run.queue) is not run:
                return False
            run.pause(error, self._clock.monotonic(), self._retry_seconds)
            return False
        except BrokenQueueError as error:
            run.broken = True
            self._broken.take(run.queue, error, run.position)
            return False
        if deliveries is None:
            return False
        fault_point("lane.after_process")
        self._outlets.deliver(deliveries)
        run.heard_seconds, run.idle = self._clock.monotonic(), False
        if self._elastic is not None:
            self._elastic.ship(run.lane.take_shipments())
        elif self._keyed is not None:
            for entry in entries:
                self._outlets.deliver(self._keyed.finish(entry, run.lane.take_shipments()))
        return True

    # --------------------------------------------------------------------------------------------- keyed stages

    def _open_keyed(self) -> KeyedStages:
        path = self._directory.path
        store: StateStore = NoStateStore()
        if path is not None and self._make_state_store is not None:
            store = self._make_state_store(path)
        keyed = KeyedStages(
            self._plan, self._clock, shards=self._shards, store=store, directory=path, storing=self._storing
        )
        if self._checkpoint.id:
            check_checkpoint(self._plan, self._checkpoint, keyed.shard_counts, place=str(path))
        return keyed

    def _tell_outputs(self, *, goes_on: bool) -> None:
        """Tell the sinks what makes their rows. Raises JobError where that is not possible."""
        begins = self._keyed is not None and not (goes_on or self._directory.has_begun)
        before = self._checkpoint.outputs if goes_on else None
        tell = partial(tell_outputs, self._plan, before, begins=begins, replace=self._options.replace_output,
                       elsewhere=partial(goes_on_in_groups, self._plan))  # fmt: skip
        known = self._patience.wait_for("its sinks", tell)
        self._outlets.known = frozenset(known)
        shards = {} if self._keyed is None else self._keyed.shard_counts
        self._known = KnownResults(self._plan, known, shards, begins=begins)

    def _make_elastic(self, elasticity: Elasticity) -> ElasticStages:
        if self._checkpoint.definitions:
            check_definitions(self._plan, self._checkpoint.definitions, place=str(self._directory.path))
        return ElasticStages(
            self._plan,
            self._clock,
            elasticity,
            directory=self._directory.path,
            shards=self._shards,
            retry_seconds=self._retry_seconds,
            checkpoint=self._make_checkpoint,
            on_moved=self._outlets.discard,
            sinks=partial(self._outlets.sinks_to_ask, flushed=False),
        )

    def _repeat_entries(self) -> None:
        """Do again, in the same order, what was done since the checkpoint: sinks drop what they have of it."""
        if self._keyed is None:
            return
        wait_for, stored = self._patience.wait_for, self._checkpoint
        entries = self._keyed.restore(stored.id, stored.sequence, stored.states, wait_for)
        for entry in entries:
            self._again = entry
            if entry.kind == "added":
                assert entry.queue is not None
                if entry.queue not in self._runs:
                    wait_for("its sources", partial(self._add, entry.queue, appeared=False))
            elif entry.kind == "removed":
                assert entry.queue is not None
                if entry.queue in self._runs:
                    self._remove(entry.queue)
            elif entry.kind == "read":
                self._repeat_reading(entry)
            else:
                self._entry(entry.kind, entry.queue)
        self._again = None
        begins, write = not (stored.id or entries), self._options.sinks_ahead == "write"
        sinks = wait_for("its sinks", self._outlets.sinks_to_ask)
        moved = wait_for("its sinks", partial(self._keyed.stand_behind, sinks, begins=begins, write=write))
        for queue, run in self._runs.items():
            reopen = partial(self._plan.sources[queue.source].source.open, queue, run.position)
            try:
                run.go_on_with(wait_for("its sources", reopen))
            except BrokenQueueError as error:
                run.broken = True
                self._broken.take(queue, error, run.position)
        if moved:
            self._make_checkpoint()

    def _repeat_reading(self, entry: Entry) -> None:
        queue, start, end = entry.queue, entry.start, entry.end
        assert self._keyed is not None
        assert queue is not None
        assert start is not None
        assert end is not None
        if queue not in self._runs:
            # It was added before the checkpoint.
            self._patience.wait_for("its sources", partial(self._add, queue, appeared=False, at=start))
        run = self._runs[queue]
        self._keyed.begin("read", again=entry)
        again = partial(run.read_again, start, end, self._options.max_batch_records)
        self._outlets.deliver(self._patience.wait_for("its sources", again))
        self._outlets.deliver(self._keyed.finish(entry, run.lane.take_shipments()))

    def _logging(self, run: QueueRun, entries: list[Entry]) -> Callable[[ReadPosition, ReadPosition], None] | None:
        """Return what logs a range that was read as an entry, before anything is made of it."""
        keyed = self._keyed
        if keyed is None:
            return None

        def log(start: ReadPosition, end: ReadPosition) -> None:
            self._end_told = False
            entries.append(keyed.begin("read", run.queue, start, end))

        return log

    def _entry(self, kind: EntryKind, queue: Queue | None = None, shipments: Iterable[Shipment] = ()) -> None:
        """Take the keyed stages through an entry that reads nothing."""
        if self._elastic is not None:
            self._elastic.ship(shipments)
        elif self._keyed is not None:
            self._end_told = kind == "end"
            entry = self._keyed.begin(kind, queue, again=self._again)
            self._outlets.deliver(self._keyed.finish(entry, shipments))

    def _tell_time(self, now: float) -> None:
        """Tell the keyed stages which queues are not to be waited for, and what the clock shows."""
        for run in self._runs.values():
            timeout_us = self._idle_timeouts_us.get(run.queue.source)
            silent = timeout_us is not None and (now - run.heard_seconds) * 1_000_000 >= timeout_us
            silent |= self._broken.is_given_up(run.queue)
            if not run.idle and (run.done or silent) and not self._end_told:
                run.idle = True
                if self._elastic is not None:
                    self._elastic.tell_idle(run.queue)
                else:
                    self._entry("idle", run.queue)
        for queue in self._broken.not_waited_for(self._runs) if self._keyed is not None else ():
            self._entry("idle", queue)
        if self._keyed is not None and self._keyed.tick_due():
            self._entry("tick")

    # ---------------------------------------------------------------------------------------------- queues

    def _discover(self, *, first: bool = False) -> None:
        """Compare the queues that exist with those that are read. A bounded run keeps to those of its start."""
        self._discovery_seconds = self._clock.monotonic()
        self._refresh_lags()
        if self._elastic is not None and not first:
            self._elastic.discover()
        if not first and self._options.until == "end":
            return
        for source_id, node in self._plan.sources.items():
            if source_id in self._groups:
                continue
            try:
                found = {replace(queue, source=source_id) for queue in node.source.queues()}
                known = {queue for queue in self._runs if queue.source == source_id}
                self._broken.vanished(source_id, found, self._runs)
                for queue in sorted(known - found):
                    self._remove(queue)
                for queue in self._broken.due(sorted(found - known)):
                    self._add_if_whole(queue, appeared=not first)
            except (RetriableError, BrokenQueueError) as error:
                if first and isinstance(error, BrokenQueueError):
                    raise JobError(error.message, plugin=error.plugin or source_id, hint=error.hint) from error
                if first or (self._options.broken_queues == "stop" and isinstance(error, BrokenQueueError)):
                    raise
                logger.warning("source %s: %s", source_id, error.message)

    def _add_if_whole(self, queue: Queue, *, appeared: bool) -> None:
        """Begin a queue; set it aside when it cannot be opened. One that is opened later is read from its first record."""
        try:
            self._add(queue, appeared=appeared or queue in self._broken)
        except BrokenQueueError as error:
            self._broken.take(queue, error, self._checkpoint.positions.get(queue))
        else:
            self._broken.mended(queue)

    def _refresh_lags(self) -> None:
        """Ask for the ends of the queues; a source that is away is asked once only."""
        away: set[str] = set()
        for queue, run in list(self._runs.items()):
            if queue.source not in away and not run.refresh_latest():
                away.add(queue.source)

    def _add(self, queue: Queue, *, appeared: bool, at: ReadPosition | None = None) -> None:
        """Begin a queue. Raises RetriableError, and has done nothing then, when its server is away."""
        node = self._plan.sources[queue.source]
        stored, group = self._checkpoint.positions.get(queue), self._groups.get(queue.source)
        start = at or start_of(node, queue, stored, group, appeared=appeared, keyed=self._keyed is not None)
        reader = node.source.open(queue, start)
        try:
            lane = Lane(self._plan, node, queue, decode_columns=self._decode_columns[queue.source])
            run = QueueRun(queue, reader, lane, bounded=self._options.until == "end", clock=self._clock)
        except BaseException:
            reader.close()
            raise
        self._runs[queue] = run
        message = QueueAdded(queue)
        self._outlets.on_system(message)
        self._outlets.deliver(lane.on_system(message))
        run.heard_seconds = self._clock.monotonic()
        shipments = lane.take_shipments()
        if at is None:  # else the state knows it already
            self._entry("added", queue, shipments)
        self._hooks.headrace_queue_added(job=self.job_name, queue=queue)

    def _remove(self, queue: Queue, *, lost: bool = False) -> None:
        """End a queue: its rows are flushed, its position stays in the checkpoint for the case that it comes back.

        Of a queue that is lost nothing more is written: another instance has begun where it was committed.
        """
        run = self._runs.pop(queue)
        if lost:
            self._outlets.discard(queue)
        else:
            message = QueueRemoved(queue)
            self._outlets.deliver(run.lane.on_system(message))
            if not self._closing:
                self._entry("removed", queue, run.lane.take_shipments())
            self._outlets.on_system(message)
            self._checkpoint = replace(self._checkpoint, positions={**self._checkpoint.positions, queue: run.position})
        self._figures.finish(run)
        run.close()
        if not self._closing:
            self._broken.forget(queue)
        self._hooks.headrace_queue_removed(job=self.job_name, queue=queue)

    def assigned(self, queues: Iterable[Queue]) -> None:
        """The group gives this instance queues. Raises RetriableError when the server of one of them is away."""
        if self._state is JobState.FAILED:
            return
        for queue in queues:
            if queue not in self._runs:
                self._groups[queue.source].begin(self._checkpoint.positions)
                self._add(queue, appeared=False)
                # Where a queue begins is remembered soon: "latest" must be the same place after a crash.
                self._checkpoint_seconds = float("-inf")

    def revoked(self, queues: Iterable[Queue], *, lost: bool) -> None:
        """The group takes queues away. Unless they are lost already, their work is checkpointed first."""
        own = [queue for queue in queues if queue in self._runs]
        if self._state is JobState.FAILED:
            return  # rows may be missing in the sinks: nothing may be committed any more
        if own and not lost:
            self._make_checkpoint()
        for queue in own:
            self._remove(queue, lost=lost)
            self._groups[queue.source].forget(queue)

    # ------------------------------------------------------------------------------------------- checkpoints

    def _make_checkpoint(self, savepoints: Collection[OpenSavepoint] = ()) -> None:
        """Flush everything, then remember where each queue is, then tell the brokers."""
        begun = self._clock.monotonic()
        self._checkpoint_seconds = begun
        message = Checkpoint(self._checkpoint.id + 1)
        positions = dict(self._checkpoint.positions)
        for queue, run in self._runs.items():
            self._outlets.deliver(run.lane.on_system(message))
            positions[queue] = run.position
        sequence = None if self._keyed is None else self._keyed.sequence
        unchanged = positions == self._checkpoint.positions and sequence == self._checkpoint.sequence
        unchanged &= self._elastic is None or not self._elastic.changed
        if unchanged and not savepoints and not self._outlets_wait():
            self._commit_what_is_behind()
            return
        self._outlets.on_system(message)
        if self._elastic is not None and not (self._elastic.flush() and self._elastic.save()):
            return  # the broker is away: nothing is committed, and what is read again then is dropped where it was seen
        shards = {} if self._keyed is None else self._keyed.shard_counts
        made = self._plan.state_definitions, self._plan.output_digests, self._checkpoint.savepoint
        self._checkpoint = StoredCheckpoint(message.id, positions, sequence, shards, *made)
        fault_point("checkpoint.after_flush")
        if self._keyed is not None:
            self._keyed.save(message.id, savepoints)
            self._checkpoint = replace(self._checkpoint, states=self._keyed.states_stored())
        self._storing.until_stored(partial(self._directory.save, self._checkpoint))
        if self._keyed is not None:
            self._keyed.saved(message.id)
        fault_point("checkpoint.after_save")
        for source_id, node in self._plan.sources.items():
            own = {queue: run.position for queue, run in self._runs.items() if queue.source == source_id}
            if source_id in self._groups:
                self._groups[source_id].commit(own)
            elif isinstance(node.source, GroupSource):
                commit_without_group(source_id, node.source, own)
        self._hooks.headrace_checkpoint_completed(
            job=self.job_name, checkpoint_id=message.id, seconds=self._clock.monotonic() - begun
        )

    def _take_savepoints(self) -> None:
        """Write the savepoints that were asked for, of a checkpoint that is made for them."""
        if not self._savepoints.waiting:
            return
        savepoints = self._savepoints.begin(not_all_queues(self._plan, self._groups, self._runs))
        self._entry("tick")  # so that all shards have come to the same time
        self._make_checkpoint(savepoints)
        place = place_of(self._checkpoint, self._runs.values(), self._clock, stopped=self._stopping.is_set())
        for each in savepoints:
            each.finish(self._plan, place)

    def _commit_what_is_behind(self) -> None:
        for group in self._groups.values():
            if group.behind:
                group.commit({})

    def _outlets_wait(self) -> bool:
        return any(writer.waiting_rows() for writer in self._outlets.writers.values())

    # ---------------------------------------------------------------------------------------------- the end

    def _close_parts(self) -> None:
        """Give everything back after a failure or at the end; what fails here is told, not raised."""
        for run in self._runs.values():
            self._figures.finish(run)
        parts: list[Callable[[], None]] = [run.close for run in self._runs.values()]
        parts += [node.source.close for node in self._plan.sources.values()]
        parts.append(partial(self._outlets.close, flush=False))
        parts += [stages.close for stages in (self._keyed, self._elastic) if stages is not None]
        for close in parts:
            try:
                close()
            except Exception as error:  # the job has ended; what matters was made durable before
                logger.warning("job %s: while closing: %s", self.job_name, error)
        self._runs.clear()
