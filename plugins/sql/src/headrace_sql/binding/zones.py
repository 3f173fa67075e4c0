"""The time zone of a session (``table.local-time-zone``): where instants (TIMESTAMP_LTZ) become times of a calendar, and back.

Instants are kept in UTC. Their parts, their text, their day, and the windows that they fall into are those of the session's zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl
from headrace.foundation.errors import OptionError
from sqlglot import exp

#: Functions of the parts or the text of a time, and CONVERT_TZ's like that take a time of a calendar.
LOCAL_FUNCTIONS = frozenset({
    "DATE_FORMAT", "YEAR", "QUARTER", "MONTH", "WEEK", "WEEKOFYEAR", "DAY", "DAYOFYEAR", "DAYOFMONTH", "DAYOFWEEK", "WEEKDAY", "DAYNAME",
    "MONTHNAME", "HOUR", "MINUTE", "SECOND", "TO_DATE", "LAST_DAY", "DATE_ADD", "DATE_SUB", "DATEDIFF", "EXTRACT", "DATE_PART",
})  # fmt: skip
_FIXED = re.compile(r"(?:GMT|UTC)([+-])(\d{1,2})(?::?00)?")
#: Which summer times count: China had one until 1991, and windows in its zone must not be refused for that.
_YEARS = (2000, 2070)


def zone_name(text: str) -> str:
    """Return the name of a time zone as the tz database has it. Raises OptionError for an unknown one."""
    given = text.strip()
    fixed = _FIXED.fullmatch(given.upper())
    if given.upper() in ("UTC", "GMT", "Z"):
        return "UTC"
    if fixed is not None:
        # The database counts westward.
        given = f"Etc/GMT{'-' if fixed[1] == '+' else '+'}{int(fixed[2])}"
    try:
        ZoneInfo(given)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise OptionError(
            f"unknown time zone {text!r}",
            option="table.local-time-zone",
            hint="write it as 'Asia/Shanghai', 'GMT+08:00' or 'UTC'",
        ) from None
    return given


def is_instant(kind: pl.DataType | None) -> bool:
    """Return whether values are instants: TIMESTAMP_LTZ."""
    return isinstance(kind, pl.Datetime) and kind.time_zone is not None


def local(node: Any, zone: str) -> exp.Expr:
    """Return what clocks in a zone show at an instant."""
    return exp.Anonymous(this="from_utc_timestamp", expressions=[node, exp.Literal.string(zone)])


def instant(node: Any, zone: str) -> exp.Expr:
    """Return the instant at which clocks in a zone show a time."""
    return exp.Anonymous(this="to_utc_timestamp", expressions=[node, exp.Literal.string(zone)])


@cache
def _offsets_us(zone: str) -> frozenset[int]:
    info, moment, found = ZoneInfo(zone), datetime(_YEARS[0], 1, 1, tzinfo=UTC), set()
    while moment.year < _YEARS[1]:
        offset = info.utcoffset(moment.astimezone(info))
        assert offset is not None
        found.add(round(offset.total_seconds() * 1_000_000))
        moment += timedelta(days=10)
    return frozenset(found)


def window_offset_us(zone: str, length_us: int) -> int | None:
    """Return by how much windows of instants are moved so that they begin where a zone's days and hours begin.

    None where that changes with the season, for windows so long.
    """
    found = {-offset % length_us for offset in _offsets_us(zone)}
    return found.pop() if len(found) == 1 else None


__all__ = ["LOCAL_FUNCTIONS", "instant", "is_instant", "local", "window_offset_us", "zone_name"]
