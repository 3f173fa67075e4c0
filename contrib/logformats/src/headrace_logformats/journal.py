"""The formats ``journal-export`` and ``journal-json``: entries of the systemd journal. A column has the value of the
field with its name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import headrace as hr
import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_logformats.bodies import LogCodec, decoded, fitting, lines_of, shown, texts_of

_DEFAULT = hr.Schema.of(
    {
        "__REALTIME_TIMESTAMP": "timestamp",
        "PRIORITY": "int8",
        "_HOSTNAME": "string",
        "_SYSTEMD_UNIT": "string",
        "SYSLOG_IDENTIFIER": "string",
        "_PID": "int64",
        "MESSAGE": "string",
        "__CURSOR": "string",
    }
)
#: The texts of a field, NULL if an entry does not have it; and the reasons of bad entries, by row.
Texts = tuple[Mapping[str, pl.Series], dict[int, str]]


class JournalCodec(LogCodec):
    """Base of both formats: any field can be a column, and the journal writes timestamps as microseconds since 1970."""

    def default_schema(self) -> hr.Schema:
        """Return the fields that most entries have."""
        return _DEFAULT

    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        """Return a decoder. Raises OptionError for types that fields do not have."""
        for name, kind in schema.items():
            if not (kind.is_integer() or kind == pl.String() or isinstance(kind, pl.Datetime)):
                raise hr.OptionError(
                    f"column {name!r} has a type that cannot be read from the journal",
                    plugin=self.name,
                    option="schema",
                    hint="declare it string, a whole number or timestamp, and convert it by an expression",
                )
        wanted = {name: schema[name] for name in (schema if columns is None else columns)}
        return _Decoder(self, wanted, self.settings.max_body_bytes)

    @abstractmethod
    def texts(self, bodies: hr.Bodies, wanted: Sequence[str]) -> Texts:
        """Return the requested fields of entries as texts. The values of bad entries are undefined."""


class JournalExportCodec(JournalCodec):
    """Entries of ``journalctl -o export``. If an entry has a field several times, the first value counts."""

    name = "journal-export"

    def texts(self, bodies: hr.Bodies, wanted: Sequence[str]) -> Texts:
        lines, of_line = lines_of(bodies)
        if of_line is None:
            of_line = np.arange(len(lines), dtype=np.int64)
        fields = pl.DataFrame({"row": of_line, "line": pl.Series(list(lines), dtype=pl.Binary)})
        fields = fields.filter(pl.col("line").bin.size() > 0)
        without = fields.filter(~pl.col("line").bin.contains(b"="))["row"].unique()
        faults: dict[int, str] = {}
        if len(without):
            # A value that is preceded by its length may contain any byte, also newlines.
            fields = fields.filter(~pl.col("row").is_in(without.implode()))
            taken = [_entry(bodies, row, faults) for row in without.to_list()]
            rest = pl.DataFrame(
                {
                    "row": pl.Series([row for each in taken for row, _ in each], dtype=pl.Int64),
                    "line": pl.Series([line for each in taken for _, line in each], dtype=pl.Binary),
                }
            )
            fields = pl.concat([fields, rest])
        empty = np.setdiff1d(np.arange(len(bodies)), fields["row"].to_numpy())
        for row in empty.tolist():
            faults.setdefault(row, "there is no field in the entry")
        columns: dict[str, pl.Series] = {}
        for name in wanted:
            start = name.encode() + b"="
            mine = fields.filter(pl.col("line").bin.starts_with(start)).unique("row", keep="first", maintain_order=True)
            values = mine["line"].bin.slice(len(start))
            columns[name] = _spread(values, mine["row"].to_numpy(), len(bodies), name, faults)
        return columns, faults


def _entry(bodies: hr.Bodies, row: int, faults: dict[int, str]) -> list[tuple[int, bytes]]:
    """Return the fields of an entry with values of a given length as ``NAME=value``."""
    body: bytes = bodies[row]
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(body):
        newline = body.find(b"\n", at)
        end = newline if newline >= 0 else len(body)
        line = body[at:end]
        if b"=" in line or not line:
            found.append((row, line))
            at = end + 1
            continue
        value = end + 9
        stop = value + int.from_bytes(body[end + 1 : value], "little")
        if newline < 0 or value > len(body) or stop > len(body) or body[stop : stop + 1] not in (b"\n", b""):
            faults.setdefault(row, f"the value after {shown(line.decode('utf-8', 'replace'))} does not have its length")
            return []
        found.append((row, line + b"=" + body[value:stop]))
        at = stop + 1
    return found


def _spread(values: pl.Series, rows: NDArray[Any], count: int, name: str, faults: dict[int, str]) -> pl.Series:
    """Return the values as texts at their rows, NULL elsewhere. Record the values that are not texts."""
    texts, bad = texts_of(values)
    for at, reason in bad.items():
        faults.setdefault(int(rows[at]), f"field {name!r}: {reason}")
    places = np.full(count, len(texts), dtype=np.int64)
    places[rows] = np.arange(len(texts))
    return texts.extend_constant(None, 1).gather(places)


class JournalJsonCodec(JournalCodec):
    """Entries of ``journalctl -o json``. A value is a text; or a list of bytes, if it is binary or not UTF-8; or a
    list of such values.
    """

    name = "journal-json"

    def texts(self, bodies: hr.Bodies, wanted: Sequence[str]) -> Texts:
        names = {f"field{at}": name for at, name in enumerate(wanted)} or {"nothing": "__hr_nothing"}
        entry = msgspec.defstruct("Entry", [(field, Any, None) for field in names], rename=names, gc=False)
        decode = msgspec.json.Decoder(entry).decode
        faults: dict[int, str] = {}
        entries: list[Any] = []
        nothing = entry()
        for row, body in enumerate(bodies):
            try:
                entries.append(decode(body))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                faults[row] = f"not a JSON object of the journal: {error}"
                entries.append(nothing)
        columns: dict[str, pl.Series] = {}
        for field, name in names.items():
            values = [getattr(each, field) for each in entries]
            for row, value in enumerate(values):
                if value is not None and type(value) is not str:
                    values[row] = _text_of(value, row, name, faults)
            columns[name] = pl.Series(values, dtype=pl.String)
        return columns, faults


def _text_of(value: Any, row: int, name: str, faults: dict[int, str]) -> str | None:
    """Return the text of a value that is not a JSON string."""
    if isinstance(value, list) and value and (value[0] is None or isinstance(value[0], str | list)):
        value = value[0]  # the entry has the field several times
        if value is None or isinstance(value, str):
            return value
    try:
        if isinstance(value, list):
            return bytes(value).decode()
    except (ValueError, TypeError, UnicodeDecodeError):
        pass
    faults.setdefault(row, f"field {name!r} is not a text")
    return None


class _Decoder(hr.Decoder):
    def __init__(self, codec: JournalCodec, wanted: dict[str, pl.DataType], max_body_bytes: int) -> None:
        self._codec = codec
        self._wanted = wanted
        self._max_body_bytes = max_body_bytes

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        good, rows, too_large = fitting(bodies, self._max_body_bytes)
        texts, faults = self._codec.texts(good, list(self._wanted))
        columns = []
        for name, kind in self._wanted.items():
            values = _typed(texts[name], kind)
            for row in np.flatnonzero((values.is_null() & texts[name].is_not_null()).to_numpy()).tolist():
                what = "a timestamp (microseconds since 1970)" if isinstance(kind, pl.Datetime) else f"{kind}".lower()
                faults.setdefault(row, f"field {name!r}: expected {what}, found {shown(texts[name][row])}")
            columns.append(values.alias(name))
        kept = np.setdiff1d(np.arange(len(good)), list(faults))
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(good))
        if faults:
            frame = frame[kept]
        return decoded(frame, kept, faults, rows, too_large, len(bodies))


def _typed(texts: pl.Series, kind: pl.DataType) -> pl.Series:
    if kind == pl.String():
        return texts
    if isinstance(kind, pl.Datetime):
        return texts.cast(pl.Int64, strict=False).cast(pl.Datetime("us", kind.time_zone)).cast(kind)
    return texts.cast(kind, strict=False)
