"""Requests with an answer to brokers and name servers; they are repeated if that can help."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace_rocketmq.codes import RequestCode, ResponseCode
from headrace_rocketmq.connection import Clock, Connection, Reply, Request, monotonic_seconds
from headrace_rocketmq.errors import (
    ClientClosedError,
    ConfigurationError,
    ConnectionFailedError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    broker_error,
    request_name,
)
from headrace_rocketmq.frame import Frame
from headrace_rocketmq.pool import ConnectionPool
from headrace_rocketmq.transport import split_address

_RETRY_DELAY_FIRST_S = 0.05
_RETRY_DELAY_MOST_S = 1.0
T = TypeVar("T")
_SUCCESS = (ResponseCode.SUCCESS,)


def parse_name_servers(name_servers: str | Sequence[str]) -> list[str]:
    """The addresses of "host:port;host:port" or of a list of them. Raises ConfigurationError."""
    parts = name_servers.replace(",", ";").split(";") if isinstance(name_servers, str) else list(name_servers)
    addresses = [part.strip() for part in parts if part.strip()]
    if not addresses:
        raise ConfigurationError("no name server given; expected host:port, several separated by ';'")
    for address in addresses:
        split_address(address)
    return addresses


def check_answer(
    frame: Frame, accept: Collection[int] = _SUCCESS, *, address: str, operation: str, topic: str = ""
) -> Frame:
    """The answer itself if its code is among `accept`; otherwise raises the error for the code."""
    if frame.code in accept:
        return frame
    if frame.code == ResponseCode.TOPIC_NOT_EXIST and topic:
        raise TopicNotFoundError(topic, address, (frame.remark or "").strip().partition("\n")[0])
    raise broker_error(frame.code, frame.remark, address=address, operation=operation)


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a broker that may be sent twice, and the codes to expect."""

    code: RequestCode
    target: Callable[[], tuple[str, Mapping[str, str]]]
    """Gives address and fields; called for each attempt, since a broker may have moved or another one may do."""
    body: bytes = b""
    accept: Collection[int] = _SUCCESS
    """Answer codes that are not errors."""
    topic: str = ""
    """For messages."""
    detail: str = ""

    @property
    def operation(self) -> str:
        """The name of the operation, for messages."""
        return f"{request_name(self.code)} {self.detail or self.topic}".rstrip()


def _worse(first: RocketMQError | None, second: RocketMQError) -> RocketMQError:
    # Errors that retrying cannot repair go to the caller.
    return second if first is None or (first.retriable and not second.retriable) else first


class Remoting:
    """Calls to servers over a pool. Thread safe."""

    def __init__(
        self,
        pool: ConnectionPool,
        name_servers: Sequence[str],
        *,
        timeout_s: float,
        clock: Clock = monotonic_seconds,
    ) -> None:
        self.pool = pool
        self.timeout_s = timeout_s
        self.clock = clock
        self.closed = threading.Event()
        self._name_servers = list(name_servers)
        self._preferred = 0

    def call(self, call: Call, *, timeout_s: float | None = None) -> Frame:
        """As `call_all`, for one."""
        return self.call_all([call], timeout_s=timeout_s)[0]

    def call_all(self, calls: Sequence[Call], *, timeout_s: float | None = None) -> list[Frame]:
        """Make calls in parallel; repeat those with connection errors or a busy broker, until the time is over.

        Gives the answers in the order of the calls. Raises what the last attempt raised, BrokerError or
        TopicNotFoundError for codes not accepted, ClientClosedError; other calls may have succeeded by then.
        """
        answers: list[Frame | None] = [None] * len(calls)

        def attempt(remaining_s: float) -> None:
            deadline = self.clock() + remaining_s
            failure: RocketMQError | None = None
            waiting: list[tuple[int, str, Connection, list[int], Reply]] = []
            for index, call in enumerate(calls):
                if answers[index] is None:
                    try:
                        address, fields = call.target()
                        connection, reply = self.pool.get(address), Reply()
                    except RocketMQError as error:
                        failure = _worse(failure, error)
                        continue
                    request = Request(call.code, fields, reply, call.body, remaining_s)
                    waiting.append((index, address, connection, connection.start([request]), reply))
            for index, address, connection, opaques, reply in waiting:
                call = calls[index]
                try:
                    frame = reply.wait(max(0.0, deadline - self.clock()))
                    if frame is None:
                        connection.forget(opaques)
                        raise RequestTimeoutError(address, call.operation, remaining_s)
                    check_answer(frame, call.accept, address=address, operation=call.operation, topic=call.topic)
                    answers[index] = frame
                except RocketMQError as error:
                    failure = _worse(failure, error)
            if failure is not None:
                raise failure

        self.retrying(attempt, timeout_s)
        return [answer for answer in answers if answer is not None]

    def call_name_server(
        self,
        code: RequestCode,
        fields: Mapping[str, str],
        *,
        timeout_s: float | None = None,
        accept: Collection[int] = _SUCCESS,
        topic: str = "",
    ) -> Frame:
        """Ask the name server that answered last, else the next one; as `call` otherwise."""

        def attempt(remaining_s: float) -> Frame:
            failure: RocketMQError | None = None
            for step in range(len(self._name_servers)):
                index = (self._preferred + step) % len(self._name_servers)
                address = self._name_servers[index]
                try:
                    share_s = remaining_s / (len(self._name_servers) - step)
                    frame = self.pool.get(address).call(code, fields, timeout_s=share_s)
                    check_answer(
                        frame, accept, address=f"name server {address}", operation=request_name(code), topic=topic
                    )
                except RocketMQError as error:
                    if not error.retriable:
                        raise
                    failure = error
                else:
                    self._preferred = index
                    return frame
            assert failure is not None  # there is at least one name server
            raise failure

        return self.retrying(attempt, timeout_s)

    def retrying(self, attempt: Callable[[float], T], timeout_s: float | None = None) -> T:
        """The result of `attempt(seconds left)`; it is called again after retriable errors, with growing pauses.

        Raises its last error once the time (default: that of the client) is used up, and ClientClosedError.
        """
        deadline = self.clock() + (self.timeout_s if timeout_s is None else timeout_s)
        delay_s = _RETRY_DELAY_FIRST_S
        while True:
            try:
                return attempt(max(0.0, deadline - self.clock()))
            except RocketMQError as error:
                if not error.retriable:
                    raise
                wait_s = max(delay_s, error.retry_after_s if isinstance(error, ConnectionFailedError) else 0.0)
                if self.clock() + wait_s >= deadline:
                    raise
            if self.closed.wait(wait_s):
                raise ClientClosedError("the client was closed during the call")
            delay_s = min(_RETRY_DELAY_MOST_S, delay_s * 2)
