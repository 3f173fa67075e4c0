"""The seams: functions of Python through which code reaches time, threads, randomness and files.

While a world is entered, they are replaced for the world's threads. All other threads go through to the real ones. ``SEAMS`` lists
them; tests/simulation/test_seams.py checks that the code of headrace reaches the outside through these only.
"""

from __future__ import annotations

import builtins
import concurrent.futures.thread
import io
import os
import queue
import random
import re
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from headrace_file import wake_up

from tests.simulation.world.disk import Disk
from tests.simulation.world.locks import Lock, RLock
from tests.simulation.world.scheduler import Crashed, World

_world: World | None = None
_disk: Disk | None = None

_get_ident = threading.get_ident


def current() -> World | None:
    """Return the world of this thread; None: it is none of a world."""
    world = _world
    return world if world is not None and world.current.ident == _get_ident() else None


Lock.current = staticmethod(current)

# ---------------------------------------------------------------------------------------------------------- time


def _clock(real: Callable[[], Any], reading: Callable[[World], Any]) -> Callable[[], Any]:
    def read() -> Any:
        world = current()
        return real() if world is None else reading(world)

    return read


_sleep = time.sleep


def _slept(seconds: float) -> None:
    world = current()
    if world is None:
        _sleep(seconds)
    else:
        world.sleep(seconds)


# ------------------------------------------------------------------------------------------------------- threads

_NUMBERED = re.compile(r"Thread-\d+.*")
_start, _join, _is_alive = threading.Thread.start, threading.Thread.join, threading.Thread.is_alive


def _started(thread: threading.Thread) -> None:
    world = current()
    if world is None:
        _start(thread)
    else:
        process = world.current.process
        # Python numbers threads without a name over all worlds.
        name = _NUMBERED.sub(f"thread {len(process.tasks)}", thread.name)
        world.step("thread.start", name)
        world.spawn(thread, process, f"{process.name}/{name}")


class _InOrder(dict[threading.Thread, None]):
    """The threads of a pool in the order of their start. Python has a set of them, whose order is that of addresses in memory."""

    def add(self, thread: threading.Thread) -> None:
        self[thread] = None


_make_pool = concurrent.futures.thread.ThreadPoolExecutor.__init__


def _pool_made(pool: concurrent.futures.ThreadPoolExecutor, *arguments: Any, **named: Any) -> None:
    _make_pool(pool, *arguments, **named)
    if current() is not None:
        pool._threads = _InOrder()  # type: ignore[assignment]


def _joined(thread: threading.Thread, timeout: float | None = None) -> None:
    task = thread.__dict__.get("simulated")
    world = current()
    if task is None or world is None:
        if task is None:
            _join(thread, timeout)
        return
    world.step("thread.join", task.name)
    world.join(task, None if timeout is None else int(max(0.0, timeout) * 1e6))


def _alive(thread: threading.Thread) -> bool:
    task = thread.__dict__.get("simulated")
    return _is_alive(thread) if task is None else not task.done


def _lock() -> Any:
    return _real_lock() if current() is None else Lock()


def _rlock() -> Any:
    return _real_rlock() if current() is None else RLock()


_real_lock, _real_rlock = threading.Lock, threading.RLock
_real_queue = queue.SimpleQueue

# ---------------------------------------------------------------------------------------------------- randomness

_urandom, _getpid = os.urandom, os.getpid


def _random_bytes(size: int) -> bytes:
    world = current()
    return _urandom(size) if world is None else world.random.randbytes(size)


def _pid() -> int:
    world = current()
    return _getpid() if world is None else 1000 + world.current.process.number


# ------------------------------------------------------------------------------------------------------- network

_create_connection = socket.create_connection


def _connected(address: tuple[str, int], *arguments: Any, **options: Any) -> Any:
    world = current()
    if world is None or world.network is None:
        return _create_connection(address, *arguments, **options)
    return world.network.connect(address)


# --------------------------------------------------------------------------------------------------------- files


def _of_path(real: Callable[..., Any], taken: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call of the system whose first argument is a path, or a descriptor."""

    def call(path: Any, *arguments: Any, **options: Any) -> Any:
        disk = _disk
        if disk is None or current() is None or not disk.has(path):
            return real(path, *arguments, **options)
        return taken(disk, real, path, *arguments, **options)

    return call


def _file_opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
    disk, world = _disk, current()
    if world is not None and str(file) == _BOOT:
        return io.StringIO(f"boot {world.boots}\n")
    if disk is None or world is None or not disk.has(file):
        return _real_open(file, mode, *arguments, **options)
    return disk.open_file(_real_open, file, mode, *arguments, **options)


_real_open = io.open
#: Where Linux says since which start the machine runs.
_BOOT = "/proc/sys/kernel/random/boot_id"

_TIME: dict[tuple[Any, str], Any] = {
    (time, "time"): _clock(time.time, World.wall_seconds),
    (time, "time_ns"): _clock(time.time_ns, lambda world: int(world.wall_seconds() * 1e6) * 1000),
    (time, "monotonic"): _clock(time.monotonic, World.seconds),
    (time, "monotonic_ns"): _clock(time.monotonic_ns, lambda world: int(world.seconds() * 1e6) * 1000),
    (time, "perf_counter"): _clock(time.perf_counter, World.seconds),
    (time, "sleep"): _slept,
}
_THREADS: dict[tuple[Any, str], Any] = {
    (threading, "Lock"): _lock,
    (threading, "_allocate_lock"): _lock,
    (threading, "RLock"): _rlock,
    # Pools of threads wait in them.
    (queue, "SimpleQueue"): lambda: _real_queue() if current() is None else queue._PySimpleQueue(),  # type: ignore[attr-defined]
    # Held while a pool starts a thread.
    (concurrent.futures.thread, "_global_shutdown_lock"): Lock(),
    (concurrent.futures.thread.ThreadPoolExecutor, "__init__"): _pool_made,
    (threading.Thread, "start"): _started,
    (threading.Thread, "join"): _joined,
    (threading.Thread, "is_alive"): _alive,
}
_RANDOMNESS: dict[tuple[Any, str], Any] = {
    (os, "urandom"): _random_bytes,
    (os, "getpid"): _pid,
    (secrets, "token_bytes"): lambda size=32: os.urandom(size),
    (secrets, "token_hex"): lambda size=32: os.urandom(size).hex(),
}
_FILES: dict[tuple[Any, str], Any] = {
    (os, "open"): _of_path(os.open, Disk.open),
    (os, "close"): _of_path(os.close, Disk.close),
    (os, "write"): _of_path(os.write, Disk.write),
    (os, "pwrite"): _of_path(os.pwrite, Disk.write),
    (os, "fsync"): _of_path(os.fsync, Disk.sync),
    (os, "fdatasync"): _of_path(os.fdatasync, Disk.sync),
    (os, "truncate"): _of_path(os.truncate, Disk.change),
    (os, "ftruncate"): _of_path(os.ftruncate, Disk.change),
    (os, "replace"): _of_path(os.replace, Disk.rename),
    (os, "rename"): _of_path(os.rename, Disk.rename),
    (os, "link"): _of_path(os.link, Disk.link),
    (os, "unlink"): _of_path(os.unlink, Disk.remove),
    (os, "remove"): _of_path(os.remove, Disk.remove),
    (os, "rmdir"): _of_path(os.rmdir, Disk.remove),
    (os, "mkdir"): _of_path(os.mkdir, Disk.make_directory),
    # Else it removes names relative to a descriptor of their directory.
    (shutil, "_use_fd_functions"): False,
    (io, "open"): _file_opened,
    (builtins, "open"): _file_opened,
}
_real_functions = wake_up._functions
#: A reader is not woken when its file is written to: time passes until it looks.
_EVENTS: dict[tuple[Any, str], Any] = {
    (wake_up, "_functions"): lambda: _real_functions() if current() is None else None,
}
#: What is replaced: by (module or class, name).
SEAMS = {**_TIME, **_THREADS, **_RANDOMNESS, **_FILES, **_EVENTS, (socket, "create_connection"): _connected}


class Entered:
    """A context in which the threads of a world go through its seams. One at a time in a process of the operating system."""

    def __init__(self, world: World, disk: Disk | None) -> None:
        self._world, self._disk = world, disk

    def __enter__(self) -> None:
        global _world, _disk
        assert _world is None, "a world is entered already"
        self._before = {place: getattr(place[0], place[1]) for place in SEAMS}
        self._random = random.getstate()
        random.seed(self._world.random.random())
        tempfile._name_sequence = None  # type: ignore[attr-defined]
        _world, _disk = self._world, self._disk
        for (owner, name), replacement in SEAMS.items():
            setattr(owner, name, replacement)

    def __exit__(self, *_: Any) -> None:
        global _world, _disk
        for (owner, name), before in self._before.items():
            setattr(owner, name, before)
        _world = _disk = None
        random.setstate(self._random)


__all__ = ["SEAMS", "Crashed", "Entered", "current"]
