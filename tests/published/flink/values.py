"""Values of Flink's programs: as values of columns, and as the texts in which expected rows are written."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import polars as pl
from headrace.flow.messages import ChangeKind

KINDS = {
    "+I": ChangeKind.INSERT, "-U": ChangeKind.UPDATE_BEFORE, "+U": ChangeKind.UPDATE_AFTER, "-D": ChangeKind.DELETE,
}  # fmt: skip
#: A change: its kind and the values as texts.
Change = tuple[int, list[str]]


def value_of(value: Any, kind: Any) -> Any:
    """Return a value of the JSON of ``reading`` as one of a column's type."""
    if value is None:
        return None
    if isinstance(value, dict):
        return _tagged(value["$"], value, kind)
    if kind.is_float():
        return float(value)
    return Decimal(str(value)) if isinstance(kind, pl.Decimal) else value


def _tagged(type_name: str, value: Mapping[str, Any], kind: Any) -> Any:
    inner = value.get("v")
    if type_name == "BigDecimal":
        return float(inner) if kind.is_float() else Decimal(inner)  # type: ignore[arg-type]
    if type_name == "bytes":
        return bytes.fromhex(inner)  # type: ignore[arg-type]
    if type_name == "double":
        return float(str(inner).replace("Infinity", "inf"))
    if type_name in ("LocalDateTime", "Instant"):
        return _time(str(inner), kind)
    if type_name == "LocalTime":
        return dt.time.fromisoformat(str(inner))
    if type_name == "LocalDate":
        return dt.date.fromisoformat(str(inner))
    if type_name == "array":
        return [value_of(each, kind.inner) for each in inner]  # type: ignore[union-attr]
    if type_name == "map":
        fields = kind.inner.to_schema()
        pairs: Sequence[Any] = inner  # type: ignore[assignment]
        return [{"key": value_of(k, fields["key"]), "value": value_of(v, fields["value"])} for k, v in pairs]
    if type_name == "row":
        fields = kind.to_schema()
        return dict(zip(fields, row_values(value, fields), strict=True))
    raise ValueError(f"a value of the type {type_name}")


def _time(text: str, kind: Any) -> dt.datetime:
    text = text[:26] if "." in text and not text.endswith("Z") else text
    made = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    if getattr(kind, "time_zone", None):
        return made if made.tzinfo else made.replace(tzinfo=dt.UTC)
    return made.replace(tzinfo=None)


def row_values(row: Mapping[str, Any], kinds: Mapping[str, Any]) -> list[Any]:
    """Return the values of a row, by name where it has names."""
    if "named" in row:
        return [value_of(row["named"].get(name), kind) for name, kind in kinds.items()]
    return [value_of(value, kind) for value, kind in zip(row["v"], kinds.values(), strict=False)]


def shown(value: Any) -> str:
    """Return a value as Flink writes it in a row."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "NaN" if value != value else f"{value:.7g}"
    if isinstance(value, dt.datetime):
        return _shown_time(value)
    if isinstance(value, dt.time):
        return value.strftime("%H:%M:%S") if value.second or value.microsecond else value.strftime("%H:%M")
    if isinstance(value, bytes):
        return "[" + ", ".join(str(each if each < 128 else each - 256) for each in value) + "]"
    if isinstance(value, dict):
        return "+I[" + ", ".join(map(shown, value.values())) + "]"
    if isinstance(value, list):
        if value and all(isinstance(each, dict) and list(each) == ["key", "value"] for each in value):
            return "{" + ", ".join(sorted(f"{shown(each['key'])}={shown(each['value'])}" for each in value)) + "}"
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)


def _shown_time(value: dt.datetime) -> str:
    zoned = value.tzinfo is not None
    value = value.astimezone(dt.UTC).replace(tzinfo=None) if zoned else value
    short = not zoned and not value.second and not value.microsecond
    text = value.strftime("%Y-%m-%dT%H:%M" if short else "%Y-%m-%dT%H:%M:%S")
    if value.microsecond:
        text += f".{value.microsecond // 1000:03d}" if value.microsecond % 1000 == 0 else f".{value.microsecond:06d}"
    return text + ("Z" if zoned else "")


def parts(text: str) -> list[str]:
    """Return what commas outside of brackets divide."""
    made, depth, part = [], 0, ""
    for letter in text:
        depth += letter in "[{"
        depth -= letter in "]}"
        if letter == "," and depth == 0:
            made.append(part.strip())
            part = ""
        else:
            part += letter
    return [*made, part.strip()]


def equal(one: str, other: str) -> bool:
    """Return whether two texts are the same value: numbers nearly, times in any form, maps in any order."""
    if one == other:
        return True
    if one.startswith("{") and other.startswith("{"):
        return sorted(parts(one[1:-1])) == sorted(parts(other[1:-1]))
    try:
        a, b = float(one), float(other)
    except ValueError:
        pass
    else:
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-9) or (a != a and b != b)
    if re.match(r"\d{4}-\d\d-\d\d[T ]", one):
        return _time_key(one) == _time_key(other)
    if one[:1] in "[+" and other[:1] in "[+" and "[" in one and "[" in other:
        ones, others = parts(one[one.index("[") + 1 : -1]), parts(other[other.index("[") + 1 : -1])
        return equal_rows(ones, others)
    return False


def _time_key(text: str) -> str:
    text = text.replace(" ", "T").rstrip("Z")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text if text.count(":") == 2 else f"{text}:00"


def equal_rows(one: Sequence[str], other: Sequence[str]) -> bool:
    return len(one) == len(other) and all(map(equal, one, other))


def table_of(changes: Sequence[Change], key: Sequence[int] | None) -> list[list[str]]:
    """Return the rows that are left after changes: by key (of columns by number), or taken back as a whole."""
    table: list[list[str]] = []
    for kind, values in changes:
        added = kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)
        if key:
            mine = [values[each] for each in key]
            table = [row for row in table if [row[each] for each in key] != mine]
        elif not added:
            found = next((n for n, row in enumerate(table) if equal_rows(row, values)), None)
            if found is None:
                table.append(["(taken back, but not there)", *values])
            else:
                del table[found]
        if added:
            table.append(values)
    return table


def same_rows(one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> bool:
    """Return whether the same rows are there equally often."""
    left = list(other)
    for row in one:
        found = next((n for n, each in enumerate(left) if equal_rows(row, each)), None)
        if found is None:
            return False
        del left[found]
    return not left
