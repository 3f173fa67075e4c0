"""Calls that wait, made in a separate thread, while the caller's thread answers callbacks in the meantime.

kafka-python reports rebalances from inside its input/output thread while ``poll`` waits, where nothing of the consumer
may be called; and some of its calls wait for ever when the brokers are not available.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Call(Generic[T]):
    """One call under way, or done."""

    def __init__(self, action: Callable[[], T]) -> None:
        self.action = action
        self.done = False
        self.result: T | None = None
        self.error: BaseException | None = None


class OwnThread:
    """Makes calls one at a time. ``call`` is used by one thread at a time; ``ask`` from any."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Call[Any] | None] = queue.SimpleQueue()
        #: Actions for the caller's thread, and finished calls.
        self._told: queue.SimpleQueue[Callable[[], None] | Call[Any]] = queue.SimpleQueue()
        self._late: Call[Any] | None = None
        self._thread: threading.Thread | None = None
        self._answering = False

    @property
    def answering(self) -> bool:
        """Whether a question is being answered: a call waits for it, and another must not wait for that."""
        return self._answering

    def call(self, action: Callable[[], T], timeout_seconds: float) -> T:
        """Call ``action`` and return its result. Questions are answered meanwhile; their time does not count for the
        time-out.

        Raises TimeoutError when it takes longer, or when an earlier call is still running; the call itself continues.
        """
        if self._answering:
            return action()
        if self._late is not None:
            self._wait_for(self._late, timeout_seconds)
            self._late = None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        made: Call[T] = Call(action)
        self._calls.put(made)
        self._late = made
        self._wait_for(made, timeout_seconds)
        self._late = None
        if made.error is not None:
            raise made.error
        return made.result  # type: ignore[return-value]

    def ask(self, question: Callable[[], None]) -> None:
        """Have ``question`` called in the thread that waits in ``call``. Returns at once."""
        self._told.put(question)

    def end(self) -> None:
        """Let the thread end after the call that it makes."""
        self._calls.put(None)

    def _run(self) -> None:
        while (made := self._calls.get()) is not None:
            try:
                made.result = made.action()
            except BaseException as error:  # raised in the caller's thread
                made.error = error
            made.done = True
            self._told.put(made)

    def _wait_for(self, awaited: Call[Any], timeout_seconds: float) -> None:
        while not awaited.done:
            try:
                told = self._told.get(timeout=max(0.001, timeout_seconds))
            except queue.Empty:
                if awaited.done:
                    return
                raise TimeoutError(f"no answer within {timeout_seconds:g} s") from None
            if not isinstance(told, Call):
                self._answering = True
                try:
                    told()
                finally:
                    self._answering = False
