"""Locks of a simulated world. Outside of its threads they are locks as any other."""

from __future__ import annotations

import _thread
from typing import Any, Protocol

from tests.simulation.world.scheduler import Task, World


class Current(Protocol):
    """Gives the world of this thread; None: it is none of a simulated world."""

    def __call__(self) -> World | None: ...


class Lock:
    """Instead of ``threading.Lock``. ``current`` is set by the seams."""

    current: Current

    def __init__(self) -> None:
        self._real = _thread.allocate_lock()
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        world = Lock.current()
        if world is None:
            return self._real.acquire(blocking, timeout)
        if world.current.process.dead:
            # A thread that ends goes through the code that gives locks back: it must not wait there.
            return self._real.acquire(False) or _crashed()
        if blocking and world._ready:  # else nobody else could run
            world.give_way()
        if self._real.acquire(False):
            return True
        if not blocking:
            return False
        until = None if timeout < 0 else world.us + int(timeout * 1e6)
        while not self._real.acquire(False):
            left = None if until is None else until - world.us
            if left is not None and left <= 0:
                return False
            self._waiting.append(world.current)
            try:
                world.pause(left)
            finally:
                if world.current in self._waiting:
                    self._waiting.remove(world.current)
        return True

    def release(self) -> None:
        self._real.release()
        world = Lock.current()
        if world is not None and self._waiting:
            world.wake(self._waiting.pop(0))

    def locked(self) -> bool:
        return self._real.locked()

    def _at_fork_reinit(self) -> None:
        self._real = _thread.allocate_lock()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()


def _crashed() -> bool:
    from tests.simulation.world.scheduler import Crashed

    raise Crashed


class RLock:
    """Instead of ``threading.RLock``."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: int | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = _thread.get_ident()
        if self._owner == me:
            self._count += 1
            return True
        found = self._lock.acquire(blocking, timeout)
        if found:
            self._owner, self._count = me, 1
        return found

    def release(self) -> None:
        if self._owner != _thread.get_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def _is_owned(self) -> bool:
        return self._owner == _thread.get_ident()

    def _release_save(self) -> tuple[int, int | None]:
        saved = self._count, self._owner
        self._count, self._owner = 0, None
        self._lock.release()
        return saved

    def _acquire_restore(self, saved: tuple[int, int | None]) -> None:
        self._lock.acquire()
        self._count, self._owner = saved

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()
        self._owner, self._count = None, 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()
