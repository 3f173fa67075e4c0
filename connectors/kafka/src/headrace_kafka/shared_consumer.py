"""One consumer for all readers of a process: sorts the fetched records into a buffer per partition."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.foundation.errors import HeadraceError, RetriableError

from headrace_kafka.driver import ConsumerDriver, Fetched, GroupCallbacks, Partition, joined
from headrace_kafka.errors import StuckClient

logger = logging.getLogger(__name__)
T = TypeVar("T")
#: How long the result of an empty fetch is used for readers that do not wait: many idle partitions cost one fetch.
_NOTHING_SECONDS = 0.005


@dataclass(slots=True)
class Buffer:
    """Records of a partition that were fetched and not yet taken."""

    partition: Partition
    #: Records before this offset are not given.
    next_offset: int
    chunks: deque[Fetched] = field(default_factory=deque)
    bytes: int = 0
    records: int = 0
    #: Whether the driver reads the partition; it begins with the first ``take``, so that opening a reader does not fetch.
    read: bool = False
    paused: bool = False
    error: HeadraceError | None = None


class SharedConsumer:
    """Gives each reader the records of its partition, whichever reader fetched them.

    A partition with too many waiting records is paused until records are taken. Thread-safe: one lock around the driver, one
    around the buffers; the second is never held while the first is waited for.
    """

    def __init__(
        self, driver: ConsumerDriver, *, max_buffered_bytes: int, renew: Callable[[], ConsumerDriver] | None = None
    ) -> None:
        """``renew``: makes a new driver in place of one that cannot reach its cluster again."""
        self._driver = driver
        self._renew = renew
        self._limit_bytes = max_buffered_bytes
        self._buffers: dict[Partition, Buffer] = {}
        self._driver_lock = threading.RLock()
        self._buffers_lock = threading.Lock()
        self._in_group = False
        self._topics: Sequence[str] = ()
        self._callbacks: GroupCallbacks | None = None
        #: The partitions that the group has assigned to this member.
        self._assigned: set[Partition] = set()
        #: Those of them that the driver reads already.
        self._begun: set[Partition] = set()
        self._nothing_until = 0.0

    def subscribe(self, topics: Sequence[str], callbacks: GroupCallbacks) -> None:
        """Join the group: from now on partitions are read when they are assigned."""
        with self._driver_lock:
            self._in_group = True
            self._topics, self._callbacks = topics, self._counted(callbacks)
            self._driver.subscribe(topics, self._callbacks)

    def begin(self, partition: Partition, offset: int) -> Buffer:
        """Make a place for a partition's records from ``offset`` on. An earlier place for it gets no more records."""
        with self._driver_lock:
            earlier = self._buffers.get(partition)
            if earlier is not None:
                self.end(earlier)
            with self._buffers_lock:
                buffer = self._buffers[partition] = Buffer(partition, offset, read=self._in_group)
            if partition in self._begun:  # opened before: what the driver has given since would not come again
                self._driver.seek(partition, offset)
            return buffer

    def begin_late(self, partition: Partition) -> None:
        """Let the driver read a partition of the group whose reading could not begin when it was assigned."""
        with self._driver_lock:
            self._driver.begin_late(partition, self._buffers[partition].next_offset)
            self._begun.add(partition)

    def end(self, buffer: Buffer) -> None:
        """Stop reading a partition. May be called twice."""
        with self._driver_lock:
            with self._buffers_lock:
                if self._buffers.get(buffer.partition) is not buffer:
                    return
                del self._buffers[buffer.partition]
                # A rebalance may end it inside its own ``take``, which must not give records that now belong to another member.
                buffer.chunks.clear()
                buffer.bytes = buffer.records = 0
                buffer.error = None
            if buffer.paused:
                buffer.paused = False
                if not self._in_group or buffer.partition in self._begun:  # else it is not this member's any more
                    self._driver.resume(buffer.partition)  # for the next reader of it
            if not self._in_group and buffer.read:
                self._driver.unassign(buffer.partition)
            buffer.read = False

    def begins(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Return where the partitions that are read begin."""
        with self._buffers_lock:
            return {one: self._buffers[one].next_offset for one in partitions if one in self._buffers}

    def take(self, buffer: Buffer, max_records: int, timeout_seconds: float) -> Fetched | None:
        """Return the next records of a partition, at most ``max_records``; fetch if there are not enough.

        Raises the partition's error after everything before it was taken.
        """
        waited = buffer.records > 0
        wants = buffer.records < max_records and buffer.error is None
        # Another thread that fetches now also sorts in records for this reader.
        if wants and self._driver_lock.acquire(timeout=0.0 if waited else timeout_seconds):
            try:
                self._fill_for(buffer, max_records, 0.0 if buffer.records else timeout_seconds)
            finally:
                self._driver_lock.release()
        with self._buffers_lock:
            if not buffer.chunks:
                if buffer.error is not None:
                    error, buffer.error = buffer.error, None
                    raise error
                return None
            taken = _pop(buffer, max_records)
        if buffer.paused and buffer.bytes < self._limit_bytes // 2:
            with self._driver_lock:
                if buffer.paused:  # not ended meanwhile: the partition may be another buffer's, or another member's
                    buffer.paused = False
                    self._driver.resume(buffer.partition)
        return taken

    def position(self, buffer: Buffer, taken: int) -> int:
        """Return the next offset of a partition for a reader that has taken everything before ``taken``."""
        with self._buffers_lock:
            return taken if buffer.chunks else max(taken, buffer.next_offset)

    def seek(self, buffer: Buffer, offset: int) -> None:
        """Continue at another offset; fetched records are dropped."""
        with self._driver_lock, self._buffers_lock:
            buffer.chunks.clear()
            buffer.bytes = buffer.records = 0
            buffer.error = None
            buffer.next_offset = offset
            if buffer.read and self._buffers.get(buffer.partition) is buffer:
                self._driver.seek(buffer.partition, offset)
                if buffer.paused:
                    buffer.paused = False
                    self._driver.resume(buffer.partition)

    def fill(self, timeout_seconds: float) -> int:
        """Fetch once, waiting at most so long if nothing waits yet; return how many records wait in the buffers."""
        with self._driver_lock:
            self._fetch(0.0 if self._waiting() else timeout_seconds)
            return self._waiting()

    def ask(self, question: Callable[[ConsumerDriver], T]) -> T:
        """Let the driver do something. A member of a group is not replaced here, only by a fetch, where it can lose partitions."""
        with self._driver_lock:
            try:
                return question(self._driver)
            except StuckClient as error:
                if self._renew is None or self._in_group:
                    raise
                self._begin_anew(self._renew, error)
                return question(self._driver)

    def close(self) -> None:
        """Leave the group and disconnect."""
        with self._driver_lock:
            try:
                self._driver.close()
            finally:
                self._buffers.clear()

    def _waiting(self) -> int:
        return sum(buffer.records for buffer in self._buffers.values())

    def _fill_for(self, buffer: Buffer, max_records: int, timeout_seconds: float) -> None:
        """Fetch until there are enough records of one partition, or a fetch gave nothing, or there are many records of others."""
        if self._buffers.get(buffer.partition) is not buffer:
            return
        if not buffer.read:
            self._driver.assign(buffer.partition, buffer.next_offset)
            buffer.read = True
            self._nothing_until = 0.0
        if timeout_seconds == 0 and time.monotonic() < self._nothing_until:
            return
        left = 2 * max_records
        while left > 0 and buffer.records < max_records:
            try:
                count = self._fetch(timeout_seconds)
            except RetriableError:
                if buffer.records:
                    return  # the next call raises it
                raise
            left -= count
            timeout_seconds = 0.0
            if count < self._driver.fetch_records // 2 or buffer.error is not None:
                return

    def _fetch(self, timeout_seconds: float) -> int:
        """Fetch once and sort the records into the buffers; return how many records there were."""
        try:
            return self._fetch_once(timeout_seconds)
        except StuckClient as error:
            if self._renew is None:
                raise
            self._begin_anew(self._renew, error)
            return 0

    def _begin_anew(self, renew: Callable[[], ConsumerDriver], error: StuckClient) -> None:
        """Continue with a new driver. Raises RetriableError if it does not reach the cluster either; then the old one
        is kept.
        """
        made = renew()
        given_up, self._driver = self._driver, made
        given_up.give_up()
        logger.warning("%s: it is replaced by a new one", error.message)
        self._nothing_until = 0.0
        if self._callbacks is not None:
            # The group has removed this member long ago, and its partitions may belong to others.
            made.subscribe(self._topics, self._callbacks)
            if self._assigned:
                self._callbacks.lost(sorted(self._assigned))
            return
        for buffer in list(self._buffers.values()):
            if buffer.read:
                made.assign(buffer.partition, buffer.next_offset)
                if buffer.paused:
                    made.pause(buffer.partition)

    def _counted(self, callbacks: GroupCallbacks) -> GroupCallbacks:
        """Return callbacks that keep ``_assigned`` as well."""

        def assigned(partitions: Sequence[Partition]) -> Mapping[Partition, int]:
            self._assigned.update(partitions)
            begins = callbacks.assigned(partitions)
            self._begun.update(begins)
            return begins

        def revoked(partitions: Sequence[Partition]) -> None:
            self._assigned.difference_update(partitions)
            self._begun.difference_update(partitions)
            callbacks.revoked(partitions)

        def lost(partitions: Sequence[Partition]) -> None:
            self._assigned.difference_update(partitions)
            self._begun.difference_update(partitions)
            callbacks.lost(partitions)

        return GroupCallbacks(assigned, revoked, lost)

    def _fetch_once(self, timeout_seconds: float) -> int:
        count = 0
        for fetched in self._driver.fetch(self._driver.fetch_records, timeout_seconds):
            count += len(fetched)
            with self._buffers_lock:
                buffer = self._buffers.get(fetched.partition)
                if buffer is not None:
                    _push(buffer, fetched)
            if buffer is not None and buffer.bytes >= self._limit_bytes and not buffer.paused:
                buffer.paused = True
                self._driver.pause(fetched.partition)
        self._nothing_until = 0.0 if count else time.monotonic() + _NOTHING_SECONDS
        return count


def _push(buffer: Buffer, fetched: Fetched) -> None:
    """Append new records to a buffer."""
    if len(fetched):
        if fetched.offsets[0] < buffer.next_offset:
            fetched = fetched.slice(int((fetched.offsets < buffer.next_offset).sum()))
        if len(fetched):
            buffer.chunks.append(fetched)
            buffer.bytes += fetched.size()
            buffer.records += len(fetched)
            buffer.next_offset = int(fetched.offsets[-1]) + 1
    if fetched.next_offset is not None:
        buffer.next_offset = max(buffer.next_offset, fetched.next_offset)
    if fetched.error is not None:
        buffer.error = fetched.error


def _pop(buffer: Buffer, max_records: int) -> Fetched:
    """Take the first records out of a buffer."""
    parts: list[Fetched] = []
    count = 0
    while buffer.chunks and count < max_records:
        chunk = buffer.chunks[0]
        if count + len(chunk) > max_records:
            cut = max_records - count
            buffer.chunks[0] = chunk.slice(cut)
            chunk = chunk.slice(0, cut)
        else:
            buffer.chunks.popleft()
        parts.append(chunk)
        count += len(chunk)
        buffer.bytes -= chunk.size()
    buffer.records -= count
    return joined(parts)
