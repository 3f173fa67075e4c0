"""Dates and times as texts: what is read, and that columns are read as single texts are."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from headrace.codecs.timestamps import (
    DATE,
    TIME,
    TIMESTAMP,
    TIMESTAMP_WITHOUT_ZONE,
    Moments,
    parse_moment,
    parse_moments,
)
from hypothesis import given, settings
from hypothesis import strategies as st

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "same_instant", "nanoseconds"),
    [
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00+00:00", 0),
        ("2024-02-29T23:59:59.123456789Z", "2024-02-29T23:59:59+00:00", 123_456_789),
        ("2024-02-29 23:59:59,5", "2024-02-29T23:59:59+00:00", 500_000_000),
        ("2024-03-01T01:30+05:30", "2024-02-29T20:00:00+00:00", 0),
        ("2024-03-01T01:30:00-0130", "2024-03-01T03:00:00+00:00", 0),
        ("2024-03-01T01:30:00+02", "2024-02-29T23:30:00+00:00", 0),
        ("1969-12-31T23:59:59.25Z", "1969-12-31T23:59:59+00:00", 250_000_000),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00", 0),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59+00:00", 0),
    ],
)
def test_timestamp_is_read(text: str, same_instant: str, nanoseconds: int) -> None:
    seconds = (dt.datetime.fromisoformat(same_instant) - EPOCH) // dt.timedelta(seconds=1)
    assert parse_moment(text, TIMESTAMP) == (seconds, nanoseconds)


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "2024-01-02", "2024-01-02T03", "2024-1-2T03:04:05Z", "2024-01-02t03:04:05z", "2024-13-01T00:00:00Z",
        "2024-00-01T00:00:00Z", "2023-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2024-04-31T00:00:00Z",
        "2024-01-00T00:00:00Z", "2024-01-02T24:00:00Z", "2024-01-02T23:60:00Z", "2024-01-02T23:59:60Z",
        "2024-01-02T03:04:05.Z", "2024-01-02T03:04:05.1234567890Z", "2024-01-02T03:04:05+24:00",
        "2024-01-02T03:04:05+00:60", "2024-01-02T03:04:05 Z", " 2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z\n",
        "2024-01-02T03:04:05Z\x00", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01",
        "٢٠٢٤-01-02T03:04:05Z", "2024-01-02T03:04:0５Z", "12024-01-02T03:04:05Z", "-2024-01-02T03:04:05Z",
    ],
)  # fmt: skip
def test_text_that_is_no_timestamp_is_bad(text: str) -> None:
    assert parse_moment(text, TIMESTAMP) is None


def test_zone_is_bad_where_the_column_has_none() -> None:
    assert parse_moment("2024-01-02T03:04:05", TIMESTAMP_WITHOUT_ZONE) is not None
    assert parse_moment("2024-01-02T03:04:05Z", TIMESTAMP_WITHOUT_ZONE) is None


@given(st.datetimes(timezones=st.timezones() | st.just(dt.UTC)), st.sampled_from("T "), st.sampled_from([0, 3, 6]))
@settings(deadline=None)
def test_timestamp_agrees_with_the_standard_library(moment: dt.datetime, separator: str, places: int) -> None:
    timespec = {0: "seconds", 3: "milliseconds", 6: "microseconds"}[places]
    text = moment.isoformat(sep=separator, timespec=timespec)
    same = dt.datetime.fromisoformat(text)
    offset = same.utcoffset()
    assert offset is not None
    found = parse_moment(text, TIMESTAMP)
    instant = same.replace(tzinfo=None) - dt.datetime(1970, 1, 1) - offset
    if offset % dt.timedelta(minutes=1) or not dt.timedelta(days=-719_162) <= instant < dt.timedelta(days=2_932_897):
        assert found is None  # ISO 8601 knows no seconds in an offset; years 1 to 9999 in UTC
    else:
        assert found == divmod(instant // dt.timedelta(microseconds=1) * 1000, 1_000_000_000)


def moments_texts() -> st.SearchStrategy[str]:
    """Texts that are moments or nearly so."""
    digits = st.text("0123456789", min_size=1, max_size=10)
    stamp = st.builds(
        lambda day, separator, time, fraction, zone: f"{day.isoformat()}{separator}{time}{fraction}{zone}",
        st.dates(),
        st.sampled_from("T Tt"),
        st.times().map(lambda time: time.isoformat(timespec="seconds")),
        st.just("") | digits.map(lambda text: "." + text) | st.just(",123"),
        st.sampled_from(["Z", "", "+02:00", "-0330", "+14", "Z ", "+25:00"]),
    )
    damaged = st.builds(lambda text, at, by: text[: at % len(text)] + by + text[at % len(text) + 1 :],
                        stamp, st.integers(0, 40), st.sampled_from("09Z:-T éx"))  # fmt: skip
    return (
        stamp | damaged | st.dates().map(dt.date.isoformat) | st.times().map(dt.time.isoformat) | st.text(max_size=30)
    )


@pytest.mark.parametrize("pattern", [TIMESTAMP, TIMESTAMP_WITHOUT_ZONE, DATE, TIME])
@given(st.lists(moments_texts(), max_size=30), st.integers(1, 9))
@settings(deadline=None)
def test_columns_are_read_as_single_texts_are(pattern: re.Pattern[str], texts: list[str], times: int) -> None:
    many = texts * times  # beyond the number up to which texts are read one by one
    assert_same(parse_moments(many, pattern), [parse_moment(text, pattern) for text in many])


@pytest.mark.parametrize("text", ["2024-01-02T03:04:05.678Z", "2024-01-02 03:04:05,6+02:00", "2024-01-02T03:04"])
def test_every_damage_among_texts_of_one_layout(text: str) -> None:
    texts = [text] + [text[:at] + by + text[at + 1 :] for at in range(len(text)) for by in "0179:/T Z+-.,x\x00é٣"]
    assert_same(parse_moments(texts, TIMESTAMP), [parse_moment(text, TIMESTAMP) for text in texts])


def test_every_day_and_every_second_among_texts_of_one_layout() -> None:
    days = [f"{year:04}-{month:02}-{day:02}" for year in (0, 1, 1900, 2000, 2023, 2024, 9999)
            for month in range(14) for day in range(33)]  # fmt: skip
    assert_same(parse_moments(days, DATE), [parse_moment(text, DATE) for text in days])
    times = [
        f"{hour:02}:{minute:02}:{second:02}"
        for hour in (0, 9, 23, 24, 99)
        for minute in (0, 59, 60)
        for second in range(62)
    ]
    assert_same(parse_moments(times, TIME), [parse_moment(text, TIME) for text in times])
    zones = [
        f"0001-01-01T12:00{sign}{hour:02}:{minute:02}" for sign in "+-" for hour in range(26) for minute in (0, 59, 60)
    ]
    assert_same(parse_moments(zones, TIMESTAMP), [parse_moment(text, TIMESTAMP) for text in zones])


def test_more_layouts_than_are_read_column_wise() -> None:
    texts = [f"2024-01-02{s}03:04:05{f}{z}" for s in "T " for f in ["", *(f".{'1' * n}" for n in range(1, 10))]
             for z in ("", "Z", "+01:00", "-01:00", "+01")] * 2  # fmt: skip
    assert_same(parse_moments(texts, TIMESTAMP), [parse_moment(text, TIMESTAMP) for text in texts])


def assert_same(moments: Moments, singles: list[tuple[int, int] | None]) -> None:
    found = [
        None if bad else (seconds, nanoseconds)
        for seconds, nanoseconds, bad in zip(*(part.tolist() for part in moments), strict=True)
    ]
    assert found == singles
