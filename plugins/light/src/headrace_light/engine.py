"""The engine: one thread that polls queues in turn, drives their lanes and the keyed stages, and makes checkpoints.

discover ─▶ poll a queue ─▶ its lane ─▶ outlets (sink caches) ─▶ … next queue … ─▶ checkpoint when due
                                  └──▶ keyed stages ─▶ outlets
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
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
from headrace.foundation.spared_objects import spare_the_collector, use_the_collector_again
from headrace.interfaces.backend import JobReport, JobState, JobStatus, RunOptions, event_time
from headrace.interfaces.metrics import CHECKPOINT_DURATION, CHECKPOINT_TIME
from headrace.interfaces.registry import default_registry
from headrace.interfaces.source import GroupSource
from headrace.plan.graph import Plan
from headrace.plan.outputs import tell_outputs
from headrace.runtime.lane import Lane
from headrace.runtime.outlets import Outlets
from headrace.runtime.patience import Patience
from headrace.runtime.progress import ProgressLine
from headrace.runtime.sources_in_use import SourcesInUse

from headrace_light import storing_behind
from headrace_light.beginnings import next_checkpoint, start_of, tell_all_stored
from headrace_light.checkpoint_directory import CheckpointDirectory, StoredCheckpoint
from headrace_light.groups import Assignments, Membership, check_memberships, goes_on_in_groups
from headrace_light.known_results import KnownResults
from headrace_light.lags import Lags
from headrace_light.memory_budget import budget_of
from headrace_light.pauses import Pauses
from headrace_light.polling import BATCH_RECORDS, Polling
from headrace_light.quarantine import Quarantine
from headrace_light.queue_run import QueueFigures, QueueRun, with_dead_letters
from headrace_light.savepoint_places import begin_at, not_all_queues, place_of, savepoint_start
from headrace_light.savepoint_requests import OpenSavepoint, SavepointRequests
from headrace_light.stages.interface import Host, Saving, Stages
from headrace_light.stages.none import NoStages
from headrace_light.stages.order_log import Entry
from headrace_light.storing import Storing

logger = logging.getLogger(__name__)
_NO_WAIT = timedelta(0)


class Engine:
    """Runs one plan. ``prepare`` and ``start`` are called once, by one thread; the rest from anywhere.

    ``make_stages`` makes the keyed stages of the plan, which continue from a checkpoint. It may be called again after a RetriableError.
    """

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        *,
        clock: Clock,
        retry_timeout: timedelta,
        idle_wait_max: timedelta,
        make_stages: Callable[[Host, StoredCheckpoint], Stages],
        workers: int = 1,
        memory_bytes_max: int = 0,
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
        #: The last lists of the sources whose lists do not change.
        self._listed: dict[str, Collection[Queue]] = {}
        self._lags = Lags(clock, options.discovery_interval)
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
        self._make_stages = make_stages
        #: Parts of the plan, after ``prepare`` has made them.
        self._stages: Stages = NoStages()
        self._known = KnownResults(plan, {}, {}, begins=False)
        self._savepoints = SavepointRequests(plan.job_name)
        self._behind = storing_behind.StoringBehind(plan.job_name)
        self._polling = Polling(
            plan,
            options,
            self._runs,
            self._broken,
            self._outlets.deliver,
            stages=lambda: self._stages,
            clock=clock,
            retry_seconds=self._retry_seconds,
            stopping=self._stopping,
            workers=workers,
            memory=budget_of(plan, memory_bytes_max, clock, self._outlets),
        )

    # ---------------------------------------------------------------------------------------- called by the handle

    def prepare(self) -> None:
        """Check and take sources and sinks, and lock the checkpoint directory: raises JobError before anything is read."""
        self._sources = SourcesInUse(self._plan)
        try:
            self._checkpoint = self._directory.open()
        except BaseException:
            self._sources.release()
            raise
        wait_for = self._patience.wait_for
        try:
            start, self._checkpoint = savepoint_start(self._plan, self._options, self._checkpoint)
            self._stages = wait_for("its state store", partial(self._make_stages, self._host(), self._checkpoint))
            in_group = self._options.until is None and not self._stages.in_checkpoint
            if in_group:
                check_memberships(self._plan)
            wait_for("its sources", partial(self._sources.begin, self._options.until))  # heard though a sink is away
            for name, node in self._plan.sinks.items():
                wait_for(f"sink {name}", partial(node.sink.prepare, node.schema))
            self._tell_outputs(goes_on=bool(self._checkpoint.id or start))
            for source_id, source_node in self._plan.sources.items():
                own = {q: p for q, p in self._checkpoint.positions.items() if q.source == source_id}
                source_node.source.restore(own)
                if isinstance(source_node.source, GroupSource) and source_node.source.joins_group and in_group:
                    member = partial(Membership, source_id, source_node.source, self._clock, self._retry_seconds)
                    self._groups[source_id] = wait_for(f"source {source_id}", member)
            wait_for("its sinks", self._outlets.open)
            wait_for("the broker of its shuffles", self._stages.open)
            if start is None:
                self._repeat_entries()
            else:
                self._checkpoint = begin_at(
                    start, self._checkpoint, self._stages, self._groups.values(), self._clock, wait_for
                )
                self._directory.save(self._checkpoint)
                self._stages.saved(self._checkpoint.id)
            self._polling.start()  # workers import while queues are opened, whose records are counted in a bounded run
            wait_for("its sources", partial(self._discover, first=True))
            self._stages.let_go_of_others({*self._runs, *self._broken.reasons()})
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
        """Ask for a savepoint. Raises JobError when the job has ended, or no savepoint of it can be taken."""
        self._stages.check_savepoint()
        return self._savepoints.ask(path)

    def stop(self) -> None:
        """Ask for a graceful stop."""
        self._stopping.set()

    def join(self, timeout: timedelta | None) -> bool:
        """Wait until the job has ended; return whether it has."""
        return self._ended.wait(None if timeout is None else timeout.total_seconds())

    def status(self) -> JobStatus:
        """Return the status at this moment; lags are as of the last check of the sources."""
        queues = self._broken.with_broken(self._figures.statuses(self._runs.values()))
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
            watermark=event_time(self._stages.watermark_us()),
            state_rows=self._stages.state_rows(),
            late_rows=self._stages.late_rows(),
            shards=self._stages.statuses(),
        )

    def report(self) -> JobReport:
        """Return the report of the job. Raises JobFailedError if it failed."""
        if self._error is not None:
            known = self._error if isinstance(self._error, HeadraceError) else HeadraceError(repr(self._error))
            made = JobFailedError(f"the job failed: {known.message}", job=self.job_name, hint=known.hint)
            made.queue, made.offset = known.queue, known.offset
            made.plugin, made.option = known.plugin, known.option
            raise made from self._error
        return JobReport.of(self.status())

    # ------------------------------------------------------------------------------------------ the engine's thread

    def _run(self) -> None:
        self._state = JobState.RUNNING
        self._hooks.headrace_job_started(job=self.job_name, backend="light")
        try:
            self._join()
            if self._options.until != "end":
                spare_the_collector(self)  # collections of what is there now would hold records up
            self._loop()
            self._take_savepoints()
            self._state = JobState.STOPPING
            if self._options.until == "end" and not self._stopping.is_set():
                self._broken.check_end(self.status())
                self._stages.end_input()
            self._make_checkpoint()
            for group in self._groups.values():
                group.leave()
            self._stages.leave()
            if not self._stopping.is_set():
                self._known.end(self._runs.values(), self._patience.wait_for)
            self._closing = True
            for queue in list(self._runs):
                self._remove(queue)
            self._outlets.close()
            self._state = JobState.STOPPED if self._stopping.is_set() else JobState.FINISHED
        except BaseException as error:  # whatever it is, it ends the job and is raised by wait()
            logger.debug("job %s failed", self.job_name, exc_info=True)
            self._error, self._state = error, JobState.FAILED
            if isinstance(error, MemoryError):
                traceback.clear_frames(error.__traceback__)  # objects in these frames are needed to end the job
        finally:
            use_the_collector_again(self)
            self._seconds = self._clock.monotonic() - self._begun
            self._savepoints.end(self._error)
            self._close_parts()
            self._directory.close()
            self._plan.meter.ended(self.status())
            self._progress.end(self.status())
            try:
                self._hooks.headrace_job_stopped(job=self.job_name, report=JobReport.of(self.status()))
            finally:
                self._ended.set()

    def _join(self) -> None:
        """Become a member of the groups. Waits for brokers that are not available, as at the start, unless the job is stopped."""
        try:
            for source_id, group in self._groups.items():
                join = partial(group.join, Assignments(source_id, self.assigned, self.revoked))
                self._patience.wait_for(f"the group of source {source_id}", join)
            self._stages.join(self._patience.wait_for)
        except RetriableError:
            if not self._stopping.is_set():
                raise

    def _loop(self) -> None:
        while not self._stopping.is_set():
            begun = self._clock.monotonic()
            # A single queue waits inside its reader, which wakes at once when a record comes.
            waits_in_reader = len(self._runs) == 1 and not self._groups and not self._polling.is_ahead
            progressed = self._polling.poll_all(self._pauses.inside() if waits_in_reader else _NO_WAIT)
            looked_seconds = self._clock.monotonic() - begun if waits_in_reader else 0.0
            if self._options.until == "end" and all(run.done for run in self._runs.values()):
                return
            progressed |= self._polling.take_ready(busy=progressed)
            progressed |= self._stages.poll()
            now = self._clock.monotonic()
            self._polling.tell_idle(now)
            self._stages.keep_up(idle=not progressed)
            for group in self._groups.values():
                group.poll(_NO_WAIT)
            if now - self._discovery_seconds >= self._options.discovery_interval.total_seconds():
                self._discover()
            due = now - self._checkpoint_seconds >= self._options.checkpoint_interval.total_seconds()
            if self._behind.settle(wait=False) and due:
                self._make_checkpoint(behind=True)
            self._take_savepoints()
            self._progress.show(self.status)
            if progressed:
                self._pauses.begin_anew()
            else:
                took = self._clock.monotonic() - begun if self._polling.takes_turns else 0.0
                self._rest(looked_seconds, took)

    def _rest(self, looked_seconds: float, round_seconds: float) -> None:
        """Pause before the next look."""
        if not self._stages.rest(self._pauses, self._rest_in_group):
            ticking = bool(self._groups) or self._stages.needs_clock
            self._pauses.rest(looked_seconds, ticking=ticking, round_seconds=round_seconds)

    def _rest_in_group(self) -> bool:
        """Wait in the group of the only source, which may know when a record comes; return whether it has waited."""
        is_only = len(self._groups) == len(self._plan.sources) == 1
        return is_only and self._pauses.rest_in(next(iter(self._groups.values())).poll)

    # --------------------------------------------------------------------------------------------- keyed stages

    def _host(self) -> Host:
        return Host(
            self._clock,
            self._directory.path,
            self._outlets,
            self._storing,
            self._retry_seconds,
            make_checkpoint=partial(self._make_checkpoint, behind=True),
        )

    def _tell_outputs(self, *, goes_on: bool) -> None:
        """Tell the sinks the definition of their rows. Raises JobError where that is not possible."""
        begins = self._stages.in_checkpoint and not (goes_on or self._directory.has_begun)
        before = self._checkpoint.outputs if goes_on else None
        tell = partial(tell_outputs, self._plan, before, begins=begins, replace=self._options.replace_output,
                       elsewhere=partial(goes_on_in_groups, self._plan))  # fmt: skip
        known = self._patience.wait_for("its sinks", tell)
        self._outlets.known = frozenset(known)
        self._known = KnownResults(self._plan, known, self._stages.shard_counts, begins=begins)

    def _repeat_entries(self) -> None:
        """Process again, in the same order, the input since the checkpoint: sinks drop the rows that they have."""
        wait_for = self._patience.wait_for
        for entry in self._stages.replay(self._checkpoint, wait_for):
            self._repeat(entry)
        write = self._options.sinks_ahead == "write"
        moved = self._stages.stand_behind_sinks(write=write, wait_for=wait_for)
        for queue, run in self._runs.items():
            reopen = partial(self._plan.sources[queue.source].source.open, queue, run.position)
            try:
                run.go_on_with(wait_for("its sources", reopen))
            except BrokenQueueError as error:
                run.broken = True
                self._broken.take(queue, error, run.position)
        if moved:
            self._make_checkpoint()

    def _repeat(self, entry: Entry) -> None:
        if entry.kind == "tick":
            self._stages.tick()
        elif entry.kind == "end":
            self._stages.end_input()
        elif entry.kind == "idle":
            self._stages.skip_idle(entry.of_queue)
        elif entry.kind == "awake":
            self._stages.wait_again(entry.of_queue)
        elif entry.kind == "read":
            self._repeat_reading(entry)
        elif entry.kind == "added" and entry.of_queue not in self._runs:
            self._patience.wait_for("its sources", partial(self._add, entry.of_queue, appeared=False))
        elif entry.kind == "removed" and entry.of_queue in self._runs:
            self._remove(entry.of_queue)

    def _repeat_reading(self, entry: Entry) -> None:
        queue, (start, end) = entry.of_queue, entry.range
        if queue not in self._runs:
            # It was added before the checkpoint.
            self._patience.wait_for("its sources", partial(self._add, queue, appeared=False, at=start))
        run = self._runs[queue]
        self._stages.log_read(queue, start, end)
        again = partial(run.read_again, start, end, self._options.batch_records(BATCH_RECORDS))
        self._outlets.deliver(self._patience.wait_for("its sources", again))
        self._stages.take(run.lane.take_shipments())

    # ---------------------------------------------------------------------------------------------- queues

    def _discover(self, *, first: bool = False) -> None:
        """Compare the queues that exist with those that are read. A bounded run reads only the queues that existed at its start."""
        self._discovery_seconds = self._clock.monotonic()
        self._lags.refresh(self._runs)
        if not first:
            self._stages.discover()
        if not first and self._options.until == "end":
            return
        for source_id, node in self._plan.sources.items():
            if source_id in self._groups:
                continue
            try:
                listed = node.source.queues()
                if listed is self._listed.get(source_id) and not self._broken:
                    continue  # the same immutable object: nothing was added or removed
                found = {replace(queue, source=source_id) for queue in listed}
                known = {queue for queue in self._runs if queue.source == source_id}
                self._broken.vanished(source_id, found, self._runs)
                self._polling.drain(known - found)
                for queue in sorted(known - found):
                    self._remove(queue)
                for queue in self._broken.due(sorted(found - known)):
                    self._add_if_whole(queue, appeared=not first)
                if isinstance(listed, tuple):
                    self._listed[source_id] = listed
            except (RetriableError, BrokenQueueError) as error:
                if first and isinstance(error, BrokenQueueError):
                    raise JobError(error.message, plugin=error.plugin or source_id, hint=error.hint) from error
                if first or (self._options.broken_queues == "stop" and isinstance(error, BrokenQueueError)):
                    raise
                logger.warning("source %s: %s", source_id, error.message)
        anew = {name for name, node in self._plan.sources.items() if node.source.begins_anew}
        if anew and any(q.source in anew and q not in self._checkpoint.positions for q in self._runs):
            self._make_checkpoint()  # before anything of such a queue is read: after a crash it begins at the same place

    def _add_if_whole(self, queue: Queue, *, appeared: bool) -> None:
        """Begin a queue; set it aside when it cannot be opened. One that is opened later is read from its first record."""
        try:
            self._add(queue, appeared=appeared or queue in self._broken)
        except BrokenQueueError as error:
            self._broken.take(queue, error, self._checkpoint.positions.get(queue))
        else:
            self._broken.mended(queue)

    def _add(self, queue: Queue, *, appeared: bool, at: ReadPosition | None = None) -> None:
        """Begin a queue. Raises RetriableError, and has done nothing then, when its server is away."""
        node = self._plan.sources[queue.source]
        stored, group = self._checkpoint.positions.get(queue), self._groups.get(queue.source)
        start = at or start_of(node, queue, stored, group, appeared=appeared, keyed=self._stages.in_checkpoint)
        reader = node.source.open(queue, start)
        try:
            lane = Lane(self._plan, node, queue, decode_columns=self._decode_columns[queue.source])
            run = QueueRun(queue, reader, lane, bounded=self._options.until == "end", clock=self._clock)
        except BaseException:
            reader.close()
            raise
        self._runs[queue] = run
        self._polling.begin(run)
        message = QueueAdded(queue)
        self._outlets.on_system(message)
        self._outlets.deliver(lane.on_system(message))
        run.heard_seconds = self._clock.monotonic()
        shipments = lane.take_shipments()
        if at is None:  # else it is already in the state
            self._stages.add_queue(queue, shipments)
        self._hooks.headrace_queue_added(job=self.job_name, queue=queue)

    def _remove(self, queue: Queue, *, lost: bool = False) -> None:
        """End a queue: its rows are flushed, and its position stays in the checkpoint in case the queue comes back.

        For a lost queue nothing more is written, because another instance has begun at its committed offset.
        """
        self._behind.settle(wait=True)  # positions of queues that are not read any more are in the checkpoint alone
        run = self._runs.pop(queue)
        self._polling.drop(run)
        if lost:
            self._outlets.discard(queue)
        else:
            message = QueueRemoved(queue)
            self._outlets.deliver(run.lane.on_system(message))
            if not self._closing:
                self._stages.remove_queue(queue, run.lane.take_shipments())
            self._outlets.on_system(message)
            if self._checkpoint.positions.get(queue) != run.position:  # of very many queues a copy is expensive
                positions = {**self._checkpoint.positions, queue: run.position}
                self._checkpoint = replace(self._checkpoint, positions=positions)
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
                # The begin of a queue is stored soon: "latest" must be the same position after a crash.
                self._checkpoint_seconds = float("-inf")

    def revoked(self, queues: Iterable[Queue], *, lost: bool) -> None:
        """The group takes queues away. Unless they are lost already, their work is checkpointed first."""
        own = [queue for queue in queues if queue in self._runs]
        if self._state is JobState.FAILED:
            return  # rows may be missing in the sinks: nothing may be committed any more
        if own and not lost:
            self._polling.drain(own)
            self._make_checkpoint()
        for queue in own:
            self._remove(queue, lost=lost)
            self._groups[queue.source].forget(queue)

    # ------------------------------------------------------------------------------------------- checkpoints

    def _make_checkpoint(self, savepoints: Collection[OpenSavepoint] = (), *, behind: bool = False) -> None:
        """Flush everything, then remember where each queue is, then tell the brokers. ``behind``: another thread may store a large one."""
        self._behind.settle(wait=True)
        begun = self._clock.monotonic()
        self._checkpoint_seconds = begun
        message = Checkpoint(self._checkpoint.id + 1)
        positions = dict(self._checkpoint.positions)
        for queue, run in self._runs.items():
            self._outlets.deliver(run.lane.on_system(message))
            positions[queue] = run.position
        unchanged = positions == self._checkpoint.positions and self._stages.sequence == self._checkpoint.sequence
        if unchanged and not self._stages.changed and not savepoints and not self._outlets_wait():
            self._commit_what_is_behind()
            self._plan.meter.set(CHECKPOINT_TIME, self._clock.now())
            return
        self._outlets.on_system(message)
        if not self._stages.flush():
            return  # the broker is not available: nothing is committed, and rows that are read again then are dropped where they are known
        made = next_checkpoint(self._checkpoint, self._plan, self._stages, message.id, positions)
        fault_point("checkpoint.after_flush")
        saving = self._stages.begin_save(message.id, savepoints, last=self._stopping.is_set())
        store = partial(self._store_checkpoint, made, saving)
        end = partial(self._end_checkpoint, begun, set(self._runs))
        # The first one is stored at once: without it, nothing else may be in the directory.
        if behind and self._checkpoint.id and saving.rows >= storing_behind.BEHIND_ROWS_MIN:
            self._stages.begin_next_log(message.id)
            self._behind.begin(store, end)
        else:
            end(store())

    def _store_checkpoint(self, made: StoredCheckpoint, saving: Saving) -> StoredCheckpoint:
        """Store the state, then the checkpoint that refers to it. May be called by another thread."""
        made = replace(made, states=saving.store())
        self._storing.until_stored(partial(self._directory.save, made))
        return made

    def _end_checkpoint(self, begun: float, queues: Collection[Queue], made: StoredCheckpoint) -> None:
        """A checkpoint is stored: remove older files, and commit to brokers. ``queues``: those that were read at that time."""
        self._checkpoint = made
        self._stages.saved(made.id)
        fault_point("checkpoint.after_save")
        tell_all_stored(self._plan, self._groups, {queue: made.positions[queue] for queue in queues})
        seconds = self._clock.monotonic() - begun
        self._plan.meter.observe(CHECKPOINT_DURATION, seconds)
        self._plan.meter.set(CHECKPOINT_TIME, self._clock.now())
        self._hooks.headrace_checkpoint_completed(job=self.job_name, checkpoint_id=made.id, seconds=seconds)

    def _take_savepoints(self) -> None:
        """Write the savepoints that were asked for, of a checkpoint that is made for them."""
        if not self._savepoints.waiting:
            return
        savepoints = self._savepoints.begin(not_all_queues(self._plan, self._groups, self._runs))
        self._stages.tick()  # so that all shards have reached the same time
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
        """Close everything after a failure or at the end; errors here are logged, not raised."""
        self._behind.close(self._stopping)
        for run in self._runs.values():
            self._figures.finish(run)
        parts: list[Callable[[], None]] = [run.close for run in self._runs.values()]
        parts += [node.source.close for node in self._plan.sources.values()]
        parts.append(partial(self._outlets.close, flush=False))
        parts.append(self._stages.close)
        parts.append(self._polling.close)
        for close in parts:
            try:
                close()
            except Exception as error:  # the job has ended; what matters was made durable before
                logger.warning("job %s: while closing: %s", self.job_name, error)
        self._runs.clear()
        self._sources.release()
