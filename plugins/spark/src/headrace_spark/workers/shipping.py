"""How rows and messages travel to the shards of a keyed stage: what lanes and shards ship becomes envelopes.

A lane or shard ships many small batches with watermarks between them. They travel as one blob per shard, side and range,
with each row's watermark filled in from the messages before it, so that nothing depends on how they are put together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import polars as pl
from headrace.flow.messages import WATERMARK, Batch, Queue, Watermark, watermark_times, with_column
from headrace.plan.graph import Plan, ShuffleNode
from headrace.runtime.lane import Delivery, Shipment
from headrace.runtime.shuffle import by_shard

from headrace_spark.shards.topology import Address, Topology
from headrace_spark.transit.envelopes import BLOB_BYTES_MAX, Envelope, of_delivery, parts_of
from headrace_spark.transit.marks import Control

Times = np.ndarray[Any, np.dtype[np.int64]]
#: More envelopes than a range makes: its places begin at the multiple of it that its number says.
PLACES_PER_RANGE = 2**32
#: What a lane has shipped is sent on before the end of its range when it is about so large.
_HELD_BYTES_MAX = 32 * 1024**2
#: So many rows are combined together: the hash table of more does not fit into the caches of a core, and takes twice the time per row.
_COMBINED_ROWS = 1 << 17
#: Frames that are read before they are written, each of up to ``BLOB_BYTES_MAX``.
_FRAMES_AHEAD = 4
_NEVER = -(2**63)


class ShardControl(msgspec.Struct, frozen=True):
    """Control data for one shard: queues as (source, name, side)."""

    sequence: int
    time_us: int
    end_of_input: bool
    added: list[tuple[str, str, int]]
    removed: list[tuple[str, str, int]]
    idle: list[tuple[str, str, int]]
    awake: list[tuple[str, str, int]]


def control_envelopes(topology: Topology, control: Control, batch_id: int) -> Iterator[Envelope]:
    """Yield the notes about a micro-batch for each shard of each shuffle."""
    sequence = control.base + batch_id
    told: dict[str, bytes] = {}
    for address in topology.addresses():
        payload = told.get(address.shuffle)
        if payload is None:

            def sides(queues: Iterable[Queue], shuffle: str = address.shuffle) -> list[tuple[str, str, int]]:
                return [
                    (each.source, each.name, side)
                    for each in sorted(queues)
                    for side in topology.sides_of(shuffle, each.source)
                ]

            message = ShardControl(
                sequence, control.time_us, control.end_of_input,
                sides(control.added), sides(control.removed), sides(control.idle), sides(control.awake),
            )  # fmt: skip
            payload = told[address.shuffle] = msgspec.msgpack.encode(message)
        queue = Queue("", address.shuffle)
        yield Envelope("control", queue, sequence, sequence, 0, address.shuffle, payload, address.shard)


class Outbox:
    """Gathers what one queue's lane, or one shard, ships in a micro-batch."""

    def __init__(self, plan: Plan, topology: Topology, queue: Queue, *, combines: bool = True) -> None:
        """``combines``: whether rows may be combined before they are sent; not where their order has no meaning."""
        self._plan = plan
        self._topology = topology
        self._queue = queue
        #: By shuffle and side: frames as they came, with the watermark before each; frames that are to be sent, by shard.
        self._came: dict[tuple[str, int], list[tuple[pl.DataFrame, int | None]]] = {}
        self._frames: dict[tuple[str, int], dict[int, list[pl.DataFrame]]] = {}
        #: The bytes of the latter. Parts of one frame may share texts, so they are not counted part by part.
        self._frame_bytes: dict[tuple[str, int], int] = {}
        self._rows: dict[tuple[str, int], int] = {}
        self._marks: dict[tuple[str, int], int] = {}
        self._bytes = 0
        self._combining = topology.combining if combines else {}

    def take(self, shipments: Iterable[Shipment]) -> Iterator[Envelope]:
        """Add shipments, in order. Yields envelopes that are too large to wait.

        That queues come and go is not in them: the planner knows, and tells all shards at one moment.
        """
        for shipment in shipments:
            at, content = (shipment.shuffle, shipment.side), shipment.content
            if isinstance(content, Batch):
                self._came.setdefault(at, []).append((content.frame, self._marks.get(at)))
                self._rows[at] = self._rows.get(at, 0) + content.frame.height
                self._bytes += int(content.frame.estimated_size())
                if self._rows[at] >= _COMBINED_ROWS:
                    self._gather(at)
            elif isinstance(content, Watermark):
                self._marks[at] = max(content.time_us, self._marks.get(at, content.time_us))
        if self._bytes > _HELD_BYTES_MAX:
            for at in sorted({*self._frames, *self._came}):
                for number, frame in self._by_shard(at):
                    yield from self._shipped(at, number, frame, None)

    def rest(self) -> Iterator[Envelope]:
        """Yield everything that is left, and the watermarks behind it. Called at the end of a range or entry."""
        for at in sorted({*self._frames, *self._came, *self._marks}):
            frames = dict(self._by_shard(at))
            mark = self._marks.get(at)
            for number in range(self._topology.shards):
                if number in frames or mark is not None:
                    yield from self._shipped(at, number, frames.get(number), mark)
        self._marks.clear()

    def _gather(self, at: tuple[str, int]) -> None:
        """Make one frame of those that came since the last call, combined if that is of use."""
        came, self._rows[at] = self._came.pop(at, []), 0
        if not came:
            return
        frame = concatenated([frame for frame, _ in came])
        self._bytes -= sum(int(each.estimated_size()) for each, _ in came)
        if any(mark is not None for _, mark in came):
            before = np.repeat(
                [_NEVER if mark is None else mark for _, mark in came], [each.height for each, _ in came]
            )
            frame = with_mark(frame, before)
        combining = self._combining.get(at[0])
        if combining is not None:
            # What is combined has the watermark of its first row. The shard learns that of the last one by the mark.
            reached = int(watermark_times(frame).max())
            if reached > _NEVER:
                self._marks[at] = max(reached, self._marks.get(at, reached))
            frame = combining.combined(frame)
        node = self._plan.nodes[at[0]]
        assert isinstance(node, ShuffleNode)
        size, kept = int(frame.estimated_size()), self._frames.setdefault(at, {})
        self._bytes += size
        self._frame_bytes[at] = self._frame_bytes.get(at, 0) + size
        # Now, while the rows are in the caches of the core.
        for number, part in by_shard(frame, node.keys[at[1]], self._topology.shards):
            kept.setdefault(number, []).append(part)

    def _by_shard(self, at: tuple[str, int]) -> Iterator[tuple[int, pl.DataFrame]]:
        self._gather(at)
        self._bytes -= self._frame_bytes.pop(at, 0)
        for number, frames in sorted(self._frames.pop(at, {}).items()):
            yield number, concatenated(frames)

    def _shipped(
        self, at: tuple[str, int], number: int, frame: pl.DataFrame | None, mark: int | None
    ) -> Iterator[Envelope]:
        shuffle, side = at
        parts: list[pl.DataFrame | None] = [*([] if frame is None else parts_of(frame))] or [None]
        for place, part in enumerate(parts):
            count, last = 0 if part is None else part.height, place == len(parts) - 1
            own = mark if last else None
            yield Envelope("ship", self._queue, 0, 0, count, shuffle, shard=number, side=side, mark=own, rows=part)


class Gathered:
    """Gathers the rows that one queue's lane has for the same sink, so that a few large frames travel."""

    def __init__(self) -> None:
        self._came: dict[tuple[str, Queue], list[pl.DataFrame]] = {}
        self._bytes = 0

    def take(self, deliveries: Iterable[Delivery]) -> Iterator[Envelope]:
        """Add rows, in order. Yields a frame when it has become large, or when the columns change."""
        for delivery in deliveries:
            at, frame = (delivery.target, delivery.batch.queue), delivery.batch.frame
            before = self._came.get(at)
            if before is not None and before[0].schema != frame.schema:
                yield from self._sent(at)
            self._came.setdefault(at, []).append(frame)
            self._bytes += int(frame.estimated_size())
        if self._bytes >= BLOB_BYTES_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[Envelope]:
        """Yield everything that is left. Called at the end of a range."""
        for at in list(self._came):
            yield from self._sent(at)
        self._bytes = 0

    def _sent(self, at: tuple[str, Queue]) -> Iterator[Envelope]:
        target, queue = at
        yield from of_delivery(Delivery(target, Batch(queue, concatenated(self._came.pop(at)))))


def addressed(envelopes: Iterable[Envelope], topology: Topology, level: int, first: int = 0) -> Iterator[Envelope]:
    """Put on each envelope that leaves a level (0: the source stage) where it goes next, and its place, from ``first`` on."""
    for place, each in enumerate(envelopes, first):
        to = Address(each.target, each.shard) if each.kind in ("ship", "control") else None
        yield replace(each, partition=topology.partition(level, to, each.queue), place=place)


def in_order(envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
    """Yield the envelopes of ranges that came together, those of a queue in the order in which one task would have made them.

    Only envelopes that arrive before their turn are kept in memory.
    """
    waiting: dict[tuple[str, str], dict[int, Envelope]] = {}
    due: dict[tuple[str, str], int] = {}
    for envelope in envelopes:
        key = envelope.queue.source, envelope.queue.name
        kept = waiting.setdefault(key, {})
        kept[envelope.place] = envelope
        while (following := kept.pop(due.get(key, 0), None)) is not None:
            ends = following.kind in ("end", "gone")  # each range ends so; the next one begins at its own first place
            due[key] = (following.place // PLACES_PER_RANGE + 1) * PLACES_PER_RANGE if ends else following.place + 1
            yield following
    left = [envelope for kept in waiting.values() for envelope in kept.values()]
    assert not left, f"{len(left)} envelopes without those before them"


def with_frames_ahead(envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
    """Yield envelopes with their frames, the next few of which a thread reads meanwhile.

    For a stage with fewer tasks than cores: one core writes the rows in order while other cores are idle.
    """

    def with_frame(envelope: Envelope) -> Envelope:
        return replace(envelope, rows=envelope.frame()) if envelope.kind == "rows" else envelope

    read: deque[Future[Envelope]] = deque()
    with ThreadPoolExecutor(1, "frames ahead") as reader:
        try:
            for envelope in envelopes:
                read.append(reader.submit(with_frame, envelope))
                if len(read) > _FRAMES_AHEAD:
                    yield read.popleft().result()
            while read:
                yield read.popleft().result()
        finally:
            for each in read:
                each.cancel()


def concatenated(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return frames as one; header columns that some of them lack are NULL there."""
    if len(frames) == 1:
        return frames[0]
    same = all(each.columns == frames[0].columns for each in frames)
    return pl.concat(frames, how="vertical" if same else "diagonal")


def with_mark(frame: pl.DataFrame, mark: int | Times | None) -> pl.DataFrame:
    """Raise each row's watermark to that of the messages that came before the row: one for all rows, or one for each."""
    if mark is None:
        return frame
    # Those of branches that meet go up and down.
    raised = np.maximum(watermark_times(frame), mark)
    column = pl.Series(WATERMARK, raised)
    unknown = raised == _NEVER
    return with_column(frame, column.set(pl.Series(unknown), None) if unknown.any() else column)
