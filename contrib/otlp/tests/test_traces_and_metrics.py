"""Spans and data points as rows: both encodings alike, the contract of formats, and OpenTelemetry's own SDK as the sender."""

from __future__ import annotations

import json
import math
import random
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
import pytest
from headrace.interfaces.registry import default_registry
from headrace.testing import MemorySink
from headrace_contract import CodecContract
from headrace_otlp import OtlpMetricsCodec, OtlpSettings, OtlpTracesCodec
from headrace_otlp.codec import DATA_POINT_COLUMNS, SPAN_COLUMNS
from log_messages import BEGIN, BEGIN_NANOS, as_json, pairs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.eventually import eventually

ID = bytes(range(16))


def traces(*spans: Span, service: str | None = "shop") -> ExportTraceServiceRequest:
    made = ExportTraceServiceRequest()
    sent = made.resource_spans.add()
    if service is not None:
        sent.resource.attributes.extend(pairs({"service.name": service}))
    part = sent.scope_spans.add()
    part.scope.name, part.scope.version = "shop.http", "2"
    part.spans.extend(spans)
    return made


def measured(*made: metrics.Metric) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    request.resource_metrics.add().scope_metrics.add().metrics.extend(made)
    return request


def decode(codec: type[OtlpTracesCodec | OtlpMetricsCodec], *bodies: bytes, columns: list[str] | None = None) -> Any:
    made = codec(OtlpSettings())
    return made.decoder(made.default_schema(), columns).decode(hr.Bodies.of(bodies))


def test_a_span() -> None:
    span = Span(
        trace_id=ID, span_id=ID[:8], parent_span_id=ID[8:], trace_state="a=1", flags=257, name="GET /", kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=BEGIN_NANOS + 1_999, end_time_unix_nano=BEGIN_NANOS + 5_000_000_001,
        attributes=pairs({"http.status": 500}), dropped_attributes_count=1, dropped_events_count=2, dropped_links_count=3,
        status=Status(code=Status.STATUS_CODE_ERROR, message="refused"),
    )  # fmt: skip
    span.events.add(time_unix_nano=BEGIN_NANOS, name="exception", attributes=pairs({"type": "E"}))
    span.links.add(trace_id=ID, span_id=ID[:8], trace_state="b=2", attributes=pairs({"x": 1.5}), flags=1)
    request = traces(span, Span(kind=Span.SpanKind.ValueType(9)))
    request.resource_spans.add()
    full = {
        "start_time": BEGIN + timedelta(microseconds=1), "end_time": BEGIN + timedelta(seconds=5), "duration_ns": 4_999_998_002,
        "name": "GET /", "kind": "server", "status": "error", "status_message": "refused", "trace_id": ID.hex(),
        "span_id": ID[:8].hex(), "parent_span_id": ID[8:].hex(), "trace_state": "a=1", "flags": 257,
        "attributes": '{"http.status":500}', "dropped_attributes_count": 1, "dropped_events_count": 2, "dropped_links_count": 3,
        "events": f'[{{"time_unix_nano":{BEGIN_NANOS},"name":"exception","attributes":{{"type":"E"}},"dropped_attributes_count":0}}]',
        "links": f'[{{"trace_id":"{ID.hex()}","span_id":"{ID[:8].hex()}","trace_state":"b=2","flags":1,"attributes":{{"x":1.5}},'
        '"dropped_attributes_count":0}]',
        "scope_name": "shop.http", "scope_version": "2", "scope_attributes": "{}", "service_name": "shop",
        "resource_attributes": '{"service.name":"shop"}',
    }  # fmt: skip
    empty = {
        name: "[]" if name in ("events", "links") else "{}" if kind == "json" else None
        for name, kind in SPAN_COLUMNS.items()
    }
    counts = {name: 0 for name in SPAN_COLUMNS if name.endswith("_count") or name == "flags"}
    shared = {name: full[name] for name in full if name.startswith(("scope_", "service", "resource"))}
    bare = {**empty, **counts, **shared, "kind": "9", "status": "unset"}
    for body in (request.SerializeToString(), as_json(request)):
        decoded = decode(OtlpTracesCodec, body, b"")
        assert decoded.frame.to_dicts() == [full, bare]
        assert decoded.rows.tolist() == [0, 0]
        assert not decoded.bad


def test_data_points_of_each_type() -> None:
    gauge = metrics.Metric(name="t", unit="Cel", description="temperature")
    gauge.gauge.data_points.add(time_unix_nano=BEGIN_NANOS, as_double=1.5, attributes=pairs({"room": "a"}))
    gauge.gauge.data_points.add(flags=1)  # no recorded value
    counter = metrics.Metric(name="n")
    counter.sum.is_monotonic, counter.sum.aggregation_temporality = True, metrics.AGGREGATION_TEMPORALITY_CUMULATIVE
    counter.sum.data_points.add(as_int=2**62 + 1, start_time_unix_nano=BEGIN_NANOS)
    counter.sum.data_points[0].exemplars.add(as_int=-3, trace_id=ID, filtered_attributes=pairs({"k": "v"}))
    counter.sum.data_points.add(as_int=0)
    histogram = metrics.Metric(name="h")
    histogram.histogram.aggregation_temporality = metrics.AGGREGATION_TEMPORALITY_DELTA
    histogram.histogram.data_points.add(
        count=3, sum=7.5, min=0.0, max=math.inf, bucket_counts=[1, 2], explicit_bounds=[2.5]
    )
    histogram.histogram.data_points.add(count=0)
    exponential = metrics.Metric(name="e")
    point = exponential.exponential_histogram.data_points.add(count=6, scale=-2, zero_count=1, zero_threshold=0.5)
    point.positive.offset, point.negative.offset = 4, -4
    point.positive.bucket_counts.extend([2, 3])
    summary = metrics.Metric(name="s")
    summary.summary.data_points.add(count=1, sum=2.0).quantile_values.add(quantile=0.99, value=math.nan)
    request = measured(gauge, counter, histogram, exponential, summary, metrics.Metric(name="nothing"))
    wanted: list[tuple[Any, ...]] = [
        ("t", "gauge", None, None, 1.5, None, None, None, None, None, None),
        ("t", "gauge", None, None, None, None, None, None, None, None, None),
        ("n", "sum", "cumulative", True, float(2**62), 2**62 + 1, None, None, None, None, None),
        ("n", "sum", "cumulative", True, 0.0, 0, None, None, None, None, None),
        ("h", "histogram", "delta", None, None, None, 3, 7.5, 0.0, math.inf, {"bounds": [2.5], "counts": [1, 2]}),
        ("h", "histogram", "delta", None, None, None, 0, None, None, None, {"bounds": [], "counts": []}),
        ("e", "exponential_histogram", "unspecified", None, None, None, 6, None, None, None, {
            "scale": -2, "zero_count": 1, "zero_threshold": 0.5, "positive": {"offset": 4, "counts": [2, 3]},
            "negative": {"offset": -4, "counts": []},
        }),
        ("s", "summary", None, None, None, None, 1, 2.0, None, None, [{"quantile": 0.99, "value": "NaN"}]),
    ]  # fmt: skip
    names = [
        "name", "type", "temporality", "is_monotonic", "value", "value_int64", "count", "sum", "min", "max", "distribution",
    ]  # fmt: skip
    for body in (request.SerializeToString(), as_json(request)):
        frame = decode(OtlpMetricsCodec, body).frame
        found = [
            (*row[:-1], None if row[-1] is None else json.loads(row[-1])) for row in frame.select(names).iter_rows()
        ]
        assert found == wanted
        assert frame["time"].to_list()[:2] == [BEGIN, None]
        assert frame["start_time"].to_list()[2] == BEGIN
        assert (frame["unit"][0], frame["description"][0], frame["attributes"][0]) == (
            "Cel",
            "temperature",
            '{"room":"a"}',
        )
        assert frame["flags"].to_list()[:2] == [0, 1]
        assert json.loads(frame["exemplars"][2]) == [
            {"time_unix_nano": 0, "value": -3, "trace_id": ID.hex(), "span_id": None, "attributes": {"k": "v"}}
        ]
        assert frame["exemplars"].to_list()[3:] == ["[]"] * 5


def test_a_count_that_is_too_large_makes_the_body_bad_whatever_is_wanted() -> None:
    made = metrics.Metric(name="h")
    made.histogram.data_points.add(count=2**63)
    for body in (measured(made).SerializeToString(), as_json(measured(made))):
        for columns in (["name"], []):
            [bad] = decode(OtlpMetricsCodec, body, columns=columns).bad
            assert "is 2^63 or more" in bad.reason


def random_message(made: Any, choose: random.Random, depth: int = 0) -> None:
    """Fill a message with values of all kinds, by its descriptor."""
    for field in made.DESCRIPTOR.fields:
        outer = field.message_type is not None and depth < 3  # without them there is no record
        if (choose.random() < 0.4 and not outer) or (depth > 6 and field.message_type):
            continue
        if field.containing_oneof is not None and made.WhichOneof(field.containing_oneof.name) is not None:
            continue
        values = {
            "bytes_value": lambda: choose.randbytes(choose.randrange(5)),
            "trace_id": lambda: choose.randbytes(16),
            "span_id": lambda: choose.randbytes(8),
            "parent_span_id": lambda: choose.randbytes(8),
        }
        kinds: dict[int, Callable[[], Any]] = {
            field.CPPTYPE_STRING: values.get(field.name, lambda: choose.choice(["", "a", "é\n", "service.name", "1"])),
            field.CPPTYPE_INT32: lambda: choose.choice([-(2**31), 2**31 - 1, 7]),
            field.CPPTYPE_UINT32: lambda: choose.choice([0, 2**32 - 1, 7]),
            field.CPPTYPE_INT64: lambda: choose.choice([-(2**63), 2**63 - 1, 7]),
            field.CPPTYPE_UINT64: lambda: choose.choice([0, 2**63 - 1, BEGIN_NANOS, BEGIN_NANOS + 7]),
            field.CPPTYPE_DOUBLE: lambda: choose.choice([0.0, -1.5, math.nan, math.inf, -math.inf, 1e300]),
            field.CPPTYPE_BOOL: lambda: choose.random() < 0.5,
            field.CPPTYPE_ENUM: lambda: choose.randrange(3),
        }
        if field.message_type is not None and field.is_repeated:
            for _ in range(choose.randrange(1 if outer else 0, 3)):
                random_message(getattr(made, field.name).add(), choose, depth + 1)
        elif field.message_type is not None:
            getattr(made, field.name).SetInParent()
            random_message(getattr(made, field.name), choose, depth + 1)
        elif field.is_repeated:
            getattr(made, field.name).extend(kinds[field.cpp_type]() for _ in range(choose.randrange(3)))
        else:
            setattr(made, field.name, kinds[field.cpp_type]())


@pytest.mark.parametrize(
    ("codec", "message"),
    [(OtlpTracesCodec, ExportTraceServiceRequest), (OtlpMetricsCodec, ExportMetricsServiceRequest)],
)
def test_both_encodings_give_the_same_rows(codec: type[OtlpTracesCodec], message: Any) -> None:
    choose = random.Random(5)
    seen = 0
    for _ in range(25):
        made = message()
        random_message(made, choose)
        binary, text = (decode(codec, body) for body in (made.SerializeToString(), as_json(made)))
        assert not binary.bad
        assert not text.bad
        assert repr(binary.frame.to_dicts()) == repr(text.frame.to_dicts())  # by repr: NaN is itself
        seen += binary.frame.height
        for name in binary.frame.columns[:: choose.randrange(1, 5)]:
            assert decode(codec, made.SerializeToString(), columns=[name]).frame.equals(binary.frame.select(name))
    assert seen > 50


class SpansContract(CodecContract):
    schema: ClassVar = {
        "start_time": "timestamp",
        "duration_ns": "int64",
        "name": "string",
        "kind": "string",
        "attributes": "json",
        "trace_id": "string",
        "service_name": "string",
    }
    encodes = False
    several_rows = True
    one_line = False

    def make_codec(self) -> OtlpTracesCodec:
        return OtlpTracesCodec(OtlpSettings())

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "start_time": BEGIN + timedelta(microseconds=number),
            "duration_ns": None if number % 7 == 6 else number,
            "name": None if number % 5 == 4 else f"span {number}\n é",
            "kind": ("internal", "server", "client")[number % 3],
            "attributes": f'{{"number":{number}}}',
            "trace_id": f"{number:032x}" if number else None,
            "service_name": None if number % 4 == 3 else f"service {number}",
        }

    def make_message(self, row: dict[str, Any]) -> ExportTraceServiceRequest:
        begin = BEGIN_NANOS + 1000 * ((row["start_time"] - BEGIN) // timedelta(microseconds=1))
        span = Span(
            start_time_unix_nano=begin,
            end_time_unix_nano=0 if row["duration_ns"] is None else begin + row["duration_ns"],
            name=row["name"] or "",
            kind=Span.SpanKind.ValueType(1 + ("internal", "server", "client").index(row["kind"])),
            attributes=pairs(json.loads(row["attributes"])),
            trace_id=bytes.fromhex(row["trace_id"] or ""),
        )
        return traces(span, service=row["service_name"])


class TestSpansInProtobuf(SpansContract):
    def make_body(self, row: dict[str, Any]) -> bytes:
        return bytes(self.make_message(row).SerializeToString())

    def bad_bodies(self) -> Sequence[bytes]:
        good = self.make_body(self.make_row(1))
        return [b"\x0a", b"no request", good[:-1], good.replace(b"span", b"sp\xffn"), b"[]"]


class TestSpansInJson(SpansContract):
    def make_body(self, row: dict[str, Any]) -> bytes:
        return as_json(self.make_message(row))

    def bad_bodies(self) -> Sequence[bytes]:
        def span(text: str) -> bytes:
            return b'{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}' % text.encode()

        return [
            b"{", span('{"traceId": "xyz"}'), span('{"kind": "SERVER"}'), span('{"startTimeUnixNano": "-1"}'),
            span('{"links": [{"spanId": "?"}]}'), span('{"events": [{"timeUnixNano": "1e3"}]}'), span('{"status": 2}'),
        ]  # fmt: skip


class TestDataPoints(CodecContract):
    schema: ClassVar = {
        "time": "timestamp",
        "name": "string",
        "value": "float64",
        "value_int64": "int64",
        "attributes": "json",
    }
    encodes = False
    several_rows = True
    one_line = False

    def make_codec(self) -> OtlpMetricsCodec:
        return OtlpMetricsCodec(OtlpSettings())

    def make_row(self, number: int) -> dict[str, Any]:
        return {
            "time": BEGIN + timedelta(microseconds=number),
            "name": None if number % 5 == 4 else f"metric.{number}.é",
            "value": float(number) if number % 2 else number / 7,
            "value_int64": number if number % 2 else None,
            "attributes": f'{{"number":{number}}}',
        }

    def make_body(self, row: dict[str, Any]) -> bytes:
        metric = metrics.Metric(name=row["name"] or "")
        point = metric.gauge.data_points.add(
            time_unix_nano=BEGIN_NANOS + 1000 * ((row["time"] - BEGIN) // timedelta(microseconds=1)),
            attributes=pairs(json.loads(row["attributes"])),
        )
        if row["value_int64"] is None:
            point.as_double = row["value"]
        else:
            point.as_int = row["value_int64"]
        return bytes(measured(metric).SerializeToString())

    def bad_bodies(self) -> Sequence[bytes]:
        good = self.make_body(self.make_row(1))
        return [b"junk", good[:-1], good.replace(b"metric", b"me\xffric"), b'{"resourceMetrics": 1}']


def test_names_and_columns() -> None:
    for name, codec, columns in (
        ("otlp-traces", OtlpTracesCodec, SPAN_COLUMNS),
        ("otlp-metrics", OtlpMetricsCodec, DATA_POINT_COLUMNS),
    ):
        assert default_registry().find("codec", name) is codec
        made = codec(OtlpSettings())
        assert list(made.default_schema()) == list(columns)
        with pytest.raises(hr.OptionError, match="no column 'severity'"):
            made.decoder(hr.Schema.of({"severity": "int64"}))
        with pytest.raises(hr.OptionError, match="cannot be Int64"):
            made.decoder(hr.Schema.of({"attributes": "int64"}))
        with pytest.raises(hr.PlanError, match=f"{name}' can only be read"):
            made.encoder(None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_the_sdk_of_opentelemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spans, points = MemorySink(), MemorySink()
    ports = free_port(), free_port()
    resource = Resource.create({"service.name": "shop"})
    handles = []
    try:
        for port, kind, sink in zip(ports, ("traces", "metrics"), (spans, points), strict=True):
            job = hr.stream("tests", kind).from_http(
                port=port, path=f"/v1/{kind}", buffer=f"{kind}-buffer", format=f"otlp-{kind}"
            )
            handles.append(job.to(sink).start("light", checkpoint=f"{kind}-state", checkpoint_interval="100 ms"))
        eventually(lambda: all(listens(port) for port in ports), "they listen")
        tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracing.add_span_processor(
            SimpleSpanProcessor(OTLPSpanExporter(f"http://127.0.0.1:{ports[0]}/v1/traces", timeout=60))
        )
        tracer = tracing.get_tracer("shop.http")
        with tracer.start_as_current_span("outer"), tracer.start_as_current_span("inner", attributes={"n": 1}) as inner:
            inner.record_exception(ValueError("no"))
        exporter = OTLPMetricExporter(f"http://127.0.0.1:{ports[1]}/v1/metrics", timeout=60)
        meters = MeterProvider([PeriodicExportingMetricReader(exporter, math.inf)], resource, shutdown_on_exit=False)
        meter = meters.get_meter("shop.http")
        meter.create_counter("requests", "1").add(3, {"path": "/"})
        meter.create_histogram("seconds", "s").record(0.3)
        assert meters.force_flush()
        eventually(lambda: len(spans.rows) == 2 and len(points.rows) == 2, "rows arrive")
        tracing.shutdown()
        meters.shutdown()
    finally:
        for handle in handles:
            handle.stop()
    inner_row, outer = spans.rows
    assert (inner_row["name"], inner_row["attributes"], inner_row["kind"]) == ("inner", '{"n":1}', "internal")
    assert inner_row["parent_span_id"] == outer["span_id"]
    assert inner_row["trace_id"] == outer["trace_id"]
    assert outer["parent_span_id"] is None
    assert 0 < inner_row["duration_ns"] <= outer["duration_ns"]
    assert json.loads(inner_row["events"])[0]["attributes"]["exception.message"] == "no"
    found = {row["name"]: row for row in points.rows[:2]}
    assert (found["requests"]["value_int64"], found["requests"]["is_monotonic"]) == (3, True)
    assert (found["requests"]["temporality"], found["requests"]["attributes"]) == ("cumulative", '{"path":"/"}')
    assert (found["seconds"]["count"], found["seconds"]["sum"], found["seconds"]["unit"]) == (1, 0.3, "s")
    assert {row["service_name"] for row in [*spans.rows, *points.rows]} == {"shop"}
