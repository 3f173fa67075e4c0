"""rocketmq-client-python's push consumer in a separate process: it sends messages, and gets acknowledgements for them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import BinaryIO

from headrace_rocketmq.errors import ClientClosedError, RocketMQError
from headrace_rocketmq.native_child import DONE, FAILED, FRAME, MESSAGE, RECEIVED, STARTED

_END_PATIENCE_S = 5.0


class NativeConsumerError(RocketMQError):
    """The process of the native client has ended, or did not start. A new one may do better."""

    retriable = True


class NativeClientMissingError(RocketMQError):
    """rocketmq-client-python or librocketmq cannot be loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start message for the process."""

    name_servers: str
    group: str
    topics: list[str]
    tags: str
    """``*``, or ``red || blue``."""
    instance: str
    """Unique among the consumers of the group."""
    threads: int
    """Messages that are handed out and not done, at most: each is held by a thread."""
    library: str | None
    """Directory of librocketmq; None: where the system looks."""
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class NativeMessage:
    """A message, with the fields that the library gives. Bodies end at their first NUL byte."""

    stored_ms: int
    born_ms: int
    sharding_key: bytes
    keys: bytes
    tags: bytes
    unique_id: bytes
    body: bytes

    @classmethod
    def decode(cls, payload: bytes) -> NativeMessage:
        """Return the message in a frame's payload."""
        stored_ms, born_ms, *lengths = MESSAGE.unpack_from(payload)
        parts, at = [], MESSAGE.size
        for length in lengths:
            parts.append(payload[at : at + length])
            at += length
        return cls(stored_ms, born_ms, parts[0], parts[1], parts[2], parts[3], payload[at:])


class NativeConsumer:
    """One process with one push consumer. Its messages are numbered from 0 in the order of their arrival.

    ``take`` and ``finish`` are called by one thread, ``close`` by any. What is not finished when the process ends, in
    whatever way, is given again to some consumer of the group; so is what was finished in the last seconds.
    """

    def __init__(self, start: Start) -> None:
        """Start the process; it joins the group a moment later: see ``wait_until_started``."""
        read_end, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace_rocketmq.native_child", str(write_end)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # the library prints
                pass_fds=[write_end],
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self._frames = os.fdopen(read_end, "rb")
        self._lock = threading.Lock()  # guards _messages, _has_started and _failure
        self._changed = threading.Condition(self._lock)
        self._messages: deque[NativeMessage] = deque()
        self._received = 0
        self._has_started = False
        self._failure: RocketMQError | None = None
        self._thread = threading.Thread(target=self._read, name="rocketmq-native", daemon=True)
        self._thread.start()
        self._tell(json.dumps(asdict(start)).encode() + b"\n")

    @property
    def received(self) -> int:
        """The number of messages that have come."""
        with self._lock:
            return self._received

    @property
    def failure(self) -> RocketMQError | None:
        """Why no more messages come; None while the process runs."""
        with self._lock:
            return self._failure

    def wait_until_started(self, timeout_s: float) -> None:
        """Wait until the consumer runs. Raises NativeClientMissingError or NativeConsumerError."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_started or self._failure is not None, timeout_s)
            failure, has_started = self._failure, self._has_started
        if failure is not None:
            raise failure
        if not has_started:
            raise NativeConsumerError(f"the native client has not started within {timeout_s:g} s")

    def take(self, count_max: int, timeout_s: float) -> list[NativeMessage]:
        """Return the next messages, at most so many; waits for the first. Empty after the time, or after a failure."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._failure is not None, timeout_s)
            return [self._messages.popleft() for _ in range(min(count_max, len(self._messages)))]

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a message to take, or a failure."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._failure is not None, timeout_s)

    def finish(self, count: int) -> None:
        """Acknowledge the first so many messages. Does nothing when the process has ended."""
        self._tell(DONE.pack(count))

    def close(self) -> None:
        """End the process. May be called twice."""
        with self._changed:
            if self._failure is None:
                self._failure = ClientClosedError("the consumer is closed")
            self._changed.notify_all()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.close()
        try:
            self._process.wait(_END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()

    def _tell(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # it has ended, which the reading thread reports; or it was closed

    def _read(self) -> None:
        with self._frames as frames:
            failure = self._read_frames(frames)
        with self._changed:
            if self._failure is None:
                self._failure = failure
            self._changed.notify_all()

    def _read_frames(self, frames: BinaryIO) -> RocketMQError:
        while len(head := frames.read(FRAME.size)) == FRAME.size:
            kind, length = FRAME.unpack(head)
            payload = frames.read(length)
            if len(payload) < length:
                break
            if kind == FAILED:
                return _failure_of(payload.decode(errors="replace"))
            with self._changed:
                if kind == STARTED:
                    self._has_started = True
                elif kind == RECEIVED:
                    self._messages.append(NativeMessage.decode(payload))
                    self._received += 1
                self._changed.notify_all()
        # It may have crashed within the library: then only the exit code is known.
        code = self._exit_code()
        return NativeConsumerError(f"the process of the native client has ended (exit code {code})")

    def _exit_code(self) -> int | None:
        try:
            return self._process.wait(_END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            return None


def _failure_of(text: str) -> RocketMQError:
    if text.startswith(("ImportError:", "ModuleNotFoundError:", "OSError:", "AttributeError:")):
        return NativeClientMissingError(f"the native client cannot be loaded: {text}")
    return NativeConsumerError(f"the native client: {text}")
