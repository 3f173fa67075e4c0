"""Offsets of queues, and what consumer groups committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from headrace_rocketmq.codes import RequestCode, ResponseCode
from headrace_rocketmq.errors import ConfigurationError, ProtocolError
from headrace_rocketmq.frame import Frame
from headrace_rocketmq.remoting import Call, Remoting
from headrace_rocketmq.routes import MessageQueue, RouteTable


class Offsets:
    """Reads and commits offsets on brokers, of many queues at once. Thread safe.

    All methods raise what Remoting.call_all raises; nothing here is cached.
    """

    def __init__(self, remoting: Remoting, routes: RouteTable) -> None:
        self._remoting = remoting
        self._routes = routes

    def earliest(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The smallest offset that each queue still has."""
        return self._offsets(RequestCode.GET_MIN_OFFSET, queues, {})

    def latest(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """One more than each queue's largest offset: where the next message will be.

        A message that was just sent may not be counted yet: the broker enters it into the queue a moment after storing
        it.
        """
        return self._offsets(RequestCode.GET_MAX_OFFSET, queues, {})

    def at_time(self, queues: Iterable[MessageQueue], moment: datetime) -> dict[MessageQueue, int]:
        """The offset of each queue's first message stored at `moment` or later, by the broker's clock.

        If there is none, the latest offset. Brokers of 4.x often give the offset just before it.
        """
        if moment.tzinfo is None:
            raise ConfigurationError("the time needs a time zone")
        timestamp_ms = str(round(moment.timestamp() * 1000))
        return self._offsets(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queues, {"timestamp": timestamp_ms})

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """What a group has committed for each queue; None for nothing.

        Brokers of 4.x answer 0 instead of nothing for a queue that still has its first message.
        """
        fields = {"consumerGroup": group, "setZeroIfNotFound": "false"}
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answers = self._ask(RequestCode.QUERY_CONSUMER_OFFSET, queues, fields, accept)
        return {
            queue: _offset(queue, frame) if frame.code == ResponseCode.SUCCESS else None
            for queue, frame in answers.items()
        }

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the next offset of the group in each queue: one more than that of the last processed message.

        The broker answers before it writes that to disk (every 5 s), and keeps the last value, even if it is smaller.
        Raises GroupNotFoundError for a group that never joined, pulled or was created.
        """
        calls = [
            self._call(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                queue,
                {"consumerGroup": group, "commitOffset": str(offset)},
                (ResponseCode.SUCCESS,),
            )
            for queue, offset in offsets.items()
        ]
        self._remoting.call_all(calls)

    def _offsets(
        self, code: RequestCode, queues: Iterable[MessageQueue], fields: Mapping[str, str]
    ) -> dict[MessageQueue, int]:
        answers = self._ask(code, queues, fields, (ResponseCode.SUCCESS,))
        return {queue: _offset(queue, frame) for queue, frame in answers.items()}

    def _ask(
        self, code: RequestCode, queues: Iterable[MessageQueue], fields: Mapping[str, str], accept: tuple[int, ...]
    ) -> dict[MessageQueue, Frame]:
        wanted = list(queues)
        frames = self._remoting.call_all([self._call(code, queue, fields, accept) for queue in wanted])
        return dict(zip(wanted, frames, strict=True))

    def _call(self, code: RequestCode, queue: MessageQueue, fields: Mapping[str, str], accept: tuple[int, ...]) -> Call:
        own = {"topic": queue.topic, "queueId": str(queue.queue_id), **fields}
        return Call(
            code=code,
            target=lambda: (self._routes.master_address(queue), own),
            accept=accept,
            topic=queue.topic,
            detail=f"of {queue}",
        )


def _offset(queue: MessageQueue, frame: Frame) -> int:
    try:
        return int(frame.fields["offset"])
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the broker's answer with an offset of {queue} cannot be read: {frame.fields}") from error
