"""Presets of events that are JSON objects, and of fields that contain JSON objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
from headrace.interfaces.registry import default_registry

from headrace_logpresets.presets import Choices, Preset


@dataclass(frozen=True, slots=True)
class Key:
    """A value in an object that becomes a column."""

    #: The keys from the top of the object to the value, with dots between them.
    path: str
    ecs: str
    #: A type as in a schema; ``json``: the text of an object or array, which must be at the top level.
    type: str = "string"

    def data_type(self) -> pl.DataType:
        return hr.Schema.of({"x": "string" if self.type == "json" else self.type})["x"]


@dataclass(frozen=True, kw_only=True)
class JsonPreset(Preset):
    """Objects whose values become columns."""

    #: By the name of the column.
    keys: Mapping[str, Key]
    #: Columns that every event of this log has. An object without one of them is a bad record.
    required: tuple[str, ...]
    #: An event of this log has at least one of these columns.
    one_of: tuple[str, ...] = ()

    def columns(self, choices: Choices) -> hr.Schema:
        names = {name: key.ecs if choices.ecs else name for name, key in self.keys.items()}
        texts = [names[name] for name, key in self.keys.items() if key.type == "json"]
        return hr.Schema({names[name]: key.data_type() for name, key in self.keys.items()}, json_columns=texts)

    def decoder(self, choices: Choices, wanted: Mapping[str, pl.DataType]) -> hr.Decoder:
        by_name = {key.ecs if choices.ecs else name: key for name, key in self.keys.items()}
        required = [self.keys[name] for name in self.required]
        one_of = [self.keys[name] for name in self.one_of]
        return _JsonDecoder([(name, by_name[name]) for name in wanted], required, one_of, choices.max_body_bytes)


class _JsonDecoder(hr.Decoder):
    def __init__(
        self, wanted: list[tuple[str, Key]], required: list[Key], one_of: list[Key], max_body_bytes: int
    ) -> None:
        self._wanted = wanted
        # An event has at least one key of each group.
        self._groups = [[key] for key in required] + ([one_of] if one_of else [])
        self._objects = object_decoder([*(key for _, key in wanted), *required, *one_of], max_body_bytes)

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        found = self._objects.decode(bodies)
        frame, rows = found.frame, rows_of(found, len(bodies))
        bad = list(found.bad)
        for keys in self._groups:
            missing = np.logical_and.reduce([value_of(frame, key).is_null().to_numpy() for key in keys])
            paths = " or ".join(repr(key.path) for key in keys)
            for row in np.flatnonzero(missing).tolist():
                bad.append(hr.BadBody(int(rows[row]), f"{paths} is missing, which every event has"))
        columns = [value_of(frame, key).alias(name) for name, key in self._wanted]
        made = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(rows))
        return without_bad(made, rows, bad)


def object_decoder(keys: Sequence[Key], max_body_bytes: int) -> hr.Decoder:
    """Return a decoder of JSON objects to a frame from which ``value_of`` takes values."""
    tree: dict[str, Any] = {}
    for key in keys:
        place = tree
        *outer, last = key.path.split(".")
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = key.data_type()
    json = default_registry().find("codec", "json")
    texts = [key.path for key in keys if key.type == "json"]
    schema = hr.Schema({name: _type_of(value) for name, value in tree.items()}, json_columns=texts)
    options = json.Settings.of({"max_body_bytes": max_body_bytes}, plugin="json")
    decoder: hr.Decoder = json(options).decoder(schema)
    return decoder


def _type_of(value: Any) -> pl.DataType:
    if isinstance(value, dict):
        return pl.Struct({name: _type_of(inner) for name, inner in value.items()})
    kind: pl.DataType = value
    return kind


def value_of(frame: pl.DataFrame, key: Key) -> pl.Series:
    """Return the values of a key; NULL if an object does not have the key."""
    first, *inner = key.path.split(".")
    column = frame[first]
    for name in inner:
        column = column.struct.field(name)
    return column


def rows_of(found: hr.Decoded, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the bodies that gave the rows of a decoded frame."""
    return np.arange(count, dtype=np.int64) if found.rows is None else found.rows


def without_bad(frame: pl.DataFrame, rows: np.ndarray[Any, np.dtype[np.int64]], bad: list[hr.BadBody]) -> hr.Decoded:
    """Return a frame without the rows of bad bodies, and the first reason of each bad body."""
    if not bad:
        return hr.Decoded(frame, rows)
    by_row: dict[int, hr.BadBody] = {}
    for each in bad:
        by_row.setdefault(each.row, each)
    kept = np.flatnonzero(~np.isin(rows, list(by_row)))
    return hr.Decoded(frame[kept], rows[kept], [by_row[row] for row in sorted(by_row)])
