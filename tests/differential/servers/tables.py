"""Tables whose rows are written into servers: all types, values at their edges, and names that want quoting."""

from __future__ import annotations

import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from tests.differential.choices import Choices
from tests.differential.kinds import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTS,
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
from tests.differential.tables import TAME, WILD, Table, TableColumn

WIDE, NARROW = Kind("decimal", 38, 18), Kind("decimal", 5, 0)
MONEY = Kind("decimal", 10, 2)
KINDS = (
    INT, STRING, BIGINT, BOOLEAN, DOUBLE, MONEY, DATE, TIMESTAMP, BYTES, TINYINT, SMALLINT, FLOAT, TIME, INTS, TEXTS, WIDE, NARROW, ROW,
    MAP,
)  # fmt: skip
#: Keys of results. Texts that some collations take for equal are different keys.
KEYS: dict[Kind, list[Any]] = {
    INT: [0, 1, -1, 2**31 - 1],
    STRING: ["a", "A", "ä", "a\u0308", "a b", "a ", "李🙂", "a'b", "a\\", "%", 'a"b', "a/b", "a:b", "ß", "ss"],
    BIGINT: [0, 2**63 - 1, -(2**63), 2**53 + 1],
}
_NAMES = (
    "o", "select", "a b", "Ä", "it's", 'q"q', "back`tick", "100%", "%s", "x:y", "a,b", "1", "index", "UPPER", "🙂", "null", "$a", "{a}",
)  # fmt: skip
_MORE: dict[Kind, list[Any]] = {
    BIGINT: WILD["bigint"], INT: WILD["int"],
    DOUBLE: [*WILD["double"], -1.7976931348623157e308, 1e16, 123456789.125, 1 / 3],
    FLOAT: [*TAME["float"], math.nan, math.inf, 3.4028234663852886e38, 1.401298464324817e-45, 16777216.0],
    STRING: [*TAME["string"], *WILD["string"], " ", "a ", "\r\n", "\x00", "\x1a", "0", "true", "\\N", "\\'", "x" * 9000, "{}", "[1]",
             "\u2028", "\ufeffa"],
    BYTES: [*WILD["bytes"], bytes(range(256)), b"'", b"\\", b"NULL", b"\x00" * 20],
    DATE: [*TAME["date"], date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 10), date(1900, 2, 28)],
    TIMESTAMP: [
        *TAME["timestamp"], datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(1, 1, 1), datetime(2024, 3, 31, 2, 30), datetime(2038, 1, 19, 3, 14, 8, 1),
    ],
    TIME: [*TAME["time"], time(23, 59, 59, 999999), time(0, 0, 0, 1)],
    MONEY: [*TAME["decimal"], Decimal("99999999.99"), Decimal("-99999999.99")],
    WIDE: [Decimal(0), Decimal("0.000000000000000001"), Decimal("99999999999999999999.999999999999999999"), Decimal("-1.5"),
           Decimal("-99999999999999999999.999999999999999999")],
    NARROW: [Decimal(0), Decimal(99999), Decimal(-99999), Decimal(10)],
    INTS: [*TAME["array<int32>"], [2**31 - 1, -(2**31)]], TEXTS: [*TAME["array<string>"], ['"', "\\", "\n", "李🙂", "'"], ["\x00"]],
}  # fmt: skip


def values_of(kind: Kind) -> list[Any]:
    """Return values of a type, the simplest first."""
    return _MORE.get(kind) or TAME[kind.name]


def generate_keyed_table(choices: Choices, name: str, key: Kind, *, rows_max: int = 30) -> Table:
    """Return a table with ``id`` (the number of the row), ``k`` (a key, never NULL) and columns ``c0`` and so on of any type."""
    columns = [TableColumn("id", INT, nullable=False), TableColumn("k", key, nullable=False)]
    columns += [TableColumn(f"c{at}", choices.pick(KINDS)) for at in choices.repeat(1, 8, 75)]
    null_percent = choices.pick([0, 20, 50])
    keys = KEYS[key][: choices.pick([3, 2, 1, 99])]
    rows = []
    for number in choices.repeat(0, rows_max, 92):
        values = [
            None if choices.chance(null_percent) else choices.pick(values_of(column.kind)) for column in columns[2:]
        ]
        rows.append((number, choices.pick(keys), *values))
    queues = choices.weighted([(3, 1), (1, 2), (1, 3)])
    return Table(name, tuple(columns), tuple(rows), tuple(choices.integer(0, queues - 1) for _ in rows))


def generate_name(choices: Choices, number: int, without: str) -> str:
    """Return a name of a column; no two are equal, whatever is said of upper case. ``without``: characters that it has not."""
    return f"{choices.pick([stem for stem in _NAMES if not set(stem) & set(without)])}{number}"
