"""What the jobs of a soak write to, as a reader from outside sees it: only rows that are new since the last look."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from typing import Any

import elasticsearch
import pymysql
from headrace_rocketmq import Client, MessageQueue
from headrace_rocketmq.deduplication import SeenRows

from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.mysql import MySQLServer
from tests.servers.rocketmq import RocketMQServer
from tests.soak.model import QUEUES, WINDOW_EVENTS, Alerts, Documents, Pairs, Windows, number_at

#: A transaction may commit rows whose numbers are below those of another one, which committed before.
_IDS_BEHIND = 20_000

#: A look gives how long rows took from the last event that they needed: (what, number of that event, when the row was stored).
Stored = tuple[int, float]


class Tables:
    """The tables of windows and pairs."""

    def __init__(self, server: MySQLServer) -> None:
        self._server = server
        self.database = f"soak_{secrets.token_hex(4)}"
        self.windows = Windows()
        self.pairs = Pairs()
        self._known: dict[str, set[int]] = {"counts": set(), "pairs": set()}
        stored = "id BIGINT AUTO_INCREMENT PRIMARY KEY, stored_at TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6)"
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.database}")
            cursor.execute(
                f"CREATE TABLE {self.database}.counts "
                f"(k VARCHAR(32), window_start DATETIME(6), n BIGINT, s BIGINT, {stored}) ENGINE = InnoDB"
            )
            cursor.execute(
                f"CREATE TABLE {self.database}.pairs (k VARCHAR(32), l BIGINT, r BIGINT, {stored}) ENGINE = InnoDB"
            )

    @property
    def options(self) -> dict[str, Any]:
        """The options of the sinks."""
        server = self._server
        return {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password, "database": self.database,
        }  # fmt: skip

    def look(self) -> list[Stored]:
        """Check the rows that are new. Raises WrongRowError."""
        counts = self._new("counts", "k, window_start, n, CAST(s AS SIGNED)")
        self.windows.check([(row[0], row[1], row[2], row[3]) for row in counts])
        pairs = self._new("pairs", "k, l, r")
        self.pairs.check([(row[0], row[1], row[2]) for row in pairs])
        # A window closes when all queues have told a later time: a burst of each behind its end.
        closing = [(number_at(row[1])[0], row[-1]) for row in counts]
        return [
            *((begin + WINDOW_EVENTS, stored) for begin, stored in closing),
            *((max(row[1], row[2]), row[-1]) for row in pairs),
        ]

    def connections(self) -> int:
        """Return how many clients the server has."""
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW STATUS LIKE 'Threads_connected'")
            return int(cursor.fetchone()[1])

    def _new(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        known = self._known[table]
        least = max(known, default=0) - _IDS_BEHIND
        with self._connect() as connection, connection.cursor() as cursor:
            where = f"{self.database}.{table} WHERE id > %s"
            cursor.execute(f"SELECT id, {columns}, UNIX_TIMESTAMP(stored_at) FROM {where}", (least,))  # noqa: S608
            rows = [row for row in cursor.fetchall() if row[0] not in known]
        known |= {row[0] for row in rows}
        most = max(known, default=0)
        self._known[table] = {each for each in known if each > most - _IDS_BEHIND}
        return [(*row[1:-1], float(row[-1])) for row in rows]

    def _connect(self) -> Any:
        server = self._server
        return pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
        )


class AlertTopic:
    """The topic of alerts."""

    def __init__(self, server: RocketMQServer) -> None:
        self.topic = f"soak-{secrets.token_hex(4)}"
        self.alerts = Alerts()
        self._client = Client(server.name_server, timeout=timedelta(seconds=120))
        self._client.create_topic(self.topic, QUEUES)
        self.options = {"topic": self.topic, "name_servers": server.name_server}
        queues = self._client.queues(self.topic)
        self._seen: dict[MessageQueue, SeenRows] = {queue: SeenRows() for queue in queues}
        self._reader = self._client.reader(dict.fromkeys(queues, 0))
        #: Messages that were written again and told to be so.
        self.repeated = 0

    def look(self, versions: int) -> list[Stored]:
        """Check the messages that are new. Raises WrongRowError."""
        rows: list[tuple[int, int, int, int]] = []
        found: list[Stored] = []
        while batches := self._reader.poll(10_000, timedelta(milliseconds=200)):
            for batch in batches:
                keys = [each.get("KEYS") for each in map(batch.properties, range(len(batch.bodies)))]
                fresh = self._seen[batch.queue].fresh(keys)
                self.repeated += int((~fresh).sum())
                for place in fresh.nonzero()[0].tolist():
                    row = json.loads(batch.bodies[place])
                    partition = int(str(row["partition"]).rsplit("-", 1)[1])
                    rows.append((row["n"], partition, row["position"], int(str(row["rule"]).removeprefix("version-"))))
                    found.append((row["n"], float(batch.store_timestamps_ms[place]) / 1000))
        self.alerts.check(rows, versions)
        return found

    def close(self) -> None:
        self._reader.close()
        self._client.close()


class Index:
    """The index of documents. It is looked at behind the jobs: documents of a range of events, when all of them should be there."""

    def __init__(self, server: ElasticsearchServer) -> None:
        self.name = f"soak-{secrets.token_hex(4)}"
        self.documents = Documents()
        self.options = {"index": self.name, "url": server.url}
        self._client = elasticsearch.Elasticsearch(server.url, request_timeout=120)
        self._client.indices.create(
            index=self.name,
            mappings={"dynamic": "strict", "properties": {name: {"type": "long"} for name in ("n", "v", "copy")}},
            settings={"number_of_shards": 2, "number_of_replicas": 0},
        )
        self._checked = 0

    def stored(self) -> int:
        """Return how many documents there are."""
        self._client.indices.refresh(index=self.name)
        return int(self._client.count(index=self.name)["count"])

    def look(self, events: int, *, step: int = 5000) -> None:
        """Check the documents of all events up to ``events`` that were not checked yet. Raises WrongRowError."""
        self._client.indices.refresh(index=self.name)
        while self._checked < events:
            end = min(events, self._checked + step)
            answer = self._client.search(
                index=self.name, size=10_000, query={"range": {"n": {"gte": self._checked, "lt": end}}}
            )
            hits = [hit["_source"] for hit in answer["hits"]["hits"]]
            self.documents.check([(hit["n"], hit["copy"], hit["v"]) for hit in hits])
            self._checked = end

    def begin_again(self) -> None:
        """Forget what was checked: the next look is at all documents."""
        self.documents = Documents()
        self._checked = 0

    def close(self) -> None:
        self._client.close()
