"""Texts of dates and times to numbers, a column at a time.

The texts of one column mostly have one layout, so a layout is found with a regular expression on one text and then read
from all texts of that length with numpy. What a text means never depends on the others: ``parse_moment``, which reads
one text alone, defines it, and the column-wise way gives the same (tested).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DATE = r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
_ZONE = r"(?P<zone>Z|[+-](?P<zone_hour>\d\d)(?::?(?P<zone_minute>\d\d))?)?"

#: ISO 8601 date and time, extended format, as in RFC 3339 but with optional seconds and zone.
TIMESTAMP = re.compile(f"{_DATE}[T ]{_TIME}{_ZONE}", re.ASCII)
#: The same for a column without time zone.
TIMESTAMP_WITHOUT_ZONE = re.compile(f"{_DATE}[T ]{_TIME}", re.ASCII)
DATE = re.compile(_DATE, re.ASCII)
TIME = re.compile(_TIME, re.ASCII)

#: The seconds since the Unix epoch of 0001-01-01T00:00:00 and 9999-12-31T23:59:59.
SECONDS_MIN, SECONDS_MAX = -62_135_596_800, 253_402_300_799
#: Layouts that are read column-wise before the remaining texts are read one by one.
_LAYOUTS_MAX = 24
#: So few texts are read faster one by one.
_ONE_BY_ONE_MAX = 40
_EPOCH = dt.date(1970, 1, 1).toordinal()
_DAYS_OF_MONTH = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)
_DAY = ("year", "month", "day")
_NUMBERS = (*_DAY, "hour", "minute", "second", "fraction", "zone_hour", "zone_minute")


class Moments(NamedTuple):
    """Moments as seconds since the Unix epoch and nanoseconds in that second; ``bad`` marks texts that are none.

    Of a date, seconds is its midnight; of a time of day, seconds counts from midnight. Bad entries hold zeros.
    """

    seconds: NDArray[np.int64]
    nanoseconds: NDArray[np.int64]
    bad: NDArray[np.bool_]


def parse_moment(text: str, pattern: re.Pattern[str]) -> tuple[int, int] | None:
    """Return (seconds, nanoseconds) of one text, or None when it is no moment as ``pattern`` has it."""
    found = pattern.fullmatch(text)
    if found is None:
        return None
    part = found.groupdict()
    seconds = nanoseconds = 0
    if "year" in part:
        try:
            day = dt.date(int(part["year"]), int(part["month"]), int(part["day"]))
        except ValueError:
            return None
        seconds = (day.toordinal() - _EPOCH) * 86_400
    if "hour" in part:
        hour, minute, second = int(part["hour"]), int(part["minute"]), int(part["second"] or 0)
        if hour > 23 or minute > 59 or second > 59:
            return None
        seconds += hour * 3600 + minute * 60 + second
        nanoseconds = int((part["fraction"] or "").ljust(9, "0"))
    if part.get("zone_hour") is not None:
        hour, minute = int(part["zone_hour"]), int(part["zone_minute"] or 0)
        if hour > 23 or minute > 59:
            return None
        seconds -= (hour * 3600 + minute * 60) * (-1 if part["zone"][0] == "-" else 1)
        if not SECONDS_MIN <= seconds <= SECONDS_MAX:
            return None
    return seconds, nanoseconds


def parse_moments(texts: Sequence[str], pattern: re.Pattern[str]) -> Moments:
    """Return the moments of many texts, each read as ``parse_moment`` reads it."""
    count = len(texts)
    result = Moments(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.bool_))
    pending = np.arange(count) if count > _ONE_BY_ONE_MAX else np.zeros(0, dtype=np.int64)
    lengths: NDArray[np.int64] | None = None
    layouts = 0
    if pending.size and (found := pattern.fullmatch(texts[0])) is not None:
        characters = _of_one_length(texts, len(found.string))
        if characters is not None:
            layouts += 1
            pending = pending[~_read_layout(characters, found, pending, result)]
    while pending.size and layouts < _LAYOUTS_MAX:
        found = pattern.fullmatch(texts[pending[0]])
        if found is None:
            result.bad[pending[0]] = True
            pending = pending[1:]
            continue
        layouts += 1
        if lengths is None:
            lengths = np.fromiter(map(len, texts), dtype=np.int64, count=count)
        same_length = lengths[pending] == len(found.string)
        rows = pending[same_length]
        chosen = texts if rows.size == count else [texts[row] for row in rows.tolist()]
        # A character beyond ASCII becomes one question mark, which fits no layout.
        joined = "".join(chosen).encode("ascii", "replace")
        characters = np.frombuffer(joined, dtype=np.uint8).reshape(len(chosen), len(found.string))
        fits = _read_layout(characters, found, rows, result)
        pending = np.concatenate([pending[~same_length], rows[~fits]])
    for row in pending.tolist() if count > _ONE_BY_ONE_MAX else range(count):
        moment = parse_moment(texts[row], pattern)
        if moment is None:
            result.bad[row] = True
        else:
            result.seconds[row], result.nanoseconds[row] = moment
    return result


def _of_one_length(texts: Sequence[str], length: int) -> NDArray[np.uint8] | None:
    """Return the characters of texts, a row for each, if all have this length. It takes less time than asking each text."""
    joined = "\n".join([*texts, ""]).encode("ascii", "replace")
    if len(joined) != len(texts) * (length + 1) or joined.count(b"\n") != len(texts):
        return None
    characters = np.frombuffer(joined, dtype=np.uint8).reshape(len(texts), length + 1)
    # There are as many newlines as texts: if there is one after every ``length`` characters, no text has another one.
    return characters[:, :length] if bool((characters[:, length] == ord("\n")).all()) else None


def _read_layout(
    characters: NDArray[np.uint8], layout: re.Match[str], rows: NDArray[np.int64], result: Moments
) -> NDArray[np.bool_]:
    """Read the texts that are laid out as ``layout`` into ``result`` at ``rows``; say which texts they are.

    ``characters`` has a row for each text, and a column for each character of the layout.
    """
    # Column-wise: one contiguous array per character position.
    characters = np.ascontiguousarray(characters.T)
    digits = characters - np.uint8(ord("0"))
    fits = np.ones(len(rows), dtype=np.bool_)
    groups = layout.groupdict()
    date_end = layout.end("day") if "year" in groups else 0
    # Mostly all are of one day, that of the first, whose layout it is: then it is worked out once, and numpy repeats it.
    one_day = date_end > 0 and bool((characters[:date_end] == characters[:date_end, :1]).all())
    for at, character in enumerate(layout.string):
        if at < date_end and one_day:
            continue
        if character.isdigit():
            fits &= digits[at] <= 9
        else:
            fits &= characters[at] == ord(character)
    fields: dict[str, NDArray[np.int32]] = {}
    for name in _NUMBERS:
        if name in groups:
            start, end = layout.span(name)
            fields[name] = _number(digits[start:end, :1] if one_day and name in _DAY else digits[start:end])
    moments = _combine(fields, groups, len(rows))
    if fits.all() and len(rows) == len(result.bad):
        for target, values in zip(result, moments, strict=True):
            target[:] = values
    else:
        fitting = rows[fits]
        for target, values in zip(result, moments, strict=True):
            target[fitting] = values[fits]
    return fits


def _number(digits: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Put decimal digits together, one row per place, at most nine places."""
    value: NDArray[np.int32] = np.zeros(digits.shape[1:], dtype=np.int32)
    odd = len(digits) % 2
    if odd:
        value += digits[0]
    for at in range(odd, len(digits), 2):
        # Two places fit a byte, whose arithmetic is the fastest.
        pair = digits[at] * np.uint8(10) + digits[at + 1]
        value = value * np.int32(100) + pair if at else pair.astype(np.int32)
    return value


def _combine(fields: dict[str, NDArray[np.int32]], groups: dict[str, str | None], count: int) -> Moments:
    """Combine the fields and mark rows that are out of range. ``groups`` are the texts of one of the rows.

    Year, month and day may have a single entry, which is that of all rows.
    """
    seconds = nanoseconds = np.zeros(count, dtype=np.int64)
    bad = np.zeros(count, dtype=np.bool_)
    if "year" in fields:
        year, month, day = fields["year"], fields["month"], fields["day"]
        bad |= (year < 1) | (month < 1) | (month > 12) | (day < 1)
        late = np.flatnonzero(day > 28)
        past_last = np.zeros(day.shape, dtype=np.bool_)
        past_last[late] = day[late] > _last_day(year[late], month[late])
        bad |= past_last
        seconds = days_since_epoch(year, month, day).astype(np.int64) * 86_400
    if "hour" in fields:
        hour, minute, second = fields["hour"], fields["minute"], fields["second"]
        bad |= (hour > 23) | (minute > 59) | (second > 59)
        seconds = seconds + (hour * 3600 + minute * 60 + second)
        nanoseconds = fields["fraction"].astype(np.int64) * 10 ** (9 - len(groups["fraction"] or ""))
    if groups.get("zone_hour") is not None:
        bad |= (fields["zone_hour"] > 23) | (fields["zone_minute"] > 59)
        offset = fields["zone_hour"] * 3600 + fields["zone_minute"] * 60
        seconds = seconds + (offset if (groups["zone"] or "").startswith("-") else -offset)
        bad |= (seconds < SECONDS_MIN) | (seconds > SECONDS_MAX)
    if bad.any():
        seconds, nanoseconds = np.where(bad, 0, seconds), np.where(bad, 0, nanoseconds)
    return Moments(np.broadcast_to(seconds, count), nanoseconds, bad)


def _last_day(year: NDArray[np.int32], month: NDArray[np.int32]) -> NDArray[Any]:
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last: NDArray[Any] = _DAYS_OF_MONTH[np.minimum(month, 12)] + (leap & (month == 2))
    return last


def days_since_epoch(year: NDArray[Any], month: NDArray[Any], day: NDArray[Any]) -> NDArray[Any]:
    """Return the number of days from 1970-01-01 to dates of the proleptic Gregorian calendar.

    Counts years from March, so that the leap day is a year's last: Howard Hinnant, "chrono-compatible low-level date
    algorithms", days_from_civil.
    """
    year = year - (month <= 2)
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days: NDArray[np.int64] = (
        era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
    )
    return days
