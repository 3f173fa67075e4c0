"""The source on the real server: shards, slices, changes, snapshots that are lost, and what it checks."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import headrace as hr
import pytest
from elasticsearch_world import Cluster, Relay
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import DataError, JobError
from headrace.interfaces.source import EARLIEST, LATEST, Reader
from headrace.testing import MemorySink
from headrace_elasticsearch import ElasticsearchSource

from tests.sink_tests import text_of

ZERO = timedelta(0)


def read(reader: Reader, per_poll: int = 1000) -> list[Any]:
    """Return the documents up to the end of now."""
    found: list[Any] = []
    end = reader.latest
    while reader.position.offset < end:
        raw = reader.poll(per_poll, ZERO)
        if raw is not None:
            assert raw.bodies is not None
            found += [json.loads(body) for body in raw.bodies]
    return found


def read_all(source: ElasticsearchSource, **options: Any) -> list[Any]:
    found: list[Any] = []
    for queue in source.queues():
        reader = source.open(queue, EARLIEST)
        found += read(reader, **options)
        reader.close()
    source.close()
    return found


def ids(found: list[Any]) -> list[int]:
    return sorted(document["id"] for document in found)


def documents(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"name {n}", "even": n % 2 == 0} for n in range(first, first + count)]


class TestWhatIsRead:
    def test_shards_and_slices(self, cluster: Cluster) -> None:
        """Every document once, however the index is cut; slices are the same in every object."""
        cluster.create(number_of_shards=3)
        cluster.add(cluster.name(), documents(0, 500))
        for slices in (1, 3):
            source = cluster.source(slices=slices)
            assert len(source.queues()) == 3 * slices
            assert ids(read_all(source)) == list(range(500))
        first, second = (cluster.source(slices=4) for _ in range(2))
        parts = []
        for queue in first.queues():
            readers = [source.open(queue, EARLIEST) for source in (first, second)]
            one, other = (read(reader, per_poll) for reader, per_poll in zip(readers, (40, 100), strict=True))
            assert one == other
            parts.append(len(one))
            for reader in readers:
                reader.close()
        first.close()
        second.close()
        assert (sum(parts), len(parts)) == (500, 12)
        assert min(parts) > 10

    def test_queries_and_fields(self, cluster: Cluster) -> None:
        cluster.create()
        cluster.add(cluster.name(), documents(0, 40))
        assert ids(read_all(cluster.source(query={"range": {"id": {"gte": 30}}}))) == list(range(30, 40))
        assert ids(read_all(cluster.source(query="even:true AND id:<10"))) == [0, 2, 4, 6, 8]
        assert read_all(cluster.source(query="id:7", fields=["id", "ev*"])) == [{"id": 7, "even": False}]

    def test_an_alias_with_a_filter(self, cluster: Cluster) -> None:
        """What the alias hides stays hidden, and of its indices each document comes once."""
        for number, name in enumerate(("a", "b")):
            cluster.create(name, number_of_shards=2)
            cluster.add(cluster.name(name), documents(100 * number, 50))
            shown = {"term": {"even": True}}
            cluster.client.indices.put_alias(index=cluster.name(name), name=cluster.name("alias"), filter=shown)
        source = cluster.source(index=cluster.name("alias"))
        assert [queue.name for queue in source.queues()] == [f"{cluster.name(n)}/{s}" for n in "ab" for s in (0, 1)]
        assert ids(read_all(source)) == [*range(0, 50, 2), *range(100, 150, 2)]

    def test_a_data_stream_after_a_rollover(self, cluster: Cluster) -> None:
        name = cluster.name("stream")
        columns = {"@timestamp": "timestamp"}
        cluster.sink(columns, index=name, data_stream=True, create_index=True).close()
        for first in (0, 10):
            lines: list[dict[str, Any]] = [{"create": {}}, {"@timestamp": 1_700_000_000_000}] * 10
            answer = cluster.client.bulk(index=name, operations=lines)
            assert not answer["errors"]
            if first == 0:
                assert cluster.client.indices.rollover(alias=name)["rolled_over"]
        source = cluster.source(index=name)
        assert len(source.queues()) == 2
        assert len(read_all(source)) == 20

    def test_ids_are_the_keys_of_records(self, cluster: Cluster) -> None:
        cluster.create()
        cluster.add(cluster.name(), documents(0, 3), ids=["x", "ü", "z/1"])
        sink = MemorySink()
        (
            hr.stream("test", "keys")
            .from_elasticsearch(
                **cluster.options(), format="json", schema={"id": "int64"}, metadata={"key": "key", "shard": "queue"}
            )
            .select("id", "CAST(key AS STRING) AS key", "shard")
            .to(sink)
            .run("light", show_progress=False)
        )
        shard = f"{cluster.name()}/0"
        assert sink.rows == [{"id": n, "key": key, "shard": shard} for n, key in enumerate(["x", "ü", "z/1"])]

    def test_documents_that_do_not_fit_the_columns(self, cluster: Cluster) -> None:
        cluster.create()
        cluster.add(cluster.name(), [{"id": 1}, {"id": "2"}, {"id": 3}])
        sink, bad = MemorySink(), MemorySink()
        (
            hr.stream("test", "bad")
            .from_elasticsearch(**cluster.options(), format="json", schema={"id": "int64"})
            .dead_letters(lambda letters: letters.to(bad))
            .to(sink)
            .run("light", show_progress=False)
        )
        assert [row["id"] for row in sink.rows] == [1, 3]
        assert [(row["offset"], row["body"]) for row in bad.rows] == [(1, b'{"id": "2"}')]

    def test_an_empty_index(self, cluster: Cluster) -> None:
        cluster.create()
        assert read_all(cluster.source()) == []


class TestPositions:
    def test_the_next_run_reads_what_is_new_or_changed(self, cluster: Cluster) -> None:
        cluster.create()
        cluster.add(cluster.name(), documents(0, 20), ids=[str(n) for n in range(20)])
        source = cluster.source()
        [queue] = source.queues()
        reader = source.open(queue, EARLIEST)
        assert ids(read(reader)) == list(range(20))
        position = ReadPosition.from_json(json.loads(json.dumps(reader.position.to_json())))
        reader.close()
        cluster.add(cluster.name(), documents(20, 5), ids=[str(n) for n in range(20, 25)])
        cluster.add(cluster.name(), documents(3, 1), ids=["3"])
        cluster.client.delete(index=cluster.name(), id="7")
        reader = source.open(queue, position)
        assert ids(read(reader)) == [3, 20, 21, 22, 23, 24]
        reader.close()
        source.close()

    def test_nothing_is_missed_while_others_write(self, cluster: Cluster) -> None:
        """Writers in several threads: numbers become visible out of order. Every run ends, and misses nothing for good."""
        cluster.create()
        stop = threading.Event()
        written: list[int] = []
        lock = threading.Lock()

        def write(begin: int) -> None:
            number = begin
            while not stop.is_set():
                cluster.add(cluster.name(), documents(number, 20))
                with lock:
                    written.extend(range(number, number + 20))
                number += 20

        threads = [threading.Thread(target=write, args=(10**6 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        source = cluster.source()
        [queue] = source.queues()
        position: ReadPosition | None = None
        found: list[Any] = []
        try:
            for _ in range(15):
                reader = source.open(queue, EARLIEST if position is None else position)
                found += read(reader)
                position = reader.position
                reader.close()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert position is not None
        reader = source.open(queue, position)
        found += read(reader)
        reader.close()
        source.close()
        assert ids(found) == sorted(written)

    def test_the_snapshot_is_lost(self, cluster: Cluster) -> None:
        """As after a restart, or when nothing is asked for too long: a new one goes on at the same place."""
        cluster.create()
        cluster.add(cluster.name(), documents(0, 50))
        source = cluster.source(page_rows=10)
        reader = source.open(Queue(f"{cluster.name()}/0"), EARLIEST)
        found = []
        while (raw := reader.poll(10, ZERO)) is not None:
            assert raw.bodies is not None
            found += [json.loads(body)["id"] for body in raw.bodies]
            cluster.client.close_point_in_time(id=reader._snapshot)  # type: ignore[attr-defined]
        reader.close()
        source.close()
        assert found == list(range(50))

    def test_the_index_is_made_anew(self, cluster: Cluster) -> None:
        cluster.create()
        cluster.add(cluster.name(), documents(0, 5))
        source = cluster.source()
        queue = Queue(f"{cluster.name()}/0")
        reader = source.open(queue, EARLIEST)
        reader.poll(3, ZERO)
        position = reader.position
        cluster.client.indices.delete(index=cluster.name())
        assert "has gone" in text_of(DataError, lambda: reader.latest)
        cluster.create()
        cluster.add(cluster.name(), documents(0, 9))
        for use in (lambda: reader.latest, lambda: source.open(queue, position)):
            text = text_of(DataError, use)
            assert "deleted and created again" in text
            assert "hint: start with a new checkpoint" in text
        reader.close()
        source.close()

    def test_latest(self, cluster: Cluster) -> None:
        cluster.create()
        cluster.add(cluster.name(), documents(0, 5))
        source = cluster.source()
        reader = source.open(Queue(f"{cluster.name()}/0"), LATEST)
        assert reader.poll(10, ZERO) is None
        cluster.add(cluster.name(), documents(5, 2))
        assert ids(read(reader)) == [5, 6]
        reader.close()
        source.close()

    def test_ranges_of_every_size(self, cluster: Cluster) -> None:
        """Where a planner cuts, with gaps in the numbers, queries and slices, and more than the server's window."""
        cluster.create()
        cluster.add(cluster.name(), documents(0, 12_000), ids=[str(n) for n in range(12_000)])
        for number in random.Random(1).sample(range(12_000), 50):
            cluster.client.delete(index=cluster.name(), id=str(number))
        source = cluster.source(query={"term": {"even": True}}, slices=2)
        for queue in source.queues():
            reader = source.open(queue, EARLIEST)
            whole = read(reader)
            for size in (1, 700, 2500, 10_001, 10**9, 2**48):
                reader.seek(ReadPosition(0))
                taken = 0
                while reader.position.offset < reader.latest:
                    cut = reader.position_after(size)
                    assert cut.offset > reader.position.offset
                    part = source.open(queue, reader.position)
                    count = 0
                    while part.position.offset < cut.offset:
                        raw = part.poll(min(size, 10_000), ZERO)
                        count += 0 if raw is None else int((raw.offsets < cut.offset).sum())
                    part.close()
                    assert count <= size
                    taken += count
                    reader.seek(cut)
                    if size == 1 and taken == 5:
                        break
                assert taken == (5 if size == 1 else len(whole))
            reader.close()
        source.close()


class TestBeforeTheStart:
    def test_missing_index_names_the_nearest(self, cluster: Cluster) -> None:
        cluster.create("events")
        text = text_of(JobError, cluster.source(index=cluster.name("event")).queues)
        assert f"there is no index, alias or data stream '{cluster.name('event')}'" in text
        assert f"did you mean '{cluster.name('events')}'?" in text
        assert "there is no index" in text_of(JobError, cluster.source(index=cluster.name("none-*")).queues)

    def test_a_query_that_is_none(self, cluster: Cluster) -> None:
        cluster.create()
        text = text_of(JobError, cluster.source(query={"no_such_query": {}}).queues)
        assert "unknown query [no_such_query]" in text
        assert "option 'query'" in text
        assert "Failed to parse query [AND (]" in text_of(JobError, cluster.source(query="AND (").queues)

    def test_columns_that_are_no_fields(self, cluster: Cluster) -> None:
        cluster.create(properties={"host": {"properties": {"name": {"type": "keyword"}}}})

        def run(**schema: str) -> None:
            (
                hr.stream("test", "columns")
                .from_elasticsearch(**cluster.options(), format="json", schema=schema)
                .to(MemorySink())
                .run("light", show_progress=False)
            )

        text = text_of(Exception, lambda: run(hots="json"))
        assert "no document has a field 'hots'" in text
        assert "did you mean 'host'?" in text
        run(host="json")
        assert "option 'fields'" in text_of(JobError, cluster.source(fields=["host.nam"]).queues)
        cluster.source(fields=["host.name", "hos*"]).queues()


@pytest.fixture
def relay(cluster: Cluster) -> Iterator[Relay]:
    made = Relay(cluster.host, cluster.port)
    yield made
    made.cut()


def test_closing_while_the_server_is_away(cluster: Cluster, relay: Relay) -> None:
    cluster.create()
    cluster.add(cluster.name(), documents(0, 5))
    source = cluster.source(url=relay.url)
    reader = source.open(Queue(f"{cluster.name()}/0"), EARLIEST)
    reader.poll(2, ZERO)
    relay.cut()
    reader.close()
    source.close()
