"""Sources that listen: what arrives goes into a log, and readers read the log."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from headrace.flow.messages import Queue, RawBatch, ReadPosition
from headrace.foundation.errors import BrokenQueueError, DataError, JobError
from headrace.interfaces.settings import Settings, option
from headrace.interfaces.source import LATEST, Reader, Source, StartAt, StartPosition

from headrace_buffer.log import QUOTA_MIN_BYTES, RecordLog, WhenFull

logger = logging.getLogger(__name__)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BufferedSourceSettings(Settings, frozen=True, kw_only=True):
    """The options of the buffer. Derive the options of a source that listens from it."""

    in_pictures: ClassVar[tuple[str, ...]] = ("buffer",)

    buffer: Annotated[str, option("directory on a local disk where records are kept until a checkpoint covers them")]
    buffer_max_bytes: Annotated[int, option("most room on the disk", ge=QUOTA_MIN_BYTES)] = 1024**3
    when_full: Annotated[
        WhenFull,
        option("what to do when the buffer is full: let senders wait, drop the oldest records, or drop new ones"),
    ] = "block"


class Listener(ABC):
    """What listens while a source is open, and appends to its log. Made by ``BufferedSource.listen``."""

    def check(self) -> None:
        """Raise what has ended the listener, if anything has. Called by every poll."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening: when it returns, nothing is appended any more. Called once, before the log is closed."""


@dataclass(slots=True)
class _Shared:
    """A log that is open in this process, with the listener that fills it, and how many sources use them."""

    log: RecordLog
    settings: Any
    reader_name: str
    users: int = 0
    listener: Listener | None = None


_open: dict[Path, _Shared] = {}
_opening = threading.RLock()


class BufferedSource(Source):
    """Base of sources that listen. A subclass gives ``listen``; ``Settings`` derives from ``BufferedSourceSettings``.

    It has one queue. A position is an offset of the log: what was taken is read again after a crash, the same records under the
    same offsets, until a checkpoint covers it. The listener runs from the start of the job on, also while the job still waits for
    a sink, but not in a run that ends with its input (``until="end"``): such a run reads what the buffer holds.

    Sources with equal settings in one process share log and listener. Another process, and another job, are refused.
    """

    Settings: ClassVar[type[Settings]] = BufferedSourceSettings
    settings: Any
    #: The name of the only queue.
    queue_name: ClassVar[str] = "buffer"
    read_by_copies = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self._listens = True
        self._shared: _Shared | None = None

    @abstractmethod
    def listen(self, log: RecordLog) -> Listener:
        """Begin to listen, and append what arrives to ``log``, from threads of its own. Raises JobError if it cannot."""

    def use_run(self, *, until: Literal["end"] | None) -> None:
        self._listens = until != "end"

    def identity(self) -> Mapping[str, Any]:
        return {"buffer": self.settings.buffer}

    def begin_listening(self) -> None:
        if self._listens:
            self._acquired()

    def queues(self) -> Collection[Queue]:
        return [Queue(self.queue_name)]

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        shared = self._acquired()
        return LogReader(shared.log, start, listener=shared.listener, header_fields=self.header_fields)

    def stored(self, positions: Mapping[Queue, ReadPosition]) -> None:
        if self._shared is not None:
            for position in positions.values():
                self._shared.log.trim(position.offset)

    def close(self) -> None:
        shared, self._shared = self._shared, None
        if shared is None:
            return
        with _opening:
            shared.users -= 1
            if shared.users:
                return
            _open.pop(shared.log.directory.resolve(), None)
            try:
                if shared.listener is not None:
                    shared.listener.close()
            finally:
                shared.log.close()

    def _acquired(self) -> _Shared:
        """Return the open log and its listener."""
        with _opening:
            if self._shared is None:
                self._shared = self._found_or_made()
                self._shared.users += 1
            if self._listens and self._shared.listener is None:
                try:
                    self._shared.listener = self.listen(self._shared.log)
                except BaseException:
                    self.close()
                    raise
            return self._shared

    def _found_or_made(self) -> _Shared:
        path = Path(self.settings.buffer).resolve()
        found = _open.get(path)
        if found is None:
            log = RecordLog(path, quota_bytes=self.settings.buffer_max_bytes, when_full=self.settings.when_full)
            found = _open[path] = _Shared(log, self.settings, self.reader_name)
        elif found.settings != self.settings or found.reader_name != self.reader_name:
            raise JobError(
                f"the buffer {str(path)!r} is used by another source in this process"
                + (f", of {found.reader_name}" if found.reader_name else ""),
                hint="give each source its own buffer directory",
                option="buffer",
            )
        return found


class LogReader(Reader):
    """Reads a log from an offset on. Positions carry the id of the log, so that a log that was made anew is noticed.

    Where records were dropped because the log was full, it goes on behind them and says so in the log of the process.
    Raises DataError for a position that the log no longer holds, or not yet.
    """

    def __init__(
        self,
        log: RecordLog,
        start: StartPosition,
        *,
        listener: Listener | None = None,
        header_fields: Collection[str] = frozenset({"headers"}),
    ) -> None:
        self._log = log
        self._listener = listener
        self._with_headers = "headers" in header_fields
        if isinstance(start, ReadPosition):
            self._next = self._checked(start)
        elif isinstance(start, StartAt):
            self._next = log.offset_since(round((start.time - _EPOCH) / timedelta(microseconds=1)))
        else:
            self._next = log.latest if start is LATEST else log.earliest

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        if self._listener is not None:
            self._listener.check()
        try:
            records = self._log.read(self._next, max_records, with_headers=self._with_headers)
            if records is None and timeout and self._log.wait(self._next, timeout):
                records = self._log.read(self._next, max_records, with_headers=self._with_headers)
        except DataError as error:
            raise self._broken(error) from error
        if records is None:
            return None
        if records.first > self._next:
            logger.warning(
                "buffer %s: records %d to %d were dropped before they were read, because it was full",
                self._log.directory, self._next, records.first - 1,
            )  # fmt: skip
        offsets = np.arange(records.first, records.end, dtype=np.int64)
        self._next = records.end
        return RawBatch(
            offsets,
            self.position,
            bodies=records.bodies,
            times=records.times,
            keys=records.keys,
            headers=records.headers,
        )

    def seek(self, position: ReadPosition) -> None:
        self._next = self._checked(position)

    @property
    def position(self) -> ReadPosition:
        return ReadPosition(self._next, {"log": self._log.id})

    @property
    def earliest(self) -> int:
        return self._log.earliest

    @property
    def latest(self) -> int:
        return self._log.latest

    def position_after(self, max_records: int) -> ReadPosition:
        end = min(self._log.latest, max(self._next, self._log.earliest) + max_records)
        return ReadPosition(end, {"log": self._log.id})

    def _checked(self, position: ReadPosition) -> int:
        if position.hint.get("log", self._log.id) != self._log.id:
            raise DataError(
                f"the position {position.offset} belongs to another buffer than the one in {str(self._log.directory)!r}, which was "
                "created later",
                offset=position.offset,
                hint="restore the old directory, or start with a new checkpoint",
            )
        self._log.check_position(position.offset)
        return position.offset

    def _broken(self, error: DataError) -> DataError:
        """A damaged file breaks the queue; a position that the log does not hold is an error of the job."""
        if self._log.earliest <= self._next <= self._log.latest:
            return BrokenQueueError(error.message, hint=error.hint, offset=error.offset)
        return error
