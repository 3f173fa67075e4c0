"""Jobs between DataFrames of Spark's own connectors: Kafka, and tables of MariaDB over JDBC. Their jars come from Maven."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import pymysql
import pytest
from confluent_kafka import Consumer, Producer
from headrace_spark.processes.session import session_for, stop_own_session
from headrace_spark.processes.settings import SparkSettings
from pyspark.sql import DataFrame, SparkSession

from tests.servers.fixtures import skipped_where_impossible
from tests.servers.jars import program_directory
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer

pytestmark = [pytest.mark.spark, pytest.mark.servers]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A Spark with the jars of its connectors."""
    with skipped_where_impossible():
        jars = program_directory("spark-connectors") / "lib"
    wanted = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2", "mariadb-java-client")
    paths = sorted(str(path) for path in jars.iterdir() if path.name.startswith(wanted))
    conf = {"spark.jars": ",".join(paths), "spark.sql.shuffle.partitions": "2"}
    yield session_for(SparkSettings(conf=conf)).session.newSession()
    stop_own_session()


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_from_kafka_to_kafka(
    spark: SparkSession, kafka_server: KafkaServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic, target = fresh_name("orders"), fresh_name("large")
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap})

    def write(numbers: range) -> None:
        for n in numbers:
            body = json.dumps({"id": n, "customer": f"c{n % 3}", "at": f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z"})
            producer.produce(topic, body.encode(), key=str(n % 5).encode())
        producer.flush()

    def run() -> None:
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka_server.bootstrap)
        messages = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
        schema = {"id": "int64", "customer": "string", "at": "timestamp"}
        counts = (
            hr.stream("connectors", "kafka")
            .from_dataframe(messages, format="json", schema=schema)
            .watermark("at")
            .key_by("customer")
            .window(hr.tumbling("1 min", on="at"))
            .agg(n="COUNT(*)", last="MAX(id)")
            .to_dataframe(checkpoint=tmp_path / "state", shards=2)
        )
        rows = counts.selectExpr("to_json(struct(*)) AS value")
        sink = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka_server.bootstrap)
        query = sink.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    write(range(150))
    run()
    write(range(150, 200))
    run()
    found = [
        (row["customer"], row["window_start"][14:16], row["n"], row["last"]) for row in read(kafka_server, target, 9)
    ]
    minutes = [(f"c{n % 3}", f"{n // 60:02}", n) for n in range(180)]
    expected = [
        (customer, minute, 20, max(n for c, m, n in minutes if (c, m) == (customer, minute)))
        for customer, minute in {(c, m) for c, m, _ in minutes}
    ]
    assert sorted(found) == sorted(expected), "the windows of three minutes, over a restart"


def read(server: KafkaServer, topic: str, count: int) -> list[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        message = consumer.poll(30.0)
        assert message is not None, f"{len(rows)} of {count} messages came"
        assert message.error() is None
        rows.append(json.loads(message.value() or b""))
    assert consumer.poll(1.0) is None, "no more than these"
    consumer.close()
    return rows


def test_from_table_to_table(spark: SparkSession, mysql_server: MySQLServer, mysql_database: str) -> None:
    url = f"jdbc:mariadb://{mysql_server.host}:{mysql_server.port}/{mysql_database}?sessionVariables=sql_mode='ANSI_QUOTES'"
    login = {"user": mysql_server.user, "password": mysql_server.password, "driver": "org.mariadb.jdbc.Driver"}
    rows = spark.range(1000).selectExpr(
        "id", "concat('k', id % 7) AS k", "CAST(id / 4 AS DECIMAL(10, 2)) AS price", "timestamp_seconds(id) AS at"
    )
    rows.write.jdbc(url, "readings", properties=login)

    def table() -> DataFrame:
        return spark.read.jdbc(url, "readings", "id", 0, 1000, 3, properties=login)

    large = (
        hr.stream("connectors", "jdbc").from_dataframe(table()).where("price > 200").with_columns("price * 2 AS twice")
    )
    large.to_dataframe().write.jdbc(url, "large", properties=login)
    hr.register("readings", hr.stream("connectors", "sql").from_dataframe(table()))
    totals = hr.sql("SELECT k, COUNT(*) AS n, SUM(price) AS total FROM readings GROUP BY k").to_dataframe(shards=2)
    kept = totals.where("_kind IN ('insert', 'update_after')").drop("_kind", "_order")
    kept.write.jdbc(url, "totals", properties=login)
    with pymysql.connect(
        host=mysql_server.host,
        port=mysql_server.port,
        user=mysql_server.user,
        password=mysql_server.password,
        database=mysql_database,
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*), SUM(twice) FROM large")
        assert cursor.fetchone() == (199, sum(2 * n / 4 for n in range(801, 1000)))
        cursor.execute("SELECT k, n, total FROM totals ORDER BY k")
        expected = [(f"k{k}", len(range(k, 1000, 7)), sum(n / 4 for n in range(k, 1000, 7))) for k in range(7)]
        assert [(k, n, float(total)) for k, n, total in cursor.fetchall()] == expected
