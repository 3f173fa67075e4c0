"""The group of NULL into tables that are known by that column: a dead letter with the reason, in Kafka and Elasticsearch too."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from confluent_kafka import Consumer
from elasticsearch import Elasticsearch
from headrace_sql import SqlSession

from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.kafka import KafkaServer

REASON = "column k is NOT NULL, but the value is NULL"
#: The group of NULL grows, and the row of "b" goes to it and comes back.
CHANGES = [
    ("c", None, {"id": 1, "k": "a"}), ("c", None, {"id": 2, "k": None}), ("c", None, {"id": 3, "k": "b"}),
    ("u", {"id": 3, "k": "b"}, {"id": 3, "k": None}), ("u", {"id": 3, "k": None}, {"id": 3, "k": "b"}),
    ("d", {"id": 2, "k": None}, None), ("c", None, {"id": 4, "k": "a"}),
]  # fmt: skip


def table_of_changes(place: Path) -> str:
    bodies = [{"op": op, "before": before, "after": after} for op, before, after in CHANGES]
    (place / "t.ndjson").write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return f"""CREATE TABLE t (id INT, k STRING, PRIMARY KEY (id) NOT ENFORCED)
      WITH ('connector' = 'filesystem', 'path' = '{place}/t.ndjson', 'format' = 'debezium-json');"""


def run(text: str, place: Path, *, backend: str) -> Any:
    options: dict[str, Any] = {"master": "local[2]"} if backend == "spark" else {"max_batch_records": 1}
    job = hr.sql(text, session=SqlSession())
    return job.run(backend, checkpoint=str(place / "checkpoint"), show_progress=False, **options)


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=pytest.mark.spark)])
def test_upsert_kafka(
    kafka_server: KafkaServer, fresh_name: Callable[[str], str], tmp_path: Path, backend: str
) -> None:
    topic = fresh_name("topic")
    text = f"""{table_of_changes(tmp_path)}
      CREATE TABLE s (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = '{topic}',
        'create-topic' = 'true',
        'properties.bootstrap.servers' = '{kafka_server.bootstrap}', 'key.format' = 'json', 'value.format' = 'json');
      INSERT INTO s SELECT k, COUNT(*) AS n FROM t GROUP BY k;"""
    report = run(text, tmp_path, backend=backend)
    assert report.dead_letters >= 1 or backend == "spark"  # in one micro-batch the group comes and goes
    assert {each.reason for each in report.dead_letter_reasons} <= {REASON}
    consumer = Consumer(
        {"bootstrap.servers": kafka_server.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    rows: dict[bytes, Any] = {}
    misses = 0
    while misses < 10 and (len(rows) < 2 or misses < 3):
        record = consumer.poll(1)
        if record is None or record.error():
            misses += 1
        else:
            key, value = record.key(), record.value()
            assert key is not None
            assert json.loads(key)["k"] is not None
            rows[key] = None if value is None else json.loads(value)
    consumer.close()
    assert {json.loads(key)["k"]: row and row["n"] for key, row in rows.items()} == {"a": 2, "b": 1}


def test_elasticsearch(
    elasticsearch_server: ElasticsearchServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    index = fresh_name("index").lower().replace("_", "-")
    text = f"""{table_of_changes(tmp_path)}
      CREATE TABLE s (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'elasticsearch-7',
        'hosts' = '{elasticsearch_server.url}', 'index' = '{index}', 'create-index' = 'true');
      INSERT INTO s SELECT k, COUNT(*) AS n FROM t GROUP BY k;"""
    report = run(text, tmp_path, backend="light")
    assert {each.reason for each in report.dead_letter_reasons} == {REASON}
    client = Elasticsearch(elasticsearch_server.url)
    client.indices.refresh(index=index)
    found = [hit["_source"] for hit in client.search(index=index)["hits"]["hits"]]
    assert sorted(pl.DataFrame(found).select("k", "n").rows()) == [("a", 2), ("b", 1)]
    client.indices.delete(index=index)
