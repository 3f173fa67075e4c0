"""What a worker process does: decode and transform raw batches, and answer with the rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from multiprocessing.connection import Connection

import msgspec
from headrace.flow.messages import Queue
from headrace.foundation.freed_memory import keep_freed_memory
from headrace.plan.graph import OperatorNode
from headrace.runtime.lane import Lane

from headrace_light.workers.exchange import Answer, Beginning, Request, packed_error, raw_batch_of, told
from headrace_light.workers.slots import Buffer, Slot
from headrace_light.workers.travelling_plan import unpacked

#: Lanes kept. Nobody tells a worker that a queue is gone, and a lane is made again when it is needed.
_LANES_MAX = 256


class Serving:
    """Answers requests in the order in which they come.

    ``slots``: descriptors of shared memory, first those that the engine writes, then as many for answers.
    """

    def __init__(self, channel: Connection, slots: Sequence[int], beginning: Beginning) -> None:
        self._channel = channel
        half = len(slots) // 2
        self._requests = [Slot(each) for each in slots[:half]]
        self._answers = [Slot(each) for each in slots[half:]]
        self._beginning = beginning
        self._lanes: OrderedDict[Queue, Lane] = OrderedDict()

    def run(self) -> None:
        """Serve until the engine closes the connection: raises EOFError then."""
        try:
            self._plan = unpacked(self._beginning.plan)
            self._columns = self._plan.decode_columns()
            for node in self._plan.of_kind(OperatorNode).values():
                node.spec.leave_decisions()
        except BaseException as error:  # the engine raises it
            self._tell(Answer(number=-1, error=packed_error(error)), [])
            return
        keep_freed_memory(self._beginning.kept_bytes_max)
        self._tell(Answer(number=-1), [])
        while True:
            self._tell(*self._answered(Request.read(self._channel.recv_bytes())))

    def _answered(self, request: Request) -> tuple[Answer, list[Buffer]]:
        meter = self._plan.meter
        try:
            raw = raw_batch_of(request, self._requests[request.slot].read(request.capacity, request.sizes))
            lane = self._lane(Queue(*request.queue))
            try:
                deliveries = lane.process(raw)
            finally:
                shipments = lane.take_shipments()
        except BaseException as error:  # the engine raises it, when it is this batch's turn
            counted = meter.take() if meter.enabled else {}
            return Answer(number=request.number, slot=request.slot, counted=counted, error=packed_error(error)), []
        for_sinks, for_shuffles, parts = told(deliveries, shipments)
        counted = meter.take() if meter.enabled else {}
        answer = Answer(
            number=request.number, slot=request.slot, deliveries=for_sinks, shipments=for_shuffles, counted=counted
        )
        return answer, parts

    def _lane(self, queue: Queue) -> Lane:
        lane = self._lanes.pop(queue, None)
        if lane is None:
            while len(self._lanes) >= _LANES_MAX:
                self._lanes.popitem(last=False)[1].close()
            node = self._plan.sources[queue.source]
            lane = Lane(self._plan, node, queue, decode_columns=self._columns[queue.source])
        self._lanes[queue] = lane
        return lane

    def _tell(self, answer: Answer, parts: list[Buffer]) -> None:
        if parts:
            capacity, sizes = self._answers[answer.slot].write(parts)
            answer = msgspec.structs.replace(answer, capacity=capacity, sizes=sizes)
        self._channel.send_bytes(msgspec.msgpack.encode(answer))
