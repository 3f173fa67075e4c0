"""Planted bugs in what came lately: worker processes, checkpoints stored behind, shared flush threads, states in topics, and what the
world has found itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from headrace.interfaces.sink import StaleWriterError
from headrace.runtime import sink_writer
from headrace.runtime.shard import Shard
from headrace.runtime.sink_writer import SinkWriter
from headrace_kafka.shared_consumer import SharedConsumer
from headrace_light import engine, known_results
from headrace_light.checkpoint_directory import CheckpointDirectory
from headrace_light.engine import Engine
from headrace_light.queue_run import QueueRun
from headrace_light.shared import topic_state
from headrace_light.shared.topic_state import TopicStateStore
from headrace_light.shared.transport import Transport
from headrace_light.stages.local import LocalStages
from headrace_light.stages.order_log import OrderLog
from headrace_light.stages.shard_storage import ShardStorage
from headrace_light.workers.lane_workers import LaneWorkers
from headrace_light.workers.reading_ahead import ReadingAhead

from tests.simulation.planting import Mutation, in_place_of


def _left(replaced: Any) -> Any:
    """What a worker that died was given counts as done."""

    def forgets(self: Any, worker: Any) -> None:
        from headrace_light.workers.exchange import Outcome

        for _, _, work in worker.waiting:
            work.outcome = Outcome()
        worker.waiting.clear()
        replaced(self, worker)

    return forgets


def _as_answered(take_ready: Any) -> Any:
    """Results are taken as they come, not in the order of reading."""

    def taken(self: Any, *arguments: Any) -> bool:
        done = [each for each in self._ahead if each.work.outcome is not None]
        rest = [each for each in self._ahead if each.work.outcome is None]
        self._ahead.clear()
        self._ahead.extend([*done, *rest])
        return bool(take_ready(self, *arguments))

    return taken


def _told_where_it_is(end: Any) -> Any:
    """Sources are told where queues are when a checkpoint is stored, not where they were when it began."""

    def ended(self: Any, begun: float, queues: Any, made: Any) -> None:
        now = {queue: run.position for queue, run in self._runs.items()}
        told = vars(engine)["tell_all_stored"]
        with contextlib.ExitStack() as stack:
            moved = lambda plan, groups, positions: told(plan, groups, {**positions, **now})  # noqa: E731
            stack.enter_context(patch.object(engine, "tell_all_stored", moved))
            end(self, begun, queues, made)

    return ended


def _stored_where_it_is(store: Any) -> Any:
    """Positions are those of the moment at which the checkpoint is written."""

    def stored(self: Any, made: Any, saving: Any) -> Any:
        states = saving.store()
        now = {queue: run.position for queue, run in self._runs.items()}
        made = replace(made, states=states, positions={**made.positions, **now})
        self._storing.until_stored(partial(self._directory.save, made))
        return made

    return stored


def _without_failure(cache: Any) -> Any:
    class Forgetful(cache):  # type: ignore[misc]
        """Never knows that rows were not stored."""

        @property
        def failure(self) -> None:
            return None

        @failure.setter
        def failure(self, error: Any) -> None:
            pass

    return Forgetful


def _waits_first(retrying: Any) -> Any:
    """A writer that was shut out waits before it tries again, as the other one does."""

    def shut_out(self: Any, action: Any, queue: Any) -> Any:
        once = partial(action, again=False) if getattr(action, "__name__", "") == "insert" else action
        return retrying(self, once, queue)

    return shut_out


def _all_parts_taken(versions: Any) -> Any:
    """A version of which parts are missing counts as whole."""

    def found(self: Any, shard: str, begin: int, end: int) -> Any:
        known: dict[str, Any] = {}
        for _, record in self._records(shard, begin, end):
            if record["id"] not in known:
                known[record["id"]] = topic_state._Version(
                    int(record["version"]), record["base"], record["snapshot"], record["packing"], [], record["parts"]
                )
            known[record["id"]].parts.append(record["content"])
        return known

    return found


def _stale_is_done(insert: Any) -> Any:
    """Who finds that another writer was here takes its rows for stored."""

    def inserted(self: Any, shard: Any, frame: Any) -> None:
        if "batch_insert" not in vars(self.sink):
            store = self.sink.batch_insert

            def stored(batch: Any) -> None:
                with contextlib.suppress(StaleWriterError):
                    store(batch)

            self.sink.batch_insert = stored
        insert(self, shard, frame)

    return inserted


def _nothing(*_: Any, **__: Any) -> None:
    return None


#: Those of histories of one instance, of workers, of several instances, and of connectors.
RECENT: Mapping[str, Mapping[str, Mutation]] = {
    "one": {
        "checkpoint behind: sources are told where queues are by then": in_place_of(
            Engine, "_end_checkpoint", _told_where_it_is
        ),
        "checkpoint behind: positions of the moment when it is written": in_place_of(
            Engine, "_store_checkpoint", _stored_where_it_is
        ),
        "checkpoint behind: no order log of its own": in_place_of(LocalStages, "begin_next_log", lambda _: _nothing),
        "a removed queue's rows go without a flush": in_place_of(SinkWriter, "_drop", lambda drop: SinkWriter.discard),
        "old versions of a state stay": in_place_of(ShardStorage, "remove_old", lambda _: _nothing),
        "who finds another writer takes its rows for stored": in_place_of(
            SinkWriter, "_insert_retrying", _stale_is_done
        ),
        "old order logs stay": in_place_of(OrderLog, "begin", lambda begin: _keeping_files(begin)),
        "a lock stays open": in_place_of(CheckpointDirectory, "close", lambda _: _nothing),
        "a version of a shard without its last delta": in_place_of(Shard, "apply", lambda apply: _every_second(apply)),
    },
    "workers": {
        "workers: batches of one that died are not done": in_place_of(LaneWorkers, "_replace", _left),
        "workers: results are taken as they come": in_place_of(ReadingAhead, "take_ready", _as_answered),
        "workers: batches that are given back are forgotten": in_place_of(QueueRun, "take_back", lambda _: _nothing),
        "workers: nothing is drained before a queue goes": in_place_of(ReadingAhead, "drain", lambda _: _nothing),
    },
    "instances": {
        "state topic: versions that lack parts are taken": in_place_of(TopicStateStore, "_versions", _all_parts_taken),
        "topics of shuffles are not trimmed": in_place_of(Transport, "trim", lambda _: _nothing),
    },
    "connectors": {
        "a sink that is away at the end is not told later": in_place_of(
            known_results, "tell_completed", lambda tell: _told_once(tell)
        ),
        "rows behind those that failed are stored": in_place_of(sink_writer, "_ShardCache", _without_failure),
        "two writers shut each other out": in_place_of(SinkWriter, "_retrying", _waits_first),
        "kafka: a consumer that forgot the brokers stays": in_place_of(
            SharedConsumer, "_begin_anew", lambda _: _nothing
        ),
    },
}


def _keeping_files(begin: Any) -> Any:
    def begun(self: Any, checkpoint_id: int) -> None:
        with patch.object(Path, "unlink", _nothing):
            begin(self, checkpoint_id)

    return begun


def _told_once(tell: Any) -> Any:
    return lambda plan, read, wait_for: tell(plan, read, lambda what, call: call())


def _every_second(apply: Any) -> Any:
    def applied(self: Any, state: bytes) -> None:
        counted = self.__dict__.get("applied", 0)
        self.__dict__["applied"] = counted + 1
        if counted != 1:
            apply(self, state)

    return applied
