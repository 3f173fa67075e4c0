"""Converts texts of times to timestamps, a whole column in one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from headrace_grok.values import shown
from headrace_syslog.timestamps import moments

from headrace_logpresets.presets import TIMESTAMP, Choices

#: How a time is written: in a layout of strftime, as in syslog or ISO 8601, in seconds since 1970, or as in PostgreSQL.
Kind = Literal["layout", "syslog", "epoch", "postgresql"]
_ZONE_SIGNS = ("%z", "%:z", "%#z")


@dataclass(frozen=True, slots=True)
class Time:
    """How the times of a column are written."""

    kind: Kind = "layout"
    layout: str = ""
    #: Whether times without a zone are in UTC whatever the option ``timezone`` says.
    utc: bool = False
    #: Whether times may also be written by ISO 8601.
    also_iso: bool = False


def timestamps(texts: pl.Series, time: Time, choices: Choices) -> tuple[pl.Series, dict[int, str]]:
    """Return the times of texts, NULL for NULL, and the reasons of texts that are not times, by row."""
    zone = "UTC" if time.utc or choices.timezone is None else choices.timezone
    if time.kind == "syslog":
        return _syslog(texts, zone, choices.year)
    if time.kind == "epoch":
        # Seconds with up to three decimal places: a float is exact enough to be rounded to them.
        values = (texts.cast(pl.Float64, strict=False) * 1e6).round().cast(pl.Int64, strict=False).cast(TIMESTAMP)
    elif time.kind == "postgresql":
        return _postgresql(texts, choices.timezone)
    else:
        values = _by_layout(texts, time.layout, zone)
        if time.also_iso and values.null_count() > texts.null_count():
            others = pl.select(pl.when(values.is_null()).then(texts)).to_series()
            values = values.fill_null(_syslog(others, zone, None)[0])
    return values, _faults(texts, values)


def _by_layout(texts: pl.Series, layout: str, zone: str) -> pl.Series:
    if any(sign in layout for sign in _ZONE_SIGNS):
        return texts.str.to_datetime(layout, time_unit="us", time_zone="UTC", strict=False).cast(TIMESTAMP)
    return _in_utc(texts.str.to_datetime(layout, time_unit="us", strict=False), zone)


def _in_utc(clocks: pl.Series, zone: str) -> pl.Series:
    """Return the instants of local times of a zone. Of an hour that occurs twice, the first one is used; for an hour
    that is skipped, the hour after it.
    """
    there = clocks.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    if there.null_count() > clocks.null_count():
        later = clocks.dt.offset_by("1h").dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        there = there.fill_null(later)
    return there.dt.convert_time_zone("UTC").cast(TIMESTAMP)


def _postgresql(texts: pl.Series, zone: str | None) -> tuple[pl.Series, dict[int, str]]:
    """Convert times such as ``2024-01-15 10:00:00.123 CET``. Abbreviations are not unique, so without an option only
    UTC is known.
    """
    parts = texts.str.extract_groups(r"^(?P<clock>\S+ \S+) (?P<zone>\S+)$").struct.unnest()
    clocks = parts["clock"].str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    universal = parts["zone"].is_in(["UTC", "GMT", "Etc/UTC"])
    offset = parts["zone"].str.contains(r"^[+-]")
    minutes = _offset_minutes(parts["zone"])
    of_offset = (clocks - (minutes * 60_000_000).cast(pl.Duration("us"))).dt.replace_time_zone("UTC")
    of_utc = clocks.dt.replace_time_zone("UTC")
    of_zone = (
        _in_utc(clocks, zone) if zone is not None else pl.Series([None], dtype=TIMESTAMP).new_from_index(0, len(texts))
    )
    made = pl.select(
        pl.when(universal).then(of_utc.cast(TIMESTAMP)).when(offset).then(of_offset.cast(TIMESTAMP)).otherwise(of_zone)
    ).to_series()
    faults = _faults(texts, made)
    for row in faults:
        if zone is None and clocks[row] is not None and not offset[row]:
            faults[row] = f"the zone {parts['zone'][row]!r} is an abbreviation: set timezone to that of the server"
    return made, faults


def _offset_minutes(zones: pl.Series) -> pl.Series:
    parts = zones.str.extract_groups(r"^(?P<sign>[+-])(?P<hours>\d{1,2}):?(?P<minutes>\d\d)?").struct.unnest()
    hours, minutes = parts["hours"].cast(pl.Int64), parts["minutes"].cast(pl.Int64).fill_null(0)
    away = hours * 60 + minutes
    return pl.select(pl.when(parts["sign"] == "-").then(-away).otherwise(away)).to_series()


def _syslog(texts: pl.Series, zone: str, year: int | None) -> tuple[pl.Series, dict[int, str]]:
    there = np.flatnonzero(texts.is_not_null().to_numpy())
    if not len(there):
        return texts.cast(TIMESTAMP), {}
    found = moments(texts[there], zone, None, year)
    values = np.zeros(len(texts), dtype=np.int64)
    missing = np.ones(len(texts), dtype=np.bool_)
    values[there], missing[there] = found.times, ~found.good
    faults = {}
    for place in np.flatnonzero(~found.good).tolist():
        text = shown(texts[int(there[place])])
        faults[int(there[place])] = (
            f"the time {text} has no year: set the option year" if found.no_year[place] else f"there is no time {text}"
        )
    known = pl.Series(values).set(pl.Series(missing), None)
    return known.cast(TIMESTAMP), faults


def _faults(texts: pl.Series, values: pl.Series) -> dict[int, str]:
    if values.null_count() == texts.null_count():
        return {}
    wrong = np.flatnonzero((values.is_null() & texts.is_not_null()).to_numpy()).tolist()
    return {row: f"there is no time {shown(texts[row])}" for row in wrong}
