"""The log: appends in groups that are made durable together, a quota, and reading by offset."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

import numpy as np
from headrace.flow.messages import Bodies
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.directories import sync_directory
from headrace.foundation.errors import DataError, HeadraceError, JobError, OptionError, RetriableError
from headrace.foundation.private_files import FILE_MODE, make_private_directory
from headrace.foundation.storage_faults import storage_error

from headrace_buffer.errors import BufferFullError
from headrace_buffer.records import Headers, Integers, Piece, Records, encode_block
from headrace_buffer.segment import FILE_HEADER_BYTES, Segment, SegmentGoneError, first_offset_of, segment_path
from headrace_buffer.state import Gap, LogState, load_state

__all__ = ["Appended", "Gap", "LogStatus", "RecordLog", "WhenFull"]

logger = logging.getLogger(__name__)
WhenFull = Literal["block", "drop_oldest", "drop_newest"]
QUOTA_MIN_BYTES = 64 * 1024
#: A segment is removed as a whole, so the quota is divided among several.
_SEGMENTS_OF_QUOTA = 8
_SEGMENT_MAX_BYTES = 64 * 1024**2
#: Waiting appends are written as one block, up to this size.
_GROUP_BYTES = 1024**2
#: Waiting appends may use this much memory; further ones wait in ``submit``.
_PENDING_MAX_BYTES = 16 * 1024**2
#: The count of refused records is saved at most this often.
_SAVE_SECONDS = 1.0
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of an append: its records have the offsets ``first`` to ``first + count - 1``; ``dropped`` of them
    are not stored.
    """

    first: int
    count: int
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The content of a log, and how many records it has dropped since it was created."""

    earliest: int
    latest: int
    used_bytes: int
    quota_bytes: int
    #: Records that were removed to make room for newer ones, before a checkpoint covered them.
    dropped_oldest: int
    #: Records that were refused because the log was full.
    dropped_newest: int
    #: The offsets of ``dropped_oldest``; at most the last 100 gaps.
    gaps: tuple[Gap, ...]


@dataclass(slots=True)
class _Waiting:
    piece: Piece
    future: Future[Appended]


class RecordLog:
    """A bounded, durable, append-only log of records in a directory of a local disk. Any thread may call it.

    The n-th stored record has the offset n, counted from 0. ``when_full`` says what an append does when ``quota_bytes``
    are used: ``block`` waits until a trim makes room, ``drop_oldest`` removes the oldest segment, ``drop_newest`` does
    not store the new records. The directory belongs to one open log at a time.

    Raises JobError when another process or object has the directory open, and DataError when a file is damaged in its
    middle or missing. An unfinished block at the end, which a crash leaves, is removed. Raises RetriableError if the
    disk cannot be used.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        quota_bytes: int = 1024**3,
        when_full: WhenFull = "block",
        clock: Clock | None = None,
    ) -> None:
        if quota_bytes < QUOTA_MIN_BYTES:
            raise OptionError(f"the quota of a buffer must be at least {QUOTA_MIN_BYTES} bytes, not {quota_bytes}")
        if when_full not in ("block", "drop_oldest", "drop_newest"):
            raise OptionError(f"when_full must be block, drop_oldest or drop_newest, not {when_full!r}")
        self.directory = Path(directory)
        self.quota_bytes = quota_bytes
        self.when_full: WhenFull = when_full
        #: The maximum size of one append, with about 13 bytes for each record in addition to its body.
        self.append_max_bytes = min(quota_bytes // _SEGMENTS_OF_QUOTA, _SEGMENT_MAX_BYTES) - FILE_HEADER_BYTES
        self._clock = clock or SystemClock()
        self._changed = threading.Condition(threading.RLock())
        self._pending: deque[_Waiting] = deque()
        self._pending_bytes = 0
        self._reserved_bytes = 0
        self._closing = False
        self._failure: HeadraceError | None = None
        self._segments: list[Segment] = []
        self._used_bytes = 0
        #: The first offset of a segment that could not be created completely, because the disk refused it.
        self._begun: int | None = None
        self._unsaved_drops = False
        self._drops_saved_seconds = -math.inf
        self._lock_descriptor = self._lock()
        try:
            self._state = self._load()
        except OSError as error:
            self._release()
            raise storage_error(error, self.directory, what="buffer") from error
        except BaseException:
            self._release()
            raise
        self._writer = threading.Thread(target=self._write_all, name=f"buffer {self.directory.name}", daemon=True)
        self._writer.start()

    # -------------------------------------------------------------------------------------------------- appending

    def append(
        self,
        bodies: Bodies | Sequence[bytes],
        times: Integers | None = None,
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        timeout: timedelta | None = None,
    ) -> Appended:
        """Store records; when it returns, they are durable. Appends of several threads are made durable together.

        ``times`` are microseconds since the Unix epoch, by default that of the clock; ``headers`` are one mapping for
        all records, or one for each. An append is stored completely or not at all. Raises BufferFullError if there is
        no room within ``timeout`` (None: no limit), RetriableError if the disk refuses it, and DataError if it is
        larger than ``append_max_bytes``.
        """
        return self.submit(bodies, times, keys=keys, headers=headers, timeout=timeout).result()

    def submit(
        self,
        bodies: Bodies | Sequence[bytes],
        times: Integers | None = None,
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Headers | Sequence[Headers] | None = None,
        timeout: timedelta | None = None,
    ) -> Future[Appended]:
        """Like ``append``, but return as soon as the order of the records is fixed. The future is done when they are
        durable.

        Records of one thread are stored in the order of its calls. ``timeout`` limits how long this call waits for
        room.
        """
        if not isinstance(bodies, Bodies):
            bodies = Bodies.of(bodies)
        if times is None:
            times = np.full(len(bodies), round(self._clock.now() * 1e6), dtype=np.int64)
        piece = Piece(bodies, np.asarray(times, dtype=np.int64), keys, headers)
        future: Future[Appended] = Future()
        future.set_running_or_notify_cancel()  # a waiting caller may be cancelled; the records are stored anyway
        with self._changed:
            if not piece.count:
                future.set_result(Appended(self.latest, 0))
                return future
            if piece.size > self.append_max_bytes:
                raise DataError(
                    f"an append of {piece.size} bytes does not fit in the buffer {str(self.directory)!r}, which accepts "
                    f"{self.append_max_bytes} at once",
                    hint="append fewer records at once, or raise the quota of the buffer: one append can have an eighth of it",
                )
            if not self._wait_for_room(piece, timeout):
                self._drop_newest(piece.count)
                future.set_result(Appended(self.latest, 0, piece.count))
                return future
            self._pending.append(_Waiting(piece, future))
            self._pending_bytes += piece.size
            self._reserved_bytes += piece.size
            self._changed.notify_all()
        return future

    def _wait_for_room(self, piece: Piece, timeout: timedelta | None) -> bool:
        """Return whether there is room; False: the new records must be dropped. Raises BufferFullError, JobError."""
        until = None if timeout is None else time.monotonic() + timeout.total_seconds()
        while True:
            if self._closing:
                raise JobError(f"the buffer {str(self.directory)!r} is closed")
            if self._failure is not None:
                raise self._failure
            waits_for_disk = bool(self._pending) and self._pending_bytes + piece.size > _PENDING_MAX_BYTES
            fits = self._used_bytes + self._reserved_bytes + piece.size <= self.quota_bytes
            if not waits_for_disk and (fits or self.when_full == "drop_oldest"):
                return True
            if not fits and self.when_full == "drop_newest" and not self._reserved_bytes:
                return False
            left = None if until is None else until - time.monotonic()
            if (left is not None and left <= 0) or not self._changed.wait(left):
                raise BufferFullError(
                    f"the buffer {str(self.directory)!r} has no room: {self._used_bytes} of {self.quota_bytes} bytes are used",
                    hint="the job that reads it is too slow or does not run; its next checkpoint frees space",
                )

    def _drop_newest(self, count: int) -> None:
        """Count records that are not stored. The count is saved once a second, as there may be many."""
        self._state.dropped_newest += count
        self._unsaved_drops = True
        now = self._clock.monotonic()
        if now - self._drops_saved_seconds < _SAVE_SECONDS:
            return
        self._drops_saved_seconds = now
        logger.warning(
            "buffer %s is full: %d records were refused since it was created",
            self.directory,
            self._state.dropped_newest,
        )
        with contextlib.suppress(RetriableError):  # the next time, or at the end
            self._save()

    # ---------------------------------------------------------------------------------------------------- reading

    @property
    def id(self) -> str:
        """The random id of this log. A log that is created again in the same directory has another id."""
        return self._state.id

    @property
    def earliest(self) -> int:
        """The smallest offset in the log, or ``latest`` if the log is empty."""
        return self._state.earliest

    @property
    def latest(self) -> int:
        """The offset after the last durable record."""
        return self._segments[-1].end or 0

    def read(self, offset: int, max_records: int, *, with_headers: bool = True) -> Records | None:
        """Return records from ``offset`` on, at least one and at most ``max_records``; None: there is none yet.

        If records from ``offset`` on were dropped (``drop_oldest``), the first one is the earliest that is there:
        compare ``first`` with ``offset``. Raises DataError if a checkpoint covered them (``trim``), if ``offset`` is
        behind the end, and if the file is damaged there.
        """
        while True:
            with self._changed:
                first = self._first_from(offset)
                if first >= self.latest:
                    return None
                segment = next(each for each in reversed(self._segments) if each.first <= first)
                available = (segment.end or 0) - first
            try:
                return segment.read(first, min(max_records, available), with_headers=with_headers)
            except SegmentGoneError:
                continue
            except FileNotFoundError as error:
                if segment in self._segments:
                    raise DataError(f"{segment.path} is missing: {error}", offset=offset) from error

    def _first_from(self, offset: int) -> int:
        """Return the first existing offset from ``offset`` on. Raises DataError if records are missing that should
        exist.
        """
        if offset < self._state.trimmed:
            raise DataError(
                f"the buffer {str(self.directory)!r} no longer holds record {offset}: it was removed, because a checkpoint covered the "
                "records before "
                f"{self._state.trimmed}, and it begins at {self.earliest}",
                offset=offset,
                hint="start from a newer checkpoint",
            )
        if offset > self.latest:
            raise DataError(
                f"the buffer {str(self.directory)!r} ends before record {self.latest}, but {offset} was asked for",
                offset=offset,
                hint="this directory does not belong to the checkpoint, or some of its files were lost",
            )
        return max(offset, self.earliest)

    def check_position(self, offset: int) -> None:
        """Raise DataError if a reader cannot begin at this offset, because a checkpoint covers it or it is after the
        end.
        """
        with self._changed:
            self._first_from(offset)

    def wait(self, offset: int, timeout: timedelta) -> bool:
        """Wait until there is a record with this offset, at most for ``timeout``; return whether there is one."""
        with self._changed:
            return self._changed.wait_for(lambda: self.latest > offset or self._closing, timeout.total_seconds())

    def offset_since(self, time: int) -> int:
        """Return the first offset whose record has this time (microseconds since the Unix epoch) or a later one;
        ``latest`` if none.
        """
        with self._changed:
            segments, least, latest = list(self._segments), self.earliest, self.latest
        for segment in segments:
            if (segment.end or 0) <= least:
                continue
            try:
                found = segment.first_since(time, least=least)
            except SegmentGoneError:
                return self.offset_since(time)
            if found is not None:
                return found
        return latest

    # ------------------------------------------------------------------------------------------- trimming, figures

    def trim(self, before: int) -> None:
        """Remove the records before this offset, because a checkpoint covers them. Raises DataError if the offset is
        after the end.

        A file is removed when all of its records are removed. Raises RetriableError if the disk refuses the change.
        """
        with self._changed:
            if before > self.latest:
                self._first_from(before)
            if before <= self._state.trimmed:
                return
            earlier, self._state.trimmed = self._state.trimmed, before
            try:
                self._save()
            except RetriableError:
                self._state.trimmed = earlier
                raise
            self._remove_forgotten()
            self._changed.notify_all()

    def status(self) -> LogStatus:
        """Return the content of the log, and what it has dropped since it was created."""
        with self._changed:
            state = self._state
            return LogStatus(
                self.earliest, self.latest, self._used_bytes, self.quota_bytes, state.dropped_oldest,
                state.dropped_newest, tuple(state.gaps),
            )  # fmt: skip

    def close(self) -> None:
        """Store the submitted records and release the directory for other processes. May be called twice."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._writer.join()
        with self._changed:
            if self._lock_descriptor is None:
                return
            try:
                if self._unsaved_drops:
                    self._save()
            finally:
                self._release()

    def __enter__(self) -> RecordLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -------------------------------------------------------------------------------------------- start and end

    def _lock(self) -> int | None:
        path = self.directory / _LOCK
        try:
            make_private_directory(self.directory)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise JobError(
                f"the directory {str(self.directory)!r} of a buffer cannot be opened: {error.strerror}",
                hint="name a directory on a local disk that the job's user may write",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise JobError(
                f"the buffer {str(self.directory)!r} is open already, by process {holder or 'unknown'}",
                hint="a directory belongs to one job: end the other job, or name another directory",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor

    def _release(self) -> None:
        for segment in self._segments:
            segment.close()
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    def _load(self) -> LogState:
        """Load the segments and return the state. Raises DataError for damaged or missing files."""
        names = (first_offset_of(path) for path in self.directory.iterdir())
        firsts = sorted(first for first in names if first is not None)
        state = load_state(self.directory)
        if state is None:
            if firsts:
                raise DataError(
                    f"the buffer {str(self.directory)!r} has records, but its file state.json is missing",
                    hint="restore the file, or name another directory",
                )
            state = LogState()
            state.save(self.directory)
        if not firsts:
            if state.trimmed or state.dropped_before:
                raise self._missing(state.earliest)
            self._segments.append(Segment.create(self.directory, 0, state.salt))
        for at, first in enumerate(firsts):
            end = firsts[at + 1] if at + 1 < len(firsts) else None
            self._segments.append(Segment(segment_path(self.directory, first), first, state.salt, end=end))
        if firsts:
            sync_directory(self.directory)  # a process may have been killed before its new segment had its name durably
            cut = self._segments[-1].recover()
            if cut:
                logger.warning(
                    "buffer %s: cut %d bytes behind record %d, which were written only in part before a crash",
                    self.directory, cut, (self._segments[-1].end or 0) - 1,
                )  # fmt: skip
        if self._segments[0].first > state.earliest or self.latest < state.earliest:
            raise self._missing(state.earliest)
        self._used_bytes = sum(segment.path.stat().st_size for segment in self._segments)
        self._state = state
        self._remove_forgotten()
        return state

    def _missing(self, first: int) -> DataError:
        return DataError(
            f"the buffer {str(self.directory)!r} should begin at record {first}, but the file with it is missing",
            offset=first,
            hint="restore the file from a backup; or, to lose these records, start with an empty directory and a new checkpoint",
        )

    # ---------------------------------------------------------------------------------------------------- writing

    def _write_all(self) -> None:
        """Write waiting appends until the log is closed. Runs in its own thread."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closing)
                if not self._pending:
                    return
                group = self._next_group()
            try:
                first = self._write(group)
            except Exception as error:  # the waiting callers get the error
                self._fail(group, error)
                continue
            for each in group:
                each.future.set_result(Appended(first, each.piece.count))
                first += each.piece.count

    def _next_group(self) -> list[_Waiting]:
        group = [self._pending.popleft()]
        size = group[0].piece.size
        while self._pending and size + self._pending[0].piece.size <= min(_GROUP_BYTES, self.append_max_bytes):
            group.append(self._pending.popleft())
            size += group[-1].piece.size
        self._pending_bytes -= size
        return group

    def _write(self, group: Sequence[_Waiting]) -> int:
        """Make a group durable; return the offset of its first record. Raises OSError, RetriableError."""
        pieces = [each.piece for each in group]
        first, active = self.latest, self._segments[-1]
        block = encode_block(pieces, first, self._state.salt)
        full = active.size + len(block) > self.append_max_bytes + FILE_HEADER_BYTES and active.size > FILE_HEADER_BYTES
        if full or self._begun == first:
            active = self._begin_segment(first)
        if self.when_full == "drop_oldest":
            self._drop_for(len(block))
        try:
            active.append(block, sum(p.count for p in pieces), max(int(p.times.max()) for p in pieces))
        except OSError:
            self._begin_anew_behind(active)
            raise
        with self._changed:
            self._used_bytes += len(block)
            self._reserved_bytes -= sum(p.size for p in pieces)
            self._changed.notify_all()
        return first

    def _begin_segment(self, first: int) -> Segment:
        # If creating it fails, its file may exist. Then no record may be appended to the previous segment, because a
        # start would not look there.
        self._begun = first
        segment = Segment.create(self.directory, first, self._state.salt)
        self._begun = None
        with self._changed:
            self._segments.append(segment)
            self._used_bytes += FILE_HEADER_BYTES
            self._remove_forgotten()
        return segment

    def _begin_anew_behind(self, active: Segment) -> None:
        """Remove the rest of a failed write. If that fails too, the content of the file is unknown, and the log
        accepts no more records.
        """
        try:
            active.take_back()
        except OSError as error:
            failure = storage_error(error, active.path, what="buffer")
            self._failure = JobError(
                failure.message, hint=f"{failure.hint or 'mend the disk'}, then start the job again"
            )

    def _fail(self, group: Sequence[_Waiting], error: Exception) -> None:
        path = self._segments[-1].path
        with self._changed:
            self._reserved_bytes -= sum(each.piece.size for each in group)
            self._changed.notify_all()
        for each in group:
            raised = storage_error(error, path, what="buffer") if isinstance(error, OSError) else error
            each.future.set_exception(self._failure or raised)

    def _drop_for(self, size: int) -> None:
        """Remove the oldest segments until there is room for this number of bytes. The last segment stays, because it
        is being written.
        """
        with self._changed:
            end = self.earliest
            excess = self._used_bytes + size - self.quota_bytes
            for segment in self._segments[:-1]:
                if excess <= 0:
                    break
                excess -= segment.path.stat().st_size
                end = segment.end or end
            lost = self._state.drop(end)
            if lost:
                self._save()
                logger.warning("buffer %s is full: dropped records before %d, %d of them without a checkpoint",
                               self.directory, end, lost)  # fmt: skip
            self._remove_forgotten()

    def _remove_forgotten(self) -> None:
        """Remove the files whose records are all removed, except the last file, which is being written."""
        while len(self._segments) > 1 and (self._segments[0].end or 0) <= self._state.earliest:
            self._used_bytes -= self._segments.pop(0).remove()

    def _save(self) -> None:
        """Store the state. Raises RetriableError."""
        try:
            self._state.save(self.directory)
        except OSError as error:
            raise storage_error(error, self.directory, what="buffer") from error
        self._unsaved_drops = False
