"""Jobs under a server send traces to a collector of OpenTelemetry, by a line of job.yaml. The receiver parses real OTLP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from server_processes import ServerProcess

from tests.eventually import eventually
from tests.otlp_receiver import OtlpServer, serving

JOB = """
import headrace as hr
job = (hr.stream("test", "copy")
       .from_file({events!r}, format="json", schema={{"n": "int64"}})
       .key_by("n").agg(c="count(*)")
       .to_file({out!r}, format="json", changes="column"))
# {version}
"""


class Receiver(OtlpServer):
    """Keeps the spans, each with the name of its service."""

    def __init__(self) -> None:
        super().__init__(self._keep)
        self.spans: list[tuple[str, Span]] = []
        self.authorized: set[str | None] = set()

    def _keep(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        if path != "/v1/traces":
            return
        self.authorized.add(headers.get("authorization"))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.spans += [(named["service.name"], span) for scope in resource.scope_spans for span in scope.spans]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    with serving(made):
        yield made


def write(server: ServerProcess, receiver: Receiver, version: int) -> None:
    text = JOB.format(events=str(server.events), out=str(server.out), version=version)
    (server.jobs / "copy.py").write_text(text)
    (server.jobs / "job.yaml").write_text(
        f"health_window: 300 ms\noptions: {{metrics: 'otlp://127.0.0.1:{receiver.server_port}'}}\n"
        "environment: {OTEL_SERVICE_NAME: orders, OTEL_BSP_SCHEDULE_DELAY: '100'}\nsecrets: [OTEL_EXPORTER_OTLP_HEADERS]\n"
    )


def stored(receiver: Receiver) -> list[Span]:
    return [span for name, span in list(receiver.spans) if name == "orders" and span.name.startswith("store ")]


@pytest.mark.slow
def test_batches_are_traced_from_the_source_to_the_sink_also_by_the_next_version(
    server: ServerProcess, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-the-test")
    write(server, receiver, 1)
    server.add_events(0, 100)
    server.start()
    for version, last in ((1, 200), (2, 300)):
        write(server, receiver, version)
        server.wait_for_state("running", version=version)
        before = len(stored(receiver))
        server.add_events(last - 100, last)
        eventually(lambda: len(stored(receiver)) > before, "spans of rows that were stored", shown=server.log)  # noqa: B023
        spans = {span.span_id: span for _, span in list(receiver.spans)}
        way = [stored(receiver)[-1]]
        while way[-1].links:
            linked = [spans[each.span_id] for each in way[-1].links if each.span_id in spans]
            assert linked, (way[-1], len(spans))
            way.append(linked[-1])
        assert [span.name.split()[0] for span in way] == ["store", "shard", "batch"]
        assert way[0].trace_id == way[1].trace_id
    assert receiver.authorized == {"Bearer of-the-test"}
    # The server counts as before: its page, its figures, and no secret in what it shows.
    text = server.client.ask("GET", "/v1/jobs/copy")
    assert text["figures"]["records_read"] > 0
    assert "of-the-test" not in str(text)
