"""Functions between times, texts and numbers, and of the parts of a time.

A timestamp is an instant; its parts are those of its column's zone (UTC unless the schema says otherwise). Text
without a zone is read as UTC.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

import polars as pl
from headrace_columnar.functions.environment import CLOCK
from headrace_columnar.intervals import unit_name
from headrace_columnar.registry import Call, function
from headrace_columnar.sql_types import TIMESTAMP, Typed
from headrace_columnar.time_formats import FormatError, chrono_format, has_time, has_zone

_MOMENT = ["moment timestamp -> int64", "moment time -> int64"]


def _format(call: Call, index: int) -> str:
    try:
        return chrono_format(str(call.constant(index)))
    except FormatError as error:
        raise call.error(index, str(error)) from None


def parse_with(text: pl.Expr, chrono: str) -> pl.Expr:
    """Return the instant that a text of that format means, NULL where it is not of the format."""
    if has_zone(chrono):
        return text.str.to_datetime(chrono, strict=False, time_unit="us", time_zone="UTC")
    if not has_time(chrono):
        day = text.str.to_date(chrono, strict=False)
        return day.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    return text.str.to_datetime(chrono, strict=False, time_unit="us").dt.replace_time_zone("UTC")


@function(
    "date_format",
    signature="moment timestamp, format constant string -> string",
    summary="The time as text, by a pattern such as 'yyyy-MM-dd HH:mm:ss.SSS' (Java's letters).",
    examples=[
        ("date_format('2017-09-15 00:00:00', 'yyMMdd')", "170915"),
        ("date_format(TIMESTAMP '2017-09-15 23:04:05.678', 'dd/MM/yyyy HH:mm:ss.SSS')", "15/09/2017 23:04:05.678"),
        ("date_format(DATE '2024-05-06', 'EEEE d MMMM')", "Monday 6 May"),
    ],
)
def date_format(call: Call) -> pl.Expr:
    return call[0].dt.strftime(_format(call, 1))


@function(
    "to_date",
    "date",
    signature=["moment date -> date", "text string, format constant string -> date"],
    summary="The day of a timestamp or a text ('2024-05-06', or in the format); NULL if the text is not a date.",
    examples=[
        ("to_date('2017-09-15')", date(2017, 9, 15)),
        ("to_date('20170915', 'yyyyMMdd')", date(2017, 9, 15)),
        ("to_date('2017-02-30')", None),
    ],
)
def to_date(call: Call) -> pl.Expr:
    return call[0] if len(call) == 1 else parse_with(call[0], _format(call, 1)).dt.date()


@function(
    "to_timestamp",
    "timestamp",
    "try_to_timestamp",
    signature=["moment timestamp -> timestamp", "text string, format constant string -> timestamp"],
    summary="The instant of a text ('2024-05-06 07:08:09', ISO 8601, or in the format); NULL if the text is not a time.",
    examples=[
        ("to_timestamp('2017-09-15 00:00:00')", datetime(2017, 9, 15, tzinfo=UTC)),
        ("to_timestamp('20170915010203', 'yyyyMMddHHmmss')", datetime(2017, 9, 15, 1, 2, 3, tzinfo=UTC)),
        ("to_timestamp('2017-09-15T01:00:00+02:00')", datetime(2017, 9, 14, 23, tzinfo=UTC)),
        ("to_timestamp('x')", None),
    ],
)
def to_timestamp(call: Call) -> Typed:
    if len(call) == 2:
        return Typed(parse_with(call[0], _format(call, 1)), TIMESTAMP)
    from headrace_columnar.sql_types import widen

    return Typed(widen(call.arguments[0], TIMESTAMP), TIMESTAMP)


@function(
    "to_timestamp_ltz",
    signature="number integer, precision constant integer -> timestamp",
    summary="The instant this number of seconds (precision 0) or milliseconds (3) after 1970 (as in Flink).",
    examples=[("to_timestamp_ltz(1505433600000, 3)", datetime(2017, 9, 15, tzinfo=UTC))],
)
def to_timestamp_ltz(call: Call) -> pl.Expr:
    if call.constant(1) not in (0, 3):
        raise call.error(1, "precision is 0 (seconds) or 3 (milliseconds)")
    return _instant(call[0], 1_000_000 if call.constant(1) == 0 else 1_000)


def _instant(number: pl.Expr, micros: int) -> pl.Expr:
    """Units since 1970 to an instant; NULL outside of the years 1 to 9999."""
    inside = number.is_between(-62135596800 * 1_000_000 // micros, 253402300799 * 1_000_000 // micros)
    return (pl.when(inside).then(number) * micros).cast(pl.Datetime("us", "UTC"))


@function(
    "timestamp_seconds",
    signature="seconds integer -> timestamp",
    summary="The instant this number of seconds after 1970.",
    examples=[("timestamp_seconds(1505433600)", datetime(2017, 9, 15, tzinfo=UTC))],
)
def timestamp_seconds(call: Call) -> pl.Expr:
    return _instant(call[0], 1_000_000)


@function(
    "timestamp_millis",
    signature="milliseconds integer -> timestamp",
    summary="The instant this number of milliseconds after 1970.",
    examples=[("timestamp_millis(1505433600123)", datetime(2017, 9, 15, 0, 0, 0, 123000, tzinfo=UTC))],
)
def timestamp_millis(call: Call) -> pl.Expr:
    return _instant(call[0], 1_000)


@function(
    "timestamp_micros",
    signature="microseconds integer -> timestamp",
    summary="The instant this number of microseconds after 1970.",
    examples=[("timestamp_micros(1505433600000001)", datetime(2017, 9, 15, 0, 0, 0, 1, tzinfo=UTC))],
)
def timestamp_micros(call: Call) -> pl.Expr:
    return _instant(call[0], 1)


@function(
    "unix_timestamp",
    "to_unix_timestamp",
    signature=["-> int64", "moment timestamp -> int64", "text string, format constant string -> int64"],
    summary="Seconds since 1970 of a timestamp or a text; of the time of processing, without arguments.",
    examples=[
        ("unix_timestamp('2017-09-15 00:00:00')", 1505433600),
        ("unix_timestamp('15.09.2017', 'dd.MM.yyyy')", 1505433600),
        ("unix_timestamp() > 1700000000", True),
    ],
)
def unix_timestamp(call: Call) -> pl.Expr:
    if len(call) == 0:
        return call.compiler.add_call(CLOCK, []).dt.epoch("us") // 1_000_000
    moment = call[0] if len(call) == 1 else parse_with(call[0], _format(call, 1))
    return moment.dt.epoch("us") // 1_000_000


@function(
    "unix_seconds",
    signature="moment timestamp -> int64",
    summary="Seconds since 1970.",
    examples=[("unix_seconds(TIMESTAMP '2017-09-15 00:00:00.9')", 1505433600)],
)
def unix_seconds(call: Call) -> pl.Expr:
    return call[0].dt.epoch("us") // 1_000_000


@function(
    "unix_millis",
    signature="moment timestamp -> int64",
    summary="Milliseconds since 1970.",
    examples=[("unix_millis(TIMESTAMP '2017-09-15 00:00:00.9')", 1505433600900)],
)
def unix_millis(call: Call) -> pl.Expr:
    return call[0].dt.epoch("us") // 1_000


@function(
    "unix_micros",
    signature="moment timestamp -> int64",
    summary="Microseconds since 1970.",
    examples=[("unix_micros(TIMESTAMP '1970-01-01 00:00:00.9')", 900000)],
)
def unix_micros(call: Call) -> pl.Expr:
    return call[0].dt.epoch("us")


@function(
    "unix_date",
    signature="day date -> int64",
    summary="Days since 1970-01-01.",
    examples=[("unix_date(DATE '1970-01-02')", 1)],
)
def unix_date(call: Call) -> pl.Expr:
    return call[0].cast(pl.Int32).cast(pl.Int64)


@function(
    "from_unixtime",
    signature="seconds integer, [format constant string] -> string",
    summary="Seconds since 1970 as text in UTC, 'yyyy-MM-dd HH:mm:ss' or of a format.",
    examples=[
        ("from_unixtime(1505404800)", "2017-09-14 16:00:00"),
        ("from_unixtime(1505404800, 'MMdd-yyyy')", "0914-2017"),
    ],
)
def from_unixtime(call: Call) -> pl.Expr:
    return _instant(call[0], 1_000_000).dt.strftime(_format(call, 1) if len(call) == 2 else "%Y-%m-%d %H:%M:%S")


def part_of(moment: pl.Expr, unit: str) -> pl.Expr | None:
    """Return a part of a time as int64 (``SECOND`` without its fraction); None for a part there is not."""
    parts = {
        "YEAR": moment.dt.year(), "QUARTER": moment.dt.quarter(), "MONTH": moment.dt.month(), "WEEK": moment.dt.week(),
        "DAY": moment.dt.day(), "HOUR": moment.dt.hour(), "MINUTE": moment.dt.minute(), "SECOND": moment.dt.second(),
        "MILLISECOND": moment.dt.millisecond(), "MICROSECOND": moment.dt.microsecond(),
        "DOY": moment.dt.ordinal_day(), "DOW": moment.dt.weekday() % 7 + 1, "ISODOW": moment.dt.weekday(),
        "ISOYEAR": moment.dt.iso_year(), "CENTURY": (moment.dt.year() + 99) // 100, "DECADE": moment.dt.year() // 10,
    }  # fmt: skip
    if unit == "EPOCH":
        return moment.dt.epoch("us") // 1_000_000
    return parts[unit].cast(pl.Int64) if unit in parts else None


_TIME_PARTS = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
_PART_NAMES = {"DAYOFYEAR": "DOY", "DAYOFWEEK": "DOW", "DAYOFWEEK_ISO": "ISODOW", "YEAROFWEEK": "ISOYEAR"}


@function(
    "extract",
    "date_part",
    "datepart",
    signature=["unit constant string, moment timestamp -> int64", "unit constant string, moment time -> int64"],
    summary="A part of a time: YEAR, QUARTER, MONTH, WEEK (ISO), DAY, DOY, DOW (Sunday is 1), ISODOW (Monday is 1), HOUR, "
    "MINUTE, SECOND, MILLISECOND, MICROSECOND, EPOCH. Also written EXTRACT(YEAR FROM moment).",
    examples=[
        ("EXTRACT(YEAR FROM DATE '2017-09-15')", 2017),
        ("date_part('hour', TIMESTAMP '2017-09-15 07:08:09')", 7),
    ],
)
def extract(call: Call) -> pl.Expr:
    word = str(call.constant(0)).upper()
    unit = unit_name(word) or _PART_NAMES.get(word, word)
    is_time = isinstance(call.arguments[1].data_type, pl.Time)
    made = part_of(call[1], unit) if not is_time or unit in _TIME_PARTS else None
    if made is None:
        raise call.error(0, f"there is no part {call.constant(0)!r} of {'a time' if is_time else 'a timestamp'}")
    return made


def _part(unit: str, *names: str, summary: str, example: tuple[str, int], of_time: bool = False) -> None:
    @function(*names, signature=_MOMENT if of_time else _MOMENT[0], summary=summary, examples=[example])
    def build(call: Call) -> pl.Expr:
        made = part_of(call[0], unit)
        assert made is not None
        return made


_part("YEAR", "year", summary="The year.", example=("year(DATE '2017-09-15')", 2017))
_part("QUARTER", "quarter", summary="The quarter, 1 to 4.", example=("quarter(TIMESTAMP '2016-04-12 00:00:00')", 2))
_part("MONTH", "month", summary="The month, 1 to 12.", example=("month(DATE '2017-09-22')", 9))
_part("WEEK", "week", "weekofyear", summary="The week by ISO 8601.", example=("week(DATE '2028-01-01')", 52))
_part("DAY", "day", "dayofmonth", summary="The day of the month.", example=("dayofmonth(DATE '2016-09-15')", 15))
_part("DOY", "dayofyear", summary="The day of the year.", example=("dayofyear(DATE '2016-02-01')", 32))
_part("DOW", "dayofweek", summary="The day of the week; Sunday is 1.", example=("dayofweek(DATE '2028-01-01')", 7))
_part("HOUR", "hour", summary="The hour, 0 to 23.", example=("hour(TIME '23:30:33')", 23), of_time=True)
_part("MINUTE", "minute", summary="The minute.", example=("minute(TIMESTAMP '2016-09-20 23:33:33')", 33), of_time=True)
_part("SECOND", "second", summary="The second.", example=("second(TIMESTAMP '2016-09-20 23:33:34')", 34), of_time=True)


@function(
    "weekday",
    signature="moment timestamp -> int64",
    summary="The day of the week; Monday is 0.",
    examples=[("weekday(DATE '2028-01-01')", 5)],
)
def weekday(call: Call) -> pl.Expr:
    return call[0].dt.weekday().cast(pl.Int64) - 1


@function(
    "dayname",
    signature="moment timestamp -> string",
    summary="The first three letters of the day's English name.",
    examples=[("dayname(DATE '2024-05-06')", "Mon")],
)
def dayname(call: Call) -> pl.Expr:
    return call[0].dt.strftime("%a")


@function(
    "monthname",
    signature="moment timestamp -> string",
    summary="The first three letters of the month's English name.",
    examples=[("monthname(DATE '2024-05-06')", "May")],
)
def monthname(call: Call) -> pl.Expr:
    return call[0].dt.strftime("%b")
