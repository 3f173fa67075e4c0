"""Reading what sinks have written, with readers that are not headrace's: the rows that are there after all changes."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.differential.comparing import Row, row_of
from tests.differential.kinds import Kind

_SIGNS = {"insert": 1, "update_after": 1, "update_before": -1, "delete": -1, "+I": 1, "+U": 1, "-U": -1, "-D": -1}


def rows_written(sink: str, directory: Path, kinds: Mapping[str, Kind], printed: str | None = None) -> Counter[Row]:
    """Return the rows in part files of a format (``json``, ``csv``, ``parquet``), or those that were printed.

    ``kinds``: the columns of the sink. A row that is taken back more often than it was given has a negative number.
    """
    rows: Counter[Row] = Counter()
    for values, sign in _printed(printed) if printed is not None else _in_files(sink, directory):
        shown = [values.get(name) for name in kinds]
        if sink != "parquet":
            shown = [read(value, kind, text=sink == "csv") for value, kind in zip(shown, kinds.values(), strict=True)]
        rows[row_of(shown)] += sign
    return Counter({row: count for row, count in rows.items() if count})


def _in_files(sink: str, directory: Path) -> Iterator[tuple[dict[str, Any], int]]:
    for path in sorted(directory.glob("[!_.]*")) if directory.is_dir() else ():
        if sink == "parquet":
            found = pq.read_table(path).to_pylist()
        elif sink == "csv":
            header, *records = csv_records(path.read_bytes().decode())
            found = [dict(zip(map(str, header), record, strict=True)) for record in records]
        else:
            found = [json.loads(line) for line in path.read_bytes().decode().removesuffix("\n").split("\n")]
        for values in found:
            yield values, _SIGNS[values.pop("change", "insert")]


def _printed(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    for line in text.split("\n")[:-1]:
        marked = line[:2] in _SIGNS
        yield json.loads(line[3:] if marked else line), _SIGNS[line[:2]] if marked else 1


def csv_records(text: str) -> Iterator[list[str | None]]:
    """Yield the records of a CSV text, field by field as RFC 4180 says; an empty field without quotes is NULL."""
    record: list[str | None] = []
    at = 0
    while at < len(text):
        quoted = text[at] == '"'
        field = ""
        if quoted:
            end = text.index('"', at + 1)
            while text[end + 1 : end + 2] == '"':
                end = text.index('"', end + 2)
            field, at = text[at + 1 : end].replace('""', '"'), end + 1
        else:
            begin = at
            while text[at] not in ",\n":
                at += 1
            field = text[begin:at]
        record.append(field if quoted or field else None)
        if text[at] == "\n":
            yield record
            record = []
        at += 1
        if text[at - 1] == "," and at == len(text):
            raise ValueError("the last record has no end")


def _nested(value: Any, kind: Kind) -> Any:
    """Return an array, a row or a map of JSON, where it is an object, as its entries."""
    if value is None or not kind.nested:
        return value if value is None else read(value, kind, text=False)
    if kind.name == "row":
        assert list(value) == [name for name, _ in kind.fields], value
        return {name: _nested(value[name], each) for name, each in kind.fields}
    assert kind.element is not None
    if kind.name == "map":
        return [{"key": key, "value": _nested(each, kind.element)} for key, each in value.items()]
    return [_nested(each, kind.element) for each in value]


def read(value: Any, kind: Kind, *, text: bool) -> Any:
    """Return a value of a JSON or CSV text as a Python value. ``text``: whole numbers and booleans are texts."""
    if value is None:
        return None
    if kind.nested and text:  # a map is its entries there
        return _nested(json.loads(value), kind.entries if kind.name == "map" else kind)
    if kind.nested:
        return _nested(value, kind)
    readers: dict[str, Any] = {
        "bytes": b64decode, "timestamp": datetime.fromisoformat, "date": date.fromisoformat, "decimal": Decimal,
        "double": float, "float": lambda shown: float(np.float32(shown)),  # the shortest digits that give it
        "time": time.fromisoformat,
    }  # fmt: skip
    if text:
        readers |= {
            **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
            "boolean": {"true": True, "false": False}.__getitem__,
        }
    return readers.get(kind.name, lambda same: same)(value)
