"""What arrives: rows of a table in the order in which they come, queue by queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.differential.choices import Choices
from tests.differential.streams.plan import Arrival, Kind, Row, Table

COLUMNS: Mapping[str, Kind] = {
    "id": "int", "k": "text", "g": "int", "v": "int", "d": "decimal", "b": "boolean", "ts": "time",
}  # fmt: skip
_DELAYS = [timedelta(seconds=each) for each in (5, 0, 1, 30, 3600)]
_BEGINS = [datetime(2024, 2, 29, 10), datetime(2023, 12, 31, 23, 59, 40), datetime(1969, 12, 31, 23, 59, 30)]
_STEPS = [timedelta(milliseconds=each) for each in (1000, 0, 250, 3000, 10, 9999)]
_TEXTS = ["a", "b", "c", "ä€", "", "A"]


def make_tables(
    choices: Choices,
    *,
    in_order: bool,
    null_times: bool,
    queues: bool = True,
    before_1970: bool = True,
    keys: bool = False,
) -> tuple[tuple[Table, ...], tuple[Arrival, ...]]:
    """Return one or two tables and what arrives. ``in_order``: never further behind than the delay allows; ``keys``: k and g are keys."""
    columns = {**COLUMNS, "k": "text key", "g": "key"} if keys else COLUMNS
    tables = []
    for number in range(choices.integer(1, 2)):
        count = choices.weighted([(6, 1), (2, 2), (1, 3)]) if queues else 1
        # A row of the same time as one before it is late where there is no delay.
        delays = [each for each in _DELAYS if each] if in_order else _DELAYS
        tables.append(Table(f"t{number}", columns, count, choices.pick(delays)))
    begin = choices.weighted([(8, _BEGINS[0]), (1, _BEGINS[1]), (1 if before_1970 else 0, _BEGINS[2])])
    clocks = {(table.name, queue): begin for table in tables for queue in range(table.queues)}
    most = choices.weighted([(3, 12), (4, 30), (1, 60), (1, 2)])
    skewed = choices.chance(50)
    arrivals: list[Arrival] = []
    while len(arrivals) < most and choices.chance(98):
        table = choices.pick(tables)
        queue = choices.integer(0, table.queues - 1)
        for _ in choices.repeat(1, 9, 60):
            row = _row(choices, len(arrivals), skewed=skewed)
            clocks[table.name, queue] += _step(choices)
            row["ts"] = _time(choices, clocks[table.name, queue], table, in_order=in_order, null_times=null_times)
            arrivals.append(Arrival(table.name, queue, row))
    return tuple(tables), tuple(arrivals)


def _step(choices: Choices) -> timedelta:
    if choices.chance(4):
        return timedelta(hours=choices.pick([1, 30, 24 * 400]))
    return choices.pick(_STEPS)


def _time(choices: Choices, clock: datetime, table: Table, *, in_order: bool, null_times: bool) -> datetime | None:
    if null_times and choices.chance(4):
        return None
    behind = choices.weighted([(5, 0), (3, 1500), (2, 5000), (1, 40_000)])
    if in_order:
        return clock - min(timedelta(milliseconds=behind), table.delay * 9 // 10)
    return clock - timedelta(milliseconds=behind)


def _row(choices: Choices, number: int, *, skewed: bool) -> Row:
    def perhaps(value: Any, percent: int = 10) -> Any:
        return None if choices.chance(percent) else value

    return {
        "id": number,
        "k": perhaps("a" if skewed and choices.chance(50) else choices.pick(_TEXTS)),
        "g": choices.integer(0, 3),
        "v": perhaps(choices.integer(-5, 12)),
        "d": perhaps(Decimal(choices.integer(-500, 2000)).scaleb(-2)),
        "b": perhaps(choices.chance(50)),
        "ts": None,
    }
