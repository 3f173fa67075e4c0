"""Servers as places of results: what headrace is told to write there, what is kept of a value, and what others read.

The readers are pymysql, confluent_kafka, the requests of RocketMQ's protocol, and elasticsearch's own client.
"""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache
from typing import Any, ClassVar
from urllib.parse import urlsplit

import confluent_kafka
import elasticsearch
import elasticsearch.helpers
import headrace as hr
import pymysql
from confluent_kafka import admin

from tests.differential.choices import Choices
from tests.differential.comparing import Row, row_of
from tests.differential.kinds import Kind
from tests.differential.reading import read
from tests.differential.servers.rocketmq_reader import messages_of
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer
from tests.servers.rocketmq import RocketMQServer

_ALL = ("append", "union", "last", "last filtered", "first two", "aggregates", "joined")


class Target(ABC):
    """A place in a server that one run writes into: its name, and the columns and keys of what is written."""

    #: The environment variable that names the server (tests/servers/README.md).
    variable: ClassVar[str]
    #: What results the sink takes.
    shapes: ClassVar[tuple[str, ...]] = _ALL
    #: Characters that names of columns cannot have there.
    unnamed: ClassVar[str] = ""

    def __init__(self, address: str, name: str, columns: Mapping[str, Kind], keys: tuple[str, ...]) -> None:
        self.address, self.name, self.columns, self.keys = address, name, columns, keys

    @classmethod
    @abstractmethod
    def generate(cls, choices: Choices, columns: Mapping[str, Kind], keys: tuple[str, ...]) -> dict[str, Any]:
        """Return options of the sink that change nothing of what is kept."""

    @classmethod
    @contextmanager
    def opened(cls, address: str, name: str, columns: Mapping[str, Kind], keys: tuple[str, ...]) -> Iterator[Target]:
        """Give a place of that name; it is removed in the end."""
        target = cls(address, name, columns, keys)
        try:
            yield target
        finally:
            target.remove()

    @classmethod
    def kept(cls, row: Row, columns: Mapping[str, Kind]) -> Row:
        """Return what is kept of a row of DuckDB's: NaN and infinities are NULL everywhere."""
        return tuple(None if value in ("nan", "inf", "-inf") and kind.name in ("double", "float") else value
                     for value, kind in zip(row, columns.values(), strict=True))  # fmt: skip

    @abstractmethod
    def write(self, stream: hr.Stream, sink: Mapping[str, Any]) -> hr.Job:
        """Return the job that writes a stream there."""

    @abstractmethod
    def rows(self, least: int) -> Counter[Row]:
        """Return the rows that are there. ``least``: how many are waited for, where a server shows them later."""

    @abstractmethod
    def remove(self) -> None:
        """Remove what was written."""

    def of_json(self, text: bytes | str) -> Row:
        """Return the row of a JSON object."""
        return self.of_object(json.loads(text))

    def of_object(self, values: Mapping[str, Any]) -> Row:
        assert list(values) == list(self.columns), f"columns {list(values)}"
        kinds = {name: kind.entries if kind.name == "map" else kind for name, kind in self.columns.items()}
        return row_of(read(values[name], kind, text=False) for name, kind in kinds.items())


class MySQL(Target):
    """A table of a database that all runs share; its name wants quoting."""

    variable = MySQLServer.variable
    unnamed = "🙂"

    def __init__(self, address: str, name: str, columns: Mapping[str, Kind], keys: tuple[str, ...]) -> None:
        super().__init__(address, name, columns, keys)
        self._server = MySQLServer.from_variable(address)
        self._table = f"{name} `ä' %s"
        self._connection = _mysql(address)

    @classmethod
    def generate(cls, choices: Choices, columns: Mapping[str, Kind], keys: tuple[str, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {"batch_size": choices.pick([10_000, 1, 3])}
        if keys:
            made["mode"] = choices.pick(["upsert", "replace"])
        return made

    def write(self, stream: hr.Stream, sink: Mapping[str, Any]) -> hr.Job:
        server = self._server
        place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        given = {**place, "database": "differential", "offsets_table": f"o{self.name}", **sink}
        if self.keys:
            given["key"] = list(self.keys)
        job: hr.Job = stream.to_mysql(self._table, create_table=True, name="result", **given)
        return job

    def rows(self, least: int) -> Counter[Row]:
        names = {name: "`" + name.replace("`", "``").replace("%", "%%") + "`" for name in self.columns}
        # The server shows floats with 6 digits only.
        items = [f"{names[name]} + 0E0" if kind.name == "float" else names[name] for name, kind in self.columns.items()]
        table = self._table.replace("`", "``").replace("%", "%%")
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(items)} FROM `{table}`", ())
            return Counter(row_of(map(_of_mysql, row, self.columns.values())) for row in cursor.fetchall())

    def remove(self) -> None:
        with self._connection.cursor() as cursor:
            table = self._table.replace("`", "``").replace("%", "%%")
            cursor.execute(f"DROP TABLE IF EXISTS `{table}`, `o{self.name}`", ())


def _of_mysql(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if kind.name == "boolean":
        return {0: False, 1: True}[value]
    if kind.nested:
        return read(value, kind, text=True)
    if kind.name == "time":
        assert timedelta() <= value < timedelta(days=1), value
        return (_MIDNIGHT + value).time()
    return value


_MIDNIGHT = datetime(2024, 1, 1)


@cache
def _mysql(address: str) -> Any:
    server = MySQLServer.from_variable(address)
    connection = pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, charset="utf8mb4", autocommit=True,
        init_command="SET time_zone = '+00:00'",
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS differential")
        cursor.execute("USE differential")
    return connection


class Kafka(Target):
    """A topic. Of a result with a key the last record of each key counts."""

    variable = KafkaServer.variable
    shapes = ("append", "union", "last", "last filtered", "aggregates", "joined")

    @classmethod
    def generate(cls, choices: Choices, columns: Mapping[str, Kind], keys: tuple[str, ...]) -> dict[str, Any]:
        exactly = not keys or choices.chance(30)
        return {
            "partitions": choices.pick([1, 3]),
            "delivery": "exactly_once" if exactly else "at_least_once",
            "compression": choices.pick(["lz4", "none", "gzip", "zstd", "snappy"]),
            "batch_size": choices.pick([10_000, 1, 3]),
        }

    def write(self, stream: hr.Stream, sink: Mapping[str, Any]) -> hr.Job:
        given = {**sink, "key": self.keys[0]} if self.keys else dict(sink)
        job: hr.Job = stream.to_kafka(self.name, servers=self.address, create_topic=True, name="result", **given)
        return job

    def rows(self, least: int) -> Counter[Row]:
        last: dict[tuple[int, Any], bytes | None] = {}
        of_key: dict[Any, int] = {}
        for number, (partition, key, value) in enumerate(_records(self.address, self.name)):
            if self.keys:
                assert of_key.setdefault(key, partition) == partition, f"key {key!r} is in two partitions"
            last[partition, key if self.keys else number] = value
        rows = Counter(self.of_json(value) for value in last.values() if value is not None)
        if self.keys:
            shown = {self.of_json(value)[0]: key for (_, key), value in last.items() if value is not None}
            assert len(shown) == sum(rows.values()), "two keys have rows of one key"
        return rows

    def remove(self) -> None:
        for future in _kafka_admin(self.address).delete_topics([self.name]).values():
            if (error := future.exception()) is not None and error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                raise error


@cache
def _kafka_admin(servers: str) -> Any:
    return admin.AdminClient({"bootstrap.servers": servers, "log_level": 0})


def _records(servers: str, topic: str) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield (partition, key, value) of all committed records, partition by partition."""
    consumer: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers, "group.id": f"differential-{uuid.uuid4()}", "enable.auto.commit": False, "log_level": 0,
            "enable.partition.eof": True, "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        }
    )  # fmt: skip
    try:
        left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in left])
        found: list[Any] = []
        deadline = time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline, f"partitions {left} have no end"
            for message in consumer.consume(1000, 0.05):
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                    left.discard(message.partition())
    finally:
        consumer.close()
    for message in sorted(found, key=lambda each: (each.partition(), each.offset())):
        yield message.partition(), message.key(), message.value()


class RocketMQ(Target):
    """A topic. Of messages with one id, which come of a row that was written again, one counts."""

    variable = RocketMQServer.variable
    shapes = ("append", "union")

    @classmethod
    def generate(cls, choices: Choices, columns: Mapping[str, Kind], keys: tuple[str, ...]) -> dict[str, Any]:
        by_key = {"key": next(iter(columns))} if choices.chance(50) else {}
        return {
            "queues": choices.pick([1, 3]),
            "delivery": choices.pick(["at_least_once", "idempotent"]),
            "batch_size": choices.pick([10_000, 1, 3]),
            **by_key,
        }

    def write(self, stream: hr.Stream, sink: Mapping[str, Any]) -> hr.Job:
        given = {"name_servers": self.address, "create_topic": True, **sink}
        job: hr.Job = stream.to_rocketmq(self.name, name="result", **given)
        return job

    def rows(self, least: int) -> Counter[Row]:
        by_id: dict[str, Row] = {}
        for message in messages_of(self.address, self.name, least):
            row, name = self.of_json(message.body), message.properties["KEYS"].split(" ")[0]
            assert by_id.setdefault(name, row) == row, f"two rows with the id {name}"
        return Counter(by_id.values())

    def remove(self) -> None:
        """Topics are few kilobytes, and go with the server."""


class Elasticsearch(Target):
    """An index that is made by the sink."""

    variable = ElasticsearchServer.variable
    unnamed = "{}"  # of a key they would be a text with columns

    @classmethod
    def generate(cls, choices: Choices, columns: Mapping[str, Kind], keys: tuple[str, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {"request_rows": choices.pick([1000, 1, 3]), "batch_size": choices.pick([10_000, 3])}
        if choices.chance(30):
            made["compress"] = True
        return made

    def write(self, stream: hr.Stream, sink: Mapping[str, Any]) -> hr.Job:
        parts = urlsplit(self.address)
        given = {"url": f"{parts.scheme}://{parts.hostname}:{parts.port or 9200}", "create_index": True, **sink}
        if parts.username:
            given |= {"user": parts.username, "password": parts.password}
        if self.keys:
            given["id"] = "{" + "}/{".join(self.keys) + "}" if len(self.keys) > 1 else self.keys[0]
        settings = {"number_of_replicas": 0, "number_of_shards": 1}
        job: hr.Job = stream.to_elasticsearch(self.name, index_settings=settings, name="result", **given)
        return job

    def rows(self, least: int) -> Counter[Row]:
        client = _elasticsearch(self.address)
        client.indices.refresh(index=self.name)
        found = elasticsearch.helpers.scan(client, index=self.name, size=1000)
        return Counter(self.of_object(hit["_source"]) for hit in found)

    def remove(self) -> None:
        _elasticsearch(self.address).options(ignore_status=404).indices.delete(index=self.name)


@cache
def _elasticsearch(url: str) -> elasticsearch.Elasticsearch:
    return elasticsearch.Elasticsearch(url, request_timeout=60)


#: By name.
TARGETS: Mapping[str, type[Target]] = {
    "mysql": MySQL, "kafka": Kafka, "rocketmq": RocketMQ, "elasticsearch": Elasticsearch,
}  # fmt: skip
