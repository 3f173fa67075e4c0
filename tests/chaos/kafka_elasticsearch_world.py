"""What the fault tests of Elasticsearch share: numbers that keep coming, instances of the job, and what must be stored."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import elasticsearch
import elasticsearch.helpers

from tests.chaos.kafka_elasticsearch_job import copies
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.kafka import KafkaServer

sys.path.append(str(Path(__file__).resolve().parents[2] / "connectors" / "kafka" / "tests"))

from instances import Instance as Instance
from instances import Numbers
from kafka_world import KafkaWorld

from tests.eventually import eventually

_JOB = Path(__file__).with_name("kafka_elasticsearch_job.py")

#: What a document holds: number, partition, offset in it, which of the number's documents it is.
Document = tuple[int, str, int, int]


class Indexing:
    """Numbers that are written to a topic, and instances that put them into an index."""

    def __init__(self, kafka: KafkaServer, server: ElasticsearchServer, name: str, partitions: int) -> None:
        self.server = server
        self.instances: list[Instance] = []
        self._world = KafkaWorld(kafka.bootstrap)
        self._topic = self._index = name
        self._partitions = partitions
        self._numbers: Numbers | None = None
        self._client = elasticsearch.Elasticsearch(server.url, request_timeout=60)

    def prepare(self, *, per_second: int) -> None:
        """Make topic and index, and begin to write numbers."""
        self._world.create_topic(self._topic, self._partitions)
        fields = {"n": "long", "partition": "keyword", "position": "long", "copy": "long"}
        self._client.indices.create(
            index=self._index,
            mappings={"dynamic": "strict", "properties": {name: {"type": kind} for name, kind in fields.items()}},
            settings={"number_of_shards": 2, "number_of_replicas": 0},
        )
        self._numbers = Numbers(self._world, self._topic, self._partitions, per_second=per_second)
        self._numbers.start()

    def launch(self, *, backend: str = "light", faults: str = "", **run: Any) -> Instance:
        """Start one more instance. ``faults``: where it is to be killed (see ``headrace.foundation.faults``)."""
        given = {
            "servers": self._world.servers,
            "topic": self._topic,
            "url": self.server.url,
            "index": self._index,
            "backend": backend,
            "run": run,
        }
        self.instances.append(Instance(given, {**os.environ, "HEADRACE_FAULTS": faults}, script=_JOB))
        return self.instances[-1]

    def stored(self) -> int:
        """Return how many documents there are."""
        self._client.indices.refresh(index=self._index)
        return int(self._client.count(index=self._index)["count"])

    def write_no_more(self) -> Counter[Document]:
        """End the numbers, and return the documents that must be stored for what is in the topic."""
        assert self._numbers is not None
        written = self._numbers.stop()
        records = [(json.loads(one.value or b"")["n"], one) for one in self._world.read(self._topic)]
        assert sorted(n for n, _ in records) == list(range(written)), "the topic is not what was written"
        return Counter(
            (n, f"{self._topic}-{one.partition}", one.offset, copy) for n, one in records for copy in range(copies(n))
        )

    def wait_until_stored(self, wanted: Counter[Document], *, seconds: float = 240.0) -> None:
        """Return when as many documents are there as must be."""

        def all_stored() -> bool:
            if self.stored() >= wanted.total():
                return True
            assert any(one.process.poll() is None for one in self.instances), self.instances[-1].printed
            return False

        eventually(all_stored, f"{wanted.total()} documents", shown=self.stored, seconds=seconds, pause_seconds=0.2)

    def expect(self, wanted: Counter[Document]) -> str:
        """Fail unless just these documents are stored, each once; return figures. To be called when no instance runs."""
        self._client.indices.refresh(index=f"{self._index}*")
        hits = list(elasticsearch.helpers.scan(self._client, index=self._index, size=5000, version=True))
        sources = [hit["_source"] for hit in hits]
        found = Counter((one["n"], one["partition"], one["position"], one["copy"]) for one in sources)
        lost, doubled = wanted - found, found - wanted
        assert not lost, f"{lost.total()} of {wanted.total()} documents are missing: {sorted(lost)[:5]}"
        assert not doubled, f"{doubled.total()} documents are there twice, or should not be: {sorted(doubled)[:5]}"
        dead = self._client.count(index=f"{self._index}-dead")["count"]
        assert dead == 0, f"{dead} dead letters"
        again = sum(hit["_version"] > 1 for hit in hits)
        return f"{found.total()} documents once, of {len({place[:3] for place in found})} records; {again} were written again"

    def close(self) -> None:
        """End everything and remove the indices."""
        if self._numbers is not None:
            self._numbers.stop()
        for instance in self.instances:
            instance.close()
        self._world.close()
        self._client.options(ignore_status=404).indices.delete(index=f"{self._index}*", expand_wildcards="all")
        self._client.close()
