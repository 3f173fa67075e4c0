"""Parses times to microseconds since the Unix epoch, a column at once. Each part is checked: the 31st of June is an
error, not the 1st of July.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_syslog.lines import MONTHS

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_CLOCK = r"(?P<hour>[0-9][0-9]):(?P<minute>[0-9][0-9]):(?P<second>[0-9][0-9])(?:[.,](?P<fraction>[0-9]{1,6})[0-9]*)?"
_ISO = (
    rf"^(?P<year>[0-9]{{4}})-(?P<month>[0-9][0-9])-(?P<day>[0-9][0-9])[T ]{_CLOCK}"
    r"(?P<zone>Z|(?P<sign>[+-])(?P<zone_hour>[0-9][0-9]):?(?P<zone_minute>[0-9][0-9]))?\z"
)
_BSD = rf"^(?P<month>[A-Z][a-z]{{2}}) (?P<day>[ 0-9]?[0-9]) (?:(?P<year>[0-9]{{4}}) )?{_CLOCK}\z"
_SECOND_US = 1_000_000
_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Moments:
    """Times, and which of them are valid. ``no_year`` marks times whose year is unknown."""

    times: Integers
    good: Flags
    no_year: Flags


def moments(texts: pl.Series, zone: str, received: Integers | None, year: int | None) -> Moments:
    """Return the times of texts of RFC 5424 or RFC 3164, none of which is NULL.

    Times without a zone are local times of ``zone``. A time without a year gets the year that brings it nearest to
    ``received``; if that is not given, it gets ``year``.
    """
    count = len(texts)
    found = Moments(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_))
    iso = texts.str.contains(r"^[0-9]").to_numpy()
    for rows, read in ((np.flatnonzero(iso), _iso), (np.flatnonzero(~iso), _bsd)):
        if not len(rows):
            continue
        some = texts if len(rows) == count else texts[rows]
        part = read(some, zone, None if received is None else received[rows], year)
        found.times[rows], found.good[rows], found.no_year[rows] = part.times, part.good, part.no_year
    return found


def _iso(texts: pl.Series, zone: str, received: Integers | None, year: int | None) -> Moments:
    parts = texts.str.extract_groups(_ISO).struct.unnest()
    days, good = _days(_numbers(parts["year"]), _numbers(parts["month"]), _numbers(parts["day"]))
    clock, right = _clock(parts)
    times = days * 86_400 * _SECOND_US + clock
    good &= right & parts["hour"].is_not_null().to_numpy()
    hours, minutes = _numbers(parts["zone_hour"], 0), _numbers(parts["zone_minute"], 0)
    good &= (hours < 24) & (minutes < 60)
    away = (hours * 60 + minutes) * 60 * _SECOND_US
    times -= np.where((parts["sign"] == "-").fill_null(False).to_numpy(), -away, away)
    local = good & parts["zone"].is_null().to_numpy()
    if local.any():
        times[local] = _in_utc(times[local], zone)
    return Moments(times, good, np.zeros(len(texts), dtype=np.bool_))


def _bsd(texts: pl.Series, zone: str, received: Integers | None, year: int | None) -> Moments:
    parts = texts.str.extract_groups(_BSD).struct.unnest()
    named = parts["month"].replace_strict(list(MONTHS), range(1, 13), default=None, return_dtype=pl.Int64)
    months, days = _numbers(named), _numbers(parts["day"].str.strip_chars_start(" "))
    clock, right = _clock(parts)
    right &= parts["hour"].is_not_null().to_numpy()
    given = _numbers(parts["year"], 0)
    count = len(texts)
    times, good, no_year = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_), given == 0
    if received is not None:
        local = _in_zone(received, zone)
        near = local.astype("M8[us]").astype("M8[Y]").astype(np.int64) + 1970
        tries = [np.where(no_year, near + step, given) for step in (0, -1, 1)]
        no_year[:] = False
    else:
        local = np.zeros(count, dtype=np.int64)
        tries = [np.where(no_year & (year is not None), year or 0, given)]
        no_year &= year is None
    distances = np.full(count, _FAR)
    for years in tries:
        dates, there = _days(years, months, days)
        found = dates * 86_400 * _SECOND_US + clock
        distance = np.abs(found - local)
        better = there & right & (distance < distances)
        times[better], distances[better] = found[better], distance[better]
        good |= better
    return Moments(_in_utc(times, zone), good & ~no_year, no_year & right)


def _clock(parts: pl.DataFrame) -> tuple[Integers, Flags]:
    hours, minutes, seconds = (_numbers(parts[name], 0) for name in ("hour", "minute", "second"))
    micros = _numbers(parts["fraction"].str.pad_end(6, "0"), 0)
    good = (hours < 24) & (minutes < 60) & (seconds < 60)
    return ((hours * 60 + minutes) * 60 + seconds) * _SECOND_US + micros, good


def _days(years: Integers, months: Integers, days: Integers) -> tuple[Integers, Flags]:
    """Return dates as days since the Unix epoch, and which of them exist."""
    number = (years - 1970) * 12 + months - 1
    first = number.astype("M8[M]").astype("M8[D]").astype(np.int64)
    after = (number + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    good = (years >= 1) & (months >= 1) & (months <= 12) & (days >= 1) & (days <= after - first)
    return first + days - 1, good


def _numbers(texts: pl.Series, missing: int = -1) -> Integers:
    return texts.cast(pl.Int64).fill_null(missing).to_numpy()


def _in_zone(times: Integers, zone: str) -> Integers:
    """Return times as clocks of the zone show them."""
    if zone == "UTC":
        return times
    there = pl.Series(times).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)
    return there.dt.replace_time_zone(None).cast(pl.Int64).to_numpy()


def _in_utc(times: Integers, zone: str) -> Integers:
    """Return local times of the zone in UTC. In an hour that comes twice (end of daylight saving time), it is the
    first. A time in an hour that is skipped is moved to the hour after it.
    """
    if zone == "UTC":
        return times
    clocks = pl.Series(times).cast(pl.Datetime("us"))
    there = clocks.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    if there.null_count():
        later = clocks.dt.offset_by("1h").dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        there = there.fill_null(later)
    return there.cast(pl.Int64).fill_null(pl.Series(times)).to_numpy()
