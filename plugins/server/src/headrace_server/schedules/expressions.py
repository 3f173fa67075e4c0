"""The instants of a schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

# cronsim: it does nothing but this, has no dependencies, and writes down and tests what it does when clocks change: what Debian's cron
# does. croniter shifts such times in ways that changed between its versions; APScheduler's trigger skips a run whose hour does not exist.
from cronsim import CronSim, CronSimError
from headrace.foundation.errors import OptionError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_INTERVAL_MIN = timedelta(seconds=1)


class Times(ABC):
    """The instants at which a job is due, in UTC. They do not depend on when the server was started."""

    @abstractmethod
    def after(self, instant: datetime) -> Iterator[datetime]:
        """Give the instants later than ``instant``, oldest first, without an end."""

    @abstractmethod
    def latest(self, until: datetime, since: datetime, count_max: int) -> list[datetime]:
        """Return the last ``count_max`` instants that are later than ``since`` and not later than ``until``, oldest first."""


class IntervalTimes(Times):
    """Every so often, counted from midnight UTC of 1970-01-01: ``15 min`` is due at 00:00, 00:15, … UTC on each server."""

    def __init__(self, interval: timedelta) -> None:
        if interval < _INTERVAL_MIN:
            raise OptionError(
                f"{interval} is too short",
                option="every",
                hint="the minimum is 1 s; for a continuous stream, leave the schedule out",
            )
        self._interval = interval

    def after(self, instant: datetime) -> Iterator[datetime]:
        """See Times.after."""
        number = (instant - _EPOCH) // self._interval
        while True:
            number += 1
            yield _EPOCH + number * self._interval

    def latest(self, until: datetime, since: datetime, count_max: int) -> list[datetime]:
        """See Times.latest."""
        last = (until - _EPOCH) // self._interval
        first = max((since - _EPOCH) // self._interval + 1, last - count_max + 1)
        return [_EPOCH + number * self._interval for number in range(first, last + 1)]


class CronTimes(Times):
    """A cron expression of five fields, in a time zone.

    When clocks go forward, a run whose time does not exist is due right after the gap. When they go back, a run at a fixed time is
    due once, at the first of the two. An expression with ``*`` or ``*/n`` as minute or hour follows elapsed time.
    """

    def __init__(self, expression: str, zone: str) -> None:
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise OptionError(
                f"{zone!r} is not a time zone", option="time_zone", hint="a name such as Europe/Berlin or UTC"
            ) from None
        if len(expression.split()) != 5:
            raise OptionError(
                f"{expression!r} does not have five fields",
                option="cron",
                hint="minute hour day-of-month month day-of-week",
            )
        self._expression = expression
        try:
            found = next(self.after(_EPOCH), None)
        except CronSimError as error:
            raise OptionError(f"{expression!r} is not a cron expression: {error}", option="cron") from None
        if found is None:
            raise OptionError(f"{expression!r} never matches a date", option="cron", hint="such a day does not exist")

    def after(self, instant: datetime) -> Iterator[datetime]:
        """See Times.after."""
        minute, hour = self._expression.split()[:2]
        found = self._by_time_that_passes(instant) if "*" in (minute[0], hour[0]) else self._at_fixed_times(instant)
        before = None
        for each in found:
            if each > instant and each != before:
                before = each
                yield each

    def _at_fixed_times(self, instant: datetime) -> Iterator[datetime]:
        # From a day before: around a change of clocks cronsim's first instants depend on where it begins.
        for found in CronSim(self._expression, (instant - timedelta(days=1)).astimezone(self._zone)):
            yield found.astimezone(UTC)

    def _by_time_that_passes(self, instant: datetime) -> Iterator[datetime]:
        """Go from one change of clocks to the next with a fixed offset: cronsim's hours miss a change by half an hour."""
        at, offset = instant, self._offset(instant)
        while True:
            for local in CronSim(self._expression, at.astimezone(timezone(offset))):
                found = local.astimezone(UTC)
                change = self._change(at, found, offset)
                if change is not None:
                    at, offset = change - _MINUTE, self._offset(change)
                    break
                at = found
                yield found
            else:
                return

    def _offset(self, instant: datetime) -> timedelta:
        offset = instant.astimezone(self._zone).utcoffset()
        assert offset is not None
        return offset

    def _change(self, after: datetime, until: datetime, offset: timedelta) -> datetime | None:
        """Return the first minute in a range whose offset is another one; changes that follow within a day are not told apart."""
        low = after
        while low < until:
            high = min(low + timedelta(days=1), until)
            if self._offset(high) == offset:
                low = high
                continue
            low, high = (each.replace(second=0, microsecond=0) for each in (low, high))
            while high - low > _MINUTE:
                middle = low + (high - low) // _MINUTE // 2 * _MINUTE
                low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
            return high
        return None

    def latest(self, until: datetime, since: datetime, count_max: int) -> list[datetime]:
        """See Times.latest."""
        # Forward over a window that doubles until it holds enough: a server that was down for a year does not count its minutes.
        window = timedelta(hours=1)
        while True:
            begin = max(since, until - window)
            found = []
            for each in self.after(begin):
                if each > until:
                    break
                found.append(each)
            if begin == since or len(found) >= count_max:
                return found[-count_max:]
            window *= 2
