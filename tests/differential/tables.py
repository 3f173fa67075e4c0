"""Tables with data: what the jobs read."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from tests.differential.choices import Choices
from tests.differential.kinds import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    INTS,
    KEY,
    MAP,
    ROW,
    SMALLINT,
    STRING,
    TEXTS,
    TIME,
    TIMESTAMP,
    TINYINT,
    Kind,
)


@dataclass(frozen=True)
class TableColumn:
    """A column of a table. The values of a ``tame`` one are small and ordinary, so that sums and products of them are exact."""

    name: str
    kind: Kind
    tame: bool = True
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """A table: its columns, its rows in the order in which they come, and how they are carried to the job.

    ``queues`` has the number of the queue of each row. ``carried`` is ``"frame"`` or ``"json"``. ``time``: the column of event time,
    or nothing; all rows are in time.
    """

    name: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Any, ...], ...]
    queues: tuple[int, ...] = ()
    carried: str = field(default="frame", compare=False)
    time: str = ""

    def frame(self, queue: int | None = None) -> pl.DataFrame:
        """Return the rows, or those of one queue, as a polars frame."""
        rows = [row for row, its in zip(self.rows, self.queues, strict=True) if queue in (None, its)]
        types = {column.name: column.kind.polars for column in self.columns}
        return pl.DataFrame(
            {name: [_held(row[at]) for row in rows] for at, name in enumerate(types)}, schema=types, strict=True
        )

    def bodies(self, queue: int, *, maps: str = "entries") -> list[bytes]:
        """Return the rows of a queue as JSON objects. NULLs are left out in every second row.

        ``maps``: a map is an array of ``"entries"``, or an ``"object"``, as in tables of SQL.
        """
        made = []
        for number, row in enumerate(row for row, its in zip(self.rows, self.queues, strict=True) if its == queue):
            values = {column.name: value for column, value in zip(self.columns, row, strict=True)}
            told = {
                name: _json(value if maps == "object" else _held(value))
                for name, value in values.items()
                if value is not None or number % 2
            }
            made.append(json.dumps(told, ensure_ascii=number % 3 == 0).encode())
        return made

    @property
    def queue_count(self) -> int:
        return max(self.queues, default=0) + 1

    def in_queues(self, count: int) -> Table:
        """Return the table with its rows dealt to so many queues, one after the other."""
        return replace(self, queues=tuple(at % count for at in range(len(self.rows))))

    def __str__(self) -> str:
        names = ", ".join(f"{column.name} {column.kind.flink}" for column in self.columns)
        rows = [f"  {queue}: {_shown(row)}" for row, queue in zip(self.rows, self.queues, strict=True)]
        if len(rows) > 60:
            rows = [*rows[:50], f"  … {len(rows):,} rows; they come again"]
        return "\n".join([f"{self.name} ({names}), by {self.carried}, queue: row", *(rows or ["  no rows"])])


def _shown(row: tuple[Any, ...]) -> str:
    return ", ".join(
        "NULL" if value is None else str(value) if isinstance(value, date | time | Decimal) else repr(value)
        for value in row
    )


def _held(value: Any) -> Any:
    """Return a map as headrace and DuckDB have it: its entries. Other values are the same."""
    if isinstance(value, dict) and "x" not in value:
        return [{"key": key, "value": each} for key, each in value.items()]
    return value


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | time) else str(value) if isinstance(value, Decimal) else value


#: The columns that a table may have: name, type, tame.
COLUMNS = (
    TableColumn("k", INT), TableColumn("v", INT), TableColumn("s", STRING), TableColumn("l", BIGINT), TableColumn("b", BOOLEAN),
    TableColumn("d", DOUBLE), TableColumn("m", DECIMAL), TableColumn("u", STRING), TableColumn("dt", DATE), TableColumn("ts", TIMESTAMP),
    TableColumn("wl", BIGINT, tame=False), TableColumn("wd", DOUBLE, tame=False), TableColumn("ws", STRING, tame=False),
    TableColumn("x", BYTES, tame=False), TableColumn("wi", INT, tame=False),
    TableColumn("ti", TINYINT, tame=False), TableColumn("si", SMALLINT, tame=False), TableColumn("f", FLOAT, tame=False),
    TableColumn("tm", TIME, tame=False), TableColumn("ai", INTS), TableColumn("aw", TEXTS),
    TableColumn("r", ROW), TableColumn("mp", MAP),
)  # fmt: skip

_EPOCH = datetime(2024, 2, 28, 23, 59, 58)
#: Values by the column's type, the simplest first. Tame whole numbers stay within ±1000, doubles are multiples of a quarter.
TAME: dict[str, list[Any]] = {
    "int": [0, 1, 2, 3, -1, 5, 7, 10, -7, 100, 999, -1000],
    "bigint": [0, 1, 2, 3, -1, 4, 6, 12, -5, 250, 1000, -999],
    "double": [0.0, 1.0, 0.5, -0.25, 2.75, 3.0, -1.5, 10.0, 100.25, -1000.0],
    "decimal": [Decimal(text) for text in ("0.00", "1.00", "0.01", "-1.25", "2.50", "10.10", "99.99", "-0.05", "999.00")],
    "string": ["", "a", "b", "A", "ab", "abc", " a ", "12", "-3", "a,b", "x%", "a_b", "null", "aXbXc", "zz"],
    "boolean": [False, True],
    "date": [date(1970, 1, 1), date(2024, 2, 29), date(2024, 2, 28), date(2023, 12, 31), date(2024, 3, 1), date(1969, 7, 20)],
    "timestamp": [_EPOCH + timedelta(milliseconds=ms) for ms in (0, 1, 500, 1000, 1999, 2000, 60_000, 3_600_000, -1, -86_400_000)],
    "tinyint": [0, 1, -1, 127, -128, 5], "smallint": [0, 1, -1, 2**15 - 1, -(2**15), 300],
    "float": [0.0, 1.0, -0.25, 1.5, -2.0**30, 2.0**-20],
    "time": [time(0), time(12, 30), time(23, 59, 59), time(7, 8, 9, 500_000)],
    "array<int32>": [[], [0], [1, 2], [None], [3, None, -1], [7, 7, 7]],
    "array<string>": [[], [""], ["a", "b"], [None, "a,b"], ["ä", "a", "a"]],
    "row": [{"x": 1, "y": "a", "z": [1]}, {"x": None, "y": None, "z": None}, {"x": 0, "y": "", "z": []},
            {"x": -7, "y": "李'", "z": [None, 2]}],
    "map": [{}, {"a": 1}, {"a": None, "b": 2}, {"": 0, "ä": -1}],
    "key": [0, 1, 2, 3, -1, 5, 100, 999, -1000], "text key": ["", "a", "b", "A", "ab", "12", "ä", "李"],
}  # fmt: skip
WILD: dict[str, list[Any]] = {
    "int": [0, 1, -1, 2**31 - 1, -(2**31), 2**31 - 2, 2**15],
    "bigint": [0, 1, -1, 2**63 - 1, -(2**63), 2**63 - 2, 2**53, 2**53 + 1, -(2**31), 10**18],
    "double": [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1, 1e-9, 2.0**53],
    "string": ["", "ä", "Ä", "a\u0308", "李", "🙂", "'", '"', "\\", "\n", "\t", "a'b", "`", "--", "%", "_", "𝄞x", "\u200b", "NULL"],
    "bytes": [b"", b"\x00", b"a", b"\xff\xfe", b"a\x00b", "ä".encode()],
}  # fmt: skip


def generate_table(
    choices: Choices, name: str, *, rows_max: int = 24, columns: tuple[TableColumn, ...] = COLUMNS
) -> Table:
    """Return a table: always with a key, some of the other columns, and rows that may be none, one, equal or skewed."""
    key = columns[0]
    chosen = (key, *choices.some(columns[1:], 1, 6))
    style = choices.weighted([(6, "mixed"), (1, "equal keys"), (2, "skewed"), (1, "all null"), (1, "distinct keys")])
    null_percent = choices.pick([0, 20, 50])
    rows = []
    for number in choices.repeat(0, rows_max, 88):
        row = [_value(choices, column, null_percent) for column in chosen]
        if style == "equal keys":
            row[0] = _key(key, 1)
        elif style == "skewed" and choices.chance(75):
            row[0] = _key(key, 2)
        elif style == "distinct keys":
            row[0] = _key(key, number)
        elif style == "all null":
            row = [None] * len(row)
        rows.append(tuple(row))
        if choices.chance(8):
            rows.append(tuple(row))  # a tie in everything
    queues = choices.weighted([(3, 1), (1, 2), (1, 3)])
    places = tuple(choices.integer(0, queues - 1) for _ in rows)
    carried = "frame"
    if not any(
        isinstance(value, float) and not math.isfinite(value) for row in rows for value in row
    ) and choices.chance(25):
        carried = "json"
    return Table(name, chosen, tuple(rows), places, carried)


def _key(column: TableColumn, number: int) -> Any:
    return number if column.kind in (INT, KEY) else str(number)


def _value(choices: Choices, column: TableColumn, null_percent: int) -> Any:
    if column.nullable and choices.chance(null_percent):
        return None
    name = str(column.kind) if column.kind.name == "array" else column.kind.name
    return choices.pick((WILD if not column.tame and name in WILD else TAME)[name])


def generate_tables(
    choices: Choices, low: int = 1, high: int = 3, *, columns: tuple[TableColumn, ...] = COLUMNS
) -> tuple[Table, ...]:
    """Return tables called t1, t2 and so on. Their columns share names, as those of real tables do."""
    return tuple(generate_table(choices, f"t{number + 1}", columns=columns) for number in choices.repeat(low, high, 50))


def keyed_columns(kind: Kind) -> tuple[TableColumn, ...]:
    """Return the columns of tables whose key is of another type."""
    return (replace(COLUMNS[0], kind=kind, tame=False), *COLUMNS[1:])
