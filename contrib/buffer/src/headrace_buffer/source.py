"""Base classes of sources that listen: incoming records are appended to a log, and readers read the log."""

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
    """The options of the buffer. The options of a source that listens derive from this class."""

    in_pictures: ClassVar[tuple[str, ...]] = ("buffer",)

    buffer: Annotated[str, option("directory on a local disk where records are kept until a checkpoint covers them")]
    buffer_max_bytes: Annotated[int, option("most room on the disk", ge=QUOTA_MIN_BYTES)] = 1024**3
    when_full: Annotated[
        WhenFull,
        option("what to do when the buffer is full: let senders wait, drop the oldest records, or drop new ones"),
    ] = "block"


class Listener(ABC):
    """Receives records while a source is open, and appends them to its log. ``BufferedSource.listen`` makes it."""

    def check(self) -> None:
        """Raise the error that has ended the listener, if there is one. Every poll calls it."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening. After it has returned, the listener appends nothing more. Called once, before the log is
        closed.
        """


@dataclass(slots=True)
class _Shared:
    """An open log of this process, its listener, and how many sources use them."""

    log: RecordLog
    settings: Any
    reader_name: str
    users: int = 0
    listener: Listener | None = None


_open: dict[Path, _Shared] = {}
_opening = threading.RLock()


class BufferedSource(Source):
    """Base of sources that listen. A derived class implements ``listen``; its ``Settings`` derives from
    ``BufferedSourceSettings``.

    The source has one queue. A position is an offset of the log. Until a checkpoint covers a record, it is read again
    after a crash, with the same offset. The listener runs from the start of the job on, also while the job still waits
    for a sink. In a run that ends with its input (``until="end"``) it does not run: such a run reads the records in the
    buffer.

    Sources with equal settings in one process share log and listener. Another process, or another job, cannot use the
    same buffer.
    """

    Settings: ClassVar[type[Settings]] = BufferedSourceSettings
    settings: Any
    #: The name of the queue.
    queue_name: ClassVar[str] = "buffer"
    read_by_copies = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self._listens = True
        self._shared: _Shared | None = None

    @abstractmethod
    def listen(self, log: RecordLog) -> Listener:
        """Begin to listen and return the listener. Its own threads append incoming records to ``log``. Raises JobError
        if it cannot listen.
        """

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
    """Reads a log from an offset on. Positions contain the id of the log, so a log that was created again is noticed.

    If records were dropped because the log was full, the reader continues after them and logs a warning.
    Raises DataError for a position that the log no longer has, or does not have yet.
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
        """Return the error: a damaged file breaks the queue, but a position that the log does not have stops the job."""
        if self._log.earliest <= self._next <= self._log.latest:
            return BrokenQueueError(error.message, hint=error.hint, offset=error.offset)
        return error
