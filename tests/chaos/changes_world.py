"""What the tests of changes share: a table that is changed all the time, its changes in a topic, and what must be stored of it."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import elasticsearch
import elasticsearch.helpers
import pymysql

from tests.eventually import eventually
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer

sys.path.append(str(Path(__file__).resolve().parents[2] / "connectors" / "kafka" / "tests"))

from instances import Instance as Instance
from kafka_world import KafkaWorld

_JOB = Path(__file__).with_name("changes_job.py")
Row = dict[str, Any]
#: Makes the bodies of a change: old row, new row.
Body = Callable[[Row | None, Row | None], bytes | None]


def debezium(old: Row | None, new: Row | None) -> bytes:
    return json.dumps({"before": old, "after": new, "op": "c" if old is None else "d" if new is None else "u"}).encode()


def upsert(old: Row | None, new: Row | None) -> bytes | None:
    """The new row alone; a tombstone for a row that is gone."""
    return None if new is None else json.dumps(new).encode()


class Table:
    """A table in memory. A thread changes it at random and writes each change to a topic, all of one key to one partition."""

    def __init__(
        self, world: KafkaWorld, topic: str, partitions: int, body: Body, *, repeats: float, seed: int
    ) -> None:
        self._world, self._topic, self._partitions, self._body = world, topic, partitions, body
        #: How many of the changes are written again, some changes later.
        self._repeats = repeats
        self._chance = random.Random(seed)
        self.rows: dict[int, Row] = {}
        self.changes = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End; the table stays as it is."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.03):
            partition = self._chance.randrange(self._partitions)
            records = [self._change(partition) for _ in range(15)]
            if self._chance.random() < self._repeats:
                # As a connector that was killed does: the last ones come again, in their order.
                records += records[-self._chance.randrange(1, 10) :]
            keys = [str(id).encode() for id, _ in records]
            self._world.write(self._topic, [body for _, body in records], partition=partition, keys=keys)
            self.changes += 15

    def _change(self, partition: int) -> tuple[int, bytes | None]:
        id = self._chance.randrange(60) * self._partitions + partition
        old = self.rows.get(id)
        if old is not None and self._chance.random() < 0.25:
            del self.rows[id]
            return id, self._body(old, None)
        who = None if self._chance.random() < 0.05 else f"w{self._chance.randrange(12)}"
        self.rows[id] = new = {"id": id, "who": who, "n": self._chance.randrange(100)}
        return id, self._body(old, new)


class Following:
    """A table, instances of the job that follows it, and what they have stored."""

    def __init__(
        self,
        kafka: KafkaServer,
        mysql: MySQLServer,
        elastic: ElasticsearchServer | None,
        name: str,
        options: dict[str, Any],
    ) -> None:
        self.world = KafkaWorld(kafka.bootstrap)
        self.topic, self.changes_topic, self.index = name, f"{name}_changes", name
        self.instances: list[Instance] = []
        self._mysql, self._elastic, self._options = mysql, elastic, options
        self.database = name
        self.table: Table | None = None
        self._client = None if elastic is None else elasticsearch.Elasticsearch(elastic.url, request_timeout=60)

    def prepare(self, body: Body, *, repeats: float = 0.0, seed: int = 1) -> None:
        """Make topics, tables and index, and begin to change the table."""
        self.world.create_topic(self.topic, 3)
        self.world.create_topic(self.changes_topic, 2)
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.database}")
            cursor.execute(f"CREATE TABLE {self.database}.goods (id BIGINT PRIMARY KEY, who VARCHAR(9), n BIGINT)")
            cursor.execute(
                f"CREATE TABLE {self.database}.sums (who VARCHAR(9) PRIMARY KEY, n BIGINT, s BIGINT, most BIGINT)"
            )
        if self._client is not None:
            fields = {"id": {"type": "long"}, "who": {"type": "keyword"}, "n": {"type": "long"}}
            self._client.indices.create(index=self.index, mappings={"dynamic": "strict", "properties": fields})
        self.table = Table(self.world, self.topic, 3, body, repeats=repeats, seed=seed)
        self.table.start()

    def launch(self, *, backend: str = "light", faults: str = "", **run: Any) -> Instance:
        """Start an instance. ``faults``: where it is to be killed."""
        server = self._mysql
        place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        given = {
            "servers": self.world.servers, "topic": self.topic, "options": self._options,
            "mysql": {**place, "database": self.database}, "url": None if self._elastic is None else self._elastic.url,
            "index": self.index, "changes": self.changes_topic, "backend": backend, "run": run,
        }  # fmt: skip
        self.instances.append(Instance(given, {**os.environ, "HEADRACE_FAULTS": faults}, script=_JOB))
        return self.instances[-1]

    def expect_all(self, *, seconds: float = 180.0) -> str:
        """Change the table no more, wait until what is stored is what it says, and fail when it stays otherwise. Return figures."""
        assert self.table is not None
        self.table.stop()
        rows = self.table.rows
        goods = {(row["id"], row["who"], row["n"]) for row in rows.values()}
        sums: dict[str, list[int]] = {}
        for row in rows.values():
            if row["who"] is not None:
                sums.setdefault(row["who"], []).append(row["n"])
        wanted_sums = {(who, len(ns), sum(ns), max(ns)) for who, ns in sums.items()}
        eventually(
            lambda: self._stored("goods") == goods, f"{len(goods)} rows of the table", seconds=seconds, pause_seconds=0.3,
            shown=lambda: str(sorted(self._stored("goods") ^ goods, key=repr)[:10]) + self.instances[-1].printed[-2000:],
        )  # fmt: skip
        eventually(
            lambda: self._stored("sums") == wanted_sums, f"{len(wanted_sums)} sums", seconds=seconds, pause_seconds=0.3,
            shown=lambda: str(sorted(self._stored("sums") ^ wanted_sums, key=repr)[:10]),
        )  # fmt: skip
        if self._client is not None:
            documents = {each for each in goods if each[2] > 20}
            eventually(
                lambda: self._documents() == documents, f"{len(documents)} documents", seconds=seconds, pause_seconds=0.3,
                shown=lambda: str(sorted(self._documents() ^ documents, key=repr)[:10]),
            )  # fmt: skip
        written = eventually_equal(self._applied, wanted_sums, seconds=seconds)
        return f"{self.table.changes} changes, {len(goods)} rows, {len(wanted_sums)} sums, {written} records of their changes"

    def close(self) -> None:
        """End everything and remove the database and the index."""
        if self.table is not None:
            self.table.stop()
        for instance in self.instances:
            instance.close()
        self.world.close()
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {self.database}")
        if self._client is not None:
            self._client.options(ignore_status=404).indices.delete(index=f"{self.index}*", expand_wildcards="all")
            self._client.close()

    def _applied(self) -> tuple[set[tuple[Any, ...]], int]:
        """Return what the changes of the sums come to, and how many there are. Each old row that is taken back must be there once."""
        table: Counter[tuple[Any, ...]] = Counter()
        records = self.world.read(self.changes_topic)
        for record in records:
            body = json.loads(record.value or b"")
            for side, sign in (("before", -1), ("after", 1)):
                if body[side] is not None:
                    row = tuple(body[side][name] for name in ("who", "n", "s", "most"))
                    table[row] += sign
                    assert table[row] in (0, 1), f"{row} stands {table[row]} times after offset {record.offset}"
        return set(+table), len(records)

    def _stored(self, table: str) -> set[tuple[Any, ...]]:
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self.database}.{table}")  # noqa: S608
            return set(cursor.fetchall())

    def _documents(self) -> set[tuple[Any, ...]]:
        assert self._client is not None
        self._client.indices.refresh(index=self.index)
        hits = elasticsearch.helpers.scan(self._client, index=self.index)
        return {tuple(hit["_source"][name] for name in ("id", "who", "n")) for hit in hits}

    def _connect(self) -> Any:
        server = self._mysql
        return pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password)


def eventually_equal(found: Callable[[], tuple[set[Any], int]], wanted: set[Any], *, seconds: float) -> int:
    """Wait until the first of what is found is as wanted; return the second."""
    deadline = time.monotonic() + seconds
    while (now := found())[0] != wanted:
        assert time.monotonic() < deadline, f"differs: {sorted(now[0] ^ wanted, key=repr)[:10]}"
        time.sleep(0.3)
    return now[1]
