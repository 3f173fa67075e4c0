"""``to_prometheus_remote_write``: sends rows as samples to Prometheus, or to any other receiver of remote write 1.0."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import cramjam
import headrace as hr
import polars as pl
from headrace.interfaces.sink import SinkBatch
from headrace_http import RequestBodies, RequestSink, RequestSinkSettings
from headrace_http.settings import Url

from headrace_otlp.request_bodies import field, json_object, varint

_PLUGIN = "prometheus_remote_write"
_NAME = "__name__"
_OWN = frozenset({"name", "labels", "time", "value", "stale"})
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
#: What Prometheus writes as the last value of a series that has ended (the staleness marker).
_STALE = struct.pack("<Q", 0x7FF0000000000002)
_SERIES_MAX = 100_000


class RemoteWriteSinkSettings(RequestSinkSettings, frozen=True, kw_only=True):
    """Options of ``to_prometheus_remote_write``."""

    plugin_name: ClassVar[str] = _PLUGIN

    url: Url
    metric: Annotated[str | None, hr.option("name of the metric for a stream without the column name")] = None


class Sample(bytes):
    """A sample encoded as Protocol Buffers, with the labels of its series and its time in milliseconds."""

    series: bytes
    time_ms: int


class RemoteWriteSink(RequestSink):
    """Sends rows as samples by remote write 1.0. Guarantee: at least once; Prometheus keeps one of two equal samples.

    The columns ``time`` and ``value`` are the sample's. The column ``name`` (or the option ``metric``) and ``labels``
    name its series; every other column is a label. Samples of one series must come in the order of their times, in one
    queue.
    """

    Settings: ClassVar[type[hr.SinkSettings]] = RemoteWriteSinkSettings
    settings: RemoteWriteSinkSettings

    def __init__(self, settings: RemoteWriteSinkSettings) -> None:
        super().__init__(settings)

    def bodies(self, schema: hr.Schema | None) -> RequestBodies:
        """Return the object that builds requests from rows. Raises OptionError if the columns are not those of
        samples.
        """
        if schema is None:
            raise hr.OptionError(
                "the columns are not known when the job is built",
                plugin=_PLUGIN,
                hint="give the map() before it an option schema={...}",
            )
        return SampleBodies(schema, self.settings.metric)


class SampleBodies:
    """Builds a ``WriteRequest`` from rows, compressed with Snappy."""

    headers: ClassVar[dict[str, str]] = {
        "content-type": "application/x-protobuf",
        "content-encoding": "snappy",
        "x-prometheus-remote-write-version": "0.1.0",
    }

    def __init__(self, schema: hr.Schema, metric: str | None) -> None:
        _check(schema, metric)
        self._metric = metric
        self._labels = [name for name in schema if name not in _OWN]
        #: Encoded labels of a series, by the values in the rows that name the series.
        self._series: dict[tuple[Any, ...], bytes] = {}

    def objects(self, batch: SinkBatch) -> Sequence[bytes]:
        """Return the sample of each row. Raises DataError for a row that does not make one."""
        frame = batch.to_polars()
        times = frame["time"].cast(pl.Datetime("ms", "UTC")).cast(pl.Int64).to_list()
        values = frame["value"].cast(pl.Float64).to_list()
        stale = frame["stale"].to_list() if "stale" in frame.columns else [None] * frame.height
        names = frame["name"].to_list() if "name" in frame.columns else [self._metric] * frame.height
        shared = frame["labels"].to_list() if "labels" in frame.columns else [None] * frame.height
        texts = [frame[name].cast(pl.String).to_list() for name in self._labels]
        keys = zip(names, shared, *texts, strict=True)
        return [
            self._sample(time, value, bool(is_stale), key)
            for time, value, is_stale, key in zip(times, values, stale, keys, strict=True)
        ]

    def body(self, objects: Sequence[bytes]) -> bytes:
        """Return a request: the samples of each series in the order of their times."""
        series: dict[bytes, list[Sample]] = {}
        for each in objects:
            assert isinstance(each, Sample)
            series.setdefault(each.series, []).append(each)
        made = []
        for labels, samples in series.items():
            samples.sort(key=lambda sample: sample.time_ms)
            made.append(field(1, labels + b"".join(field(2, sample) for sample in samples)))
        return bytes(cramjam.snappy.compress_raw(b"".join(made)))

    def _sample(self, time: int | None, value: float | None, stale: bool, key: tuple[Any, ...]) -> Sample:
        if time is None:
            raise _bad("the column 'time' is NULL")
        if value is None and not stale:
            raise _bad("the column 'value' is NULL: leave such rows out, or say by 'stale' that the series has ended")
        content = _STALE if stale or value is None else struct.pack("<d", value)
        made = Sample(b"\x09" + content + b"\x10" + varint(time % 2**64))
        made.series, made.time_ms = self._labels_of(key), time
        return made

    def _labels_of(self, key: tuple[Any, ...]) -> bytes:
        found = self._series.get(key)
        if found is None:
            name, shared, *texts = key
            pairs = {**json_object(shared, "labels"), **dict(zip(self._labels, texts, strict=True)), _NAME: name}
            if not isinstance(name, str) or not _METRIC.fullmatch(name):
                raise _bad(f"{name!r:.80} is not a name of a metric")
            found = b"".join(
                field(1, field(1, label.encode()) + field(2, _text(label, value).encode()))
                for label, value in sorted(pairs.items())
                if value is not None and value != ""
            )
            if len(self._series) >= _SERIES_MAX:
                self._series.clear()
            self._series[key] = found
        return found


def _text(label: str, value: Any) -> str:
    if not _LABEL.fullmatch(label):
        raise _bad(f"{label!r:.80} is not a name of a label")
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    raise _bad(f"the label {label!r:.80} is not a text")


def _bad(problem: str) -> hr.DataError:
    return hr.DataError(problem, plugin=_PLUGIN)


def _check(schema: hr.Schema, metric: str | None) -> None:
    def refused(option: str, problem: str, hint: str) -> hr.OptionError:
        return hr.OptionError(problem, plugin=_PLUGIN, option=option, hint=hint)

    if not isinstance(schema.get("time"), pl.Datetime):
        raise refused("schema", "there is no column 'time' of type timestamp", "select(…, 'window_end AS time')")
    if "value" not in schema or not schema["value"].is_numeric():
        raise refused("schema", "there is no column 'value' with numbers", "select(…, 'count AS value')")
    if ("name" in schema) == (metric is not None):
        raise refused(
            "metric",
            "the name of the metric must be given exactly once",
            "either as the column 'name' or as the option metric",
        )
    if metric is not None and not _METRIC.fullmatch(metric):
        raise refused(
            "metric",
            f"{metric!r} is not a name of a metric",
            "use letters, digits, _ and :, and do not begin with a digit",
        )
    kinds = {"name": pl.String(), "labels": pl.String(), "stale": pl.Boolean()}
    for name, kind in schema.items():
        if name in kinds and kind != kinds[name]:
            raise refused("schema", f"column {name!r} is {kind}", "convert or rename it")
        if name not in _OWN and not _LABEL.fullmatch(name):
            raise refused("schema", f"column {name!r} cannot be a label", "rename it, or drop it")
        if name not in _OWN and not (kind == pl.String() or kind.is_integer() or kind == pl.Boolean()):
            raise refused(
                "schema", f"column {name!r} is {kind}, and cannot be a label", "cast it to string, or drop it"
            )
