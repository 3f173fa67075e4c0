"""A checkpoint that is stored by another thread while the engine continues."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
#: Checkpoints of fewer changed rows are stored at once: that takes less than to wait for a thread and for the next round.
BEHIND_ROWS_MIN = 20_000


class _Storing:
    """The work of a storing thread, and its result."""

    def __init__(self, store: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self._store = store
        self._then = then
        self.ended = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._store()
        except BaseException as error:  # whatever it is, the engine's thread raises it
            self._error = error
        finally:
            self.ended.set()

    def end(self) -> None:
        """Call ``then``, or raise what storing has raised."""
        if self._error is not None:
            raise self._error
        self._then(self._result)


class StoringBehind:
    """At most one checkpoint is on its way. Used by the engine's thread; only what stores it runs in another one."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._waiting: _Storing | None = None

    def begin(self, store: Callable[[], T], then: Callable[[T], None]) -> None:
        """Let another thread store a checkpoint; ``then`` is called with what it returns, by ``settle``. None is on its way."""
        assert self._waiting is None, "one after the other"
        self._waiting = _Storing(store, then)
        threading.Thread(target=self._waiting.run, name=f"headrace {self._job} checkpoint", daemon=True).start()

    def settle(self, *, wait: bool) -> bool:
        """End the checkpoint that is on its way, if it is stored, or ``wait`` for that; return whether none is left.

        Raises what storing it has raised.
        """
        waiting = self._waiting
        if waiting is None:
            return True
        if wait:
            waiting.ended.wait()
        elif not waiting.ended.is_set():
            return False
        self._waiting = None
        waiting.end()
        return True

    def close(self, stopping: threading.Event) -> None:
        """Wait until nothing is stored any more. What was on its way does not count, so it is not tried for long. May be called twice."""
        if self._waiting is not None:
            stopping.set()
            self._waiting.ended.wait()
            self._waiting = None
