"""Gives each task to the process that ran the tasks of its partition before, which has the state of its shard in memory.

Spark gives a task to whichever of its Python workers has been idle for longest. So the worker of a shard changes from one
micro-batch to the next: in time each worker holds every shard, and must read the other workers' changes from the checkpoint.

Here what Spark takes for a worker does not run tasks. It waits for a task, asks the dispatcher for a process that knows its
partition, and hands over the socket on which Java waits. Java and the process then talk directly. The worker that Spark knows
and the process that runs its task end together: if Java has the worker killed, the dispatcher kills the process; if the process
dies, the worker ends, which tells Java.

Linux only, and where Java talks to its workers through Unix sockets; else workers run their tasks themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

#: Runs a task that comes through a socket; returns 0 when the next one may come.
Serve = Callable[[socket.socket, bool], int]
_CODE = struct.Struct("!i")
_ASK = struct.Struct("!iiq")
#: What a task begins with: the kind of the message, its length, the number of the partition.
_BEGIN = struct.Struct("!iii")
_PEEKED_BYTES = 65_536
_ATTEMPT = re.compile(rb'"taskAttemptId"\s*:\s*(\d+)')
_UNKNOWN_ATTEMPT = -1
_SET_SIGNAL_AT_DEATH_OF_PARENT = 1
#: A process that has had nothing to do for so long ends.
_IDLE_SECONDS_MAX = 300.0
_LOOK_SECONDS = 10.0
#: How long to wait for the message that the previous task has ended, before a task is given to another worker.
_ENDING_SECONDS_MAX = 0.05


class Ask(NamedTuple):
    """What a worker tells of the task that it has got."""

    worker: int
    partition: int
    attempt: int


class Key(NamedTuple):
    """Which tasks one process runs: those of a partition; of the two processes that Spark may use for a task, the first or second."""

    partition: int
    place: int


@dataclass(frozen=True)
class _Task:
    """A task that has come: what Java says through ``task``, its worker waits behind ``reply``."""

    key: Key
    task: socket.socket
    reply: socket.socket
    #: Until when the process that runs such tasks is waited for.
    deadline: float


@dataclass
class _Process:
    """A process that runs tasks."""

    process_id: int
    channel: socket.socket
    keys: set[Key] = field(default_factory=set)
    #: Which task it runs or ran last, and where the worker of this task waits; None: it is idle.
    key: Key | None = None
    reply: socket.socket | None = None
    idle_since: float = 0.0


def begin(serve: Serve) -> Serve | None:
    """Start the dispatcher; return what workers that are forked from this process do instead of ``serve``. None: not here.

    Called by Spark's daemon before it forks its first worker, when no thread runs.
    """
    if sys.platform != "linux" or os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true":
        return None
    if not os.environ.get("SPARK_REUSE_WORKER"):
        return None
    asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        asking.close()
        _be_dispatcher(asked, serve)
    asked.close()

    def hand_over(sock: socket.socket, authenticated: bool) -> int:
        return handed_over(asking, sock, authenticated, serve)

    return hand_over


def handed_over(asking: socket.socket, sock: socket.socket, authenticated: bool, serve: Serve) -> int:
    """Hand a task that has come through ``sock`` over; return the code of the process that ran it.

    If there is no dispatcher any more, this process runs it itself. If the process died, this one ends.
    """
    reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reply:
        with theirs:
            ask = _ASK.pack(os.getpid(), *_told_by(sock))
            try:
                socket.send_fds(asking, [ask], [sock.fileno(), theirs.fileno()])
            except OSError:
                return serve(sock, authenticated)
        answer = reply.recv(_CODE.size)
    if not answer:
        os._exit(1)  # Java sees its worker gone
    return int(_CODE.unpack(answer)[0])


def _told_by(sock: socket.socket) -> tuple[int, int]:
    """Return partition and attempt of the task that has come, and leave it unread."""
    content = sock.recv(_BEGIN.size, socket.MSG_PEEK | socket.MSG_WAITALL)
    if len(content) < _BEGIN.size:
        return _UNKNOWN_ATTEMPT, _UNKNOWN_ATTEMPT
    partition = _BEGIN.unpack(content)[2]
    found = _ATTEMPT.search(sock.recv(_PEEKED_BYTES, socket.MSG_PEEK))
    return partition, int(found[1]) if found else _UNKNOWN_ATTEMPT


def _be_dispatcher(asked: socket.socket, serve: Serve) -> None:
    code = 0
    try:
        os.setpgid(0, 0)  # Ctrl-C reaches every process of the terminal; it is the driver program that stops the job
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)  # the input of the daemon is what Java tells it
        os.close(nowhere)
        Dispatcher(asked, serve).run()
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    os._exit(code)


class Dispatcher:
    """Records which process ran which partitions, and forks more when all are busy. Runs in one thread of a separate process."""

    def __init__(self, asked: socket.socket, serve: Serve) -> None:
        self._asked = asked
        self._serve = serve
        self._processes: dict[int, _Process] = {}
        self._workers: set[int] = set()
        #: The last attempt of each partition, and how many processes have been asked for it.
        self._attempts: dict[int, tuple[int, int]] = {}
        self._waiting: list[_Task] = []
        self._ready = selectors.DefaultSelector()
        self._ready.register(asked, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the daemon and all its workers have gone."""
        try:
            while self._serve_once():
                self._give_waiting()
                self._end_idle()
        finally:
            for process in list(self._processes.values()):
                self._kill(process)

    def _serve_once(self) -> bool:
        wait = _ENDING_SECONDS_MAX / 10 if self._waiting else _LOOK_SECONDS
        for key, _ in self._ready.select(wait):
            if key.fileobj is self._asked:
                if not self._answer():
                    return False
                continue
            process: _Process = key.data
            if process.process_id not in self._processes:
                continue  # it was killed for another event of this round
            if key.fileobj is process.channel:
                self._take_code(process)
            else:  # the worker was killed: nobody waits for what its process makes
                self._kill(process)
        return True

    def _answer(self) -> bool:
        content, files, _, _ = socket.recv_fds(self._asked, _ASK.size, 2)
        if not content:
            return False
        ask = Ask(*_ASK.unpack(content))
        task, reply = (socket.socket(fileno=file) for file in files)
        self._workers.add(ask.worker)
        self._waiting.append(_Task(self._key_of(ask), task, reply, time.monotonic() + _ENDING_SECONDS_MAX))
        return True

    def _give_waiting(self) -> None:
        """Give tasks to processes, but for those whose own process is about to end a task of the same kind."""
        for each in list(self._waiting):
            busy = any(process.key == each.key for process in self._processes.values() if process.reply is not None)
            if not busy or time.monotonic() >= each.deadline:
                self._give(each)
                self._waiting.remove(each)  # afterwards: a process that is forked for it closes what waits

    def _give(self, given: _Task) -> None:
        with given.task:
            while True:
                process = self._process_for(given.key)
                try:
                    socket.send_fds(process.channel, [b"t"], [given.task.fileno()])
                    break
                except OSError:  # it has just died: the task is for another one
                    self._kill(process)
        process.key, process.reply = given.key, given.reply
        self._ready.register(given.reply, selectors.EVENT_READ, process)

    def _key_of(self, ask: Ask) -> Key:
        attempt, place = self._attempts.get(ask.partition, (_UNKNOWN_ATTEMPT, 0))
        place = place + 1 if attempt == ask.attempt != _UNKNOWN_ATTEMPT else 0
        self._attempts[ask.partition] = ask.attempt, place
        return Key(ask.partition, place)

    def _process_for(self, key: Key) -> _Process:
        """Return the idle process that ran such tasks; else a new one while there are fewer than Spark has workers; else any."""
        idle = [each for each in self._processes.values() if each.reply is None]
        known = [each for each in idle if key in each.keys]
        if not known and (not idle or len(self._processes) < len(self._workers)):
            known = [self._forked()]
        process = known[0] if known else min(idle, key=lambda each: (len(each.keys), each.idle_since))
        for other in self._processes.values():
            other.keys.discard(key)
        process.keys.add(key)
        return process

    def _forked(self) -> _Process:
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process_id = os.fork()
        if process_id == 0:
            self._leave()
            channel.close()
            _run_tasks(theirs, self._serve)
        theirs.close()
        process = self._processes[process_id] = _Process(process_id, channel)
        self._ready.register(channel, selectors.EVENT_READ, process)
        return process

    def _leave(self) -> None:
        """Give up, in a forked process, what belongs to the dispatcher."""
        self._ready.close()
        self._asked.close()
        for each in self._waiting:
            each.task.close()
            each.reply.close()
        for other in self._processes.values():
            other.channel.close()
            if other.reply is not None:
                other.reply.close()

    def _take_code(self, process: _Process) -> None:
        """Tell the worker that its task has ended, or that the process that ran it has."""
        try:
            code = process.channel.recv(_CODE.size)
        except OSError:
            code = b""
        if not code:
            self._kill(process)
            return
        assert process.reply is not None
        with contextlib.suppress(OSError):  # the worker was killed at this moment
            process.reply.send(code)
        if _CODE.unpack(code)[0]:
            self._kill(process)  # it ends after a task that failed: the next one must not be given to it
        else:
            self._free(process)

    def _free(self, process: _Process) -> None:
        if process.reply is not None:
            self._ready.unregister(process.reply)
            process.reply.close()
        process.reply, process.idle_since = None, time.monotonic()

    def _kill(self, process: _Process) -> None:
        del self._processes[process.process_id]
        self._free(process)
        self._ready.unregister(process.channel)
        process.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.process_id, signal.SIGKILL)
        os.waitpid(process.process_id, 0)

    def _end_idle(self) -> None:
        now = time.monotonic()
        for process in list(self._processes.values()):
            if process.reply is None and now - process.idle_since > _IDLE_SECONDS_MAX:
                self._kill(process)
        self._workers = {worker for worker in self._workers if os.path.exists(f"/proc/{worker}")}


def _run_tasks(channel: socket.socket, serve: Serve) -> None:
    """Run the tasks that come through the channel, one after the other, until it is closed. Does not return."""
    code = 0
    try:
        ctypes.CDLL(None).prctl(_SET_SIGNAL_AT_DEATH_OF_PARENT, signal.SIGKILL)
        for task in _tasks(channel):
            with task:
                code = serve(task, True)
            channel.send(_CODE.pack(code))
            if code:
                break
            gc.collect()  # as Spark's workers do after each task
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    os._exit(code)


def _tasks(channel: socket.socket) -> Iterator[socket.socket]:
    while True:
        content, files, _, _ = socket.recv_fds(channel, 1, 1)
        if not content:
            return
        yield socket.socket(fileno=files[0])
