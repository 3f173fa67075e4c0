"""A broken source for each check: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
import numpy as np
from headrace.foundation.errors import BrokenQueueError as DamagedQueue  # names that begin so are samples here
from headrace.foundation.errors import DataError, JobError, RetriableError
from headrace.interfaces.source import EARLIEST, LATEST, StartPosition

from contract_samples.broken import Fault
from contract_samples.segments import SegmentContract, SegmentReader, SegmentSource
from contract_samples.source_contracts import LogContract
from contract_samples.sources import LogReader, LogSource


class Log(Fault, LogContract):
    """The contract of a broken LogSource, with little patience; ``reader`` is the reader that it opens."""

    patience = timedelta(milliseconds=400)
    reader: ClassVar[type[LogReader]] = LogReader

    def make_source(self) -> LogSource:
        source = super().make_source()
        source.reader = self.reader
        return source


class Segments(Fault, SegmentContract):
    """The contract of a broken SegmentSource, with little patience."""

    patience = timedelta(milliseconds=400)
    reader: ClassVar[type[SegmentReader]] = SegmentReader

    def make_source(self) -> SegmentSource:
        source = super().make_source()
        source.reader = self.reader
        return source


# -------------------------------------------------------------------------------------------------- reading a queue


class BrokenSkipsAfterFullPolls(Log):
    breaks = "test_queue_is_drained"
    also = frozenset({"test_many_records"})

    class reader(LogReader):
        def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
            raw = super().poll(max_records, timeout)
            if raw is not None and len(raw) == max_records >= 100:
                self._next += 2
                return hr.RawBatch(raw.offsets, self.position, bodies=raw.bodies, times=raw.times)
            return raw


class BrokenShortOffsets(Log):
    breaks = "test_batches_are_whole"

    class reader(LogReader):
        def made(self, offsets: Any, times: Any, bodies: list[bytes]) -> hr.RawBatch:
            return super().made(offsets.astype(np.int32), times, bodies)


class BrokenRepeatsOffsets(Log):
    breaks = "test_offsets_grow"

    class reader(LogReader):
        def made(self, offsets: Any, times: Any, bodies: list[bytes]) -> hr.RawBatch:
            return super().made(offsets - 2 * (offsets % 4 == 0), times, bodies)


class BrokenOneTooMany(Log):
    breaks = "test_poll_gives_at_most_max_records"

    class reader(LogReader):
        def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
            return super().poll(8 if max_records == 7 else max_records, timeout)


class BrokenCountsKeys(Log):
    breaks = "test_same_range_gives_same_records"

    class reader(LogReader):
        count = 0

        def made(self, offsets: Any, times: Any, bodies: list[bytes]) -> hr.RawBatch:
            raw = super().made(offsets, times, bodies)
            self.count += 1
            keys = [b"%d" % self.count] * len(raw)
            return hr.RawBatch(offsets, raw.next_position, bodies=raw.bodies, times=times, keys=keys)


class BrokenLeavesTheLast(Log):
    """At a restart, takes the last record for one that is still being written."""

    breaks = "test_resume_from_position"

    class reader(LogReader):
        def _begin(self, start: StartPosition) -> int:
            begin = super()._begin(start)
            left = self.one("SELECT count(*) FROM records WHERE queue = ? AND id >= ?", self._name, begin)
            return self.latest if isinstance(start, hr.ReadPosition) and left == 1 else begin


class BrokenTupleHint(Log):
    breaks = "test_positions_are_json"

    class reader(LogReader):
        @property
        def position(self) -> hr.ReadPosition:
            return hr.ReadPosition(self._next, {"place": (self._name, self._next)})


class BrokenBytesHint(Log):
    """A hint that JSON cannot hold at all: no checkpoint works."""

    breaks = "test_positions_are_json"
    also = frozenset({
        "test_broken_queue_stops_no_other",
        "test_many_writes_keep_their_order", "test_forgotten_position_is_refused", "test_position_after",
        "test_resume_after_kill", "test_resume_from_position",
        "test_same_range_gives_same_records",
    })  # fmt: skip

    class reader(LogReader):
        @property
        def position(self) -> hr.ReadPosition:
            return hr.ReadPosition(self._next, {"place": self._name.encode()})


class BrokenLatePosition(Log):
    breaks = "test_seek"

    class reader(LogReader):
        shown: hr.ReadPosition | None = None

        @property
        def position(self) -> hr.ReadPosition:
            return self.shown or hr.ReadPosition(self._next)

        def seek(self, position: hr.ReadPosition) -> None:
            self.shown = self.position
            super().seek(position)

        def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
            self.shown = None
            return super().poll(max_records, timeout)


class BrokenOldLatest(Log):
    breaks = "test_earliest_and_latest"
    also = frozenset({"test_latest_does_not_fall"})

    class reader(LogReader):
        known: int | None = None

        @property
        def latest(self) -> int:
            self.known = self.known if self.known is not None else super().latest
            return self.known


class BrokenLatestIsEarliest(Log):
    breaks = "test_start_at_latest"

    class reader(LogReader):
        def _begin(self, start: StartPosition) -> int:
            return super()._begin(EARLIEST if start is LATEST else start)


class BrokenIgnoresTime(Log):
    breaks = "test_start_at_time"

    class reader(LogReader):
        def _begin(self, start: StartPosition) -> int:
            return super()._begin(EARLIEST if isinstance(start, hr.StartAt) else start)


class BrokenMovesToPlan(Log):
    breaks = "test_position_after"

    class reader(LogReader):
        def position_after(self, max_records: int) -> hr.ReadPosition:
            self.seek(super().position_after(max_records))
            return self.position


class BrokenPlansTooMuch(Log):
    breaks = "test_position_after"

    class reader(LogReader):
        def position_after(self, max_records: int) -> hr.ReadPosition:
            return super().position_after(max_records + 1)


class BrokenNaps(Log):
    breaks = "test_zero_timeout_does_not_wait"

    class reader(LogReader):
        def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
            raw = super().poll(max_records, timeout)
            if raw is None and not timeout:
                time.sleep(0.08)
            return raw


class BrokenOverstays(Log):
    breaks = "test_timeout_is_kept"

    class reader(LogReader):
        def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
            raw = super().poll(max_records, timeout)
            if raw is None and timeout:
                time.sleep(0.7)
            return raw


class BrokenEndsForGood(Log):
    breaks = "test_new_records_are_followed"

    class reader(LogReader):
        ended = False

        def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
            raw = None if self.ended else super().poll(max_records, timeout)
            self.ended = raw is None
            return raw


class BrokenStrips(Log):
    breaks = "test_bodies_are_unchanged"

    class reader(LogReader):
        def made(self, offsets: Any, times: Any, bodies: list[bytes]) -> hr.RawBatch:
            return super().made(offsets, times, [body.strip() for body in bodies])


class BrokenWaitsBehindTheEnd(Log):
    breaks = "test_position_behind_the_end_is_refused"

    class reader(LogReader):
        def _begin(self, start: StartPosition) -> int:
            if isinstance(start, hr.ReadPosition) and start.offset > self.latest:
                return start.offset
            return super()._begin(start)


class BrokenSkipsForgotten(Log):
    breaks = "test_forgotten_position_is_refused"

    class reader(LogReader):
        def _begin(self, start: StartPosition) -> int:
            if isinstance(start, hr.ReadPosition) and start.offset < self.earliest:
                return self.earliest
            return super()._begin(start)


class BrokenVagueError(Log):
    breaks = "test_forgotten_position_is_refused"

    class reader(LogReader):
        def _begin(self, start: StartPosition) -> int:
            try:
                return super()._begin(start)
            except DataError as error:
                raise DataError("records are gone") from error


class BrokenSkipsThousandth(Log):
    """Loses the record between two blocks of 1,000."""

    breaks = "test_many_records"

    class reader(LogReader):
        given = 0

        def made(self, offsets: Any, times: Any, bodies: list[bytes]) -> hr.RawBatch:
            before, self.given = self.given, self.given + len(bodies)
            lost = 1_000 - before % 1_000 - 1
            if lost < len(bodies) > 1:
                kept = np.arange(len(bodies)) != lost
                return super().made(
                    offsets[kept], times[kept], [body for place, body in enumerate(bodies) if place != lost]
                )
            return super().made(offsets, times, bodies)


class BrokenLexicalSegments(Segments):
    """Sorts segments by name: 10 before 2."""

    breaks = "test_many_writes_keep_their_order"

    class reader(SegmentReader):
        def number(self, segment: Path) -> Any:
            return segment.name


class BrokenRestartingOffsets(Segments):
    """Numbers records anew in each segment."""

    breaks = "test_many_writes_keep_their_order"
    also = frozenset({"test_many_records"})

    class reader(SegmentReader):
        def placed(self, lines: list[tuple[int, int, bytes]]) -> list[tuple[int, bytes]]:
            return [(place, body) for _, place, body in lines]


class BrokenSkipsWhileOpen(Log):
    """Looks at the begin of its queue when it is opened, and never again."""

    breaks = "test_forgotten_records_are_not_skipped_by_an_open_reader"

    class reader(LogReader):
        def check_held(self) -> None:
            return


class BrokenFallingLatest(Log):
    breaks = "test_latest_does_not_fall"

    class reader(LogReader):
        @property
        def latest(self) -> int:
            latest, place = super().latest, getattr(self, "_next", None)
            return latest - 1 if place is not None and self.earliest < place < latest else latest


class BrokenHangs(Log):
    breaks = "test_close_twice"
    check_time_max = timedelta(seconds=10)

    class reader(LogReader):
        closed = False

        def close(self) -> None:
            while self.closed:
                threading.Event().wait(60)
            self.closed = True


# ----------------------------------------------------------------------------------------------- the world around


class BrokenReaderClosesSource(Log):
    breaks = "test_every_queue_is_drained"
    also = frozenset({"test_broken_queue_stops_no_other"})

    class reader(LogReader):
        def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
            return None if vars(self._source).get("closed") else super().poll(max_records, timeout)

        def close(self) -> None:
            vars(self._source)["closed"] = True


class BrokenOneReader(Log):
    breaks = "test_queues_are_read_at_once"
    also = frozenset({"test_broken_queue_stops_no_other"})

    class reader(LogReader):
        def __init__(self, source: LogSource, name: str, start: StartPosition) -> None:
            super().__init__(source, name, start)
            vars(source)["current"] = self

        def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
            return super().poll(max_records, timeout) if vars(self._source)["current"] is self else None


class BrokenNamesItself(Log):
    breaks = "test_queue_names_are_stable"

    class kind(LogSource):
        def queues(self) -> Collection[hr.Queue]:
            return [hr.Queue(queue.name, "log") for queue in super().queues()]


class BrokenCountsCalls(Log):
    """Lists a queue of its own, with another name at each call."""

    breaks = "test_queue_names_are_stable"

    class kind(LogSource):
        calls = 0

        def queues(self) -> Collection[hr.Queue]:
            self.calls += 1
            return [*super().queues(), hr.Queue(f"call {self.calls}")]


class BrokenKnowsFirstQueues(Log):
    breaks = "test_new_queue_is_noticed"

    class kind(LogSource):
        def queues(self) -> Collection[hr.Queue]:
            first = vars(self).setdefault("first", set(super().queues()))
            return [queue for queue in super().queues() if queue in first]


class BrokenForgetsNoQueue(Log):
    breaks = "test_removed_queue_is_noticed"

    class kind(LogSource):
        def queues(self) -> Collection[hr.Queue]:
            known = vars(self).setdefault("known", set())
            known.update(super().queues())
            return sorted(known)


class BrokenDropsBadBodies(Log):
    breaks = "test_bad_body_goes_to_dead_letters"

    class reader(LogReader):
        def made(self, offsets: Any, times: Any, bodies: list[bytes]) -> hr.RawBatch:
            return super().made(offsets, times, [body if self.good(body) else b"{}" for body in bodies])

        @staticmethod
        def good(body: bytes) -> bool:
            try:
                json.loads(body)
            except ValueError:
                return not body.startswith(b'{"number"')
            return True


class BrokenHoldsLock(Log):
    breaks = "test_survives_pickle"
    also = frozenset({"test_resume_after_kill"})

    class kind(LogSource):
        def __init__(self, settings: Any) -> None:
            super().__init__(settings)
            self.lock = threading.Lock()


class BrokenLeavesLock(Log):
    """Locks a queue with a file, which stays behind when the process is killed."""

    breaks = "test_resume_after_kill"
    thorough = True
    patience = timedelta(seconds=20)

    class reader(LogReader):
        lock: Path | None = None

        def __init__(self, source: LogSource, name: str, start: StartPosition) -> None:
            super().__init__(source, name, start)
            lock = Path(f"{source.settings.database} {name}.lock")
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            self.lock = lock

        def close(self) -> None:
            if self.lock is not None:
                self.lock.unlink(missing_ok=True)


class BrokenSkipsTooMuch(Log):
    breaks = "test_ranges_that_another_process_reads"

    class kind(LogSource):
        read_by_workers = True

    class reader(LogReader):
        def skip_range(self, max_records: int) -> hr.ReadPosition | None:
            self._next = self.position_after(max_records + 1).offset
            return self.position


class BrokenTakesOutageForEmpty(Log):
    breaks = "test_outage_is_survived"

    class kind(LogSource):
        def queues(self) -> Collection[hr.Queue]:
            try:
                return super().queues()
            except RetriableError:
                return []


class BrokenRawErrors(Log):
    breaks = "test_outage_is_survived"

    class reader(LogReader):
        def poll(self, max_records: int, timeout: timedelta) -> hr.RawBatch | None:
            try:
                return super().poll(max_records, timeout)
            except RetriableError as error:
                raise ConnectionError(str(error)) from error


class BrokenJobErrors(Log):
    breaks = "test_broken_queue_stops_no_other"

    class reader(LogReader):
        def check_whole(self) -> None:
            try:
                super().check_whole()
            except DamagedQueue as error:
                raise JobError(error.message) from error


class BrokenListsNothing(Log):
    breaks = "test_broken_queue_stops_no_other"

    class kind(LogSource):
        def queues(self) -> Collection[hr.Queue]:
            with self.connected() as connection:
                if connection.execute("SELECT count(*) FROM broken").fetchone()[0]:
                    raise DamagedQueue("a queue is damaged")
            return super().queues()


class BrokenTakesMissingForEmpty(Log):
    breaks = "test_missing_thing_is_named"

    class kind(LogSource):
        def queues(self) -> Collection[hr.Queue]:
            try:
                return super().queues()
            except JobError:
                return []


class BrokenClosesOnce(Log):
    breaks = "test_close_twice"

    class reader(LogReader):
        closed = False

        def close(self) -> None:
            if self.closed:
                raise RuntimeError("closed already")
            self.closed = True


class BrokenRestores(Log):
    """Takes a restored position for a queue's first record."""

    breaks = "test_resume_from_position"
    also = frozenset({
        "test_many_writes_keep_their_order", "test_forgotten_position_is_refused", "test_position_after",
        "test_position_behind_the_end_is_refused",
        "test_resume_after_kill", "test_same_range_gives_same_records",
    })  # fmt: skip

    class kind(LogSource):
        def restore(self, positions: Mapping[hr.Queue, hr.ReadPosition]) -> None:
            vars(self)["restored"] = True

        def open(self, queue: hr.Queue, start: StartPosition) -> hr.Reader:
            return super().open(queue, EARLIEST if vars(self).get("restored") else start)
