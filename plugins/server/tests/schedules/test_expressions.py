"""The instants of cron expressions and intervals, compared with a slow reference that looks at each minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from headrace.foundation.errors import OptionError
from headrace_server.schedules import CronTimes, IntervalTimes, ScheduleSettings
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import examples

MINUTE = timedelta(minutes=1)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "America/St_Johns",
    "Africa/Casablanca",
)
#: Days around which clocks change in most of these zones, and a plain one.
DAYS = [
    datetime(2026, *each, tzinfo=UTC)
    for each in ((3, 29), (10, 25), (3, 8), (11, 1), (4, 5), (10, 4), (2, 15), (3, 22), (7, 1))
]


def field_values(text: str, low: int, high: int) -> set[int]:
    """Read one field by hand: ``*``, ``*/n``, ``a-b``, ``a,b``."""
    found = set()
    for part in text.split(","):
        body, _, step = part.partition("/")
        first, last = (low, high) if body == "*" else (int(body.split("-")[0]), int(body.split("-")[-1]))
        found |= set(range(first, last + 1, int(step or 1)))
    return found


def reference(expression: str, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    """Look at each minute. Slow, and with nothing in common with how cronsim goes."""
    minute, hour, day, month, weekday = expression.split()
    tz = ZoneInfo(zone)

    def fits(local: datetime) -> bool:
        of_day = local.day in field_values(day, 1, 31)
        of_week = local.isoweekday() % 7 in {each % 7 for each in field_values(weekday, 0, 7)}
        both = of_day and of_week if day[0] == "*" or weekday[0] == "*" else of_day or of_week
        return (
            local.minute in field_values(minute, 0, 59)
            and local.hour in field_values(hour, 0, 23)
            and local.month in field_values(month, 1, 12)
            and both
        )

    found = set()
    if minute[0] == "*" or hour[0] == "*" or zone == "UTC":
        at = begin
        while at < end:
            at += MINUTE
            if fits(at.astimezone(tz)):
                found.add(at)
    else:
        wall = (begin.astimezone(tz) - timedelta(hours=30)).replace(tzinfo=None)
        while wall < (end.astimezone(tz) + timedelta(hours=30)).replace(tzinfo=None):
            wall += MINUTE
            if fits(wall):
                real = wall.replace(tzinfo=tz)
                while real.astimezone(UTC).astimezone(tz).replace(tzinfo=None) != real.replace(tzinfo=None):
                    real = (real.replace(tzinfo=None) + MINUTE).replace(tzinfo=tz)  # not there: right after the gap
                if begin < real.astimezone(UTC) <= end:
                    found.add(real.astimezone(UTC))
    return sorted(found)


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        st.sampled_from(["*/2", "*/5"]),
        number.map(str),
        st.lists(number, min_size=1, max_size=3).map(lambda each: ",".join(map(str, each))),
        st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}"),
    )


HOURS = numbers(0, 4) | numbers(0, 23)  # clocks change at night
WEEKDAYS = st.just("*") | numbers(0, 6)
EXPRESSIONS = st.tuples(numbers(0, 59), HOURS, numbers(1, 28), st.just("*"), WEEKDAYS).map(" ".join)


@settings(max_examples=examples(60))
@example("* 0 * * *", "Australia/Lord_Howe", datetime(2026, 4, 5, tzinfo=UTC), 0)  # clocks change by half an hour
@given(EXPRESSIONS, st.sampled_from(ZONES), st.sampled_from(DAYS), st.integers(-600, 600))
def test_cron_is_what_the_reference_says(expression: str, zone: str, day: datetime, minutes: int) -> None:
    begin = day + minutes * MINUTE
    end = begin + timedelta(hours=20)
    times = CronTimes(expression, zone)
    wanted = reference(expression, zone, begin, end)
    found = []
    for each in times.after(begin):
        if each > end:
            break
        found.append(each)
    assert found == wanted
    for count in (1, 3, 10_000):
        assert times.latest(end, begin, count) == wanted[-count:]


@pytest.mark.parametrize(("expression", "wanted"), [
    ("30 2 * * *", ["28 02:30 +0100", "29 03:00 +0200", "30 02:30 +0200"]),  # the hour is not there: right after
    ("*/30 2 * * *", ["28 02:00 +0100", "28 02:30 +0100", "30 02:00 +0200", "30 02:30 +0200"]),  # by time that passes
])  # fmt: skip
def test_clocks_go_forward(expression: str, wanted: list[str]) -> None:
    begin = datetime(2026, 3, 27, 12, tzinfo=UTC)
    found = islice(CronTimes(expression, "Europe/Berlin").after(begin), len(wanted))
    assert [each.astimezone(ZoneInfo("Europe/Berlin")).strftime("%d %H:%M %z") for each in found] == wanted


@pytest.mark.parametrize(("expression", "wanted"), [
    ("30 2 * * *", ["25 02:30 +0200", "26 02:30 +0100"]),  # the hour is there twice: once
    ("0 * * * *", ["25 01:00 +0200", "25 02:00 +0200", "25 02:00 +0100", "25 03:00 +0100"]),
])  # fmt: skip
def test_clocks_go_back(expression: str, wanted: list[str]) -> None:
    begin = datetime(2026, 10, 24, 22, 30, tzinfo=UTC)
    found = islice(CronTimes(expression, "Europe/Berlin").after(begin), len(wanted))
    assert [each.astimezone(ZoneInfo("Europe/Berlin")).strftime("%d %H:%M %z") for each in found] == wanted


@given(st.integers(1, 100_000), st.integers(0, 10**9), st.integers(0, 10_000), st.integers(1, 50))
def test_intervals_are_multiples_since_the_epoch(every: int, begin: int, length: int, count: int) -> None:
    since, until = (datetime.fromtimestamp(each, UTC) for each in (begin, begin + length))
    wanted = [datetime.fromtimestamp(each, UTC) for each in range(begin + 1, begin + length + 1) if each % every == 0]
    times = IntervalTimes(timedelta(seconds=every))
    assert times.latest(until, since, count) == wanted[-count:]
    assert list(islice(times.after(since), len(wanted))) == wanted


@pytest.mark.parametrize(("given", "option"), [
    ({}, "schedule"),
    ({"cron": "* * * * *", "every": "1 min"}, "schedule"),
    ({"cron": "* * * *"}, "cron"),
    ({"cron": "0 * * * * *"}, "cron"),
    ({"cron": "61 * * * *"}, "cron"),
    ({"cron": "@daily"}, "cron"),
    ({"cron": "0 0 31 2 *"}, "cron"),
    ({"cron": "* * * * *", "time_zone": "Mars/Olympus"}, "time_zone"),
    ({"cron": "* * * * *", "time_zone": "../../etc/passwd"}, "time_zone"),
    ({"every": "1 min", "time_zone": "Europe/Berlin"}, "time_zone"),
    ({"every": "10 ms"}, "every"),
    ({"every": "soon"}, "every"),
    ({"every": "1 min", "overlap": "both"}, "overlap"),
    ({"every": "1 min", "catch_up_max": 0}, "catch_up_max"),
    ({"every": "1 min", "late_max": "1 ms"}, "late_max"),
    ({"cron": ",".join(["1"] * 400) + " * * * *"}, "cron"),
])  # fmt: skip
def test_a_wrong_schedule_is_refused_with_its_option(given: dict[str, object], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        ScheduleSettings.of(given)
    assert caught.value.option == option
