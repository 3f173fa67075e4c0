"""One connection to one server, shared by all threads of a client.

Many threads can have open requests at the same time; each request has a number (`opaque`) that its answer repeats. One thread
reads, and gives each answer to the callback of its request. A request leaves the table exactly once: answered, expired, or
failed with the connection.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headrace_rocketmq.codes import FrameFlag, ResponseCode
from headrace_rocketmq.credentials import Credentials
from headrace_rocketmq.errors import (
    ConnectionLostError,
    ProtocolError,
    RequestTimeoutError,
    RocketMQError,
    request_name,
)
from headrace_rocketmq.frame import Frame, FrameReader, encode_frame
from headrace_rocketmq.transport import Transport

logger = logging.getLogger("headrace_rocketmq")

Clock = Callable[[], float]
"""Seconds from any origin, never backwards; ``monotonic_seconds`` outside of tests."""


def monotonic_seconds() -> float:
    """The clock of the machine. It is looked up at each call, so that a simulation can replace it."""
    return time.monotonic()


Callback = Callable[[Frame | RocketMQError], None]
_OPAQUE_MASK = 0x7FFFFFFF
_SEND_TIMEOUT_S = 30.0
_NO_FIELDS: Mapping[str, str] = {}


@dataclass(slots=True)
class Request:
    """A request. `callback` gets the answer, or the error, in the reading thread: it must be quick and must not raise."""

    code: int
    fields: Mapping[str, str]
    callback: Callback
    body: bytes = b""
    timeout_s: float = 10.0


class Reply:
    """A callback that a thread can wait for."""

    __slots__ = ("_event", "_outcome")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._outcome: Frame | RocketMQError | None = None

    def __call__(self, outcome: Frame | RocketMQError) -> None:
        """Called by the connection with the outcome."""
        self._outcome = outcome
        self._event.set()

    def wait(self, timeout_s: float) -> Frame | None:
        """The answer, or None if there was none in that time. Raises the error if there will be none."""
        if not self._event.wait(timeout_s):
            return None
        if isinstance(self._outcome, RocketMQError):
            raise self._outcome
        return self._outcome


class Connection:
    """One open connection. Made by the ConnectionPool."""

    def __init__(
        self,
        address: str,
        transport: Transport,
        *,
        credentials: Credentials | None = None,
        on_request: Callable[[Connection, Frame], None] | None = None,
        on_lost: Callable[[Connection], None] | None = None,
        clock: Clock = monotonic_seconds,
    ) -> None:
        """Start reading.

        `on_request` gets the requests of the server, in the reading thread; `on_lost` is called at the end, in any thread.
        """
        self.address = address
        self._transport = transport
        self._credentials = credentials
        self._on_request = on_request
        self._on_lost = on_lost
        self._clock = clock
        self._opaques = itertools.count(1)
        self._lock = threading.Lock()  # guards _waiting and _failure_reason
        self._waiting: dict[int, tuple[float, Request]] = {}
        self._failure_reason: str | None = None
        self.has_answered = False
        """Whether the server ever answered: one that only accepts connections is not to be tried in a hurry."""
        self._send_lock = threading.Lock()
        self._sending_since: float | None = None
        self._thread = threading.Thread(target=self._read, name=f"rocketmq-{address}", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether requests can still be made."""
        return self._failure_reason is None

    def failure(self) -> ConnectionLostError:
        """Why the connection ended; for messages."""
        return ConnectionLostError(self.address, self._failure_reason or "it is open")

    def start(self, requests: Iterable[Request]) -> list[int]:
        """Send requests in one go without waiting for answers; gives their numbers for `forget`.

        If the connection is closed or lost, each callback gets a ConnectionLostError; nothing is raised.
        """
        frames, opaques = [], []
        for request in requests:
            opaque = next(self._opaques) & _OPAQUE_MASK
            with self._lock:
                failure_reason = self._failure_reason
                if failure_reason is None:
                    self._waiting[opaque] = (self._clock() + request.timeout_s, request)
            if failure_reason is not None:
                request.callback(ConnectionLostError(self.address, failure_reason))
                continue
            opaques.append(opaque)
            frames.append(self._encode(request.code, opaque, request.fields, request.body))
        if frames:
            self._send(b"".join(frames))
        return opaques

    def call(self, code: int, fields: Mapping[str, str] = _NO_FIELDS, body: bytes = b"", *, timeout_s: float) -> Frame:
        """Send one request and wait for its answer, whatever its code.

        Raises ConnectionLostError or RequestTimeoutError.
        """
        reply = Reply()
        opaques = self.start([Request(code, fields, reply, body, timeout_s)])
        frame = reply.wait(timeout_s)
        if frame is None:
            self.forget(opaques)
            raise RequestTimeoutError(self.address, request_name(code), timeout_s)
        return frame

    def send_one_way(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a request that the server does not answer. Raises ConnectionLostError if it surely was not sent."""
        if self._failure_reason is None:
            opaque = next(self._opaques) & _OPAQUE_MASK
            self._send(self._encode(code, opaque, fields, body, FrameFlag.ONE_WAY))
        if self._failure_reason is not None:
            raise self.failure()

    def forget(self, opaques: Iterable[int]) -> None:
        """Drop requests whose answers are not needed any more; their callbacks are not called."""
        with self._lock:
            for opaque in opaques:
                self._waiting.pop(opaque, None)

    def expire(self) -> None:
        """Fail requests that waited too long, and the connection if it does not accept data.

        Called about once a second by the pool's housekeeping.
        """
        now = self._clock()
        with self._lock:
            late = [(opaque, request) for opaque, (deadline, request) in self._waiting.items() if deadline <= now]
            for opaque, _ in late:
                del self._waiting[opaque]
        for _, request in late:
            request.callback(RequestTimeoutError(self.address, request_name(request.code), request.timeout_s))
        since = self._sending_since
        if since is not None and now - since > _SEND_TIMEOUT_S:
            self.fail(f"it took nothing for {_SEND_TIMEOUT_S:g} s")

    def fail(self, reason: str) -> None:
        """Break the connection: all waiting requests fail. Safe to call from any thread, any number of times."""
        with self._lock:
            if self._failure_reason is not None:
                return
            self._failure_reason = reason
            waiting, self._waiting = self._waiting, {}
        self._transport.shut_down()
        for _, request in waiting.values():
            request.callback(ConnectionLostError(self.address, reason))
        if self._on_lost is not None:
            self._on_lost(self)

    def close(self, timeout_s: float = 5.0) -> None:
        """Break the connection and wait for its thread, unless called from it."""
        self.fail("it was closed by this client")
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _encode(self, code: int, opaque: int, fields: Mapping[str, str], body: bytes, flag: int = 0) -> bytes:
        if self._credentials is not None:
            fields = self._credentials.sign(dict(fields), body)
        return encode_frame(code, opaque, fields, body, flag=flag)

    def _send(self, data: bytes) -> None:
        try:
            with self._send_lock:
                self._sending_since = self._clock()
                try:
                    self._transport.send(data)
                finally:
                    self._sending_since = None
        except OSError as error:
            self.fail(f"{error}")

    def _read(self) -> None:
        frames = FrameReader()
        try:
            while data := self._transport.receive():
                for frame in frames.feed(data):
                    self._dispatch(frame)
            reason = "it was closed by the server"
        except (OSError, ProtocolError) as error:
            reason = f"{error}"
        except Exception as error:
            # After an internal error, callers must not wait for a thread that has ended.
            logger.exception("the reader of %s failed", self.address)
            reason = f"internal error: {error!r}"
        self.fail(reason)
        with self._send_lock:  # no thread may use the socket when its number is freed
            self._transport.close()

    def _dispatch(self, frame: Frame) -> None:
        if frame.is_response:
            self.has_answered = True
            with self._lock:
                entry = self._waiting.pop(frame.opaque, None)
            if entry is None:
                return  # forgotten or expired
            entry[1].callback(frame)
            if frame.code == ResponseCode.GO_AWAY:
                self.fail("the server is going away")
        elif self._on_request is not None:
            self._on_request(self, frame)

    def answer(self, request: Frame, code: int, remark: str) -> None:
        """Answer a request that the server made."""
        if not request.is_one_way:
            flag = int(FrameFlag.RESPONSE)
            self._send(encode_frame(code, request.opaque, {}, flag=flag, remark=remark))

    def __repr__(self) -> str:
        return f"Connection({self.address!r}, {'open' if self.is_open else 'closed'})"
