"""Processes that are killed, answers that are lost, servers that go away: every row is there exactly once."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from elasticsearch_world import ID, Cluster, Relay, writer_of
from headrace.testing import MemorySink, MemorySource

from tests.eventually import eventually
from tests.killed_jobs import KilledJobs
from tests.servers.elasticsearch import ElasticsearchOptions
from tests.servers.fixtures import StartElasticsearchServer
from tests.sink_tests import insert, numbers

HERE = Path(__file__).parent
QUICK: dict[str, Any] = {"retry_backoff": "5 ms", "retry_backoff_max": "50 ms", "retry_timeout": "120 s"}


class TestKills(KilledJobs):
    def job(self, directory: Path, options: dict[str, Any], faults: str = "") -> subprocess.Popen[bytes]:
        return self.start_job(directory, "elasticsearch", {"request_rows": 15, **options}, faults)

    def killed_at(self, directory: Path, options: dict[str, Any], place: str) -> None:
        process = self.job(directory, options, f"{place}:kill")
        assert process.wait(120) == -signal.SIGKILL, place

    def killed_while_writing(self, cluster: Cluster, directory: Path, chance: random.Random) -> None:
        process = self.job(directory, cluster.options())
        before = len(cluster.hits(cluster.name()))
        eventually(lambda: len(cluster.hits(cluster.name())) > before or process.poll() is not None, "the job writes")
        threading.Event().wait(chance.uniform(0, 0.1))
        process.kill()
        process.wait()

    def finish(self, cluster: Cluster, directory: Path, records: int) -> None:
        process = self.job(directory, cluster.options())
        assert process.wait(240) == 0, (directory / "log.txt").read_text()[-3000:]
        assert cluster.ids() == [n for n in range(records) if n % 10 != 3]
        assert not list((directory / "dead").glob("*.json"))

    def test_every_row_is_there_once(self, cluster: Cluster, tmp_path: Path) -> None:
        """A job is killed at chosen places and at random moments, and started again; at last it comes to its end."""
        seed = random.randrange(10**6)
        chance = random.Random(seed)
        records = 3000
        self.write_input(tmp_path, records)
        cluster.create()
        progress = []
        for place in ("sink.before_insert", "sink.after_insert", "checkpoint.after_flush", "checkpoint.after_save"):
            self.killed_at(tmp_path, cluster.options(), f"{place}:{chance.randrange(3, 6)}")
            progress.append(len(cluster.hits(cluster.name())))
        for _ in range(2):
            self.killed_while_writing(cluster, tmp_path, chance)
            progress.append(len(cluster.hits(cluster.name())))
        self.finish(cluster, tmp_path, records)
        print(f"documents after each kill: {progress}, seed {seed}")
        assert progress[0] < records
        assert progress[-1] > 0

    @pytest.mark.slow
    @pytest.mark.timeout(1800)
    def test_thirty_kills(self, cluster: Cluster, tmp_path: Path) -> None:
        """As above, at thirty random moments."""
        seed = random.randrange(10**6)
        chance = random.Random(seed)
        records = 30_000
        self.write_input(tmp_path, records)
        cluster.create()
        progress = []
        for _ in range(30):
            self.killed_while_writing(cluster, tmp_path, chance)
            progress.append(len(cluster.hits(cluster.name())))
        self.finish(cluster, tmp_path, records)
        print(f"documents after each kill: {progress}, seed {seed}")


class TestLostAnswers:
    @pytest.fixture
    def relay(self, cluster: Cluster) -> Iterator[Relay]:
        made = Relay(cluster.host, cluster.port)
        yield made
        made.cut()

    @pytest.mark.parametrize("options", [{}, {"mode": "create"}, {"id": "id", "version": "offset"}])
    def test_rows_that_are_stored_without_the_sink_knowing(
        self, cluster: Cluster, relay: Relay, options: dict[str, Any]
    ) -> None:
        cluster.create()
        writer = writer_of(cluster.sink(ID, url=relay.url, **QUICK, **options))
        writer.write(numbers("q", 0, 10))
        writer.flush()
        relay.lose_answer_to = b"/_bulk"
        writer.write(numbers("q", 10, 10))
        writer.flush()
        assert relay.lose_answer_to is None
        assert writer.counts.retries >= 1
        writer.write(numbers("q", 20, 10))
        writer.close()
        assert cluster.ids() == list(range(30))

    def test_one_request_of_several(self, cluster: Cluster, relay: Relay) -> None:
        """Those whose answers came are not sent again."""
        cluster.create()
        sink = cluster.sink(ID, url=relay.url, request_rows=10, parallel_requests=2, **QUICK)
        writer = writer_of(sink)
        relay.lose_answer_to = b"/_bulk"
        writer.write(numbers("q", 0, 100))
        writer.close()
        assert cluster.ids() == list(range(100))
        assert relay.heard[b"/_bulk"] == 11


def test_a_server_that_restarts_costs_time_only(start_elasticsearch_server: StartElasticsearchServer) -> None:
    """A job writes to a server that is stopped and killed meanwhile."""
    server = start_elasticsearch_server(ElasticsearchOptions())
    cluster = Cluster(server.url, "restarts")
    cluster.create(number_of_shards=2)
    source = MemorySource({"q": []})
    writing = (
        hr.stream("test", "writing")
        .from_(source, format="json", schema=ID)
        .to_elasticsearch(**cluster.options(), **QUICK, flush_interval="10 ms", request_rows=50)
        .start("light")
    )
    done = 0
    ways_to_go: tuple[Callable[[], object], ...] = (server.stop, server.kill)
    for number, away in enumerate(ways_to_go):
        for half in range(2):
            source.append("q", *(b'{"id": %d}' % n for n in range(done, done + 500)))
            done += 500
            if half == 0:
                eventually(lambda: len(cluster.hits()) == done, f"turn {number}: rows come through")  # noqa: B023
                away()
        server.start()
        eventually(lambda: len(cluster.hits()) == done, f"turn {number}: rows come through again")  # noqa: B023
    writing.stop()
    writing.wait()
    assert cluster.ids() == list(range(done))
    cluster.close()


def test_a_server_that_restarts_while_it_is_read(start_elasticsearch_server: StartElasticsearchServer) -> None:
    """Snapshots do not outlive the server; reading goes on from new ones, at the same places."""
    server = start_elasticsearch_server(ElasticsearchOptions())
    cluster = Cluster(server.url, "reads")
    cluster.create(number_of_shards=2)
    cluster.add(cluster.name(), [{"id": n} for n in range(6000)])
    sink = MemorySink()
    restarted: list[str] = []

    def restart(row: dict[str, Any]) -> dict[str, Any]:
        ways: dict[int, tuple[str, Callable[[], object]]] = {2000: ("stop", server.stop), 4000: ("kill", server.kill)}
        if row["id"] in ways and ways[row["id"]][0] not in restarted:
            restarted.append(ways[row["id"]][0])
            ways[row["id"]][1]()
            starting = threading.Thread(target=server.start)
            starting.start()
            threads.append(starting)
        return row

    threads: list[threading.Thread] = []
    (
        hr.stream("test", "reading")
        .from_elasticsearch(**cluster.options(page_rows=200), format="json", schema=ID)
        .map(restart, schema=ID)
        .to(sink)
        .run("light", show_progress=False, max_batch_records=200)
    )
    for thread in threads:
        thread.join()
    assert sorted(restarted) == ["kill", "stop"]
    assert sorted(row["id"] for row in sink.rows) == list(range(6000))
    cluster.close()


def test_a_batch_that_was_settled_is_forgotten(cluster: Cluster) -> None:
    """What is remembered of a batch does not let another one through: its rows are sent, whatever their places."""
    cluster.create(properties={"id": {"type": "byte"}})
    sink = cluster.sink(ID)
    insert(sink, numbers("q", 0, 10))
    with pytest.raises(hr.DataError, match="out of range"):
        insert(sink, numbers("q", 120, 10))
    insert(sink, numbers("q", 120, 5))
    insert(sink, numbers("q", 100, 3))
    insert(sink, numbers("other", 120, 3))
    sink.close()
    assert cluster.ids() == [*range(10), 100, 101, 102, *sorted([*range(120, 128), 120, 121, 122])]
