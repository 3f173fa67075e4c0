"""Decodes bodies of remote write into a frame with one row for each sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
from google.protobuf.message import DecodeError
from headrace.codecs.timestamps import SECONDS_MAX, SECONDS_MIN
from headrace.interfaces.format_parts import too_large
from numpy.typing import NDArray

from headrace_otlp.remote_write_messages import WriteRequest
from headrace_otlp.snappy import NotSnappyError, unsnappy
from headrace_otlp.values import encode

_NAME = "__name__"
#: The years 1 to 9999, as in all formats.
_MILLISECONDS = range(SECONDS_MIN * 1000, (SECONDS_MAX + 1) * 1000)


class BadWriteError(ValueError):
    """A body is not a request of remote write. The message says why."""


def series_of(body: bytes) -> Sequence[Any]:
    """Return the time series of a body that is not compressed. Raises BadWriteError."""
    request = WriteRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise BadWriteError(f"the body is not a WriteRequest: {error}") from None
    series: Sequence[Any] = request.timeseries
    for each in series:
        if each.histograms:
            raise BadWriteError("native histograms are not supported: set send_native_histograms to false")
        for sample in each.samples:
            if sample.timestamp not in _MILLISECONDS:
                raise BadWriteError(f"the time {sample.timestamp} is not between the years 1 and 9999")
    return series


class RemoteWriteDecoder(hr.Decoder):
    """Decodes requests. The values that all samples of a series share, such as its labels, are made once for each
    series.
    """

    def __init__(self, wanted: Mapping[str, pl.DataType], max_body_bytes: int, *, compressed: bool) -> None:
        self._wanted = wanted
        self._max_body_bytes = max_body_bytes
        self._compressed = compressed

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        """Decode all bodies; see ``Decoder``."""
        every: list[Any] = []
        counts = np.zeros(len(bodies), dtype=np.int64)
        bad: list[hr.BadBody] = []
        for row, body in enumerate(bodies):
            try:
                found = series_of(self._plain(body))
            except (BadWriteError, NotSnappyError) as error:
                bad.append(hr.BadBody(row, str(error)))
                continue
            every.extend(found)
            counts[row] = sum(len(series.samples) for series in found)
        rows = np.repeat(np.arange(len(bodies), dtype=np.int64), counts)
        if not self._wanted:
            return hr.Decoded(pl.DataFrame(height=len(rows)), rows, bad)
        lengths = np.fromiter((len(series.samples) for series in every), dtype=np.int64, count=len(every))
        places = np.repeat(np.arange(len(every), dtype=np.int64), lengths)
        columns = [_COLUMNS[name](every, places).cast(kind).alias(name) for name, kind in self._wanted.items()]
        return hr.Decoded(pl.DataFrame(columns), rows, bad)

    def _plain(self, body: bytes) -> bytes:
        if self._compressed:
            return unsnappy(body, self._max_body_bytes)
        if len(body) > self._max_body_bytes:
            raise BadWriteError(too_large(len(body), self._max_body_bytes))
        return body


def _names(every: Sequence[Any], places: NDArray[np.int64]) -> pl.Series:
    names = [next((label.value for label in series.labels if label.name == _NAME), None) for series in every]
    return pl.Series(names, dtype=pl.String)[places]


def _labels(every: Sequence[Any], places: NDArray[np.int64]) -> pl.Series:
    texts = [encode({label.name: label.value for label in each.labels if label.name != _NAME}) for each in every]
    return pl.Series(texts, dtype=pl.Binary).cast(pl.String)[places]


def _times(every: Sequence[Any], places: NDArray[np.int64]) -> pl.Series:
    stamps = (sample.timestamp for series in every for sample in series.samples)
    return pl.Series(np.fromiter(stamps, dtype=np.int64, count=len(places)) * 1000).cast(pl.Datetime("us", "UTC"))


def _values(every: Sequence[Any], places: NDArray[np.int64]) -> pl.Series:
    values = (sample.value for series in every for sample in series.samples)
    return pl.Series(np.fromiter(values, dtype=np.float64, count=len(places)))


def _stale(every: Sequence[Any], places: NDArray[np.int64]) -> pl.Series:
    return pl.Series(_values(every, places).to_numpy().view(np.uint64) == STALE_BITS)


#: The NaN that Prometheus writes as the last value of a series (the staleness marker).
STALE_BITS = 0x7FF0000000000002
_COLUMNS: Mapping[str, Callable[[Sequence[Any], NDArray[np.int64]], pl.Series]] = {
    "name": _names,
    "labels": _labels,
    "time": _times,
    "value": _values,
    "stale": _stale,
}
