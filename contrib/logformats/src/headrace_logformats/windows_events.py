"""The format ``windows-event-xml``: events of the Windows event log, each an XML element ``Event``."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

import headrace as hr
import msgspec
import numpy as np
import polars as pl
from headrace.interfaces.format_parts import check_fixed_columns

from headrace_logformats.bodies import LogCodec, decoded, fitting, shown, texts_of

_COLUMNS = hr.Schema(
    hr.Schema.of(
        {
            "time": "timestamp",
            "provider": "string",
            "event_id": "int64",
            "version": "int64",
            "level": "int64",
            "task": "int64",
            "opcode": "int64",
            "keywords": "string",
            "record_id": "int64",
            "channel": "string",
            "computer": "string",
            "process_id": "int64",
            "thread_id": "int64",
            "user_id": "string",
            "message": "string",
            "event_data": "string",
        }
    ),
    json_columns=["event_data"],
)
#: Where a column is: the element in System, and its attribute; None: its text.
_SYSTEM: dict[str, tuple[str, str | None]] = {
    "time": ("TimeCreated", "SystemTime"),
    "provider": ("Provider", "Name"),
    "event_id": ("EventID", None),
    "version": ("Version", None),
    "level": ("Level", None),
    "task": ("Task", None),
    "opcode": ("Opcode", None),
    "keywords": ("Keywords", None),
    "record_id": ("EventRecordID", None),
    "channel": ("Channel", None),
    "computer": ("Computer", None),
    "process_id": ("Execution", "ProcessID"),
    "thread_id": ("Execution", "ThreadID"),
    "user_id": ("Security", "UserID"),
}
_ENCODER = msgspec.json.Encoder()
_TIME = "%Y-%m-%dT%H:%M:%S%.f%#z"


class WindowsEventXmlCodec(LogCodec):
    """One event per body, as ``wevtutil qe … /f:xml`` and agents write it. A body that declares a document type is
    refused.
    """

    name = "windows-event-xml"

    def default_schema(self) -> hr.Schema:
        """Return all columns."""
        return _COLUMNS

    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        """Return a decoder. Raises OptionError for other columns, or other types."""
        check_fixed_columns(schema, _COLUMNS, self.name)
        return _Decoder(list(schema if columns is None else columns), self.settings.max_body_bytes)


class _Decoder(hr.Decoder):
    def __init__(self, wanted: list[str], max_body_bytes: int) -> None:
        self._wanted = wanted
        self._max_body_bytes = max_body_bytes

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        good, rows, too_large = fitting(bodies, self._max_body_bytes)
        texts, faults = texts_of(good)
        nothing = (None,) * len(self._wanted)
        values: list[Sequence[str | None]] = []
        for row, text in enumerate(texts):
            try:
                values.append(nothing if text is None else _values(text, self._wanted))
            except ValueError as error:
                faults.setdefault(row, str(error))
                values.append(nothing)
        by_column = zip(*values, strict=True) if values else ((),) * len(self._wanted)
        columns = []
        for name, of_column in zip(self._wanted, by_column, strict=True):
            found = pl.Series(name, of_column, dtype=pl.String)
            made = _typed(found, _COLUMNS[name])
            for row in np.flatnonzero((made.is_null() & found.is_not_null()).to_numpy()).tolist():
                kind = "timestamp" if name == "time" else "int64"
                faults.setdefault(row, f"{name}: expected {kind}, found {shown(found[row])}")
            columns.append(made)
        kept = np.setdiff1d(np.arange(len(good)), list(faults))
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(good))
        return decoded(frame[kept] if faults else frame, kept, faults, rows, too_large, len(bodies))


def _values(text: str, wanted: Sequence[str]) -> list[str | None]:
    """Return what an event has for columns. Raises ValueError with the reason if it is none."""
    if "<!DOCTYPE" in text:
        raise ValueError("the document declares a document type (DTD), which events do not have")
    try:
        event = ElementTree.fromstring(text)
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        raise ValueError(f"not valid XML: {error}") from error
    parts = _children(event)
    if _local_name(event.tag) != "Event" or "System" not in parts:
        raise ValueError(f"expected an element Event with System, found {shown(_local_name(event.tag))}")
    system = _children(parts["System"])
    found: list[str | None] = []
    for name in wanted:
        place = _SYSTEM.get(name)
        if place is None:
            found.append(_event_data(parts) if name == "event_data" else _message(parts))
            continue
        element = system.get(place[0])
        if element is None:
            found.append(None)
        else:
            found.append((element.text or None) if place[1] is None else element.get(place[1]))
    return found


def _message(parts: Mapping[str, ElementTree.Element]) -> str | None:
    rendered = parts.get("RenderingInfo")
    message = None if rendered is None else _children(rendered).get("Message")
    return None if message is None else message.text


def _event_data(parts: Mapping[str, ElementTree.Element]) -> str | None:
    """Return the event's own data as a JSON object whose values are texts. Data without a name is called param1,
    param2, …
    """
    items = [*parts.get("EventData", ())]
    for own in parts.get("UserData", ()):
        items.extend(own)
    values: dict[str, str | None] = {}
    for number, item in enumerate(items, 1):
        name = item.get("Name")
        if not name:
            name = _local_name(item.tag)
            name = f"param{number}" if name == "Data" else name
        values[name] = item.text
    return _ENCODER.encode(values).decode() if values else None


def _children(element: ElementTree.Element) -> dict[str, ElementTree.Element]:
    """Return the child elements by name. If several have the same name, the first one counts."""
    return {_local_name(child.tag): child for child in reversed(element)}


@functools.lru_cache(maxsize=4096)
def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2]


def _typed(texts: pl.Series, kind: pl.DataType) -> pl.Series:
    if kind == pl.String():
        return texts
    if isinstance(kind, pl.Datetime):
        times = texts.str.to_datetime(_TIME, time_unit="us", time_zone="UTC", strict=False)
        return times.cast(pl.Int64).cast(kind)
    return texts.cast(kind, strict=False)
