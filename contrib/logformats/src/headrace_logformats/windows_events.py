"""The format ``windows-event-xml``: events of the Windows event log, each an XML element ``Event``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
_TIME = "%Y-%m-%dT%H:%M:%S%.f%#z"


class WindowsEventXmlCodec(LogCodec):
    """One event per body, as ``wevtutil qe … /f:xml`` and agents write it. A body that declares a document type is refused."""

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
        values: dict[str, list[str | None]] = {name: [] for name in self._wanted}
        for row, text in enumerate(texts):
            try:
                event = None if text is None else _parsed(text)
            except ValueError as error:
                faults.setdefault(row, str(error))
                event = None
            for name, column in values.items():
                column.append(None if event is None else _value(event, name))
        columns = []
        for name in self._wanted:
            found = pl.Series(name, values[name], dtype=pl.String)
            made = _typed(found, _COLUMNS[name])
            for row in np.flatnonzero((made.is_null() & found.is_not_null()).to_numpy()).tolist():
                kind = "timestamp" if name == "time" else "int64"
                faults.setdefault(row, f"{name}: expected {kind}, found {shown(found[row])}")
            columns.append(made)
        kept = np.setdiff1d(np.arange(len(good)), list(faults))
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(good))
        return decoded(frame[kept] if faults else frame, kept, faults, rows, too_large, len(bodies))


def _parsed(text: str) -> ElementTree.Element:
    """Return the event. Raises ValueError with the reason."""
    if "<!DOCTYPE" in text:
        raise ValueError("the document declares a document type (DTD), which events do not have")
    try:
        event = ElementTree.fromstring(text)
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        raise ValueError(f"not valid XML: {error}") from error
    if _name(event) != "Event" or _child(event, "System") is None:
        raise ValueError(f"expected an element Event with System, found {shown(_name(event))}")
    return event


def _value(event: ElementTree.Element, name: str) -> str | None:
    if name == "event_data":
        return _event_data(event)
    if name == "message":
        found = _child(_child(event, "RenderingInfo"), "Message")
        return None if found is None else found.text
    element, attribute = _SYSTEM[name]
    found = _child(_child(event, "System"), element)
    if found is None:
        return None
    return (found.text or None) if attribute is None else found.get(attribute)


def _event_data(event: ElementTree.Element) -> str | None:
    """Return the event's own data as a JSON object whose values are texts; what has no name is param1, param2, …"""
    values: dict[str, str | None] = {}
    for number, item in enumerate(_items(event), 1):
        name = item.get("Name") or (f"param{number}" if _name(item) == "Data" else _name(item))
        values[name] = item.text
    return msgspec.json.encode(values).decode() if values else None


def _items(event: ElementTree.Element) -> Iterator[ElementTree.Element]:
    data = _child(event, "EventData")
    if data is not None:
        yield from data
    own = _child(event, "UserData")
    for each in own if own is not None else ():
        yield from each


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _child(element: ElementTree.Element | None, name: str) -> ElementTree.Element | None:
    return next((each for each in element if _name(each) == name), None) if element is not None else None


def _typed(texts: pl.Series, kind: pl.DataType) -> pl.Series:
    if kind == pl.String():
        return texts
    if isinstance(kind, pl.Datetime):
        times = texts.str.to_datetime(_TIME, time_unit="us", time_zone="UTC", strict=False)
        return times.cast(pl.Int64).cast(kind)
    return texts.cast(kind, strict=False)
