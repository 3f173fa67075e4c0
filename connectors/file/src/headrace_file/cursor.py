"""A cursor walks through the records of one queue: within a file, and from file to file through rotations.

Readers, plans and counts all walk with the same cursor, so that they agree on where each record is.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
from headrace.foundation.errors import BrokenQueueError, RetriableError

from headrace_file.context import Context
from headrace_file.framing import NEWLINE, count_byte
from headrace_file.identity import HEAD_BYTES, TAIL_BYTES, FileIdentity, Fingerprint, Place
from headrace_file.read_size import ReadSize
from headrace_file.rotation import Mark, Signature, Successor, locate, signature_of
from headrace_file.segment import BOM, Segment, cut_segment, empty_segment, make_segment
from headrace_file.streams import ByteStream, CompressedStream, FileMovedError, PlainStream, beginning_of, open_stream
from headrace_file.succession import Succession

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

_SEARCH_BYTES = 1024 * 1024
#: Steps without a record (header, change of file) that one call may make before it returns.
_STEPS_MAX = 1000


class _Again(Exception):
    """Not an error: the cursor has moved and must look again."""


class Cursor:
    """Reads one queue from a place on. Used by one thread at a time."""

    def __init__(self, context: Context, name: str, place: Place, *, seen_empty: bool = False) -> None:
        self.name = name
        self.offset = place.offset
        self.generation = place.generation
        self.first = place.first
        self.byte = place.byte
        self.taken = place.taken
        self.more = place.more
        self._context = context
        self._settings = context.settings
        self._file = place.file
        self._tail_mark = place.tail
        #: The last bytes before ``byte``; None while only their fingerprint is known.
        self._tail: bytes | None = None if place.byte else b""
        self._stream: ByteStream | None = None
        self._bound: Place | None = None
        self.reading = ReadSize(context.settings.read_bytes)
        #: The names in the header of the file, once they are known and if they matter.
        self.fields: tuple[str, ...] | None = None
        #: How far an overlong record was searched for its newline.
        self._searched = 0
        self._before_taking: tuple[int, int] | None = None
        #: The status of the file at the path before the last read, and when a read found nothing more in it.
        self._before_reading: Signature | None = None
        self._quiet: Signature | None = None
        #: Whether the last ``advance`` found the file as the one before it had left it.
        self.found_quiet = False
        self._succession = Succession(context, name, place if seen_empty else None)
        self._warned = False

    # ------------------------------------------------------------------------------------------------ for owners

    @property
    def place(self) -> Place:
        """The place of the cursor."""
        if self._tail is not None:
            self._tail_mark = Fingerprint.of(self._tail)
        self._refresh_head()
        return Place(
            self.offset, self.generation, self.first, self.byte, self._file, self._tail_mark, self.taken, self.more
        )

    def stands_at(self, place: Place) -> bool:
        """Return whether this is the same place, also when its file is known better."""
        mine = (self.offset, self.generation, self.byte, self.taken)
        return mine == (place.offset, place.generation, place.byte, place.taken)

    def take_over(self, other: Cursor) -> bool:
        """Use the open file of another cursor in the same file, and expect records as long as it has found; False: this one has its own."""
        self.reading.record_bytes = other.reading.record_bytes
        if self._stream is not None:
            return False
        self._stream, other._stream = other._stream, None
        return True

    def bind(self, end: Place | None) -> None:
        """Read up to ``end``, which a plan has fixed: records and files that were unfinished then are treated as such."""
        self._bound = end
        known = end.file if end is not None and end.generation == self.generation else None
        if known is not None and known != self._file:
            # The plan may have seen more of the file than existed when the place was stored.
            self._file = known
            self.close()

    def advance(self, max_records: int, *, build: bool, cross: bool = True) -> Segment | None:
        """Walk over the next records, at most ``max_records``; None when there are none now.

        ``build`` says whether their bytes are wanted. Without ``cross`` the cursor stays in its file. Raises
        BrokenQueueError when records that were known to be there are gone.
        """
        self.found_quiet = self.is_quiet
        if self.found_quiet:
            return None
        for _ in range(_STEPS_MAX):
            try:
                return self._step(max_records, build, cross)
            except _Again:
                continue
            except FileMovedError:
                with contextlib.suppress(_Again):
                    if not self._find_again(cross):
                        return None
        raise RetriableError(f"{self.name} changes faster than it can be read", plugin="file", queue=self.name)

    @property
    def is_quiet(self) -> bool:
        """Return whether the file at the path has not changed since this cursor reached its end: then nothing is new."""
        return self._quiet is not None and self._bound is None and self._quiet == self._signature()

    def untake(self) -> None:
        """Undo the taking of an unfinished line, if that was the last step: for counts, which must not keep it."""
        if self._before_taking is not None:
            self.offset, self.taken = self._before_taking
            self._before_taking = self._quiet = None

    @property
    def seen_empty(self) -> bool:
        """Whether the file had no bytes when it was looked at, and none was read since."""
        return self._succession.empty is not None

    def forget_taking(self) -> None:
        """Keep an unfinished line that was taken: the next read begins after it."""
        self._before_taking = None

    def prepare(self) -> None:
        """Open the file at the place, to check whether it exists. Raises BrokenQueueError when known records are gone."""
        try:
            self._open()
        except FileMovedError:
            if self.more:
                self._lost("records after this one were there")

    def is_found(self) -> bool:
        """Return whether a file is there that holds the place."""
        try:
            self._read_tail(self._open())
        except FileMovedError:
            return False
        return True

    def know_fields(self) -> None:
        """Read the header of the file, if columns go by it and it is not known. Raises FileMovedError, BrokenQueueError."""
        context = self._context
        if self.fields is None and context.header.names_columns and self._stream is not None:
            self.fields = context.header.read_again(self.name, self._stream, context.framing, context.max_record_bytes)

    @property
    def reads_from_anywhere(self) -> bool:
        """Whether reading can begin at any byte: not in compressed files, where all before it is decompressed first."""
        return isinstance(self._stream, PlainStream)

    def release(self) -> None:
        """Close the file descriptor and drop buffered content; reading can continue later."""
        if self._stream is not None:
            self._stream.keep_from(self.byte - (len(self._tail) if self._tail is not None else 0))
            self._stream.release()

    def close(self) -> None:
        """Close everything. ``advance`` opens it again."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
            self._context.open_files -= 1

    # ------------------------------------------------------------------------------------------------ one step

    def _step(self, max_records: int, build: bool, cross: bool) -> Segment | None:
        bound = self._bound
        if bound is not None:
            max_records = min(max_records, bound.offset - self.offset)
            if max_records > 0 and bound.generation > self.generation:
                max_records = min(max_records, bound.first - self.offset)
                if max_records <= 0:
                    self._step_to_bound(bound)
        if max_records <= 0:
            return None
        self._quiet = None
        self._before_reading = self._signature()
        stream = self._open()
        tail = self._read_tail(stream)
        counts = not build and isinstance(stream, PlainStream)
        lead, wanted = len(tail), self.reading.size(max_records, counts=counts)
        rest = None
        if bound is not None and bound.generation == self.generation:
            rest = bound.byte + bound.taken - self.byte
            if max_records == bound.offset - self.offset:
                wanted = self.reading.without_guess  # the end is known
            wanted = max(min(wanted, rest), 0 if self.byte else HEAD_BYTES)
        data = stream.read_at(self.byte - lead, lead + wanted)
        if data[:lead] != tail or (not self.byte and not self._known_file().head.matches(data)):
            raise FileMovedError(self.name)
        if not self.byte and not self._begins_here(stream, data):
            return None
        at_end = len(data) < lead + wanted
        at_bound = rest is not None and len(data) - lead >= rest
        if at_bound:
            data, at_end = data[: lead + (rest or 0)], True
        begin = lead + len(BOM) if not self.byte and data.startswith(BOM) else lead
        if counts and (counted := self._count(data, lead, begin, max_records, at_end)) is not None:
            return counted
        ends = self._context.framing.ends(data, begin, final=False, limit=self._context.max_record_bytes)
        begin, ends = self._pass_over(data, lead, begin, ends)
        if not len(ends):
            return self._step_unfinished(data, lead, begin, at_end, at_bound, build, cross)
        self.more = not at_end or len(ends) > max_records
        return self._give(data, lead, begin, ends[:max_records], build)

    def _count(self, data: bytes, lead: int, begin: int, max_records: int, at_end: bool) -> Segment | None:
        """Move over the complete records of ``data`` by their number alone; None: each must be looked at."""
        context, last = self._context, data.rfind(b"\n", begin)
        in_header = not self.byte and context.header.records > 0
        if in_header or self.taken or not context.framing.counts_newlines:
            return None
        if last < 0 or last - begin > context.max_record_bytes:  # there may be an overlong one
            return None
        count = count_byte(data, NEWLINE, begin, last + 1)
        if count > max_records:
            return None
        self.more = not at_end
        self.reading.gave(last + 1 - begin, count)
        self._move(data, lead, last + 1)
        self.offset += count
        return empty_segment(count)

    def _give(self, data: bytes, lead: int, begin: int, ends: NDArray[np.int64], build: bool) -> Segment:
        """Make a segment of complete records and move after it."""
        starts = np.empty_like(ends)
        starts[0] = begin
        np.add(ends[:-1], 1, out=starts[1:])
        limit = self._context.max_record_bytes
        overlong = np.flatnonzero(ends - starts > limit)
        keep_blank = self._settings.blank_lines == "keep"
        if len(overlong) and not overlong[0]:
            ends = ends[:1]
            segment = cut_segment(data[begin : begin + limit], self.offset, int(ends[0]) - begin)
        else:
            if len(overlong):
                starts, ends = starts[: overlong[0]], ends[: overlong[0]]
            segment = make_segment(data, starts, ends, self.offset, keep_blank=keep_blank, build=build)
        self.reading.gave(int(ends[-1]) + 1 - begin, len(ends))
        self._move(data, lead, int(ends[-1]) + 1)
        self.offset += len(ends)
        return segment

    def _move(self, data: bytes, lead: int, end: int) -> None:
        """Move to ``data[end:]``."""
        self.byte += end - lead
        self._tail = data[max(0, end - TAIL_BYTES) : end]
        self.taken = self._searched = 0
        self._before_taking = None
        if self._stream is not None:
            self._stream.keep_from(self.byte - len(self._tail))

    def _pass_over(self, data: bytes, lead: int, begin: int, ends: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
        """Leave out what is not a record: the header, and a taken line to which only the newline was added."""
        header = self._context.header.records
        if not self.byte and header and len(ends) >= header:
            self.fields = self._context.header.passed(self.name, self._stream, data, begin, ends)
            self._move(data, lead, int(ends[header - 1]) + 1)
            raise _Again
        if not self.byte and header:
            return begin, ends[:0]
        if self.taken and len(ends):
            length = int(ends[0]) - lead
            if length == self.taken or (length == self.taken + 1 and data[ends[0] - 1 : ends[0]] == b"\r"):
                self._move(data, lead, int(ends[0]) + 1)
                raise _Again
        return begin, ends

    # ------------------------------------------------------------------------------------------------ at the end

    def _step_unfinished(
        self, data: bytes, lead: int, begin: int, at_end: bool, at_bound: bool, build: bool, cross: bool
    ) -> Segment | None:
        """There is no complete record in what was read: read more, take the unfinished one, or go to the next file."""
        limit = self._context.max_record_bytes
        if not at_end:
            if len(data) - begin <= limit:
                self.reading.grow(4 * (len(data) - lead), limit + 1 + len(BOM))
                raise _Again
            return self._step_overlong(data, lead, begin, at_bound, build, cross)
        self.more = False
        rest = len(data) - lead
        in_header = not self.byte and self._context.header.records > 0
        if rest and rest != self.taken and not in_header and (at_bound or self._takes()):
            if len(data) - begin > limit:
                return self._step_overlong(data, lead, begin, at_bound, build, cross)
            ends = self._context.framing.ends(data, begin, final=True, limit=limit)
            if len(ends):
                return self._give(data, lead, begin, ends, build)
            return self._take(
                make_segment(
                    data,
                    np.array([begin], dtype=np.int64),
                    np.array([len(data)], dtype=np.int64),
                    self.offset,
                    keep_blank=self._settings.blank_lines == "keep",
                    build=build,
                ),
                rest,
            )
        self._step_at_end(cross, unfinished=bool(rest) and rest != self.taken and not in_header)
        return None

    def _take(self, segment: Segment, length: int) -> Segment:
        self._before_taking = (self.offset, self.taken)
        self.taken = length
        self.offset += 1
        return segment

    def _step_overlong(
        self, data: bytes, lead: int, begin: int, at_bound: bool, build: bool, cross: bool
    ) -> Segment | None:
        """The record is longer than the limit: find its end without keeping it in memory."""
        stream = self._open()
        limit = self._context.max_record_bytes
        body = data[begin : begin + limit]
        stop = None
        if self._bound is not None and self._bound.generation == self.generation:
            stop = self._bound.byte + self._bound.taken
        at = max(self._searched, self.byte + len(data) - lead)
        last = data[-TAIL_BYTES:] if at == self.byte + len(data) - lead else b""
        while stop is None or at < stop:
            piece = stream.read_at(at, _SEARCH_BYTES if stop is None else min(_SEARCH_BYTES, stop - at))
            if not piece:
                break
            newline = piece.find(bytes((NEWLINE,)))
            if newline >= 0:
                end = at + newline
                segment = cut_segment(body, self.offset, end - self.byte - (begin - lead))
                self.byte, self.taken, self._searched = end + 1, 0, 0
                self._before_taking = None
                before = (last + piece[: newline + 1])[-TAIL_BYTES:]
                self._tail = before if len(before) == TAIL_BYTES else stream.read_at(end + 1 - TAIL_BYTES, TAIL_BYTES)
                self.offset += 1
                self.reading.window = 0
                return segment
            last = (last + piece)[-TAIL_BYTES:]
            at += len(piece)
        self._searched = at
        if at - self.byte != self.taken and (at_bound or at == stop or self._takes()):
            length = at - self.byte
            return self._take(cut_segment(body, self.offset, length - (begin - lead)), length)
        self._step_at_end(cross, unfinished=True)
        return None

    def _takes(self) -> bool:
        """Return whether a last line without newline is a record now."""
        if self._is_cut and self._ends_there:
            return False  # half of a record, most likely
        rule = self._settings.last_line
        if rule == "take" or self._is_finished():
            return True
        if rule == "wait":
            return False
        return self._context.until_end or self._quiet_for(self._settings.last_line_timeout)

    @property
    def _is_cut(self) -> bool:
        """Whether the file ends in the middle of its compressed data."""
        return isinstance(self._stream, CompressedStream) and self._stream.is_cut

    @property
    def _ends_there(self) -> bool:
        """Whether the file gets no more data: the run ends with the input, or the file is no longer at its path."""
        return self._bound is None and (self._context.until_end or self._is_finished())

    def _quiet_for(self, time: timedelta) -> bool:
        """Return whether the file was not written to for that long."""
        modified = self._open().file.stat().st_mtime_ns / 1e9
        return self._context.clock.now() - modified >= time.total_seconds()

    def _has_left(self) -> bool:
        """Return whether another file has taken the path. Continues with that file when it is a copy of this one."""
        status = self._context.files.status_or_none(self.name)
        if status is None or (status.st_dev, status.st_ino) == self._open().file.expected:
            return False
        if not self._succession.is_noted(status):
            seen = self._succession.look(status)
            located = self._locate()
            if located == self.name:
                self._switch(located)
                raise _Again
            self._succession.left = replace(seen, left_to=located or "")
        return True

    def _is_finished(self) -> bool:
        """Return whether the file has left its path and is not written to any more."""
        if self._bound is not None and self._bound.generation > self.generation:
            return True  # the plan has found it so
        return self._has_left() and self._quiet_for(self._settings.rotate_wait)

    def _step_at_end(self, cross: bool, *, unfinished: bool) -> None:
        """This file has no more data now: check whether another file has taken its place."""
        if self._bound is not None:
            self._step_to_bound(self._bound)
        if isinstance(self._stream, CompressedStream) and self._stream.is_cut:
            if self._ends_there:
                raise self._stream.cut_error(self.offset)
            if not self._warned:
                self._warned = True
                logger.warning("%s", self._stream.describe_cut(self.offset))
        before = self._before_reading
        if not unfinished and before is not None and before[:2] == self._open().file.expected:
            self._quiet = before
            if not isinstance(self._stream, PlainStream):
                self.close()  # a decompressor's memory is not needed until the file changes
            return
        if not self._has_left() or not cross or not self._quiet_for(self._settings.rotate_wait):
            return
        current = replace(self._known_file(), modified_ns=self._open().file.stat().st_mtime_ns)
        left = self._succession.left
        if self._next_generation(current, left.left_to if left is not None else ""):
            raise _Again

    def _step_to_bound(self, bound: Place) -> None:
        """Follow a plan: it has the end of the file and the next file."""
        if bound.generation == self.generation:
            self._lost("the planned range ends behind the end of the file")
        if self.offset != bound.first or bound.file is None:
            self._lost("the planned range continues in a later file, but this file ends earlier")
        self._enter(bound.file, bound.generation)
        raise _Again

    # ------------------------------------------------------------------------------------------------ files

    def _known_file(self) -> FileIdentity:
        if self._file is None:
            raise FileMovedError(self.name)
        return self._file

    def _open(self) -> ByteStream:
        """Return the stream of the file at the place. Raises FileMovedError when it is not found."""
        if self._stream is not None:
            return self._stream
        if self._file is None:
            path: str | None = self.name
        else:
            path = self._locate()
        if path is None:
            raise FileMovedError(self.name)
        return self._switch(path)

    def _signature(self) -> Signature | None:
        return signature_of(self._context.files.status_or_none(self.name))

    def _locate(self) -> str | None:
        if self._tail is not None:
            self._tail_mark = Fingerprint.of(self._tail)
        marks = [Mark(self.byte, self._tail_mark)]
        if self._bound is not None and self._bound.generation == self.generation:
            marks.append(Mark(self._bound.byte, self._bound.tail))
        context = self._context
        known, directories = self._known_file(), context.tracker.directories
        return locate(self.name, context.names, self._settings.compression, known, marks, directories)

    def _switch(self, path: str, expected: tuple[int, int] | None = None) -> ByteStream:
        """Continue in the file at ``path``, which begins like the file of the place; ``expected``: only if it is still this one."""
        files = self._context.files
        stream = open_stream(path, self._settings.compression, expected, near=self.byte, files=files)
        if self._file is None or not self._file.head.length or stream.file.expected != self._file.key:
            # A plain file can be read from any place; a decompressor may be past the beginning already.
            plain = isinstance(stream, PlainStream)
            fresh = (
                stream if plain else open_stream(path, self._settings.compression, stream.file.expected, files=files)
            )
            try:
                seen, _ = FileIdentity.of(fresh, self.generation)
                self._file = self._succession.identified(self._file, seen, begins=not self.byte)
            finally:
                if not plain:
                    fresh.release()
        self.close()
        self._stream = stream
        self._context.open_files += 1
        return stream

    def _read_tail(self, stream: ByteStream) -> bytes:
        if self._tail is None:
            length = self._tail_mark.length
            tail = stream.read_at(self.byte - length, length)
            if not self._tail_mark.matches(tail):
                raise FileMovedError(self.name)
            self._tail = tail
        return self._tail

    def _refresh_head(self) -> None:
        """Learn more of a file's beginning as it grows: this distinguishes it from the next file."""
        file = self._file
        if file is None or self._stream is None or file.head.length >= min(HEAD_BYTES, self.byte):
            return
        try:
            head = beginning_of(self._stream, HEAD_BYTES)
        except FileMovedError:
            return
        if file.head.matches(head):
            self._file = replace(file, head=Fingerprint.of(head))

    def _find_again(self, cross: bool) -> bool:
        """The file was moved or changed. Return whether to look again."""
        self.close()
        if self._file is None:
            return False
        path = self._locate()
        if path is not None:
            self._switch(path)
            return True
        if self._bound is not None:
            self._lost("its file is gone or was changed")
        if not cross or self._context.files.status_or_none(self.name) is None:
            return False
        if self.more:
            self._lost("its file is gone or was changed, and records after it were there")
        if self.byte:
            logger.warning(
                "%s was truncated or replaced after record %d and no copy of it was found: reading continues with the present file; "
                "records written in between, if any, are lost",
                self.name,
                self.offset,
            )
        return self._next_generation(self._file, "")

    def _next_generation(self, current: FileIdentity, current_path: str) -> bool:
        """Go to the file that came after ``current``; return False when there is none yet."""
        return self._go_on_with(self._succession.after(current, current_path, self.byte))

    def _go_on_with(self, successor: Successor | None) -> bool:
        if successor is None or not successor.settled:
            return False
        # Opened as the file that was seen: if another one has taken its place, it is found where it is now.
        self._enter(replace(successor.file, generation=self.generation + 1), self.generation + 1)
        self._switch(successor.path, successor.file.key)
        return True

    def _begins_here(self, stream: ByteStream, data: bytes) -> bool:
        """Return whether the first bytes of a file may be read; False: wait, another one may hold what was written before them."""
        between = self._succession.before_first_bytes(stream, data) if self._bound is None else None
        if between is not None and self._go_on_with(between):
            raise _Again
        if between is None and self._file is not None and self._file.head.length < min(HEAD_BYTES, len(data)):
            self._file = replace(self._file, head=Fingerprint.of(data[:HEAD_BYTES]))  # by this its copies are known
        return between is None

    def _enter(self, file: FileIdentity | None, generation: int) -> None:
        """Move to the beginning of another file."""
        self.close()
        self._quiet = None
        self._succession.begin()
        self._file, self.generation, self.first = file, generation, self.offset
        self.byte = self.taken = self._searched = self.reading.window = 0
        self._tail, self._tail_mark, self.more = b"", Fingerprint(), False
        self.fields = None
        self._before_taking = None

    def _lost(self, why: str) -> None:
        """Records that should exist are missing: stop, or skip the requested records, as the option says."""
        until = f" to {self._bound.offset - 1}" if self._bound is not None else " and later ones"
        message = f"records {self.offset}{until} of {self.name} are no longer there: {why}"
        if self._settings.if_lost == "fail":
            raise BrokenQueueError(
                message,
                plugin="file",
                queue=self.name,
                offset=self.offset,
                hint="keep rotated files until they are read, or continue without the records: if_lost='skip'",
            )
        logger.warning("%s; skipped, as if_lost='skip' says", message)
        if self._bound is not None:
            self._skip_to(self._bound)
            raise _Again
        self.more = False

    def _skip_to(self, place: Place) -> None:
        self.close()
        self.offset, self.generation, self.first = place.offset, place.generation, place.first
        self.byte, self.taken, self._file, self.fields = place.byte, place.taken, place.file, None
        self._tail, self._tail_mark = None if place.byte else b"", place.tail
