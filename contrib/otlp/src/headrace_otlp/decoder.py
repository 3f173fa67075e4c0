"""Decodes bodies of OpenTelemetry into a frame with one row for each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
from headrace.interfaces.format_parts import too_large
from numpy.typing import NDArray

from headrace_otlp.signals import BadRequestError, Encoding, RequestColumns, Signal, columns_of

#: Columns of any signal: first those whose values are nanoseconds, then those whose values are JSON.
_TIMES = frozenset({"time", "observed_time", "start_time", "end_time"})
_JSON = frozenset(
    {"attributes", "scope_attributes", "resource_attributes", "events", "links", "distribution", "exemplars"}
)


class OtlpDecoder(hr.Decoder):
    """Decodes requests. A bad record makes its whole body bad."""

    def __init__(
        self, signal: Signal, wanted: Mapping[str, pl.DataType], encoding: Encoding, max_body_bytes: int
    ) -> None:
        self._signal = signal
        self._wanted = wanted
        self._encoding = encoding
        self._max_body_bytes = max_body_bytes

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        """Decode all bodies; see ``Decoder``."""
        columns = RequestColumns()
        counts = np.zeros(len(bodies), dtype=np.int64)
        bad: list[hr.BadBody] = []
        for row, body in enumerate(bodies):
            try:
                found = self._columns_of(body)
            except BadRequestError as error:
                bad.append(hr.BadBody(row, str(error)))
                continue
            counts[row] = found.count
            columns.add(found)
        rows = np.repeat(np.arange(len(bodies), dtype=np.int64), counts)
        if not self._wanted:
            return hr.Decoded(pl.DataFrame(height=len(rows)), rows, bad)
        return hr.Decoded(pl.DataFrame(self._series(columns)), rows, bad)

    def _columns_of(self, body: bytes) -> RequestColumns:
        if len(body) > self._max_body_bytes:
            raise BadRequestError(too_large(len(body), self._max_body_bytes))
        return columns_of(self._signal, body, self._encoding, self._wanted)

    def _series(self, columns: RequestColumns) -> list[pl.Series]:
        scopes = _places(columns.scope_counts)
        resources = _places(columns.resource_counts)
        made = []
        for name, kind in self._wanted.items():
            if name in columns.scopes:
                series = _typed(name, columns.scopes[name], kind)[scopes]
            elif name in columns.resources:
                series = _typed(name, columns.resources[name], kind)[resources]
            else:
                series = _typed(name, columns.records.get(name, ()), kind)
            made.append(series)
        return made


def _places(counts: Sequence[int]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def _typed(name: str, values: Sequence[Any], kind: pl.DataType) -> pl.Series:
    if name in _TIMES:
        nanoseconds = np.fromiter(values, dtype=np.uint64, count=len(values))
        microseconds = pl.Series(name, (nanoseconds // 1000).astype(np.int64))
        if not nanoseconds.all():  # 0: not known
            microseconds = microseconds.set(pl.Series(nanoseconds == 0), None)
        assert isinstance(kind, pl.Datetime)
        return microseconds.cast(pl.Datetime("us", kind.time_zone)).cast(kind)
    if name in _JSON:
        return pl.Series(name, values, dtype=pl.Binary).cast(pl.String)
    return pl.Series(name, values, dtype=kind)
