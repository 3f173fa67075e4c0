"""Planted bugs: each must be found. A mutation replaces a piece of headrace by one with a mistake that somebody could make.

``python -m tests.simulation mutations`` prints after how many seeds each was found.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
from headrace.flow.messages import OFFSET, Checkpoint, ReadPosition
from headrace.foundation import directories, durable_files
from headrace.foundation.durable_files import write_whole
from headrace.interfaces.source import LATEST
from headrace.runtime import shard, sink_writer
from headrace.runtime.outlets import Outlets
from headrace.runtime.shard import Shard
from headrace.runtime.sink_writer import SinkWriter
from headrace_buffer import log, segment
from headrace_buffer.log import RecordLog
from headrace_buffer.segment import Segment
from headrace_file.queue_state import QueueState
from headrace_lease import keeper
from headrace_lease.keeper import LeaseKeeper
from headrace_lease.leases import Lease
from headrace_light import checkpoint_directory, engine, state_directory
from headrace_light.checkpoint_directory import CheckpointDirectory
from headrace_light.engine import Engine
from headrace_light.queue_run import QueueRun
from headrace_light.shared.membership import ShardMembership
from headrace_light.shared.restore import ShardRestore
from headrace_light.shared.stages import SharedStages
from headrace_light.shared.transport import Transport
from headrace_light.stages.local import LocalStages
from headrace_light.stages.order_log import OrderLog
from headrace_light.stages.shard_storage import ShardStorage

from tests.simulation.changed_mutations import OF_CHANGES
from tests.simulation.connector_mutations import OF_CONNECTORS
from tests.simulation.mutations_beside import BESIDE_STREAMS
from tests.simulation.planting import Mutation, in_place_of
from tests.simulation.recent_mutations import RECENT


@contextmanager
def _all(*mutations: Mutation) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for each in mutations:
            stack.enter_context(each())
        yield


def _no_flush(on_system: Any) -> Any:
    return lambda self, message: None if isinstance(message, Checkpoint) else on_system(self, message)


def _saved_late(save: Any) -> Any:
    """The state is stored when the checkpoint is: ``save`` only says what it would store."""

    def late(self: Any, checkpoint_id: int, savepoints: Any, *, last: bool = False) -> Any:
        self.__dict__["owed"] = partial(save, self, checkpoint_id, savepoints, last=last)
        return None

    return late


def _pay(saved: Any) -> Any:
    def late(self: Any, checkpoint_id: int) -> None:
        owed = self.__dict__.pop("owed", None)
        if owed is not None:
            owed()
        saved(self, checkpoint_id)

    return late


def _written_without_sync(path: Any, content: bytes, *, private: bool = True) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    write_whole(descriptor, content)
    os.close(descriptor)


def _replaced_in_place(path: Path, content: bytes, **_: Any) -> None:
    durable_files.write_durably(path, content)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _by_offset_alone(known: Any) -> Any:
    def dropped(self: Any, frame: pl.DataFrame, seen: Any) -> pl.DataFrame:
        return frame if seen is None else frame.filter(pl.col(OFFSET) > seen.offset)

    return dropped


def _from_the_same_on(known: Any) -> Any:
    def dropped(self: Any, frame: pl.DataFrame, seen: Any) -> pl.DataFrame:
        return frame if seen is None else frame.filter(pl.col(OFFSET) >= seen.offset)

    return dropped


def _one_later(save: Any) -> Any:
    """The stored position of a queue is one behind the one that was read to."""

    def moved(self: Any, checkpoint: Any) -> None:
        positions = {queue: ReadPosition(at.offset + 1) for queue, at in checkpoint.positions.items()}
        save(self, replace(checkpoint, positions=positions))

    return moved


def _told_first(make_checkpoint: Any) -> Any:
    """The source is told what is stored before it is."""

    def early(self: Any, savepoints: Any = ()) -> None:
        for source_id, node in self._plan.sources.items():
            node.source.stored({queue: run.position for queue, run in self._runs.items() if queue.source == source_id})
        make_checkpoint(self, savepoints)

    return early


def _failure_lost(flush: Any) -> Any:
    def swallowed(self: Any, *arguments: Any, **options: Any) -> None:
        with contextlib.suppress(Exception):
            flush(self, *arguments, **options)
        self._failure = None

    return swallowed


#: Those that histories of one instance must find.
OF_ONE: Mapping[str, Mutation] = {
    "checkpoint without flush: positions are stored, rows wait in the caches": in_place_of(
        Outlets, "on_system", _no_flush
    ),
    "source told before the checkpoint is stored": in_place_of(Engine, "_make_checkpoint", _told_first),
    "state stored after the checkpoint": lambda: _all(
        in_place_of(LocalStages, "save", _saved_late), in_place_of(LocalStages, "saved", _pay)
    ),
    "stored positions one too far": in_place_of(CheckpointDirectory, "save", _one_later),
    "fsync of state files left out": in_place_of(state_directory, "write_durably", lambda _: _written_without_sync),
    "fsync of checkpoint.json left out": in_place_of(durable_files, "write_durably", lambda _: _written_without_sync),
    "checkpoint.json written in place": in_place_of(
        checkpoint_directory, "replace_durably", lambda _: _replaced_in_place
    ),
    "directory of state files not synced": in_place_of(state_directory, "sync_directory", lambda _: _nothing),
    "new directories not synced": in_place_of(directories, "sync_directory", lambda _: _nothing),
    "order log not written": in_place_of(OrderLog, "add", lambda _: _nothing),
    "half a line left in the order log": in_place_of(OrderLog, "_drop_torn_line", lambda _: _nothing),
    "known rows not dropped": in_place_of(SinkWriter, "_without_replayed", lambda _: lambda self, frame, seen: frame),
    "known rows told by offset alone": in_place_of(SinkWriter, "_without_replayed", _by_offset_alone),
    "rows of the last known offset not dropped": in_place_of(SinkWriter, "_without_replayed", _from_the_same_on),
    "a failed flush is forgotten": in_place_of(SinkWriter, "_flush_shard", _failure_lost),
    "entries numbered as before after the power failed": in_place_of(
        LocalStages, "_skip_lost_entries", lambda _: lambda self: False
    ),
    "order log begun before the first checkpoint of a savepoint": in_place_of(
        LocalStages, "begin_at", lambda given: _log_first(given)
    ),
    "watermark five seconds too far": in_place_of(shard, "watermark_times", lambda times: _five_seconds_on(times)),
    "last entry of the order log not repeated": in_place_of(
        OrderLog, "entries", lambda entries: _all_but_last(entries)
    ),
    "a queue that appears is read from its end": in_place_of(engine, "start_of", lambda start: _from_its_end(start)),
    "insertions of a queue overlap": in_place_of(sink_writer, "_ShardCache", lambda cache: _without_insert_lock(cache)),
    "checksums of states not compared": in_place_of(ShardStorage, "_check", lambda _: _taken_as_it_is),
    "no checksum of states compared, neither theirs nor the checkpoint's": lambda: _all(
        in_place_of(ShardStorage, "_check", lambda _: _taken_as_it_is),
        in_place_of(shard, "unsealed", lambda _: lambda content, what: content[:-8]),
    ),
    "checksum of the checkpoint not compared": in_place_of(checkpoint_directory, "_check", lambda _: _nothing),
    "a source is told of records that were only read": in_place_of(
        engine, "tell_stored", lambda tell: _told_too_much(tell)
    ),
    "part of a killed writer not shown": in_place_of(QueueState, "_recover", lambda given: _unfinished(given)),
    "note of a commit believed without its part": in_place_of(
        QueueState, "_is_lost", lambda _: lambda self, slot: False
    ),
    "fsync of part files left out": in_place_of(QueueState, "__init__", lambda given: _without_fsync(given)),
    "deltas of a shard asked for twice": in_place_of(Shard, "delta", lambda given: _twice(given)),
    "records read again are one fewer": in_place_of(QueueRun, "read_again", lambda given: _one_fewer(given)),
}


#: Those that histories of checkpoints that rot must find.
OF_ROT = (
    "checksums of states not compared",
    "no checksum of states compared, neither theirs nor the checkpoint's",
    "checksum of the checkpoint not compared",
)
#: Those that histories of several instances must find.
OF_INSTANCES: Mapping[str, Mutation] = {
    "groups told before the state of shards is stored": in_place_of(
        SharedStages, "flush", lambda given: _told_before(given)
    ),
    "positions committed before rows for shards are durable": in_place_of(
        Transport, "flush", lambda flush: lambda self: True
    ),
    "a shard begins one behind its state": in_place_of(ShardRestore, "begin", lambda given: _at_committed(given)),
    "a shard takes rows that it has": in_place_of(shard, "_after", lambda _: lambda frame, position: frame),
    "a topic of a shuffle trimmed one too far": in_place_of(Transport, "trim", lambda given: _trimmed_too_far(given)),
    "a shard that failed goes on": in_place_of(ShardMembership, "begin_again", lambda _: _nothing),
}
#: Those that histories of a buffer must find.
OF_BUFFERS: Mapping[str, Mutation] = {
    "buffer: fdatasync left out": in_place_of(segment, "_datasync", lambda _: _nothing),
    "buffer: its directory not synced at the start": in_place_of(log, "sync_directory", lambda _: _nothing),
    "buffer: records behind a segment that was begun": in_place_of(
        RecordLog, "_begin_segment", lambda begin: _begun_forgotten(begin)
    ),
    "buffer: an unfinished block not cut": in_place_of(Segment, "take_back", lambda _: _nothing),
    "buffer: segments removed before the trim is stored": in_place_of(
        RecordLog, "_save", lambda save: _removed_first(save)
    ),
}
#: Those that histories of leases must find.
OF_LEASES: Mapping[str, Mutation] = {
    "lease: a write is not guarded": in_place_of(Lease, "guard", lambda _: _nothing),
    "lease: its loss is not told": in_place_of(LeaseKeeper, "renew_once", lambda renew: _not_told(renew)),
    "lease: renewed too seldom": in_place_of(keeper, "_RENEWALS_PER_DURATION", lambda _: 0.4),
}
#: By the kind of histories that must find them, as the options call it; "one": those of one instance.
BY_KIND: Mapping[str, Mapping[str, Mutation]] = {
    "one": {
        **{name: each for name, each in OF_ONE.items() if name not in OF_ROT},
        **RECENT["one"],
        **BESIDE_STREAMS["one"],
    },
    "rot": {name: OF_ONE[name] for name in OF_ROT},
    "instances": {**OF_INSTANCES, **RECENT["instances"], **BESIDE_STREAMS["instances"]},
    "connectors": {**OF_CONNECTORS, **RECENT["connectors"]},
    "workers": RECENT["workers"],
    "changes": OF_CHANGES,
    "buffers": OF_BUFFERS,
    "leases": OF_LEASES,
}
MUTATIONS: Mapping[str, Mutation] = {name: each for group in BY_KIND.values() for name, each in group.items()}


def _not_told(renew: Any) -> Any:
    def quietly(self: Any) -> None:
        renew(self)
        self.lost.clear()

    return quietly


def _begun_forgotten(begin: Any) -> Any:
    def forgotten(self: Any, first: int) -> Any:
        try:
            return begin(self, first)
        finally:
            self._begun = None

    return forgotten


def _removed_first(save: Any) -> Any:
    def early(self: Any) -> None:
        self._remove_forgotten()
        save(self)

    return early


def _told_before(flush: Any) -> Any:
    def early(self: Any) -> bool:
        for run in self._members.runs:
            run.saved = run.position
        self._members.commit()
        return bool(flush(self))

    return early


def _at_committed(begin: Any) -> Any:
    def later(self: Any, name: str, queue: Any) -> Any:
        run = begin(self, name, queue)
        latest = run._reader.latest
        if run.saved is not None and latest > run.position.offset:
            run.position = ReadPosition(run.position.offset + 1)
            run._reader.seek(run.position)
        return run

    return later


def _trimmed_too_far(trim: Any) -> Any:
    return lambda self, shard, *, before: trim(self, shard, before=before + 1)


def _five_seconds_on(times: Any) -> Any:
    return lambda frame: times(frame) + 5_000_000


def _all_but_last(entries: Any) -> Any:
    return lambda self, checkpoint_id: iter(list(entries(self, checkpoint_id))[:-1])


def _from_its_end(start: Any) -> Any:
    def latest(*arguments: Any, appeared: bool, **options: Any) -> Any:
        return LATEST if appeared else start(*arguments, appeared=appeared, **options)

    return latest


def _without_insert_lock(cache: Any) -> Any:
    def made(*arguments: Any, **options: Any) -> Any:
        shard = cache(*arguments, **options)
        shard.insert_lock = contextlib.nullcontext()
        return shard

    return made


def _taken_as_it_is(self: Any, name: str, waiting: list[Any], number: int, checksum: str) -> None:
    if waiting:
        del waiting[0]


def _told_too_much(tell: Any) -> Any:
    def told(source_id: str, source: Any, own: Any) -> None:
        tell(source_id, source, {queue: ReadPosition(at.offset + 1) for queue, at in own.items()})

    return told


def _log_first(begin: Any) -> Any:
    def early(self: Any, states: Any, checkpoint_id: int, sequence: int, wait_for: Any) -> None:
        begin(self, states, checkpoint_id, sequence, wait_for)
        self._log.begin(checkpoint_id)

    return early


def _unfinished(recover: Any) -> Any:
    def left(self: Any, descriptor: int) -> Any:
        with patch.object(self, "_rename", _nothing):
            return recover(self, descriptor)

    return left


def _without_fsync(init: Any) -> Any:
    return lambda self, *arguments, **options: init(self, *arguments, **{**options, "fsync": False})


def _twice(delta: Any) -> Any:
    def again(self: Any) -> Any:
        delta(self)
        return delta(self)

    return again


def _one_fewer(again: Any) -> Any:
    def shorter(self: Any, start: ReadPosition, end: ReadPosition, max_records: int) -> Any:
        if end.offset - start.offset < 2:
            return again(self, start, end, max_records)
        made = again(self, start, ReadPosition(end.offset - 1), max_records)
        self.position = end
        return made

    return shorter
