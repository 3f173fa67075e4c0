"""A queue that is read once for all jobs that are at the same place of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.errors import RetriableError
from headrace.interfaces.source import Reader

from headrace_light.shared_reading.decoding import BatchDecoding, Decoders

T = TypeVar("T")
#: So many batches stay for jobs that are a little behind, also if all others have taken them.
_KEPT_BATCHES = 8
#: How long a question about the queue waits for another job that reads it just now.
_TURN_SECONDS = 5.0


@dataclass(eq=False, slots=True)
class Follower:
    """A job that reads a queue: which record is its next one."""

    next_offset: int = 0
    #: Before this offset it has done everything: a job takes records when it has processed those before.
    done_offset: int = 0


@dataclass(eq=False, slots=True)
class Piece:
    """What one poll gave: where it began, and where it ended. ``raw`` is None where nothing came."""

    start: int
    end: ReadPosition
    raw: RawBatch | None = None
    #: By the format and the columns that jobs declare.
    decodings: dict[Decoders, BatchDecoding] = field(default_factory=dict)

    def for_job(self, decoders: Decoders | None) -> RawBatch | None:
        """Return the records, with what decodes them once for all jobs that declare the same."""
        if decoders is None or self.raw is None or self.raw.bodies is None:
            return self.raw
        # A dict gives the first of several that are put under a key at once.
        return replace(self.raw, decoding=self.decodings.setdefault(decoders, BatchDecoding(decoders)))

    @property
    def size_bytes(self) -> int:
        return 0 if self.raw is None else self.raw.size_bytes


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The job is at another place: it reads by itself, at most up to the offset ``until`` (None: as far as it likes)."""

    until: int | None = None


@dataclass(slots=True)
class _Turn:
    """Whether a job reads now: the others wait for what it gets. ``ahead``: jobs that read by themselves because the feed is behind."""

    taken: bool = False
    ahead: set[Follower] = field(default_factory=set)


class Feed:
    """The records of one queue in the order of reading, each poll of the reader once. Thread-safe.

    ``open_reader`` opens a reader at a position. ``bytes_max``: batches that take more are let go, also if some jobs have not taken
    them: these read by themselves until they have caught up.
    """

    def __init__(self, queue: Queue, open_reader: Callable[[Queue, ReadPosition], Reader], *, bytes_max: int) -> None:
        self._queue = queue
        self._open_reader = open_reader
        self.bytes_max = bytes_max
        self._changed = threading.Condition()
        self._pieces: deque[Piece] = deque()
        self._size = 0
        self._position: ReadPosition | None = None
        self._reader: Reader | None = None
        self._followers: set[Follower] = set()
        self._turn = _Turn()
        #: How many times records were read.
        self.polls = 0

    def next(self, follower: Follower, start: ReadPosition, max_records: int, timeout: timedelta) -> Piece | Elsewhere:
        """Return the records at ``start`` and where the next ones begin, if any came.

        ``Elsewhere``: the job must read by itself. Raises what readers raise.
        """
        with self._changed:
            if not self._belongs_to(follower, start):
                return self._elsewhere(follower, start)
            found = self._piece(start.offset)
            if found is None and self._turn.taken:
                self._follow(follower, start.offset)
                self._changed.wait(timeout.total_seconds())
                found = self._piece(start.offset)
                if found is None:
                    return Piece(start.offset, start)
            if found is not None:
                return self._given(follower, found, max_records)
            self._follow(follower, start.offset)
            self._turn.taken = True
        self._read(max_records, timeout)
        with self._changed:
            found = self._piece(start.offset)
            return Piece(start.offset, start) if found is None else self._given(follower, found, max_records)

    def leave(self, follower: Follower) -> None:
        """The job does not read from here any more."""
        with self._changed:
            self._followers.discard(follower)
            self._turn.ahead.discard(follower)
            self._trim()

    def holds(self, offset: int) -> bool:
        """Return whether records are here from this offset on, or come next."""
        with self._changed:
            return bool(self._followers) and (self._is_end(offset) or self._piece(offset) is not None)

    def ask(self, question: Callable[[Reader], int], otherwise: int) -> int:
        """Ask the reader something; ``otherwise`` if another job keeps it too long. Raises what readers raise."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._turn.taken, _TURN_SECONDS) or self._position is None:
                return otherwise
            self._turn.taken = True
        try:
            return question(self._opened())
        finally:
            self._end_turn()

    def close(self) -> None:
        """Close the reader. May be called twice."""
        with self._changed:
            self._pieces.clear()
            self._size = 0
        self._close_reader()

    # ------------------------------------------------------------------------------------------------ the lock is held

    def _belongs_to(self, follower: Follower, start: ReadPosition) -> bool:
        """Return whether the job reads here; move the feed to it if nobody else does, or most wait before it."""
        offset = start.offset
        if self._is_end(offset) or self._piece(offset) is not None:
            self._turn.ahead.discard(follower)
            return True
        others = self._followers - {follower}
        if others:
            assert self._position is not None, "somebody reads here"
            if offset < self._position.offset:
                return False
            self._turn.ahead.add(follower)
            if len(self._turn.ahead) < len(others):
                return False
        if not self._turn.taken:
            self._move(start)
            return True
        return False

    def _move(self, start: ReadPosition) -> None:
        self._close_reader()
        self._pieces.clear()
        self._size = 0
        self._position = start
        self._followers.clear()
        self._turn.ahead.clear()

    def _elsewhere(self, follower: Follower, start: ReadPosition) -> Elsewhere:
        self._followers.discard(follower)
        assert self._position is not None
        ends = [piece.start for piece in self._pieces] + [self._position.offset]
        return Elsewhere(next((each for each in ends if each > start.offset), None))

    def _given(self, follower: Follower, piece: Piece, max_records: int) -> Piece | Elsewhere:
        if piece.raw is not None and len(piece.raw) > max_records:
            self._followers.discard(follower)
            return Elsewhere(piece.end.offset)
        self._follow(follower, piece.end.offset)
        follower.done_offset = piece.start
        self._trim()
        return piece

    def _follow(self, follower: Follower, offset: int) -> None:
        follower.next_offset = follower.done_offset = offset
        self._followers.add(follower)

    def _is_end(self, offset: int) -> bool:
        return self._position is not None and self._position.offset == offset

    def _piece(self, offset: int) -> Piece | None:
        return next((piece for piece in self._pieces if piece.start == offset), None)

    def _trim(self) -> None:
        done = min((each.done_offset for each in self._followers), default=None)
        for piece in self._pieces:
            if done is not None and piece.end.offset > done:
                break
            piece.decodings.clear()  # all have done it
        while len(self._pieces) > 1 and (
            self._size > self.bytes_max
            or (len(self._pieces) > _KEPT_BATCHES and (done is None or self._pieces[0].end.offset <= done))
        ):
            gone = self._pieces.popleft()
            self._size -= gone.size_bytes
            self._followers = {each for each in self._followers if each.next_offset >= gone.end.offset}

    # ---------------------------------------------------------------------------------------------- of whose turn it is

    def _read(self, max_records: int, timeout: timedelta) -> None:
        """Poll once, and append what came. Called by the job whose turn it is."""
        try:
            reader, start = self._opened(), self._position
            assert start is not None
            raw = reader.poll(max_records, timeout)
            end = reader.position if raw is None else raw.next_position
            if end.offset != start.offset:
                piece = Piece(start.offset, end, raw)
                with self._changed:
                    self._pieces.append(piece)
                    self._size += piece.size_bytes
                    self._position = end
                    self.polls += 1
        except RetriableError:
            raise
        except BaseException:
            self._close_reader()
            raise
        finally:
            self._end_turn()

    def _opened(self) -> Reader:
        if self._reader is None:
            assert self._position is not None
            self._reader = self._open_reader(self._queue, self._position)
        return self._reader

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _end_turn(self) -> None:
        with self._changed:
            self._turn.taken = False
            self._changed.notify_all()
