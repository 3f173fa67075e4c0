"""What a worker process does: read ranges or take raw batches, decode and transform them, and answer with the rows."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from multiprocessing.connection import Connection

from headrace.flow.messages import Queue
from headrace.foundation.freed_memory import keep_freed_memory
from headrace.foundation.spared_objects import spare_the_collector
from headrace.plan.graph import OperatorNode
from headrace.runtime.lane import Lane

from headrace_light.workers.combined_rows import CombinedRows
from headrace_light.workers.exchange import Answer, Beginning, Message, Request, packed_error, raw_batch_of, told
from headrace_light.workers.ranges import Ranges
from headrace_light.workers.slots import Buffer, Slot
from headrace_light.workers.travelling_plan import unpacked

#: How many lanes are cached. A worker does not learn that a queue was removed; a lane is made again when it is needed.
_LANES_MAX = 256


class Serving:
    """Answers requests in the order in which they come.

    ``slots``: descriptors of shared memory, first those that the engine writes, then as many for answers.
    """

    def __init__(self, channel: Connection, slots: Sequence[int]) -> None:
        self._channel = channel
        half = len(slots) // 2
        self._requests = [Slot(each) for each in slots[:half]]
        self._answers = [Slot(each) for each in slots[half:]]
        self._lanes: OrderedDict[Queue, Lane] = OrderedDict()

    def run(self) -> None:
        """Serve until the engine closes the connection: raises EOFError then."""
        begins, (header,) = self._next()
        try:
            beginning = Beginning.read(header)
            sys.path[:] = beginning.import_paths
            self._plan = unpacked(beginning.plan)
            self._columns = self._plan.decode_columns()
            self._ranges = Ranges(self._plan)
            self._combined = CombinedRows(self._plan)
            for source in self._plan.sources.values():
                if source.source is not None:
                    source.source.use_run(until=beginning.until)
            for node in self._plan.of_kind(OperatorNode).values():
                node.spec.leave_decisions()
        except BaseException as error:  # the engine raises it
            self._tell(begins, Answer(error=packed_error(error)))
            return
        keep_freed_memory(beginning.kept_bytes_max)
        spare_the_collector(self)
        self._tell(begins, Answer())
        while True:
            message, (header, *parts) = self._next()
            self._tell(message, *self._answered(Request.read(header), parts))

    def _next(self) -> tuple[Message, list[memoryview]]:
        message = Message.read(self._channel.recv_bytes())
        return message, message.parts(self._requests)

    def _answered(self, request: Request, parts: Sequence[memoryview]) -> tuple[Answer, list[Buffer]]:
        meter, queue = self._plan.meter, Queue(*request.queue)
        try:
            pieces = (
                [raw_batch_of(request, parts)] if request.reads is None else self._ranges.read(queue, request.reads)
            )
        except Exception as error:  # the engine reads the range itself: it knows what an error of a source means
            return Answer(unread=f"{type(error).__name__}: {error}"), []
        try:
            lane = self._lane(queue)
            deliveries, shipments = [], []
            for raw in pieces:
                try:
                    deliveries += lane.process(raw)
                finally:
                    shipments += self._combined.of(lane.take_shipments())
        except BaseException as error:  # the engine raises it, when it is this batch's turn
            return Answer(counted=meter.take() if meter.enabled else {}, error=packed_error(error)), []
        for_sinks, for_shuffles, buffers = told(deliveries, shipments)
        counted = meter.take() if meter.enabled else {}
        records = sum(map(len, pieces))
        return Answer(deliveries=for_sinks, shipments=for_shuffles, counted=counted, records=records), buffers

    def _lane(self, queue: Queue) -> Lane:
        lane = self._lanes.pop(queue, None)
        if lane is None:
            while len(self._lanes) >= _LANES_MAX:
                self._lanes.popitem(last=False)[1].close()
            node = self._plan.sources[queue.source]
            lane = Lane(self._plan, node, queue, decode_columns=self._columns[queue.source])
        self._lanes[queue] = lane
        return lane

    def _tell(self, message: Message, answer: Answer, buffers: Sequence[Buffer] = ()) -> None:
        self._channel.send_bytes(Message.put(message.number, message.slot, self._answers, answer, buffers))
