"""Sends messages: singly, many at a time, to chosen queues, by key."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum

from headrace_rocketmq.codes import RequestCode, ResponseCode
from headrace_rocketmq.compression import Compression, compress
from headrace_rocketmq.connection import Request
from headrace_rocketmq.errors import (
    InvalidMessageError,
    ProtocolError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
)
from headrace_rocketmq.filters import java_string_hash
from headrace_rocketmq.frame import Frame
from headrace_rocketmq.message import (
    Message,
    UniqueIds,
    encode_batch_entry,
    encode_properties,
    now_seconds,
)
from headrace_rocketmq.remoting import Call, Remoting, check_answer
from headrace_rocketmq.routes import MessageQueue, RouteTable

_PRODUCER_GROUP = "headrace"
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)


class SendStatus(Enum):
    """How safely a message is stored. In each case it will be delivered, unless the broker's machine fails now."""

    STORED = ResponseCode.SUCCESS
    FLUSH_TIMED_OUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_TIMED_OUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_MISSING = ResponseCode.SLAVE_NOT_AVAILABLE


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message was stored. For a delayed message, `offset` is that in the broker's internal topic for delays."""

    queue: MessageQueue
    offset: int
    unique_id: str
    """The message's id, which operators can search by."""
    status: SendStatus


@dataclass(slots=True, eq=False)
class _Package:
    """What one request sends: a message, or several as a batch; all to one queue."""

    code: RequestCode
    body: bytes
    properties: str
    flag: int
    message_flag: int
    unique_ids: list[str]
    queue: MessageQueue | None
    """None: any queue, chosen anew for each attempt."""


class Producer:
    """Sends to any topic. Made by Client; thread safe.

    After a connection error or from a busy broker, a send is repeated until the client's timeout is over; messages that
    may go to any queue then try another broker. So a message is sent at least once: if an answer was lost, twice.
    """

    def __init__(
        self,
        remoting: Remoting,
        routes: RouteTable,
        *,
        compression: Compression | None = None,
        compress_over_bytes: int = 4096,
        batch_bytes_max: int = 1024 * 1024,
        in_flight_max: int = 64,
        now: Callable[[], float] = now_seconds,
    ) -> None:
        """Sends nothing yet.

        `batch_bytes_max` limits the size of one request of `send_many`; brokers refuse more than 4 MiB by default.
        `in_flight_max` limits the unanswered `send_async`: brokers refuse requests that wait for over 0.2 s. `now` gives
        seconds since 1970.
        """
        self._remoting = remoting
        self._routes = routes
        self._compression = compression
        self._compress_over_bytes = compress_over_bytes
        self._batch_bytes_max = batch_bytes_max
        self._now = now
        self._unique_ids = UniqueIds(now)
        self._turn = itertools.count()
        self._in_flight = threading.BoundedSemaphore(in_flight_max)

    def send(self, topic: str, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        """Send one message and wait until it is stored: in `queue`, that of its `queue_key`, or any in turn.

        Raises InvalidMessageError, TopicNotFoundError, MessageRejectedError, PermissionDeniedError,
        ConnectionFailedError, RequestTimeoutError and BrokerBusyError.
        """
        package = self._single(topic, message, queue)
        frame = self._remoting.call(self._call(topic, package))
        return self._results(topic, package, frame)[0]

    def send_many(
        self, topic: str, messages: Iterable[Message], *, queue: MessageQueue | None = None
    ) -> list[SendResult]:
        """Send messages in batches and wait until all are stored; the results are in the order of the messages.

        Messages with equal `queue_key`, or with a given queue, are stored in the order given; so is each batch of the
        others. Raises what `send` raises; some of the messages may be stored then. Delayed messages are refused
        (InvalidMessageError), since brokers ignore the delay in a batch. Bodies are not compressed here, except one that is too
        large for a batch.
        """
        lanes = self._lanes(topic, list(messages), queue)
        results: dict[int, SendResult] = {}
        while lanes:
            # One request for each queue at a time: a second one might be stored although the first has to be repeated.
            heads = [lane.pop(0) for lane in lanes]
            frames = self._remoting.call_all([self._call(topic, package) for _, package in heads])
            for (numbers, package), frame in zip(heads, frames, strict=True):
                results.update(zip(numbers, self._results(topic, package, frame), strict=True))
            lanes = [lane for lane in lanes if lane]
        return [results[number] for number in range(len(results))]

    def send_to(self, messages: Mapping[MessageQueue, Sequence[Message]]) -> None:
        """Send messages to the queues given, each queue's in batches and in order, and wait until all are stored.

        The queues, of any topics, are written in parallel. Raises what `send_many` raises; some may be stored then.
        """
        lanes = []
        for queue, some in messages.items():
            unique_ids = self._unique_ids.take(len(some))
            properties = [encode_properties(message, id_) for message, id_ in zip(some, unique_ids, strict=True)]
            lanes.append([each for _, each in self._pack(some, properties, unique_ids, range(len(some)), queue)])
        while lanes := [lane for lane in lanes if lane]:
            heads = [lane.pop(0) for lane in lanes]
            calls = [self._call(each.queue.topic, each) for each in heads if each.queue is not None]
            self._remoting.call_all(calls)

    def send_async(self, topic: str, message: Message, *, queue: MessageQueue | None = None) -> Future[SendResult]:
        """Send one message without waiting; the future gets the result or the error. Nothing is repeated.

        Waits while too many sends are unanswered, at most for the client's timeout (RequestTimeoutError). A future's
        callbacks are called in the thread that reads the connection: they must be quick and must not wait for answers.
        """
        package = self._single(topic, message, queue)
        call = self._call(topic, package)
        address, fields = call.target()
        connection = self._remoting.pool.get(address)
        if not self._in_flight.acquire(timeout=self._remoting.timeout_s):
            raise RequestTimeoutError(address, f"wait to {call.operation}", self._remoting.timeout_s)
        future: Future[SendResult] = Future()
        future.set_running_or_notify_cancel()  # a message that was sent cannot be cancelled

        def finish(outcome: Frame | RocketMQError) -> None:
            self._in_flight.release()
            try:
                if isinstance(outcome, RocketMQError):
                    raise outcome
                check_answer(outcome, call.accept, address=address, operation=call.operation, topic=topic)
                result = self._results(topic, package, outcome)[0]
            except RocketMQError as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        connection.start([Request(call.code, fields, finish, call.body, self._remoting.timeout_s)])
        return future

    def send_one_way(self, topic: str, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send one message without an answer; it may be lost.

        Raises InvalidMessageError, TopicNotFoundError, ConnectionFailedError, ConnectionLostError.
        """
        call = self._call(topic, self._single(topic, message, queue))
        address, fields = call.target()
        self._remoting.pool.get(address).send_one_way(call.code, fields, call.body)

    def queue_for_key(self, topic: str, key: str) -> MessageQueue:
        """The queue of messages with this `queue_key`.

        Java producers select the same one with SelectMessageQueueByHash for a string. Changes with the number of queues.
        """
        queues = self._writable_queues(topic)
        return queues[abs(java_string_hash(key)) % len(queues)]

    def _writable_queues(self, topic: str) -> Sequence[MessageQueue]:
        queues = self._routes.get(topic).writable_queues
        if not queues:
            queues = self._routes.get(topic, refresh=True).writable_queues
        if not queues:
            raise TopicNotFoundError(topic, "any broker for writing", "no master, or no permission to write")
        return queues

    def _any_queue(self, topic: str) -> MessageQueue:
        queues = self._writable_queues(topic)
        turn = next(self._turn)
        candidates = [queues[(turn + step) % len(queues)] for step in range(len(queues))]
        is_troubled = self._remoting.pool.is_troubled
        return next((each for each in candidates if not is_troubled(self._routes.master_address(each))), candidates[0])

    def _queue_of(self, topic: str, message: Message, queue: MessageQueue | None) -> MessageQueue | None:
        if queue is not None:
            if queue.topic != topic:
                raise InvalidMessageError(f"{queue} is not a queue of topic {topic!r}")
            return queue
        return None if message.queue_key is None else self.queue_for_key(topic, message.queue_key)

    def _single(self, topic: str, message: Message, queue: MessageQueue | None) -> _Package:
        (unique_id,) = self._unique_ids.take(1)
        return self._message_package(
            message, unique_id, encode_properties(message, unique_id), self._queue_of(topic, message, queue)
        )

    def _message_package(
        self, message: Message, unique_id: str, properties: str, queue: MessageQueue | None
    ) -> _Package:
        body, message_flag = message.body, 0
        if self._compression is not None and len(body) >= self._compress_over_bytes:
            body, message_flag = compress(body, self._compression), self._compression.message_flag
        return _Package(RequestCode.SEND_MESSAGE_V2, body, properties, message.flag, message_flag, [unique_id], queue)

    def _lanes(
        self, topic: str, messages: Sequence[Message], queue: MessageQueue | None
    ) -> list[list[tuple[list[int], _Package]]]:
        # By queue: the packages for it in order, each with the numbers of its messages.
        unique_ids = self._unique_ids.take(len(messages))
        by_queue: dict[MessageQueue | None, list[int]] = defaultdict(list)
        properties = []
        for number, message in enumerate(messages):
            if message.is_delayed:
                raise InvalidMessageError("a delayed message cannot be sent in a batch; use send or send_async")
            properties.append(encode_properties(message, unique_ids[number]))
            by_queue[self._queue_of(topic, message, queue)].append(number)
        lanes = []
        for target, numbers in by_queue.items():
            packages = list(self._pack(messages, properties, unique_ids, numbers, target))
            # Messages for any queue need no order: their packages are sent in parallel.
            lanes += [packages] if target is not None else [[package] for package in packages]
        return lanes

    def _pack(
        self,
        messages: Sequence[Message],
        properties: Sequence[str],
        unique_ids: Sequence[str],
        numbers: Sequence[int],
        queue: MessageQueue | None,
    ) -> Iterator[tuple[list[int], _Package]]:
        entries: list[bytes] = []
        packed: list[int] = []
        size = 0

        def package() -> tuple[list[int], _Package]:
            ids = [unique_ids[number] for number in packed]
            return packed, _Package(RequestCode.SEND_BATCH_MESSAGE, b"".join(entries), "", 0, 0, ids, queue)

        for number in numbers:
            message = messages[number]
            entry = encode_batch_entry(message.body, properties[number], message.flag)
            if entries and size + len(entry) > self._batch_bytes_max:
                yield package()
                entries, packed, size = [], [], 0
            if len(entry) > self._batch_bytes_max:
                yield [number], self._message_package(message, unique_ids[number], properties[number], queue)
                continue
            entries.append(entry)
            packed.append(number)
            size += len(entry)
        if entries:
            yield package()

    def _call(self, topic: str, package: _Package) -> Call:
        chosen = package.queue

        def target() -> tuple[str, Mapping[str, str]]:
            package.queue = queue = chosen or self._any_queue(topic)
            return self._routes.master_address(queue), self._fields(queue, package)

        return Call(code=package.code, target=target, body=package.body, accept=_STORED, topic=topic)

    def _fields(self, queue: MessageQueue, package: _Package) -> dict[str, str]:
        # The short names of "send message v2". No topic is made by sending: its template, c, is left empty.
        return {
            "a": _PRODUCER_GROUP,
            "b": queue.topic,
            "c": "",
            "d": "0",
            "e": str(queue.queue_id),
            "f": str(package.message_flag),
            "g": str(round(self._now() * 1000)),
            "h": str(package.flag),
            "i": package.properties,
            "j": "0",
            "k": "false",
            "m": "true" if package.code is RequestCode.SEND_BATCH_MESSAGE else "false",
            "n": queue.broker_name,
        }

    def _results(self, topic: str, package: _Package, frame: Frame) -> list[SendResult]:
        try:
            first = int(frame.fields["queueOffset"])
            queue_id = int(frame.fields["queueId"])
        except (KeyError, ValueError) as error:
            raise ProtocolError(
                f"the broker's answer to a message for {topic!r} cannot be read: {frame.fields}"
            ) from error
        assert package.queue is not None  # chosen before it was sent
        queue = MessageQueue(topic, package.queue.broker_name, queue_id)
        status = SendStatus(frame.code)
        return [
            SendResult(queue, first + index, unique_id, status) for index, unique_id in enumerate(package.unique_ids)
        ]
