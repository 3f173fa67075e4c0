"""Tells rows that a sink refuses from a sink that is broken, by the errors that single rows raise."""

from __future__ import annotations

import threading
import traceback

from headrace.flow.messages import Queue
from headrace.foundation.errors import DataError, HeadraceError, JobFailedError
from headrace.interfaces.sink import Sink

#: So many rows in a row, each with the same error, are a fault of a sink that has not stored any row yet.
NEVER_STORED_ROWS = 16
#: The same for a sink that has stored rows in this run: a log-in may expire, but a run of bad rows is likelier.
STORED_BEFORE_ROWS = 1_000


class SinkFaults:
    """Remembers what single rows raised since the sink last stored something. One per writer; safe for threads.

    An error is the same when it has the same type and was raised at the same line. ``DataError`` always blames the row.
    """

    def __init__(self, sink: Sink, name: str) -> None:
        self._sink = sink
        self._name = name
        self._lock = threading.Lock()
        self._stored = False
        self._place: tuple[object, ...] = ()
        self._same_rows = 0

    def stored(self) -> None:
        """Note that the sink has stored rows."""
        with self._lock:
            self._stored = True
            self._place, self._same_rows = (), 0

    def accepted(self) -> None:
        """Note that the sink finds nothing wrong with rows that it has not stored yet."""
        with self._lock:
            self._place, self._same_rows = (), 0

    def refused(self, error: Exception, queue: Queue, offset: int) -> None:
        """Record the error of a single row. Raises JobFailedError if so many equal errors show that the sink itself is at fault."""
        with self._lock:
            place = () if isinstance(error, DataError) else _place(error)
            self._same_rows = self._same_rows + 1 if place and place == self._place else int(bool(place))
            self._place = place
            limit = STORED_BEFORE_ROWS if self._stored else NEVER_STORED_ROWS
            broken = self._same_rows >= limit
        if broken:
            raise self._failure(error, queue, offset)

    def batch_refused(self, error: Exception, rows: int, queue: Queue, offset: int) -> None:
        """Note that each row of a batch was refused, the last with this error. Raises as ``refused`` does."""
        with self._lock:
            broken = not self._stored and rows >= 2 and self._same_rows >= rows
        if broken:
            raise self._failure(error, queue, offset)

    def _failure(self, error: Exception, queue: Queue, offset: int) -> JobFailedError:
        kind = type(self._sink)
        text = error.message if isinstance(error, HeadraceError) else str(error)
        failure = JobFailedError(
            f"sink {self._name!r} ({kind.__module__}.{kind.__qualname__}) fails in the same way with each of "
            f"{self._same_rows} rows: {type(error).__name__}{f': {text}' if text else ''}, raised at {_shown(error)}",
            plugin=self._name,
            queue=queue.id,
            offset=offset,
            hint="this is an error of the sink or its configuration, not of the rows. No row is lost: the next start reads them again. A "
            "sink that refuses a row because of its values must raise headrace.DataError",
        )
        failure.__cause__ = error
        return failure


def _place(error: Exception) -> tuple[object, ...]:
    """Return the type of the error and the line that raised it."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = None if last is None else (last.tb_frame.f_code.co_filename, last.tb_lineno)
    return (type(error), where)


def _shown(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f'"{last.filename}", line {last.lineno}, in {last.name}' + (f": {last.line}" if last.line else "")
