"""Documents per second into and out of Elasticsearch, against the official client's own helpers.

    python -m benchmarks.elasticsearch_connector [quick]

All in one run on one server: ``HEADRACE_TEST_ELASTICSEARCH=url``, or one that is started for it, on the same machine, so
that every second of the client's CPU time is taken from the server. Written is by ``helpers.parallel_bulk`` with dicts
that are there (making them is not counted) and ids of the same length, by the sink through its writer, and by a whole job
on the light backend; all with four requests of the same size under way. Read is by ``helpers.scan`` and by the source,
both one after the other with the same page size, without decoding the documents beyond what the helper does anyway.
Each way is measured in turn, several times; speeds are medians, and ratios the medians of those of each turn, so that
what else the machine does falls on both.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import statistics
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import elasticsearch
import elasticsearch.helpers
import headrace as hr
import polars as pl
from headrace.flow.messages import INDEX, OFFSET, Batch, Queue
from headrace.flow.schema import Schema
from headrace.runtime.sink_writer import SinkWriter
from headrace_elasticsearch import (
    ElasticsearchSink,
    ElasticsearchSinkSettings,
    ElasticsearchSource,
    ElasticsearchSourceSettings,
)

from benchmarks.mysql_connector import SCHEMA, FrameSource, make_frame
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.sharing import own_server

NAME = "headrace-benchmark"
REQUEST_ROWS = 1_000
REQUESTS = 4
PAGE_ROWS = 2_000


class Target:
    """The index that is written and read, and the ways of doing it."""

    def __init__(self, server: ElasticsearchServer, frame: pl.DataFrame) -> None:
        self._url = server.url
        self._frame = frame
        # As a JSON source would have them: the client writes times as texts anyway.
        texts = frame.with_columns(pl.col("at").dt.strftime("%Y-%m-%dT%H:%M:%S%.6f"))
        self._documents = texts.to_dicts()
        self._client = elasticsearch.Elasticsearch(server.url, request_timeout=120)

    def options(self, **more: Any) -> dict[str, Any]:
        return {"url": self._url, "index": NAME, "request_timeout": "2 min", **more}

    def sink_options(self) -> dict[str, Any]:
        return self.options(request_rows=REQUEST_ROWS, parallel_requests=REQUESTS, flush_interval="10 min")

    def empty(self) -> None:
        self._client.options(ignore_status=404).indices.delete(index=NAME)
        keyword = {"type": "keyword"}
        properties = {"id": {"type": "long"}, "host": keyword, "command": keyword, "seconds": {"type": "double"},
                      "ok": {"type": "boolean"}, "at": {"type": "date"}}  # fmt: skip
        # Refreshes come when they come, and would fall to one way or the other.
        settings = {"number_of_replicas": 0, "refresh_interval": "-1"}
        self._client.indices.create(index=NAME, mappings={"properties": properties}, settings=settings)

    def count(self) -> int:
        self._client.indices.refresh(index=NAME)
        return int(self._client.count(index=NAME)["count"])

    # ------------------------------------------------------------------------------------------------------ writing

    def parallel_bulk(self) -> None:
        actions = (
            {"_id": f"benchmark.elasticsearch.sink:rows:{n}:0", "_source": document}
            for n, document in enumerate(self._documents)
        )
        done = elasticsearch.helpers.parallel_bulk(
            self._client, actions, index=NAME, thread_count=REQUESTS, chunk_size=REQUEST_ROWS
        )
        deque(done, maxlen=0)

    def sink_writer(self) -> None:
        sink = ElasticsearchSink(ElasticsearchSinkSettings.of(self.sink_options()))
        sink.writer_name = "benchmark.elasticsearch.sink"
        sink.check(Schema.of(SCHEMA))
        sink.prepare(Schema.of(SCHEMA))
        writer = SinkWriter(sink, "to_elasticsearch", on_dead_letters=_refuse, auto_flush=False)
        header = {
            OFFSET: pl.int_range(0, self._frame.height, dtype=pl.Int64, eager=True),
            INDEX: pl.zeros(self._frame.height, pl.Int32, eager=True),
        }
        frame = self._frame.with_columns(**header)
        for begin in range(0, frame.height, 10_000):
            writer.write(Batch(Queue("rows"), frame.slice(begin, 10_000)))
        writer.close()

    def light(self) -> None:
        (
            hr.stream("benchmark", "elasticsearch")
            .from_(FrameSource(self._frame))
            .to_elasticsearch(**self.sink_options())
            .run("light", show_progress=False)
        )

    # ------------------------------------------------------------------------------------------------------ reading

    def scan(self) -> int:
        found = elasticsearch.helpers.scan(self._client, index=NAME, size=PAGE_ROWS)
        return sum(1 for _ in found)

    def source(self) -> int:
        settings = ElasticsearchSourceSettings.of(self.options(page_rows=PAGE_ROWS))
        source = ElasticsearchSource(settings)
        rows = 0
        for queue in source.queues():
            reader = source.open(queue, hr.EARLIEST)
            end = reader.latest
            while reader.position.offset < end:
                raw = reader.poll(PAGE_ROWS, dt.timedelta(0))
                rows += 0 if raw is None else len(raw)
            reader.close()
        source.close()
        return rows

    def close(self) -> None:
        self._client.indices.delete(index=NAME)
        self._client.close()


def _refuse(batch: Batch) -> None:
    raise AssertionError(f"dead letters: {batch.frame}")


@contextlib.contextmanager
def _server() -> Iterator[ElasticsearchServer]:
    address = os.environ.get(ElasticsearchServer.variable)
    if address:
        yield ElasticsearchServer.from_variable(address)
    else:
        with own_server(ElasticsearchServer) as server:
            yield server


def _clocked(action: Callable[[], object]) -> tuple[float, float, object]:
    """Return wall seconds, CPU seconds of this process, and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def run(rows: int, rounds: int) -> dict[str, Any]:
    """Return documents per second and CPU time of each way, and what ours get of the helpers'."""
    writing, reading = ("parallel_bulk", "sink_writer", "light"), ("scan", "source")
    wall: dict[str, list[float]] = {name: [] for name in (*writing, *reading)}
    cpu: dict[str, list[float]] = {name: [] for name in wall}
    with _server() as server:
        target = Target(server, make_frame(rows))
        for turn in range(rounds + 1):
            # Whoever comes first after a pause is favoured by a server that has finished its merges.
            order = writing if turn % 2 else writing[::-1]
            for name in (*order, *reading):
                if name in writing:
                    target.empty()
                took, busy, found = _clocked(getattr(target, name))
                stored = target.count() if name in writing else found
                if stored != rows:
                    raise AssertionError(f"{name}: {stored} documents instead of {rows}")
                if turn:  # the first one warms up
                    wall[name].append(took)
                    cpu[name].append(busy)
        target.close()
    speed = {name: rows / statistics.median(found) for name, found in wall.items()}
    used = {name: statistics.median(found) for name, found in cpu.items()}
    return {
        "rows": rows,
        "request_rows": REQUEST_ROWS,
        "rounds": rounds,
        **{f"{name}_rows_per_second": round(value) for name, value in speed.items()},
        **{f"{name}_cpu_seconds_per_million_rows": round(value * 1e6 / rows, 1) for name, value in used.items()},
        "sink_writer_ratio": _ratio(wall["parallel_bulk"], wall["sink_writer"]),
        "light_ratio": _ratio(wall["parallel_bulk"], wall["light"]),
        "source_ratio": _ratio(wall["scan"], wall["source"]),
    }


def _ratio(theirs: list[float], ours: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(theirs, ours, strict=True)), 2)


if __name__ == "__main__":
    warnings.simplefilter("ignore", elasticsearch.ElasticsearchWarning)
    quick = "quick" in sys.argv[1:]
    print(json.dumps(run(50_000, 5) if quick else run(200_000, 9)))
