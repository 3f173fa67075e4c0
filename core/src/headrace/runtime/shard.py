"""The shard: one of the hash partitions behind a shuffle, with its lane and its state.

A shard gets *entries* in order. An entry is a numbered unit of input. If it is processed again after a crash, it has
exactly the same input: a poll that is written to an order log (light), a micro-batch (Spark), or a message of a
shuffle topic. The output of an entry depends only on the input so far. It has the number of the entry as offset, so
sinks and the next shards drop rows that they have already seen.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.flow.messages import (
    INDEX,
    OFFSET,
    Batch,
    Checkpoint,
    EndOfInput,
    Position,
    Queue,
    QueueAdded,
    Tick,
    Watermark,
    position_of,
    watermark_column,
    watermark_times,
    with_column,
)
from headrace.foundation.checksums import unsealed
from headrace.foundation.errors import CheckpointError, HeadraceError
from headrace.interfaces.operator import Operator, PartedOperator
from headrace.plan.graph import Plan, ShuffleNode
from headrace.plan.state_check import StateFit
from headrace.runtime.lane import Delivery, Lane, Shipment, entry_positions
from headrace.runtime.lane_figures import LaneFigures
from headrace.runtime.shuffle import ShardMessage
from headrace.runtime.state_frames import map_header

if TYPE_CHECKING:
    import polars as pl

    from headrace.interfaces.frozen_state import FrozenState
    from headrace.interfaces.local_store import Epoch, LocalStore, LocalTable
    from headrace.interfaces.mapped_memory import MappedMemory
    from headrace.interfaces.operator import SpillingOperator
    from headrace.interfaces.state_parts import Fetch, Restore

FORMAT_VERSION = 1
#: The format of ``headrace.interfaces.state_parts``.
FORMAT_VERSION_IN_PARTS = 2
_NEVER = -(2**63)


@dataclass
class _Upstream:
    """What is known of one upstream queue, per side."""

    last: Position | None = None
    watermark_us: int = _NEVER
    idle: bool = False


@dataclass
class ShardOutput:
    """The output of an entry."""

    deliveries: list[Delivery] = field(default_factory=list)
    shipments: list[Shipment] = field(default_factory=list)


class Shard:
    """Drives the lane behind a shuffle for one shard. Not thread-safe; made by a backend."""

    def __init__(self, plan: Plan, shuffle_id: str, number: int) -> None:
        node = plan.nodes[shuffle_id]
        assert isinstance(node, ShuffleNode)
        self.queue = Queue(str(number), shuffle_id)
        self.number = number
        self._side_names = node.side_names
        self._lane = Lane(plan, node, self.queue)
        self._figures = LaneFigures(plan.meter, shuffle_id) if plan.meter.enabled else None
        self._entry_rows = 0
        #: Of operators that are closed.
        self._late_rows = 0
        self._upstreams: dict[tuple[Queue, int], _Upstream] = {}
        self._watermark_us = _NEVER
        self._told_us = _NEVER
        self._touched = False
        self._output = ShardOutput()
        self._collect(self._lane.on_system(QueueAdded(self.queue)))
        self._opening = self._output
        self._fit = StateFit.of(plan, {name: plan.nodes[name] for name in self._lane.stateful_operators})
        self._restore: Restore | None = None
        #: How many rows the stored state has about, while it is restored.
        self._rows_about = 0
        #: Operators with a limit for their memory, each with its part of the local store.
        self._spilling: dict[str, tuple[SpillingOperator, LocalTable]] = {}
        self._local_place = ""
        #: Operators whose state is in mapped files: not there after a restart, so every version is applied.
        self._maps = False

    @property
    def operators(self) -> Mapping[str, Operator]:
        """The operators by node id, to inspect their state. Only the shard calls their other methods."""
        return self._lane.operators

    # ------------------------------------------------------------------------------------------------- entries

    def process(
        self, sequence: int, time_us: int, messages: Iterable[ShardMessage], *, end_of_input: bool = False
    ) -> ShardOutput:
        """Process one entry. ``sequence`` grows from entry to entry; ``time_us`` is the time when the entry was first read.

        With ``end_of_input`` the run ends: after the messages all windows, joins and timers are closed.
        """
        self._touched = True
        begun = 0.0 if self._figures is None else self._figures.now()
        self._entry_rows = 0
        self._output, self._opening = self._opening, ShardOutput()
        self._lane.begin_entry(sequence)
        self._system(Tick(time_us))
        for message in messages:
            self._take(message)
        if end_of_input:
            self._system(EndOfInput())
        output = self._finished(sequence)
        if self._figures is not None:
            self._figures.entry(self.queue, sequence, self._entry_rows, begun)
        return output

    def _take(self, message: ShardMessage) -> None:
        place = (message.queue, message.side)
        if message.kind == "removed":
            self._upstreams.pop(place, None)
            self._advance()
            return
        upstream = self._upstreams.setdefault(place, _Upstream())
        if message.kind == "idle":
            upstream.idle = True
            self._advance()
        elif message.kind == "added":
            # It was idle when the job was stopped: records that arrived since must not be late because others are read first.
            upstream.idle = False
        elif message.kind == "watermark":
            assert message.time_us is not None
            self._end_idleness(message.queue)
            upstream.watermark_us = max(upstream.watermark_us, message.time_us)
            self._advance()
        elif message.kind == "rows":
            assert message.frame is not None
            self._end_idleness(message.queue)
            frame = _after(message.frame, upstream.last)
            self._entry_rows += frame.height
            if frame.height:
                upstream.last = position_of(frame, -1)
                frame = self._with_watermarks(frame, place, upstream)
                batch = Batch(self.queue, frame, self._side_names[message.side])
                self._collect(self._lane.process_batch(batch))

    def _end_idleness(self, queue: Queue) -> None:
        """Wait for a queue again, on all sides: of a stream that is joined with itself, the same rows come on the other side next."""
        for side in range(len(self._side_names)):
            if upstream := self._upstreams.get((queue, side)):
                upstream.idle = False

    def _with_watermarks(self, frame: pl.DataFrame, place: tuple[Queue, int], upstream: _Upstream) -> pl.DataFrame:
        """Put on each row the shard's watermark before it: the minimum of its own queue's and of all others'."""
        import numpy as np

        others = min(
            (each.watermark_us for at, each in self._upstreams.items() if at != place and not each.idle),
            default=2**63 - 1,
        )
        own = np.maximum(np.maximum.accumulate(watermark_times(frame)), upstream.watermark_us)
        merged = np.maximum(np.minimum(own, others), self._watermark_us)
        # The rows themselves have moved the watermark up to that of the last one.
        upstream.watermark_us = max(upstream.watermark_us, int(own[-1]))
        self._watermark_us = int(merged[-1])
        return with_column(frame, watermark_column(merged))

    def _advance(self) -> None:
        """Move the shard's watermark to the least of its live queues, or to the greatest if all are idle; it never falls."""
        live = [each.watermark_us for each in self._upstreams.values() if not each.idle]
        if live:
            self._watermark_us = max(self._watermark_us, min(live))
        else:
            # Nothing is waited for then, in whichever order the queues became idle.
            self._watermark_us = max([self._watermark_us, *(each.watermark_us for each in self._upstreams.values())])
        if self._watermark_us > self._told_us:
            self._told_us = self._watermark_us
            self._system(Watermark(self.queue, self._watermark_us))

    def _system(self, message: Tick | Watermark | EndOfInput | Checkpoint) -> None:
        self._collect(self._lane.on_system(message))

    def _collect(self, deliveries: Sequence[Delivery]) -> None:
        self._output.deliveries += deliveries
        self._output.shipments += self._lane.take_shipments()

    def _finished(self, sequence: int) -> ShardOutput:
        """Return the results of the entry: one batch per target, with consecutive numbers."""
        output, self._output = self._output, ShardOutput()
        by_target: dict[tuple[str, Queue], list[Batch]] = {}
        for delivery in output.deliveries:
            by_target.setdefault((delivery.target, delivery.batch.queue), []).append(delivery.batch)
        output.deliveries = [
            Delivery(target, Batch(queue, numbered(_together(batches), sequence)))
            for (target, queue), batches in by_target.items()
        ]
        shipped: dict[tuple[str, int], int] = {}
        for place, shipment in enumerate(output.shipments):
            if isinstance(shipment.content, Batch):
                at = (shipment.shuffle, shipment.side)
                begin = shipped.get(at, 0)
                shipped[at] = begin + len(shipment.content)
                frame = numbered(shipment.content.frame, sequence, begin)
                output.shipments[place] = Shipment(
                    shipment.shuffle, shipment.side, self.queue, Batch(self.queue, frame)
                )
        return output

    # --------------------------------------------------------------------------------------------------- state

    def delta(self, *, seal: bool = True) -> bytes:
        """Return what has changed since the last ``delta``, ``snapshot`` or ``apply``; ``b""`` when nothing came.

        ``seal``: whether a checksum is put behind it; not where it is stored with another one.
        """
        found = self.frozen(whole=False, seal=seal)
        return b"" if found is None else found.make()

    def snapshot(self, *, seal: bool = True) -> bytes:
        """Return the whole state of the shard, as ``delta`` does. Raises RetriableError if not all of it could be restored yet."""
        found = self.frozen(whole=True, seal=seal)
        assert found is not None, "a snapshot has always something"
        return found.make()

    def frozen(self, *, whole: bool, seal: bool = True) -> FrozenState | None:
        """Return what makes the bytes of ``snapshot`` (``whole``) or ``delta`` of now, perhaps in another thread; None: nothing came.

        Raises RetriableError as ``snapshot`` does.
        """
        from headrace.interfaces.frozen_state import LARGE_ROWS_MIN, FrozenState, StateContent

        if whole:
            self.restore_all()
        elif not self._touched:
            return None
        self._touched = False
        found = {name: each.frozen(whole=whole) for name, each in self._lane.stateful_operators.items()}
        header = {"format": FORMAT_VERSION, **self._header({}, whole=whole)}
        rows = sum(each.rows for each in found.values())

        def make() -> bytes:
            encode = msgspec.msgpack.encode
            content = StateContent(large=rows >= LARGE_ROWS_MIN)
            content.write(map_header(len(header) + 1))
            content.write(b"".join(encode(each) for pair in header.items() for each in pair))
            content.write(encode("operators") + map_header(len(found)))
            for name, each in found.items():
                content.write(encode(name))
                with content.binary():
                    each.put(content)
            return content.end(seal=seal)

        return FrozenState(make, rows)

    def forget_changes(self) -> None:
        """Do as if a ``delta`` had been taken, which nobody needs: operators must not keep for ever what has changed."""
        self._touched = False
        for each in self._lane.stateful_operators.values():
            each.frozen(whole=False).drop()

    def apply(self, state: bytes) -> None:
        """Take a snapshot or a delta, in the order in which they were made. Raises CheckpointError."""
        if not state:
            return
        try:
            stored: dict[str, Any] = msgspec.msgpack.decode(unsealed(state, f"the state of shard {self.queue}"))
            version = int(stored["format"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the state of shard {self.queue} is damaged: {error}") from error
        if version > FORMAT_VERSION_IN_PARTS:
            raise CheckpointError(
                f"the state of shard {self.queue} was written by a newer version of headrace (format {version})",
                hint="run the job with that version, or with another checkpoint directory",
            )
        try:
            self._take_header(stored)
            if version == FORMAT_VERSION_IN_PARTS:
                self._apply_parts(stored)
            else:
                self._apply_operators(stored)
        except (HeadraceError, OSError, MemoryError):
            raise
        except Exception as error:  # of whatever an operator makes of a part that is missing, or is another thing
            raise CheckpointError(
                f"the state of shard {self.queue} cannot be read: {type(error).__name__}: {error}",
                hint="another version of headrace or of the operator has probably stored it; restore a copy of the checkpoint",
            ) from error

    def _apply_operators(self, stored: Mapping[str, Any]) -> None:
        operators = self._lane.stateful_operators
        for name, content in stored["operators"].items():
            if content:
                operators[name].apply(self._fit.brought_over(name, content))

    def end_restore(self) -> None:
        """All stored versions have been applied. Raises CheckpointError if the operators of the job cannot use the state."""
        self._fit.end(self._lane.stateful_operators)

    def check_inputs(self) -> None:
        """Compare the inputs of the operators with those of the newest version, if no checkpoint has done it. Raises CheckpointError."""
        self._fit.check_inputs()

    @property
    def has_other_definitions(self) -> bool:
        """Whether the newest version that was applied has other definitions than the present ones. It fits them nevertheless."""
        return self._fit.has_others

    @property
    def has_undefined_state(self) -> bool:
        """Whether a version was applied that does not say of which verbs it is: an older version of headrace stored it."""
        return self._fit.undefined

    def _take_header(self, stored: Mapping[str, Any]) -> None:
        """Load the part of a version about the shard itself. Raises CheckpointError if it belongs to another job."""
        self._fit.begin_version(stored.get("defined"))
        self._watermark_us = stored["watermark_us"]
        self._upstreams = {
            (Queue(name, source), side): _Upstream(None if last is None else Position(*last), watermark_us, idle)
            for name, source, side, last, watermark_us, idle in stored["upstreams"]
        }
        for name in stored["operators"]:
            if name not in self._lane.stateful_operators:
                raise CheckpointError(
                    f"the stored state belongs to an operator {name!r}, which the job does not have",
                    hint="the job has changed since then: give it another checkpoint directory",
                )

    # ------------------------------------------------------------------------------------------ state in parts

    @property
    def has_parts(self) -> bool:
        """Whether the state can be stored in parts, and restored while the shard works: when all its operators can."""
        operators = self._lane.stateful_operators.values()
        return (
            bool(operators)
            and not self.spills
            and all(isinstance(each, PartedOperator) and each.restores_behind for each in operators)
        )

    def parts(self, *, whole: bool) -> list[bytes]:
        """Return what ``snapshot`` (``whole``) or ``delta`` does, in parts; an empty list when nothing came.

        Raises RetriableError when not all is restored yet, for a snapshot.
        """
        from headrace.interfaces.state_parts import bits_for, pack_parts

        if whole:
            self.restore_all()
        elif not self._touched:
            return []
        self._touched = False
        operators = self._parted()
        bits = bits_for(max(each.rows_to_store(whole=whole) for each in operators.values()))
        made = {name: each.state_in_parts(bits, whole=whole) for name, each in operators.items()}
        header = self._header({name: common for name, (common, _) in made.items()}, whole=whole)
        rows = max(each.state_rows() for each in operators.values())
        ranges = [{name: parts[place] for name, (_, parts) in made.items()} for place in range(1 << bits)]
        return pack_parts({**header, "rows": max(rows, self._rows_about)}, ranges, os.urandom(8).hex())

    def begin_restore(self, versions: Sequence[tuple[int, bytes]], fetch: Fetch) -> list[int] | None:
        """Begin with stored versions, (number, first part) in order; the other parts are loaded while the shard works.

        ``fetch`` is ``KeyedStateStore.load_parts`` of this shard. Returns how many bytes each version has; None, and
        nothing has been taken, when they are of other definitions: then all of it must be loaded first.
        """
        from headrace.interfaces.state_parts import Restore, unpack_first

        found = [(number, unpack_first(first)) for number, first in versions]
        if not all(self._fit.is_own(about.get("defined")) for _, about in found):
            return None
        for _, about in found:
            self._take_header(about)
        operators = self._parted()
        self._rows_about = max(int(about["rows"]) for _, about in found)
        self._restore = Restore(
            [(number, about["bits"]) for number, about in found], self._rows_about, fetch, operators,
            {number: about.get("token") for number, about in found},
        )  # fmt: skip
        for name, operator in operators.items():
            commons = [about["operators"][name] for _, about in found if name in about["operators"]]
            operator.begin_restore(commons, self._rows_about, self._restore)
        return [int(about["bytes"]) for _, about in found]

    @property
    def restoring(self) -> bool:
        """Whether a part of the state is not here yet."""
        return self._restore is not None and not self._restore.done

    def restore_some(self) -> None:
        """Load a part of the state that is missing: about 20 ms of work. Raises RetriableError; then call it again."""
        if self._restore is not None:
            self._restore.step()
            self._forget_restore()

    def restore_all(self) -> None:
        """Load everything that is missing. Raises RetriableError; then call it again."""
        if self._restore is not None:
            self._restore.need_all()
            self._forget_restore()

    def _forget_restore(self) -> None:
        if self._restore is not None and self._restore.done:
            self._restore, self._rows_about = None, 0

    def _apply_parts(self, stored: Mapping[str, Any]) -> None:
        from headrace.interfaces.state_parts import unpack_ranges

        ranges = unpack_ranges(stored)
        operators = self._parted()
        for name, common in stored["operators"].items():
            parts = [self._fit.brought_over(name, each[name], part=True) for each in ranges if name in each]
            operators[name].apply_parts(self._fit.brought_over(name, common), parts)

    def _parted(self) -> dict[str, PartedOperator]:
        found = self._lane.stateful_operators
        return {name: each for name, each in found.items() if isinstance(each, PartedOperator)}

    # --------------------------------------------------------------------------------------- state beyond memory

    def map_to(self, memory: MappedMemory, names: Collection[str]) -> None:
        """Let these operators keep their state in mapped files. Called once, before ``spill_to`` and ``apply``."""
        from headrace.interfaces.operator import MappedOperator

        for name in names:
            operator = self._lane.stateful_operators[name]
            assert isinstance(operator, MappedOperator), f"{name} says that its state can be mapped"
            operator.use_mapped(memory)
            self._maps = True

    def spill_to(
        self, store: LocalStore, names: Collection[str], *, place: str, memory_bytes: int, rolls: bool, changed_max: int
    ) -> None:  # fmt: skip
        """Let these operators keep rows that are not in use in a local store; each may use so much memory. Called once, before ``apply``.

        ``rolls``: deltas are to have a part of all rows besides, so that versions are never replaced by a snapshot.
        ``changed_max``: when so many rows of an operator have changed, it wants a checkpoint. ``place``: distinguishes
        the local store from a copy of it, which may have been made while it was written.
        """
        from headrace.interfaces.local_store import LocalTable
        from headrace.interfaces.operator import SpillingOperator

        self._local_place = place
        rolls &= not self._maps  # operators that do not roll need snapshots
        for name in names:
            operator = self._lane.stateful_operators[name]
            assert isinstance(operator, SpillingOperator), f"{name} says that its state can leave memory"
            local = LocalTable(
                store, f"{self.queue.id}/{name}", memory_bytes=memory_bytes, rolls=rolls, changed_max=changed_max
            )
            operator.spill_to(local)
            self._spilling[name] = operator, local

    @property
    def spills(self) -> bool:
        """Whether ``spill_to`` was called."""
        return bool(self._spilling)

    @property
    def rolls(self) -> bool:
        """Whether deltas have a part of all rows besides."""
        return any(local.rolls for _, local in self._spilling.values())

    def begin_local(self, chain: Sequence[Epoch]) -> Epoch | None:
        """Compare the local store with the versions of a checkpoint. Return the first version that must be applied; None: all.

        Called before ``apply``. Where nothing is of use, it is removed.
        """
        definitions = {
            name: f"{self._local_place} {self._fit.digest} {each.local_layout()}"
            for name, (each, _) in self._spilling.items()
        }
        fits = [local.fits(definitions[name], chain) for name, (_, local) in self._spilling.items()]
        found = [each for each in fits if each is not None]
        usable = bool(found) and len(found) == len(fits) and not self._maps
        for name, (operator, _) in self._spilling.items():
            if usable:
                operator.go_on(chain[-1])
            else:
                operator.begin_anew(definitions[name])
        return min(found) if usable else None

    def restored(self, epoch: Epoch | None) -> None:
        """All versions of a checkpoint have been applied; the last is this one."""
        for operator, _ in self._spilling.values():
            operator.restored(epoch)

    def settle(self, epoch: Epoch | None) -> None:
        """A checkpoint was made with the last delta or snapshot, whose version is the last of its chain."""
        for operator, _ in self._spilling.values():
            operator.settle(epoch)

    def forget_local(self) -> None:
        """Remove the shard's rows from the local store: the shard belongs to another process from now on."""
        for _, local in self._spilling.values():
            local.begin("")

    def rolled(self) -> tuple[int, ...]:
        """Return how much of the range of hashes the deltas of each operator have had whole."""
        return tuple(operator.rolled for operator, _ in self._spilling.values())

    def must_roll(self) -> None:
        """Let the next delta have a part of all rows of operators, too, in which nothing has changed."""
        for _, local in self._spilling.values():
            local.must_roll = True

    @property
    def wants_checkpoint(self) -> bool:
        """Whether an operator has no room before the next checkpoint."""
        return any(operator.wants_checkpoint for operator, _ in self._spilling.values())

    # -------------------------------------------------------------------------------------------------- status

    @property
    def watermark_us(self) -> int | None:
        """The watermark of this shard, or None if it is not known yet."""
        return None if self._watermark_us == _NEVER else self._watermark_us

    def knows(self, queue: Queue, side: int = 0) -> bool:
        """Return whether the shard waits for an upstream queue."""
        return (queue, side) in self._upstreams

    @property
    def upstreams(self) -> Collection[tuple[Queue, int]]:
        """The queues that the shard waits for, each with the side at which its rows arrive."""
        return list(self._upstreams)

    def expect(self, upstreams: Iterable[tuple[Queue, int]]) -> None:
        """Add queues to those that the shard waits for; for a shard that starts without earlier messages about them."""
        for place in upstreams:
            self._upstreams.setdefault(place, _Upstream())

    def state_rows(self) -> int:
        """Return how many rows the state of the operators has."""
        return sum(each.state_rows() for each in self._lane.stateful_operators.values())

    def late_rows(self) -> int:
        """Return the number of late rows in this process."""
        return self._late_rows + sum(each.late_rows() for each in self._lane.stateful_operators.values())

    def checkpoint(self, checkpoint_id: int) -> None:
        """Send a checkpoint message to the operators. They give no output then, because it is not an entry."""
        self._lane.on_system(Checkpoint(checkpoint_id))

    def close(self) -> None:
        """Close the lane. May be called twice. The count of late rows stays: the report of the job is made later."""
        self._late_rows = self.late_rows()
        self._lane.close()

    def _header(self, operators: dict[str, bytes], *, whole: bool) -> dict[str, Any]:
        return {
            "whole": whole,
            "watermark_us": self._watermark_us,
            "upstreams": [
                (queue.name, queue.source, side, each.last, each.watermark_us, each.idle)
                for (queue, side), each in self._upstreams.items()
            ],
            "operators": operators,
            # Where versions roll, any of them may become the first one.
            "defined": self._fit.header(whole=whole or self.rolls),
        }


def _after(frame: pl.DataFrame, last: Position | None) -> pl.DataFrame:
    """Return the rows after a position. Rows at or before it have been processed already."""
    import polars as pl

    if last is None or position_of(frame, 0) > last:
        return frame
    later = (pl.col(OFFSET) > last.offset) | ((pl.col(OFFSET) == last.offset) & (pl.col(INDEX) > last.index))
    return frame.filter(later)


def _together(batches: Sequence[Batch]) -> pl.DataFrame:
    import polars as pl

    return batches[0].frame if len(batches) == 1 else pl.concat([batch.frame for batch in batches], how="diagonal")


def numbered(frame: pl.DataFrame, sequence: int, begin: int = 0) -> pl.DataFrame:
    """Return rows at new positions: the number of an entry, and their place in it from ``begin`` on."""
    offsets, indexes = entry_positions(sequence, begin, frame.height)
    return with_column(with_column(frame, offsets), indexes)
