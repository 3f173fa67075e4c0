"""A member of a consumer group, as an instance of a backend is one: it takes queues, reads, commits, and gives queues up."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import RetriableError
from headrace.interfaces.source import EARLIEST, GroupListener, GroupSource, Reader

#: How long a member waits in ``poll_group``.
_POLL = timedelta(milliseconds=50)


class Member(GroupListener):
    """Uses one source as a member of its group. One thread calls ``step``; other threads may read the results."""

    def __init__(self, source: GroupSource) -> None:
        self.source = source
        self._readers: dict[str, Reader] = {}
        self._queues: dict[str, Queue] = {}
        self._lock = threading.Lock()  # guards the attributes that other threads read
        self._records: dict[str, list[Any]] = {}
        self._begun: dict[str, list[ReadPosition | None]] = {}
        self._held: frozenset[str] = frozenset()
        self._polling: int | None = None
        self._commits = True
        #: Calls of the listener that a backend does not accept; below: the queues that were revoked with lost=True.
        self.wrong_calls: list[str] = []
        self.lost: list[str] = []

    @property
    def held(self) -> frozenset[str]:
        """The names of the queues that this member has now."""
        with self._lock:
            return self._held

    @property
    def records(self) -> dict[str, list[Any]]:
        """All that was read, by queue."""
        with self._lock:
            return {name: list(found) for name, found in self._records.items()}

    @property
    def begun(self) -> dict[str, list[ReadPosition | None]]:
        """The committed position each time that this member was assigned a queue, by queue."""
        with self._lock:
            return {name: list(found) for name, found in self._begun.items()}

    def positions(self) -> dict[Queue, ReadPosition]:
        """Return the positions of this member in its queues. Called by the thread that calls ``step``."""
        return {self._queues[name]: reader.position for name, reader in self._readers.items()}

    def step(self, *, wait: timedelta = _POLL) -> None:
        """Poll the group once, and each queue."""
        self._polling = threading.get_ident()
        try:
            self.source.poll_group(wait)
            for name, reader in list(self._readers.items()):
                if name in self._readers:  # the poll of another queue may have revoked this one
                    self._read(name, reader)
        except RetriableError:
            pass  # a backend polls again as well
        finally:
            self._polling = None

    def leave(self, *, commit: bool = True) -> None:
        """Commit, leave the group and close everything. ``commit=False``: commit nothing, also if leaving revokes queues."""
        self._commits = commit
        if commit:
            self.source.commit(self.positions())
        self.source.leave()
        self.close()

    def close(self) -> None:
        """Close the readers and the source. May be called twice."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._show_held()
        self.source.close()

    def assigned(self, queues: Iterable[Queue]) -> None:
        queues = list(queues)
        self._note_call("assigned", queues)
        for queue in queues:
            committed = self.source.committed(queue)
            self._readers[queue.name] = self.source.open(queue, committed if committed is not None else EARLIEST)
            self._queues[queue.name] = queue
            with self._lock:
                self._begun.setdefault(queue.name, []).append(committed)
        self._show_held()

    def revoked(self, queues: Iterable[Queue], *, lost: bool = False) -> None:
        queues = list(queues)
        self._note_call("revoked", queues)
        if lost:
            self.lost += [queue.name for queue in queues]
        elif self._commits:
            given_up = {queue.name for queue in queues}
            self.source.commit({queue: at for queue, at in self.positions().items() if queue.name in given_up})
        for queue in queues:
            reader = self._readers.pop(queue.name, None)
            if reader is None:
                self.wrong_calls.append(f"revoked({queue.name!r}), which was not assigned")
            else:
                reader.close()
        self._show_held()

    def _read(self, name: str, reader: Reader) -> None:
        raw = reader.poll(100, timedelta(0))
        if raw is None or not len(raw):
            return
        records = list(raw.bodies) if raw.bodies is not None else raw.frame.to_dicts() if raw.frame is not None else []
        with self._lock:
            self._records.setdefault(name, []).extend(records)

    def _note_call(self, what: str, queues: list[Queue]) -> None:
        if self._polling != threading.get_ident():
            where = "outside of poll_group and poll" if self._polling is None else "by another thread"
            self.wrong_calls.append(f"{what}({[queue.name for queue in queues]}) {where}")

    def _show_held(self) -> None:
        with self._lock:
            self._held = frozenset(self._readers)


class RunningMember:
    """A member that runs in its own thread, as an instance in another process would. ``stop`` ends it."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self, patience: timedelta) -> None:
        """Let the member commit and leave. Raises the error of its thread, and TimeoutError if this takes longer."""
        self._stop.set()
        self._thread.join(patience.total_seconds())
        if self._thread.is_alive():
            raise TimeoutError(f"a member has not left within {patience.total_seconds():g} s")
        self.check()

    def check(self) -> None:
        """Raise the error of the member's thread, if there is one; each error is raised once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            self.member.source.join(self.member)
            while not self._stop.is_set():
                self.member.step()
            self.member.leave()
        except BaseException as error:  # check and stop raise it in the thread of the check
            self._failure = error
            self.member.close()


@dataclass(frozen=True)
class DyingMember:
    """A task for a process: join the group, read so many records of a queue, commit a position, and be killed."""

    source: GroupSource
    queue_name: str
    records: int
    commit: ReadPosition
    patience_seconds: float

    def __call__(self) -> None:
        member = Member(self.source)
        self.source.join(member)
        self._step_until(member, lambda: len(member.records.get(self.queue_name, ())) >= self.records)
        queue = next(queue for queue in member.positions() if queue.name == self.queue_name)
        self.source.commit({queue: self.commit})
        os.kill(os.getpid(), signal.SIGKILL)

    def _step_until(self, member: Member, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.patience_seconds
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"held: {sorted(member.held)}; read: { {n: len(r) for n, r in member.records.items()} }"
                )
            member.step()
