"""``table.local-time-zone``: what instants are in a session's zone, worked out by hand."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError
from headrace_sql.binding.zones import window_offset_us, zone_name

HOUR_US = 3_600_000_000
#: (day of March, hour) in UTC.
MOMENTS = [(1, 1), (1, 15), (1, 17), (2, 3), (2, 16), (3, 0)]


@pytest.fixture(autouse=True)
def table(tmp_path: Path) -> Path:
    lines = [
        json.dumps({"v": v, "l": f"2024-03-{day:02d}T{hour:02d}:30:00Z", "n": f"2024-03-{day:02d} {hour:02d}:30:00"})
        for v, (day, hour) in enumerate(MOMENTS, 1)
    ]
    (tmp_path / "t.ndjson").write_text("\n".join(lines) + "\n")
    hr.sql(
        "CREATE TABLE t (v INT, l TIMESTAMP_LTZ(3), n TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR l AS l) "
        "WITH ('connector' = 'filesystem', 'path' = '${PATH}', 'format' = 'json')",
        variables={"PATH": str(tmp_path / "t.ndjson")},
    )
    return tmp_path / "t.ndjson"


def rows(zone: str, text: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = hr.sql(f"SET 'table.local-time-zone' = '{zone}'; {text}").collect().rows()
    return found


def utc(day: int, hour: int, month: int = 3) -> datetime.datetime:
    return datetime.datetime(2024, month, day, hour, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("zone", "expression", "expected"),
    [
        ("Asia/Shanghai", "CAST(l AS STRING)", "2024-03-01 09:30:00.000"),
        ("Asia/Shanghai", "CAST(l AS TIMESTAMP(3))", datetime.datetime(2024, 3, 1, 9, 30)),
        ("America/New_York", "CAST(l AS DATE)", datetime.date(2024, 2, 29)),
        ("America/New_York", "CAST(l AS TIME)", datetime.time(20, 30)),
        ("Asia/Shanghai", "DATE_FORMAT(l, 'dd HH:mm')", "01 09:30"),
        ("America/New_York", "DATE_FORMAT(l, 'dd HH:mm')", "29 20:30"),
        ("America/New_York", "EXTRACT(MONTH FROM l)", 2),
        ("Europe/Paris", "HOUR(l)", 2),
        ("Asia/Shanghai", "FLOOR(l TO DAY)", utc(29, 16, month=2)),
        ("Asia/Shanghai", "CEIL(l TO HOUR)", utc(1, 2)),
        # What has no zone stays as it is, and becomes an instant of the session's zone.
        ("Asia/Shanghai", "DATE_FORMAT(n, 'HH')", "01"),
        ("Asia/Shanghai", "CAST(CAST('2024-03-01 08:00:00' AS TIMESTAMP_LTZ(3)) AS STRING)", "2024-03-01 08:00:00.000"),
        ("Asia/Shanghai", "CAST(TIMESTAMP '2024-03-01 08:00:00' AS TIMESTAMP_LTZ(3))", utc(1, 0)),
        ("Asia/Shanghai", "FROM_UNIXTIME(0)", "1970-01-01 08:00:00"),
        ("Asia/Shanghai", "UNIX_TIMESTAMP('1970-01-01 08:00:01')", 1),
        ("UTC", "CAST(l AS STRING)", "2024-03-01 01:30:00.000"),
        ("GMT+08:00", "HOUR(l)", 9),
    ],
)
def test_an_instant_in_the_zone_of_the_session(zone: str, expression: str, expected: Any) -> None:
    assert rows(zone, f"SELECT {expression} FROM t WHERE v = 1") == [(expected,)]  # noqa: S608  # made of constants


def test_instants_are_compared_with_times_and_texts_of_the_zone() -> None:
    assert rows("Asia/Shanghai", "SELECT v FROM t WHERE l > TIMESTAMP '2024-03-02 00:00:00'") == [
        (3,),
        (4,),
        (5,),
        (6,),
    ]
    text = "SELECT v FROM t WHERE l BETWEEN '2024-03-02 00:00:00' AND '2024-03-03 00:00:00'"
    assert rows("Asia/Shanghai", text) == [(3,), (4,)]
    assert rows("UTC", text) == [(4,), (5,)]


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Asia/Shanghai", [("01 00", 2), ("02 00", 2), ("03 00", 2)]),
        ("UTC", [("01 00", 3), ("02 00", 2), ("03 00", 1)]),
    ],
)
def test_windows_of_a_day_are_days_of_the_zone(zone: str, expected: list[tuple[Any, ...]]) -> None:
    old = "SELECT DATE_FORMAT(TUMBLE_START(l, INTERVAL '1' DAY), 'dd HH'), COUNT(*) FROM t GROUP BY TUMBLE(l, INTERVAL '1' DAY)"
    assert rows(zone, old) == expected
    new = (
        "SELECT DATE_FORMAT(window_start, 'dd HH'), COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(l), INTERVAL '1' DAY)) "
        "GROUP BY window_start, window_end"
    )
    assert rows(zone, new) == expected


def test_a_sink_takes_windows_as_times_of_the_zone() -> None:
    text = (
        "CREATE TABLE s (d TIMESTAMP(3), i TIMESTAMP_LTZ(3), n BIGINT) WITH ('connector' = 'blackhole'); "
        "INSERT INTO s SELECT TUMBLE_START(l, INTERVAL '1' DAY), TUMBLE_START(l, INTERVAL '1' DAY), COUNT(*) FROM t "
        "GROUP BY TUMBLE(l, INTERVAL '1' DAY)"
    )
    assert rows("Asia/Shanghai", text)[0] == (datetime.datetime(2024, 3, 1), utc(29, 16, month=2), 2)


def test_windows_that_move_with_the_season_are_refused() -> None:
    with pytest.raises(ExpressionError, match="in summer and in winter in the time zone Europe/Paris") as caught:
        rows("Europe/Paris", "SELECT COUNT(*) FROM t GROUP BY TUMBLE(l, INTERVAL '1' DAY)")
    assert "CAST(ts AS TIMESTAMP(3))" in str(caught.value.hint)
    assert len(rows("Europe/Paris", "SELECT COUNT(*) FROM t GROUP BY TUMBLE(l, INTERVAL '1' HOUR)")) == len(MOMENTS)
    assert len(rows("Europe/Paris", "SELECT COUNT(*) FROM t GROUP BY TUMBLE(p, INTERVAL '10' MINUTE)")) == 1


def test_a_time_without_zone_has_days_of_the_zone(table: Path) -> None:
    text = (
        "CREATE TABLE u (l TIMESTAMP_LTZ(3), here AS CAST(l AS TIMESTAMP(3)), WATERMARK FOR here AS here) "
        "WITH ('connector' = 'filesystem', 'path' = '${PATH}', 'format' = 'json'); "
        "SELECT DAYOFMONTH(TUMBLE_START(here, INTERVAL '1' DAY)), COUNT(*) FROM u GROUP BY TUMBLE(here, INTERVAL '1' DAY)"
    )
    assert rows("America/New_York", text.replace("${PATH}", str(table))) == [(29, 1), (1, 3), (2, 2)]


def test_names_of_zones() -> None:
    assert [zone_name(text) for text in ("utc", "GMT+8", "UTC-05:00", "Asia/Tokyo")] == [
        "UTC",
        "Etc/GMT-8",
        "Etc/GMT+5",
        "Asia/Tokyo",
    ]
    with pytest.raises(ExpressionError, match="unknown time zone 'Asia/Shangai'"):
        rows("Asia/Shangai", "SELECT v FROM t")
    assert window_offset_us("Asia/Kolkata", HOUR_US) == HOUR_US // 2
    assert window_offset_us("America/New_York", HOUR_US) == 0
    assert window_offset_us("America/New_York", 24 * HOUR_US) is None
