"""examples/kafka_to_mysql.py and examples/mysql_to_kafka.py."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pymysql
import pytest
from confluent_kafka import admin as ck_admin

from tests.examples.run import run_example
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer

pytestmark = pytest.mark.timeout(900)
BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]
Execute = Callable[..., list[Any]]


@pytest.fixture
def execute(mysql_server: MySQLServer, mysql_database: str) -> Iterator[Execute]:
    """Execute a statement in the database and return its rows."""
    server = mysql_server
    place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with pymysql.connect(**place, database=mysql_database, autocommit=True) as connection:

        def execute(statement: str) -> list[Any]:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())

        yield execute


@pytest.fixture
def arguments(kafka_server: KafkaServer, mysql_server: MySQLServer, mysql_database: str, topic: str) -> dict[str, Any]:
    """What both examples are given: where the servers are."""
    server = mysql_server
    place = {"host": server.host, "port": server.port, "user": server.user, "database": mysql_database}
    return {"servers": kafka_server.bootstrap, "topic": topic, **place}


def order(number: int) -> dict[str, Any]:
    return {"id": number, "customer": f" c{number % 7} ", "amount": number / 2, "at": "2024-05-01T10:00:00Z"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_kafka_to_mysql(
    backend: str,
    kafka_server: KafkaServer,
    mysql_server: MySQLServer,
    execute: Execute,
    arguments: dict[str, Any],
    topic: str,
    tmp_path: Path,
) -> None:
    admin: Any = ck_admin.AdminClient({"bootstrap.servers": kafka_server.bootstrap})
    [created] = admin.create_topics([ck_admin.NewTopic(topic, 3, 1)]).values()  # type: ignore[attr-defined]
    created.result()
    producer: Any = ck.Producer({"bootstrap.servers": kafka_server.bootstrap})
    for number in range(600):
        producer.produce(topic, json.dumps(order(number)).encode(), partition=number % 3)
    producer.produce(topic, b"{no JSON", partition=1)
    assert producer.flush(30) == 0
    password = {"MYSQL_PASSWORD": mysql_server.password}
    run_example("kafka_to_mysql.py", backend, tmp_path, arguments, password)
    wanted = [(number, f"c{number % 7}", number / 2) for number in range(200, 600)]
    assert execute("SELECT id, customer, amount FROM large_orders ORDER BY id") == wanted
    [(bad,)] = execute("SELECT COUNT(*) FROM bad_orders")
    assert bad == 1

    changed = {**order(300), "amount": 1000.0}
    producer.produce(topic, json.dumps(changed).encode(), partition=0)
    assert producer.flush(30) == 0
    producer.close()
    report = run_example("kafka_to_mysql.py", backend, tmp_path, arguments, password)
    assert "records read  1 " in report  # it goes on where it was
    assert execute("SELECT amount FROM large_orders WHERE id = 300") == [(1000.0,)]
    assert execute("SELECT COUNT(*) FROM large_orders") == [(400,)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_mysql_to_kafka(
    backend: str,
    kafka_server: KafkaServer,
    mysql_server: MySQLServer,
    execute: Execute,
    arguments: dict[str, Any],
    topic: str,
    tmp_path: Path,
) -> None:
    execute("CREATE TABLE customers (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(50), country CHAR(2), x TEXT)")
    countries = ("'de'", "'fr'", "NULL")
    values = ", ".join(f"({n}, 'name {n}', {countries[n % 3]}, 'x')" for n in range(1, 501))
    execute(f"INSERT INTO customers VALUES {values}")  # noqa: S608
    password = {"MYSQL_PASSWORD": mysql_server.password}
    run_example("mysql_to_kafka.py", backend, tmp_path, arguments, password)
    wanted = {n: {"id": n, "name": f"name {n}", "country": "DE" if n % 3 == 0 else "FR"} for n in range(1, 501)}
    wanted = {n: row for n, row in wanted.items() if n % 3 != 2}
    assert records(kafka_server, topic) == wanted

    execute("INSERT INTO customers VALUES (501, 'late', 'it', 'x')")
    run_example("mysql_to_kafka.py", backend, tmp_path, arguments, password)
    assert records(kafka_server, topic) == {**wanted, 501: {"id": 501, "name": "late", "country": "IT"}}


def records(server: KafkaServer, topic: str) -> dict[int, dict[str, Any]]:
    """Return the topic's records by id. Fails when one is there twice, or rows of one key are in several partitions."""
    consumer: Any = ck.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "examples",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: dict[int, dict[str, Any]] = {}
    places: dict[bytes, int] = {}
    try:
        left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        assert len(left) == 4
        consumer.assign([ck.TopicPartition(topic, one, 0) for one in left])
        deadline = time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline, f"partitions {left} have no end"
            for message in consumer.consume(1000, 0.2):
                if message.error() is not None:
                    assert message.error().code() == ck.KafkaError._PARTITION_EOF, message.error()
                    left.discard(message.partition())
                    continue
                row = json.loads(message.value())
                assert row["id"] not in found, row
                assert places.setdefault(message.key(), message.partition()) == message.partition()
                assert message.key().decode() == row["country"]
                found[row["id"]] = row
        return found
    finally:
        consumer.close()
