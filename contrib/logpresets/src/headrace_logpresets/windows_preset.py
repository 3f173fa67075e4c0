"""Presets of Windows events. They use the format ``windows-event-xml``, and the parts of ``EventData`` become columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
from headrace.codecs.decoded_columns import bodies_of
from headrace.interfaces.registry import default_registry

from headrace_logpresets.json_preset import Key, object_decoder, rows_of, value_of, without_bad
from headrace_logpresets.presets import Choices, Preset

#: Columns of the format that all presets have, with their names in the Elastic Common Schema.
_HEAD = {
    "time": ("timestamp", "@timestamp"),
    "event_id": ("event_id", "event.code"),
    "provider": ("provider", "event.provider"),
    "channel": ("channel", "winlog.channel"),
    "computer": ("computer", "host.name"),
    "record_id": ("record_id", "winlog.record_id"),
}
_DATA = ("event_data", "winlog.event_data")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of EventData that becomes a column. ``key`` is its name in EventData. The values ``-`` and an empty text
    become NULL.
    """

    key: str
    ecs: str
    #: ``string``; ``int64``, in decimal digits, or in hexadecimal digits after ``0x``; ``timestamp``, in UTC.
    type: str = "string"


@dataclass(frozen=True, kw_only=True)
class WindowsPreset(Preset):
    """Events of one log, which its providers write."""

    providers: tuple[str, ...]
    parts: tuple[Part, ...]

    def columns(self, choices: Choices) -> hr.Schema:
        kinds = default_registry().find("codec", "windows-event-xml")().default_schema()
        head = {names[choices.ecs]: kinds[name] for name, names in _HEAD.items()}
        parts = {name: hr.Schema.of({"x": part.type})["x"] for name, part in self._named(choices).items()}
        data = _DATA[choices.ecs]
        return hr.Schema({**head, **parts, data: pl.String()}, json_columns=[data])

    def decoder(self, choices: Choices, wanted: Mapping[str, pl.DataType]) -> hr.Decoder:
        codec_class = default_registry().find("codec", "windows-event-xml")
        options = codec_class.Settings.of({"max_body_bytes": choices.max_body_bytes}, plugin=self.name)
        codec: hr.Codec = codec_class(options)
        return _WindowsDecoder(self, codec, choices, self._named(choices), dict(wanted))

    def _named(self, choices: Choices) -> dict[str, Part]:
        return {part.ecs if choices.ecs else plain_name(part.key): part for part in self.parts}


def plain_name(key: str) -> str:
    """Return ``parent_process_id`` for ``ParentProcessId``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()


class _WindowsDecoder(hr.Decoder):
    def __init__(
        self,
        preset: WindowsPreset,
        codec: hr.Codec,
        choices: Choices,
        parts: Mapping[str, Part],
        wanted: dict[str, pl.DataType],
    ) -> None:
        self._preset = preset
        self._wanted = wanted
        self._head = {names[choices.ecs]: name for name, names in _HEAD.items()} | {_DATA[choices.ecs]: _DATA[0]}
        self._parts = {name: parts[name] for name in wanted if name in parts}
        self._keys = {name: Key(part.key, part.ecs) for name, part in self._parts.items()}
        needed = {"provider", *(self._head[name] for name in wanted if name in self._head)}
        if self._parts:
            needed.add(_DATA[0])
            # The text comes from an event within the limit, and is never much longer.
            self._objects = object_decoder(list(self._keys.values()), 16 * choices.max_body_bytes)
        schema = codec.default_schema()
        assert schema is not None
        self._events = codec.decoder(schema, [name for name in schema if name in needed])

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        found = self._events.decode(bodies)
        frame, rows = found.frame, rows_of(found, len(bodies))
        bad = list(found.bad)
        other = ~frame["provider"].is_in(self._preset.providers).fill_null(False)
        for row in np.flatnonzero(other.to_numpy()).tolist():
            provider = frame["provider"][row]
            bad.append(hr.BadBody(int(rows[row]), f"an event of {provider!r}, not of {self._preset.providers[0]!r}"))
        parts: dict[str, pl.Series] = {}
        if self._parts:
            objects = self._objects.decode(bodies_of(frame[_DATA[0]].fill_null("{}")))
            bad += [hr.BadBody(int(rows[each.row]), each.reason) for each in objects.bad]
            places = np.full(frame.height, objects.frame.height, dtype=np.int64)
            within = rows_of(objects, frame.height)
            places[within] = np.arange(len(within))
            for name, part in self._parts.items():
                texts = value_of(objects.frame, self._keys[name]).extend_constant(None, 1).gather(places)
                parts[name], wrong = _typed(texts, part)
                for row in wrong:
                    bad.append(hr.BadBody(int(rows[row]), f"{part.key}: expected {part.type}, found {texts[row]!r}"))
        columns = [(parts[name] if name in parts else frame[self._head[name]]).alias(name) for name in self._wanted]
        made = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(rows))
        return without_bad(made, rows, bad)


def _typed(texts: pl.Series, part: Part) -> tuple[pl.Series, list[int]]:
    """Return the values of texts, and the rows whose text is not of the type."""
    present = pl.select(pl.when(~texts.is_in(["", "-"])).then(texts)).to_series()
    values: Any
    if part.type == "string":
        return present, []
    if part.type == "timestamp":
        values = present.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False).dt.replace_time_zone(
            "UTC"
        )
        values = values.cast(hr.Schema.of({"x": "timestamp"})["x"])
    else:
        hexadecimal = present.str.extract(r"^0x([0-9A-Fa-f]+)$").str.to_integer(base=16, strict=False)
        values = hexadecimal.cast(pl.Int64).fill_null(present.cast(pl.Int64, strict=False))
    return values, np.flatnonzero((values.is_null() & present.is_not_null()).to_numpy()).tolist()
