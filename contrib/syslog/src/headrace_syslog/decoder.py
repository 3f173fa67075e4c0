"""Decodes bodies of syslog to columns, a batch at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import headrace as hr
import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_syslog.bodies import lines_of
from headrace_syslog.lines import fields_of, reasons, shown
from headrace_syslog.priorities import FACILITIES, PRIORITY_MAX, SEVERITIES
from headrace_syslog.structured_data import to_json
from headrace_syslog.timestamps import moments

if TYPE_CHECKING:
    from headrace_syslog.codec import SyslogSettings

Integers = NDArray[np.int64]


class SyslogDecoder(hr.Decoder):
    """Decodes bodies to the wanted columns. Whether a body is bad does not depend on the wanted columns, except on the
    types that a schema gives them.
    """

    def __init__(
        self, settings: SyslogSettings, wanted: Mapping[str, pl.DataType], metadata: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._wanted = wanted
        self._metadata = metadata

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        """Decode bodies without times and headers."""
        return self._decoded(bodies, None, None)

    def decode_records(self, raw: hr.RawBatch) -> hr.Decoded:
        """Decode records: their times give the year, their headers the metadata."""
        assert raw.bodies is not None
        return self._decoded(raw.bodies, raw.times, raw.headers)

    def _decoded(
        self, bodies: hr.Bodies, times: Integers | None, headers: Sequence[Mapping[str, bytes]] | None
    ) -> hr.Decoded:
        settings = self._settings
        lines, rows, bad = lines_of(bodies, settings.max_body_bytes, latin_1=settings.not_utf8 == "latin-1")
        received = times if times is None or rows is None else times[rows]
        fields = fields_of(lines, settings.standard)
        priorities = fields["priority"].cast(pl.Int64).fill_null(-1).to_numpy()
        faults = self._misfits(lines, priorities)
        known, wrong = self._times(fields["time"], received)
        faults = {**wrong, **faults}
        columns = []
        for name, kind in self._wanted.items():
            column = self._column(name, lines, fields, priorities, known)
            if column.dtype == kind:
                columns.append(column.alias(name))
                continue
            values = column.cast(kind, strict=False).alias(name)
            columns.append(values)
            for row in np.flatnonzero((values.is_null() & column.is_not_null()).to_numpy()).tolist():
                faults.setdefault(
                    row, f"column {name!r}: expected {str(kind).lower()}, found {shown(str(column[row]))}"
                )
        for name, what in self._metadata.items():
            values = _of_headers(headers, what, len(bodies)).alias(name)
            columns.append(values if rows is None else values[rows])
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(lines))
        if rows is None and not faults:
            return hr.Decoded(frame)
        good = np.setdiff1d(np.arange(len(lines)), list(faults), assume_unique=True)
        places = np.arange(len(bodies), dtype=np.int64) if rows is None else rows
        every = [*bad, *(hr.BadBody(int(places[row]), reason) for row, reason in faults.items())]
        return hr.Decoded(frame[good], places[good], sorted(every, key=lambda each: each.row))

    def _misfits(self, lines: pl.Series, priorities: Integers) -> dict[int, str]:
        """Return what is wrong with lines that do not fit the grammar."""
        faults: dict[int, str] = {}
        if len(misfits := np.flatnonzero(priorities < 0)):
            found = reasons(lines[misfits].to_list(), self._settings.standard)
            faults.update(zip(misfits.tolist(), found, strict=True))
        for row in np.flatnonzero(priorities > PRIORITY_MAX).tolist():
            faults[row] = f"the priority is {priorities[row]}; the largest is {PRIORITY_MAX}"
        return faults

    def _times(self, texts: pl.Series, received: Integers | None) -> tuple[pl.Series, dict[int, str]]:
        """Return the times of messages as microseconds, and what is wrong with invalid ones."""
        there = np.flatnonzero((texts.is_not_null() & (texts != "-")).fill_null(False).to_numpy())
        known = np.zeros(len(texts), dtype=np.int64)
        missing = np.ones(len(texts), dtype=np.bool_)
        if not len(there):
            return pl.Series(known).set(pl.Series(missing), None), {}
        some = texts if len(there) == len(texts) else texts[there]
        settings = self._settings
        found = moments(some, settings.timezone, None if received is None else received[there], settings.year)
        known[there] = found.times
        missing[there] = ~found.good
        wrong = {}
        for row in np.flatnonzero(~found.good).tolist():
            text = shown(some[row])
            wrong[int(there[row])] = (
                f"the time {text} has no year, and the source gives no times of records: set the option year"
                if found.no_year[row]
                else f"there is no time {text}"
            )
        values = pl.Series(known)
        return values.set(pl.Series(missing), None) if missing.any() else values, wrong

    def _column(
        self, name: str, lines: pl.Series, fields: pl.DataFrame, priorities: Integers, known: pl.Series
    ) -> pl.Series:
        """Return a column for all lines; the values of lines with a fault are undefined."""
        within = np.clip(priorities, 0, PRIORITY_MAX)
        if name == self._settings.line_column:
            return lines
        if name == "facility":
            return pl.Series(within >> 3)
        if name == "severity":
            return pl.Series(within & 7)
        if name == "facility_name":
            return pl.Series(FACILITIES)[within >> 3]
        if name == "severity_name":
            return pl.Series(SEVERITIES)[within & 7]
        if name == "timestamp":
            kind = self._wanted[name]
            assert isinstance(kind, pl.Datetime)
            return known.cast(pl.Datetime("us", kind.time_zone))
        if name == "version":
            return fields[name].cast(pl.Int64)
        return to_json(fields[name]) if name == "structured_data" else fields[name]


def _of_headers(headers: Sequence[Mapping[str, bytes]] | None, name: str, count: int) -> pl.Series:
    """Return one header of each record as text. Records of one sender share one headers object."""
    if headers is None:
        return pl.Series([None] * count, dtype=pl.String)
    ids = np.fromiter(map(id, headers), dtype=np.int64, count=count)
    _, firsts, places = np.unique(ids, return_index=True, return_inverse=True)
    texts = [headers[first].get(name) for first in firsts.tolist()]
    shown_texts = [None if text is None else text.decode(errors="replace") for text in texts]
    return pl.Series(shown_texts, dtype=pl.String)[places]
