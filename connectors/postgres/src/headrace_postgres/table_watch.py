"""Sees whether the log still gets the changes of a table: it does not say so when it does not."""

from __future__ import annotations

from collections.abc import Callable

from headrace.foundation.clock import Clock
from headrace.foundation.errors import JobError

from headrace_postgres.log.places import LogPlace

#: How often the catalog is asked while nothing comes.
_LOOK_SECONDS = 10.0


class TableWatch:
    """Checks from time to time, while no changes come, whether the table and its publication are unchanged.

    A dropped table leaves its publication, and a new table of its name is not in it: the log contains changes of neither.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_at = clock.monotonic()
        #: The error that was found, and the end of the log at that time: changes before that end are returned first.
        self._found: tuple[JobError, int] | None = None

    def look(self, check: Callable[[], None], end_of_log: Callable[[], int], place: LogPlace) -> None:
        """Raise the JobError of ``check`` once the log was read up to where it ended when the error was found.

        ``place``: how far the log was read. Called when nothing was read.
        """
        now = self._clock.monotonic()
        if self._found is None and now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            try:
                check()
            except JobError as error:
                self._found = error, end_of_log()
        if self._found is not None:
            found, end = self._found
            if place.lsn >= end and not place.commit:
                self._found = None
                raise found
