"""Time, threads and processes of a simulated world.

Every simulated thread is a thread of the operating system, but one only runs at a time: the one that has the baton. It gives the
baton on at *seams*: where it waits, and, as the seed decides, where it takes a lock or asks for anything outside of its memory. When
all threads wait, the time moves to the first moment at which one of them wakes up.
"""

from __future__ import annotations

import _thread
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from tests.simulation.world.trace import Trace

#: The clock of a world begins here: 2023-11-14 22:13:20 UTC.
BEGIN_US = 1_700_000_000_000_000
#: What passes at a seam at most.
_SEAM_US_MAX = 50


class Crashed(BaseException):
    """Raised at every seam in the threads of a process that was killed, so that they end."""


class Task:
    """A simulated thread."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.ident = 0
        self.blocked = False
        self.woken = False
        #: Which pause this is; timers of earlier ones do not count.
        self.pauses = 0
        self.done = False
        self.joining: list[Task] = []


class Process:
    """A simulated process: its threads, its open files, and how often it has passed each kind of seam."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.tasks: list[Task] = []
        self.dead = False
        self.steps = 0
        self.passed: Counter[str] = Counter()
        self.descriptors: set[int] = set()
        #: Until when it does not run: it is stopped, or its machine has no time for it.
        self.frozen_until_us = 0
        #: Exceptions that threads ended with.
        self.errors: list[tuple[str, BaseException]] = []
        #: What the process gives back, and the exception that it ended with.
        self.result: Any = None
        self.error: BaseException | None = None
        #: Where the threads were when the process was found to make no progress.
        self.stacks = ""

    @property
    def ended(self) -> bool:
        """Whether no thread of it is left."""
        return not self.tasks


class World:
    """One simulated world. The thread that makes it is its *driver*: a task that starts and kills processes.

    ``preempt``: the chance that a thread gives the baton on at a seam. ``watch`` is called at each step with the process and the kind
    of seam; it may kill the process.
    """

    def __init__(self, seed: int | str, *, preempt: float = 0.1, steps_max: int = 100_000) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.trace = Trace()
        self.us = 0
        #: By how much the clock of the wall is off, and when it jumps by how much: the last first.
        self.wall_us = BEGIN_US
        self.jumps: list[tuple[int, int]] = []
        self.preempt = preempt
        self.steps_left = steps_max
        self.watch: Callable[[Process, str, str], None] | None = None
        #: How often the machine was started.
        self.boots = 1
        #: Servers that sockets can reach (``network.Network``); None: the network is the real one.
        self.network: Any = None
        self._processes = 0
        self._timers: list[tuple[int, int, Task, int]] = []
        self._timer_count = 0
        self._ready: list[Task] = []
        self.driver = Task("driver", Process("driver", 0))
        self.driver.ident = threading.get_ident()
        self.current = self.driver

    # ------------------------------------------------------------------------------------------------- seams

    def step(self, kind: str, what: str = "", *, us: int = 0) -> None:
        """Pass a seam: time goes on, other threads may run, and the process may be killed. Raises Crashed when it was.

        ``us``: how long it takes at least.
        """
        task = self.current
        process = task.process
        if process.dead:
            raise Crashed
        process.steps += 1
        process.passed[kind] += 1
        self.us += us + int(self.random.random() * _SEAM_US_MAX)
        self.trace.add(self.us, task.name, kind, what)
        if self.watch is not None:
            self.watch(process, kind, what)
            if process.dead:
                raise Crashed
        self.steps_left -= 1
        if self.steps_left <= 0:
            self._stop_without_progress(process)
        if process.frozen_until_us > self.us:
            self._thaw(process)
        if self._ready and self.random.random() < self.preempt:
            self._hand_over_ready(task)

    def _thaw(self, process: Process) -> None:
        while process.frozen_until_us > self.us:
            self._wait(process.frozen_until_us - self.us)

    def _stop_without_progress(self, process: Process) -> None:
        if process is not self.driver.process:
            process.stacks = process.stacks or self.stacks()
            self.kill(process, "no progress")
            raise Crashed

    def give_way(self) -> None:
        """Let another thread run, if the seed says so."""
        if self._ready and self.random.random() < self.preempt:
            self._hand_over_ready(self.current)

    def _hand_over_ready(self, task: Task) -> None:
        self._ready.append(task)
        self._hand_over(task)
        if task.process.dead:
            raise Crashed

    def seconds(self) -> float:
        """Return what clocks show that only grow."""
        if self.current.process.dead:
            raise Crashed
        self.us += 1
        return self.us / 1e6

    def wall_seconds(self) -> float:
        """Return what the clock of the wall shows."""
        if self.current.process.dead:
            raise Crashed
        self.us += 1
        while self.jumps and self.jumps[-1][0] <= self.us:
            self.wall_us += self.jumps.pop()[1]
        return (self.us + self.wall_us) / 1e6

    def sleep(self, seconds: float) -> None:
        """Let time pass for this thread."""
        self.pause(max(0, int(seconds * 1e6)))

    def pause(self, us: int | None = None) -> bool:
        """Wait until ``wake`` or for so long; return whether it was woken. Raises Crashed when the process was killed meanwhile."""
        woken = self._wait(us)
        self._thaw(self.current.process)
        return woken

    def _wait(self, us: int | None) -> bool:
        task = self.current
        if task.process.dead:
            raise Crashed
        task.blocked, task.woken = True, False
        task.pauses += 1
        if us is not None:
            self._timer_count += 1
            heappush(self._timers, (self.us + us, self._timer_count, task, task.pauses))
        if task is not self.driver:
            self.steps_left -= 1
            if self.steps_left <= 0:
                self._stop_without_progress(task.process)
        self._hand_over(task)
        if task.process.dead:
            raise Crashed
        return task.woken

    def wake(self, task: Task) -> None:
        """Let a thread that waits go on."""
        if task.blocked:
            task.blocked, task.woken = False, True
            self._ready.append(task)

    def _hand_over(self, task: Task) -> None:
        """Give the baton to the next thread, and wait until it comes back, unless the thread is done."""
        following = self._following()
        if following is task:
            return
        self.current = following
        following.baton.release()
        if not task.done:
            task.baton.acquire()

    def _following(self) -> Task:
        ready = self._ready
        while not ready:
            if not self._timers:
                # Nobody will ever wake up: the driver finds threads that are left.
                self.driver.blocked = False
                return self.driver
            us, _, task, pauses = heappop(self._timers)
            if task.blocked and task.pauses == pauses:
                self.us = max(self.us, us)
                task.blocked = False
                ready.append(task)
        return ready.pop(int(self.random.random() * len(ready)) if len(ready) > 1 else 0)

    # --------------------------------------------------------------------------------------------- processes

    def process(self, name: str, main: Callable[[], Any]) -> Process:
        """Start a process whose first thread calls ``main``."""
        self._processes += 1
        process = Process(name, self._processes)

        def run() -> None:
            try:
                process.result = main()
            except Crashed:
                raise
            except BaseException as error:
                if not process.dead:  # else it comes of the way in which threads are ended
                    process.error = error

        self.trace.add(self.us, "driver", "start", name)
        self.spawn(threading.Thread(target=run, name=name, daemon=True), process, name)
        return process

    def spawn(self, thread: threading.Thread, process: Process, name: str | None = None) -> Task:
        """Start a simulated thread in a process."""
        task = Task(name or f"{process.name}/{thread.name}", process)
        process.tasks.append(task)
        thread._started._flag = True  # type: ignore[attr-defined]  # nobody waits for it
        thread.__dict__["simulated"] = task
        _thread.start_new_thread(self._bootstrap, (thread, task))
        self._ready.append(task)
        return task

    def _bootstrap(self, thread: threading.Thread, task: Task) -> None:
        task.baton.acquire()
        ident = task.ident = threading.get_ident()
        thread._ident = ident  # type: ignore[attr-defined]
        active: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]
        active[ident] = thread
        try:
            if not task.process.dead:
                thread.run()
        except Crashed:
            pass
        except BaseException as error:
            if not task.process.dead:
                task.process.errors.append((task.name, error))
        finally:
            del active[ident]
            thread.__dict__["_target"] = None
            self._end(task)

    def _end(self, task: Task) -> None:
        task.done = True
        process = task.process
        process.tasks.remove(task)
        for other in task.joining:
            self.wake(other)
        if process.ended:
            self.wake(self.driver)
        self._hand_over(task)

    def join(self, task: Task, us: int | None = None) -> bool:
        """Wait until a thread has ended; return whether it has."""
        until = None if us is None else self.us + us
        while not task.done:
            left = None if until is None else until - self.us
            if left is not None and left <= 0:
                return False
            task.joining.append(self.current)
            self.pause(left)
        return True

    def kill(self, process: Process, why: str) -> None:
        """End a process at once: what it does from now on has no effect. Its threads end at their next seam."""
        if process.dead:
            return
        process.dead = True
        self.trace.add(self.us, process.name, "killed", why)
        for task in process.tasks:
            self.wake(task)

    def run(self, process: Process) -> bool:
        """Wait, as the driver, until a process has ended; return False when its threads wait for each other for ever."""
        while not process.ended:
            self.pause()
            if not self._ready and not self._timers and not process.ended:
                if process.dead:  # they have been woken and wait again: only outside of the world
                    raise RuntimeError(f"threads of {process.name} cannot be ended:\n{self.stacks()}")
                process.stacks = self.stacks()
                self.kill(process, "deadlock")
                while not process.ended:
                    self.pause()
                return False
        return True

    def stacks(self) -> str:
        """Return where all threads of this process of the operating system are."""
        frames = sys._current_frames()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return "\n".join(
            f"-- {names.get(ident, ident)}\n" + "".join(traceback.format_stack(frame)[-12:])
            for ident, frame in frames.items()
        )
