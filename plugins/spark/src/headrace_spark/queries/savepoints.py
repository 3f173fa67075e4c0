"""Savepoints of a job on Spark: of its last completed micro-batch, and as the beginning of another job."""

from __future__ import annotations

import logging
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.flow.messages import Queue
from headrace.foundation.clock import Clock
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.backend import RunOptions
from headrace.plan.graph import Plan
from headrace.runtime.savepoint_start import SavepointStart
from headrace.runtime.savepoints import Place, SavepointWriter
from headrace.runtime.shard_states import StageStates

from headrace_spark.checkpoints.checkpoint import SparkCheckpoint
from headrace_spark.checkpoints.offsets import JobIdentity, JobOffsets
from headrace_spark.queries.frame_savepoints import add_spark_files, sources_in_order
from headrace_spark.queries.numbering import opened
from headrace_spark.queries.savepoint_offsets import offsets_at
from headrace_spark.shards.shard_state import StateVersion
from headrace_spark.shards.topology import Address
from headrace_spark.transit.payload import KeyedPlan

if TYPE_CHECKING:
    from headrace_spark.queries.query import StartedQuery

logger = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1
#: How often a savepoint is tried again because the job has removed files that were still to be read.
_TRIES = 5


def take_savepoint(
    plan: Plan,
    started: StartedQuery,
    path: str | os.PathLike[str],
    clock: Clock,
    timeout: timedelta,
    ended: threading.Event,
    *,
    stopped: bool,
) -> Path:
    """Write a savepoint of the last completed micro-batch of a running query. Called by the handle, in any thread.

    Nothing is paused: the files of a completed micro-batch stay until a snapshot after the next one. Raises CheckpointError,
    TimeoutError when no micro-batch is completed in time.
    """
    deadline = clock.monotonic() + timeout.total_seconds()
    for left in range(_TRIES, 0, -1):
        at = _completed(started, clock, deadline, ended)
        writer = SavepointWriter(path)
        try:
            return _written(plan, started, at, writer, stopped=stopped)
        except _Outrun as error:
            writer.abandon()
            if left == 1:
                raise CheckpointError(str(error), job=plan.job_name, option="savepoint", hint="try again") from error
        except BaseException:
            writer.abandon()
            raise
    raise AssertionError("the last try returns or raises")


class _Outrun(Exception):
    """The job has removed files that had not been read yet."""


def _completed(
    started: StartedQuery, clock: Clock, deadline: float, ended: threading.Event
) -> tuple[int | None, JobOffsets]:
    """Return the last completed micro-batch and where it ends; wait for the first one of a job with keyed stages."""
    while True:
        found = started.checkpoint.completed()
        if found is not None:
            return found
        beginning = started.payload.beginning
        if started.payload.keyed is None and started.payload.frames is None and beginning is not None:
            return None, JobOffsets.from_json(beginning)
        if clock.wait(ended, _LOOK_SECONDS):
            raise CheckpointError(
                "the job has ended before it completed a micro-batch",
                job=started.payload.identity.job,
                option="savepoint",
            )
        if clock.monotonic() >= deadline:
            raise TimeoutError(f"job {started.payload.identity.job} has not completed a micro-batch yet")


def _written(
    plan: Plan, started: StartedQuery, at: tuple[int | None, JobOffsets], writer: SavepointWriter, *, stopped: bool
) -> Path:
    batch_id, offsets = at
    payload, sequence = started.payload, None
    if payload.frames is not None:
        assert batch_id is not None, "how far DataFrames were read is known after a micro-batch"
        checkpoint = started.checkpoint
        payload = payload.of_query(str(checkpoint.query_id()))
        assert payload.frames is not None
        sequence = payload.frames.base + batch_id
        add_spark_files(checkpoint, batch_id, writer, sources_in_order(checkpoint.frames(), plan))
    positions = {**offsets.gone, **offsets.queues}
    marks, keyed = offsets.keyed, payload.keyed
    if marks is None or keyed is None or batch_id is None:
        now_us = int(time.time() * 1_000_000)
        return writer.finish(plan, "spark", Place(positions, sequence, time_us=now_us, stopped=stopped))
    for shuffle in plan.shuffles:
        stage = StageStates(plan, shuffle)
        for number in range(marks.shards):
            chain = keyed.chain(Address(shuffle, number))
            try:
                versions = [state for state, _ in chain.after(StateVersion(), batch_id + 1)]
            except CheckpointError as error:
                raise _Outrun(error.message) from error
            writer.add_state(shuffle, number, stage.whole(versions))
    shards = dict.fromkeys(plan.shuffles, marks.shards)
    sequence = marks.base + batch_id if sequence is None else sequence
    place = Place(positions, sequence, shards, marks.idle, marks.time_us, stopped)
    return writer.finish(plan, "spark", place)


def shards_wanted(given: int | None, start: SavepointStart | None) -> int | None:
    """Return the number of shards that is asked for: without one, that of the savepoint."""
    if given is not None or start is None:
        return given
    return max(start.savepoint.place.shards.values(), default=None)


def begin_at(
    start: SavepointStart,
    plan_bytes: bytes,
    checkpoint: SparkCheckpoint,
    keyed: KeyedPlan | None,
    identity: JobIdentity,
    options: RunOptions,
) -> None:
    """Write the state and positions of a savepoint into an empty checkpoint, as the state before its first micro-batch.

    Does nothing if the job has already begun at that savepoint. Raises CheckpointError if it has begun in another way.
    """
    has_begun, before = checkpoint.savepoint()
    if before is not None and before == start.savepoint.id:
        return
    if has_begun:
        raise CheckpointError(
            f"the checkpoint {options.checkpoint!r} belongs to a job that has already started, and not from the savepoint "
            f"{options.from_savepoint!r}",
            job=identity.job,
            option="from_savepoint",
            hint="start from a savepoint with an empty checkpoint directory; to continue from the checkpoint, leave out from_savepoint",
        )
    shards = {} if keyed is None else dict.fromkeys(start.plan.shuffles, keyed.shards)
    start.tell(shards)
    now_us = int(time.time() * 1_000_000)
    sinks = {name: node.sink for name, node in start.plan.sinks.items()}
    with opened(plan_bytes) as asked:
        sequence = start.sequence_before({**sinks, **asked}, shards, now_us)
    known: set[Queue] = set()
    for shuffle, number, state in start.states(shards):
        assert keyed is not None
        keyed.chain(Address(shuffle, number)).begin(state)
        known |= {Queue(each[0], each[1]) for each in StageStates(start.plan, shuffle).unpacked(state)["upstreams"]}
    checkpoint.begin_at(start.savepoint.id, offsets_at(start, keyed, identity, sequence, now_us, known))
