"""The reader of one file queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from headrace.flow.messages import RawBatch, ReadPosition
from headrace.foundation.errors import BrokenQueueError, DataError, RetriableError
from headrace.interfaces.source import Reader

from headrace_file.context import Context
from headrace_file.cursor import Cursor
from headrace_file.identity import Place
from headrace_file.segment import Segment
from headrace_file.streams import FileMovedError
from headrace_file.wake_up import WakeUp

_COUNT_RECORDS = 1_000_000


class FileReader(Reader):
    """Reads one file and the files that replace it. Made by ``FileSource.open``; used by one thread at a time."""

    def __init__(self, context: Context, name: str, start: Place | ReadPosition) -> None:
        """Begin at ``start``. Raises DataError when it is a position that the queue does not hold."""
        self._context = context
        self._name = name
        self._files = context.tracker.queue(name)
        #: Positions from outside: the begin of reading, and its end by ``limit``.
        self._given: ReadPosition | None = None
        self._end: ReadPosition | None = None
        #: The position while polls find nothing new, and the version of the tracker's knowledge at that time.
        self._unmoved: ReadPosition | None = None
        self._unmoved_version = -1
        #: Made when it is waited for the first time. Most readers of very many are never waited in, and one of a bounded run has records
        #: at once: to give the system's descriptor back takes 8 ms.
        self._wake_up: WakeUp | None = None
        if isinstance(start, Place):
            self._cursor = Cursor(context, name, start)
            self._cursor.prepare()
        else:
            self._cursor = self._cursor_at(start)
        context.tracker.reached(name, self._cursor.place)
        self._spare_descriptor()

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        """Return the next records, or None when none came within ``timeout``.

        Bodies are without their newline and lie in one buffer. Blank lines are left out of the batch but not of the
        numbering, so that a batch can be empty. Raises BrokenQueueError when records that were known to be there are gone,
        when the file must not be read, is damaged, was cut or is not a file any more, RetriableError when the file
        system fails for the moment.
        """
        clock = self._context.clock
        deadline = clock.monotonic() + timeout.total_seconds() if timeout else None
        wakes = self._watching() if timeout and self._wake_up is not None else None
        while True:
            before = self.position if self._context.header.names_columns else None
            segment = self._cursor.advance(max_records, build=True)
            if segment is not None:
                if before is not None:
                    self._know_fields(before)
                return self._batch(segment)
            # While nothing changes there is nothing to store: a process may wait for very many files.
            if not (self._cursor.found_quiet and self._is_unmoved):
                self._rest()
                self._unmoved_version = self._context.tracker.version
                self._unmoved = self.position
            if deadline is None or (remaining := deadline - clock.monotonic()) <= 0:
                return None
            if wakes is None:
                wakes = self._watching()
                continue  # what was written before it was watched wakes nobody
            wakes.wait(min(remaining, self._context.settings.poll_interval.total_seconds()))

    def _watching(self) -> WakeUp:
        """Return what wakes this reader when its file is written to from now on."""
        if self._wake_up is None:
            self._wake_up = WakeUp(self._context.clock)
        self._wake_up.watch(self._name)  # each time: another file may be there under the name
        return self._wake_up

    @property
    def _is_unmoved(self) -> bool:
        return self._unmoved is not None and self._unmoved_version == self._context.tracker.version

    def _batch(self, segment: Segment) -> RawBatch:
        self._rest()
        return RawBatch(
            offsets=segment.offsets, next_position=self.position, bodies=segment.bodies, fields=self._cursor.fields
        )

    def _know_fields(self, before: ReadPosition) -> None:
        """Learn the field names from the header that was read, otherwise go back to ``before``."""
        try:
            self._cursor.know_fields()
        except FileMovedError as error:
            self.seek(before)
            raise RetriableError(
                f"{self._name} was moved while it was read", plugin="file", queue=self._name
            ) from error
        except BrokenQueueError:
            self.seek(before)
            raise

    def _rest(self) -> None:
        """Store the position; close the descriptor between polls when too many are open."""
        self._unmoved = None
        self._context.tracker.reached(self._name, self._cursor.place)
        self._spare_descriptor()

    def _spare_descriptor(self) -> None:
        if self._context.open_files > self._context.settings.max_open_files:
            self._cursor.release()

    def seek(self, position: ReadPosition) -> None:
        """Go to ``position``. Raises DataError when the queue does not hold it."""
        self._unmoved = None
        before = self._cursor
        before.close()
        self._cursor = self._cursor_at(position)
        self._cursor.take_over(before)
        self._spare_descriptor()

    def limit(self, end: ReadPosition) -> None:
        """Read up to ``end``: a position that ``position_after`` gave for this queue, in whatever process.

        With it, reading a planned range again gives the same records even if the file was rotated, continued or
        replaced meanwhile; if that is not possible, ``poll`` raises BrokenQueueError. When the end is
        reached, ``position`` is ``end`` itself.
        """
        self._unmoved = None
        self._end = end if end.hint else None
        self._cursor.bind(Place.from_position(end) if end.hint else None)

    @property
    def position(self) -> ReadPosition:
        if self._unmoved is not None and self._is_unmoved:
            return self._unmoved
        for known in (self._end, self._given):
            if known is not None and self._cursor.stands_at(Place.from_position(known)):
                return known
        return self._cursor.place.to_position(self._context.tracker.past(self._name))

    @property
    def earliest(self) -> int:
        """The number of the first record of the present file; records of earlier files are not searched."""
        return self._cursor.first

    @property
    def latest(self) -> int:
        """The number after the last record that exists now.

        Counts only the records after the last counted place: cheap when little was added.
        """
        if self._cursor.is_quiet:
            return self._cursor.offset
        with self._files.lock:
            ahead: Cursor | None = self._files.ahead
            mine = self._cursor
            if ahead is None or (ahead.generation, ahead.offset) < (mine.generation, mine.offset):
                if ahead is not None:
                    ahead.close()
                ahead = self._files.ahead = self._another(mine.place)
            # There may be very many files: this one is not opened, and recognised, once more to be counted.
            lent = mine.reads_from_anywhere and ahead.take_over(mine)
            try:
                while ahead.advance(_COUNT_RECORDS, build=False) is not None:
                    self._pass(ahead)
            finally:
                if lent and ahead.generation == mine.generation:
                    mine.take_over(ahead)
                    self._spare_descriptor()
            count = ahead.offset
            ahead.untake()
            ahead.release()
            return count

    def position_after(self, max_records: int) -> ReadPosition:
        """Return where a read of at most ``max_records`` would end; never beyond the file in which it begins to read."""
        with self._files.lock:
            begin = self._cursor.place
            end = begin.offset + max_records
            plan = self._plan_from(begin, end)
            while plan.offset < end:
                crossing = plan.offset == begin.offset
                try:
                    if plan.advance(end - plan.offset, build=False, cross=crossing) is None:
                        break
                except BrokenQueueError:
                    if plan.offset == begin.offset:
                        raise
                    break  # records before the damage can be read
                self._pass(plan)
            self._context.tracker.reached(self._name, plan.place)
            position = plan.place.to_position(self._context.tracker.past(self._name))
            plan.release()
            return position

    def skip_range(self, max_records: int) -> ReadPosition | None:
        """See ``Reader``. Only within a file that can be read from anywhere; a range is as long as one read."""
        cursor, begin = self._cursor, self._cursor.place
        if not cursor.reads_from_anywhere or begin.taken:
            return None
        bytes_max = self._context.settings.read_bytes
        with self._files.lock:
            end = self._files.waypoints.nearest(begin, begin.offset + max_records, begin.byte + bytes_max)
        if end is None:  # too far apart, or not counted yet
            end = self._counted(begin, min(max_records, cursor.reading.records))
        if end is None:
            return None
        ahead = Cursor(self._context, self._name, end)
        ahead.take_over(cursor)
        if not ahead.is_found():
            cursor.take_over(ahead)
            return None
        self._unmoved, self._cursor = None, ahead
        self._rest()
        return self.position

    def _counted(self, begin: Place, records: int) -> Place | None:
        """Return the place so many records behind ``begin``; None when they are not complete in its file."""
        if records < 1:
            return None
        end = Place.from_position(self.position_after(records))
        whole = end.offset == begin.offset + records and end.generation == begin.generation and not end.taken
        return end if whole else None

    def _another(self, place: Place) -> Cursor:
        """Return a cursor that stands where this reader stands."""
        return Cursor(self._context, self._name, place, seen_empty=self._cursor.seen_empty)

    def _pass(self, cursor: Cursor) -> None:
        """Keep the place of a count now and then."""
        waypoints = self._files.waypoints
        if cursor.reads_from_anywhere and not cursor.taken and waypoints.is_due(cursor.generation, cursor.byte):
            waypoints.passed(cursor.place)

    def _plan_from(self, begin: Place, end: int) -> Cursor:
        """Return a cursor for a plan from ``begin`` to the record ``end``, which may stand on the way there.

        It is that of the last plan when it began or ended at ``begin``, and is nearer to the end where a count has passed.
        """
        files = self._files
        plan: Cursor | None = files.plan
        if plan is not None and files.plan_begin == begin and plan.offset <= end:
            plan.untake()
        else:
            if plan is None or not plan.stands_at(begin):
                if plan is not None:
                    plan.close()
                plan = files.plan = self._another(begin)
            plan.forget_taking()
            files.plan_begin = begin
        waypoint = files.waypoints.nearest(begin, end)
        if waypoint is not None and waypoint.offset > plan.offset:
            ahead = Cursor(self._context, self._name, waypoint)
            if not ahead.is_found():  # the file was changed: what can be read of it is found from where it is read
                ahead.close()
                return plan
            plan.close()
            plan = files.plan = ahead
        return plan

    def waypoints(self) -> Sequence[ReadPosition]:
        with self._files.lock:
            return [place.to_position() for place in self._files.waypoints.places]

    def use_waypoints(self, positions: Sequence[ReadPosition]) -> None:
        with self._files.lock:
            self._files.waypoints.use([Place.from_position(position) for position in positions])

    def close(self) -> None:
        self._cursor.close()
        if self._wake_up is not None:
            self._wake_up.close()

    def _cursor_at(self, position: ReadPosition) -> Cursor:
        context, name = self._context, self._name
        place = context.tracker.learn(name, position)
        if place is not None:
            self._given, self._end = position, None
            cursor = Cursor(context, name, place, seen_empty=True)  # a reader has looked at it
            with self._files.lock:
                planned = self._files.plan is not None and self._files.plan.stands_at(place)
            if not planned:  # else the planner, which continues here, has just checked it
                cursor.prepare()
            return cursor
        self._given = self._end = None
        cursor = Cursor(context, name, self._files.beginning)
        if position.offset < cursor.offset:
            raise self._not_there(position.offset, f"no longer there: the earliest is {cursor.offset}")
        while cursor.offset < position.offset:
            if cursor.advance(position.offset - cursor.offset, build=False) is None:
                raise self._not_there(position.offset, f"not there: the next to come is {cursor.offset}")
        return cursor

    def _not_there(self, offset: int, why: str) -> DataError:
        return DataError(f"record {offset} of {self._name} is {why}", plugin="file", queue=self._name, offset=offset)
