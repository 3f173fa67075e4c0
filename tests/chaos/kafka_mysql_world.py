"""What the fault tests of Kafka and MySQL share: where instances copy numbers to, and what must be there in the end.

The instances are those of the Kafka connector's own tests (``connectors/kafka/tests/instance.py``): they copy numbers from a
topic into another one, in transactions, and at the same time into a table.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pymysql

from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer

sys.path.append(str(Path(__file__).resolve().parents[2] / "connectors" / "kafka" / "tests"))

from instances import Instance, Numbers, expect_copied_once
from kafka_world import KafkaWorld

DATABASE = "headrace_chaos"


class Copying:
    """Numbers that are written to a topic, and instances that copy them to a topic and a table."""

    def __init__(self, kafka: KafkaServer, mysql: MySQLServer, name: str, partitions: int, **options: Any) -> None:
        self.kafka, self.mysql = kafka, mysql
        self.world = KafkaWorld(kafka.bootstrap)
        self.source, self.target = f"{name}_in", f"{name}_out"
        self.database = f"{DATABASE}_{name[-8:]}"
        self.instances: list[Instance] = []
        self.numbers: Numbers | None = None
        self._partitions = partitions
        self._options = options

    def prepare(self, *, per_second: int) -> None:
        """Make topics and table, and begin to write numbers."""
        self.world.create_topic(self.source, self._partitions)
        self.world.create_topic(self.target, 2)
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.database}")
            cursor.execute(f"CREATE TABLE {self.database}.numbers (n BIGINT NOT NULL) ENGINE = InnoDB")
        self.numbers = Numbers(self.world, self.source, self._partitions, per_second=per_second)
        self.numbers.start()

    def launch(self) -> Instance:
        """Start one more instance."""
        server = self.mysql
        place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        self.instances.append(
            Instance(
                {
                    "servers": self.world.servers,
                    "driver": "auto",
                    "source": self.source,
                    "target": self.target,
                    "mysql": {**place, "database": self.database, "table": "numbers"},
                    **self._options,
                }
            )
        )
        return self.instances[-1]

    def expect_all_once(self, *, seconds: float = 120.0) -> int:
        """Write no more, wait until everything is there, and fail when something is missing or twice. Return the count."""
        assert self.numbers is not None
        count = self.numbers.stop()
        expect_copied_once(self.world, self.target, count, seconds=seconds)
        deadline = time.monotonic() + seconds
        while len(found := self._stored()) < count and time.monotonic() < deadline:
            time.sleep(0.2)
        missing = [number for number in range(count) if number not in found]
        assert not missing, f"{len(missing)} of {count} are missing in MySQL: {missing[:10]}"
        twice = [number for number, times in found.items() if times > 1]
        assert not twice, f"{len(twice)} are in MySQL more than once: {twice[:10]}"
        return count

    def close(self) -> None:
        """End everything and remove the database."""
        if self.numbers is not None:
            self.numbers.stop()
        for instance in self.instances:
            instance.close()
        self.world.close()
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {self.database}")

    def _stored(self) -> Counter[int]:
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT n FROM {self.database}.numbers")  # noqa: S608
            return Counter(number for (number,) in cursor.fetchall())

    def _connect(self) -> Any:
        server = self.mysql
        return pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password)
