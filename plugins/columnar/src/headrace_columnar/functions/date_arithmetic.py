"""Functions that move times, cut them, measure between them, and change their zone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl
from headrace_columnar.intervals import _MICROSECONDS, _MONTHS, add_days, add_duration, add_months_to, unit_name
from headrace_columnar.operators import truncated
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import by_series
from headrace_columnar.sql_types import TIMESTAMP, TIMESTAMP_NTZ, Typed, in_calendar, widen

_TRUNCATIONS = {
    "YEAR": "1y", "QUARTER": "1q", "MONTH": "1mo", "WEEK": "1w", "DAY": "1d", "HOUR": "1h", "MINUTE": "1m", "SECOND": "1s",
    "MILLISECOND": "1ms", "MICROSECOND": "1us",
}  # fmt: skip
_SHORT_UNITS = {"YYYY": "YEAR", "YY": "YEAR", "MM": "MONTH", "DD": "DAY", "Q": "QUARTER"}


def _unit(call: Call, index: int) -> str:
    word = str(call.constant(index)).upper()
    unit = unit_name(_SHORT_UNITS.get(word, word))
    if unit is None:
        units = ", ".join([*_MICROSECONDS, *_MONTHS])
        raise call.error(index, f"unknown unit {call.constant(index)!r}", hint=f"units: {units}")
    return unit


@function(
    "date_trunc",
    signature="unit constant string, moment timestamp -> ?",
    summary="The begin of the unit (year, quarter, month, week, day, hour, minute, second, …) in which a time lies.",
    examples=[
        ("date_trunc('hour', TIMESTAMP '2024-05-06 07:08:09')", datetime(2024, 5, 6, 7, tzinfo=UTC)),
        ("date_trunc('week', TIMESTAMP '2024-05-08 07:08:09')", datetime(2024, 5, 6, tzinfo=UTC)),
    ],
)
def date_trunc(call: Call) -> Typed:
    return Typed(call[1].dt.truncate(_TRUNCATIONS[_unit(call, 0)]), call.arguments[1].data_type)


@function(
    "trunc",
    signature="day date, unit constant string -> date",
    summary="The first day of the year, quarter, month or week in which a day lies.",
    examples=[
        ("trunc(DATE '2024-05-06', 'month')", date(2024, 5, 1)),
        ("trunc(DATE '2024-05-06', 'YEAR')", date(2024, 1, 1)),
    ],
)
def trunc(call: Call) -> pl.Expr:
    unit = _unit(call, 1)
    if unit not in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY"):
        raise call.error(1, f"a date has no {unit.lower()}")
    return call[0].dt.truncate(_TRUNCATIONS[unit])


@function(
    "date_add",
    "dateadd",
    signature="day date, days integer -> date",
    summary="The day this number of days later.",
    examples=[
        ("date_add(DATE '2017-09-15', 30)", date(2017, 10, 15)),
        ("date_add('2017-09-15 00:00:00', 30)", date(2017, 10, 15)),
    ],
)
def date_add(call: Call) -> pl.Expr:
    return add_days(call[0], call[1])


@function(
    "date_sub",
    signature="day date, days integer -> date",
    summary="The day this number of days earlier.",
    examples=[("date_sub('2017-10-15', 30)", date(2017, 9, 15))],
)
def date_sub(call: Call) -> pl.Expr:
    return add_days(call[0], -call[1])


@function(
    "datediff",
    "date_diff",
    signature="end date, start date -> int64",
    summary="The number of days from start to end.",
    examples=[
        ("datediff('2017-10-15 00:00:00', '2017-09-15 00:00:00')", 30),
        ("datediff(DATE '2024-01-01', DATE '2024-01-03')", -2),
    ],
)
def datediff(call: Call) -> pl.Expr:
    return call[0].cast(pl.Int32).cast(pl.Int64) - call[1].cast(pl.Int32).cast(pl.Int64)


@function(
    "add_months",
    signature="day date, months integer -> date",
    summary="The day this number of months later; the last day of the month if the month has no such day.",
    examples=[("add_months(DATE '2024-01-31', 1)", date(2024, 2, 29))],
)
def add_months(call: Call) -> pl.Expr:
    return add_months_to(call[0], call[1], pl.Date())


@function(
    "last_day",
    signature="day date -> date",
    summary="The last day of the month.",
    examples=[("last_day(DATE '2024-02-10')", date(2024, 2, 29))],
)
def last_day(call: Call) -> pl.Expr:
    return call[0].dt.month_end()


@function(
    "next_day",
    signature="day date, weekday constant string -> date",
    summary="The first day after the given one that is such a day of the week ('Mon', 'tuesday', …).",
    examples=[
        ("next_day(DATE '2024-05-06', 'Mon')", date(2024, 5, 13)),
        ("next_day(DATE '2024-05-06', 'TU')", date(2024, 5, 7)),
    ],
)
def next_day(call: Call) -> pl.Expr:
    days = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
    word = str(call.constant(1)).upper()
    if word[:2] not in days:
        raise call.error(1, f"{call.constant(1)!r} is not a day of the week")
    wanted = days.index(word[:2]) + 1
    step = (wanted - call[0].dt.weekday().cast(pl.Int64) - 1) % 7 + 1
    return add_days(call[0], step)


@function(
    "make_date",
    signature="year integer, month integer, day integer -> date",
    summary="The day with these numbers; NULL if there is no such day.",
    examples=[("make_date(2024, 2, 29)", date(2024, 2, 29)), ("make_date(2023, 2, 29)", None)],
)
def make_date(call: Call) -> pl.Expr:
    text = pl.format("{}-{}-{}", *(value.cast(pl.String).str.zfill(2) for value in call.expressions()))
    inside = call[0].is_between(1, 9999) & call[1].is_between(1, 12) & call[2].is_between(1, 31)
    return pl.when(inside).then(text).str.to_date("%Y-%m-%d", strict=False)


@function(
    "timestampadd",
    signature=[
        "unit constant string, count integer, moment datetime -> ?",
        "unit constant string, count integer, moment timestamp -> ?",
    ],
    summary="The time this number of units later: TIMESTAMPADD(MONTH, 1, ts).",
    examples=[
        ("timestampadd(MONTH, 1, TIMESTAMP '2028-01-31 00:00:00')", datetime(2028, 2, 29, tzinfo=UTC)),
        ("timestampadd(DAY, -1, DATE '2024-03-01')", date(2024, 2, 29)),
        ("timestampadd(MINUTE, 90, TIMESTAMP '2024-03-01 00:00:00')", datetime(2024, 3, 1, 1, 30, tzinfo=UTC)),
    ],
)
def timestampadd(call: Call) -> Typed:
    unit, count, moment = _unit(call, 0), call[1], call.arguments[2]
    if unit in _MONTHS:
        return Typed(add_months_to(moment.expression, count * _MONTHS[unit], moment.data_type), moment.data_type)
    micros = _MICROSECONDS[unit]
    limit = 10_000 * 366 * _MICROSECONDS["DAY"] // micros
    inside = pl.when(count.abs() <= limit).then(count)
    kind = moment.data_type
    if isinstance(kind, pl.Date) and micros % _MICROSECONDS["DAY"] == 0:
        return Typed(add_days(moment.expression, inside * (micros // _MICROSECONDS["DAY"])), pl.Date())
    zoned = pl.Datetime("us", kind.time_zone) if isinstance(kind, pl.Datetime) else TIMESTAMP
    return Typed(add_duration(widen(moment, zoned), (inside * micros).cast(pl.Duration("us")), zoned), zoned)


def full_months(start: pl.Series, end: pl.Series) -> pl.Series:
    """Return the number of whole months from start to end, negative if end is earlier."""
    frame = pl.DataFrame({"start": start, "end": end}).select(
        pl.min_horizontal("start", "end").alias("first"),
        pl.max_horizontal("start", "end").alias("last"),
        (pl.col("end") < pl.col("start")).alias("backwards"),
    )
    first, last, rough = pl.col("first"), pl.col("last"), pl.col("rough")
    years = (last.dt.year() - first.dt.year()).cast(pl.Int64)
    frame = frame.with_columns((years * 12 + last.dt.month() - first.dt.month()).alias("rough"))
    beyond = add_months_to(first, rough, pl.Datetime("us")) > last
    # "backwards" is NULL where a side is; min and max leave NULL out.
    made = pl.when("backwards").then(-(rough - beyond)).when(~pl.col("backwards")).then(rough - beyond)
    return frame.select(made).to_series()


@function(
    "timestampdiff",
    signature="unit constant string, start timestamp, end timestamp -> int64",
    summary="The number of whole units from start to end: TIMESTAMPDIFF(HOUR, a, b).",
    examples=[
        ("timestampdiff(MONTH, TIMESTAMP '2028-01-31 00:00:00', TIMESTAMP '2028-02-29 00:00:00')", 1),
        ("timestampdiff(HOUR, TIMESTAMP '2024-05-06 00:00:00', TIMESTAMP '2024-05-06 03:59:59')", 3),
        ("timestampdiff(DAY, DATE '2024-05-06', DATE '2024-05-01')", -5),
    ],
)
def timestampdiff(call: Call) -> pl.Expr:
    unit = _unit(call, 0)
    start, end = widen(call.arguments[1], TIMESTAMP), widen(call.arguments[2], TIMESTAMP)
    if unit in _MONTHS:
        bare = [start.dt.replace_time_zone(None), end.dt.replace_time_zone(None)]
        return truncated(by_series(bare, full_months, pl.Int64()), pl.lit(_MONTHS[unit]))[0]
    return truncated((end - start).dt.total_microseconds(), pl.lit(_MICROSECONDS[unit]))[0]


def _zone(call: Call, index: int) -> str:
    name = str(call.constant(index))
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise call.error(index, f"unknown time zone {name!r}", hint="write it as 'Asia/Shanghai' or 'UTC'") from None
    return name


@function(
    "from_utc_timestamp",
    "at_time_zone",
    signature="moment timestamp, zone constant string -> timestamp_ntz",
    summary="What clocks in a zone show at an instant. Also written moment AT TIME ZONE 'Asia/Shanghai'.",
    examples=[
        ("from_utc_timestamp(TIMESTAMP '2024-05-06 00:00:00', 'Asia/Shanghai')", datetime(2024, 5, 6, 8)),
        ("TIMESTAMP '2024-05-06 00:00:00' AT TIME ZONE 'Europe/Paris'", datetime(2024, 5, 6, 2)),
    ],
)
def from_utc_timestamp(call: Call) -> pl.Expr:
    instant = widen(call.arguments[0], TIMESTAMP)
    return in_calendar(instant.dt.convert_time_zone(_zone(call, 1)).dt.replace_time_zone(None), TIMESTAMP_NTZ)


@function(
    "to_utc_timestamp",
    signature="shown timestamp, zone constant string -> timestamp",
    summary="The instant at which clocks in a zone show a time: the earlier instant if there are two, NULL if there is none.",
    examples=[("to_utc_timestamp(TIMESTAMP '2024-05-06 08:00:00', 'Asia/Shanghai')", datetime(2024, 5, 6, tzinfo=UTC))],
)
def to_utc_timestamp(call: Call) -> pl.Expr:
    shown = widen(call.arguments[0], TIMESTAMP).dt.replace_time_zone(None)
    zoned = shown.dt.replace_time_zone(_zone(call, 1), ambiguous="earliest", non_existent="null")
    return in_calendar(zoned.dt.convert_time_zone("UTC"), TIMESTAMP)


@function(
    "convert_tz",
    signature="text string, from constant string, to constant string -> string",
    summary="A time 'yyyy-MM-dd HH:mm:ss' of one zone as shown in another (as in Flink).",
    examples=[("convert_tz('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')", "1969-12-31 16:00:00")],
)
def convert_tz(call: Call) -> pl.Expr:
    shown = call[0].str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="us")
    zoned = shown.dt.replace_time_zone(_zone(call, 1), ambiguous="earliest", non_existent="null")
    return zoned.dt.convert_time_zone(_zone(call, 2)).dt.strftime("%Y-%m-%d %H:%M:%S")
