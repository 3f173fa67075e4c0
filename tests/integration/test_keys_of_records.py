"""Tables of Kafka with columns in the records' keys: what one job writes, another reads."""

# ruff: noqa: S608  # texts are put together from constants
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import headrace as hr
import pytest
from confluent_kafka import Consumer
from headrace_sql import SqlSession

from tests.servers.kafka import KafkaServer

ROWS = [
    (1, "a", 10, "2024-01-01 00:00:01"),
    (2, None, 20, "2024-01-01 00:00:02"),
    (3, "b", None, "2024-01-01 00:00:03"),
]


def test_columns_of_the_key_are_written_and_read(
    kafka_server: KafkaServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("topic")
    text = f"""CREATE TABLE t (k_id INT, k_name STRING, v INT, id STRING) WITH ('connector' = 'kafka', 'topic' = '{topic}',
        'create-topic' = 'true', 'properties.bootstrap.servers' = '{kafka_server.bootstrap}', 'format' = 'json',
        'key.format' = 'json', 'key.fields' = 'k_id;k_name', 'key.fields-prefix' = 'k_', 'value.fields-include' = 'EXCEPT_KEY',
        'scan.startup.mode' = 'earliest-offset');"""
    values = ", ".join(
        f"({row[0]}, {'CAST(NULL AS STRING)' if row[1] is None else repr(row[1])}, "
        f"{'CAST(NULL AS INT)' if row[2] is None else row[2]}, '{row[3]}')"
        for row in ROWS
    )
    hr.sql(f"{text} INSERT INTO t VALUES {values}", session=SqlSession()).run("light", show_progress=False)
    consumer = Consumer(
        {"bootstrap.servers": kafka_server.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    records = [record for record in consumer.consume(len(ROWS), timeout=60) if not record.error()]
    consumer.close()
    assert [(json.loads(record.key() or b""), json.loads(record.value() or b"")) for record in records] == [
        ({"id": row[0], "name": row[1]}, {"v": row[2], "id": row[3]}) for row in ROWS
    ]
    found = hr.sql(f"{text} SELECT k_id, k_name, v, id FROM t", session=SqlSession()).collect()
    assert found.rows() == ROWS
    other = "/*+ OPTIONS('properties.group.id' = 'other') */"
    found = hr.sql(f"{text} SELECT k_name FROM t {other} WHERE v > 5", session=SqlSession()).collect()
    assert found.rows() == [("a",), (None,)]


@pytest.mark.spark
def test_on_spark(kafka_server: KafkaServer, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh_name("topic")
    text = f"""CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'create-topic' = 'true',
        'properties.bootstrap.servers' = '{kafka_server.bootstrap}', 'format' = 'json', 'key.format' = 'raw', 'key.fields' = 'k',
        'value.fields-include' = 'EXCEPT_KEY', 'scan.startup.mode' = 'earliest-offset');
      CREATE TABLE s (k STRING, v INT) WITH ('connector' = 'file', 'path' = '{tmp_path}/out', 'format' = 'json');"""
    hr.sql(f"{text} INSERT INTO t VALUES ('a', 1), ('b', 2)", session=SqlSession()).run("light", show_progress=False)
    job = hr.sql(f"{text} INSERT INTO s SELECT k, v FROM t", session=SqlSession())
    job.run("spark", master="local[2]", checkpoint=str(tmp_path / "checkpoint"), show_progress=False)
    lines = [json.loads(line) for part in (tmp_path / "out").glob("part*") for line in part.read_text().splitlines()]
    assert sorted(lines, key=str) == [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
