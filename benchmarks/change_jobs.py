"""Whole jobs over changes: a topic of debezium-json or canal-json, sums per customer, into MySQL; beside the same sums of plain json.

    python -m benchmarks.change_jobs [RECORDS]

Each job runs in a process of its own on the light backend until the end of the topic (three partitions), with a checkpoint, as users run
it. CPU seconds of that process with its start-up; records per second of CPU. ``json`` has as many records, which are only added. The
sums of all ways over changes are compared.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import subprocess
import sys
import tempfile
from typing import Any

import confluent_kafka
import headrace as hr
import pymysql
from confluent_kafka import admin

from benchmarks.change_formats import row
from tests.servers.kafka import KafkaServer
from tests.servers.mysql import MySQLServer
from tests.servers.sharing import own_server

SCHEMA = {"id": "int64", "customer": "string", "amount": "decimal(10, 2)", "pieces": "int32"}
WAYS: dict[str, dict[str, Any]] = {
    "json": {"format": "json"},
    "debezium-json": {"format": "debezium-json", "key": "id"},
    "debezium-json, normalised": {"format": "debezium-json", "key": "id", "repeats": True},
    "canal-json": {"format": "canal-json", "key": "id"},
}
DATABASE = "headrace_changes"
_PARTITIONS = 3


def change(number: int) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return old and new row of a change: of four changes of an id one inserts, two update, and one deletes or updates."""
    id, step = divmod(number, 4)
    rows = [{**row(id, random.Random(id)), "pieces": id % 7 + at} for at in range(4)]
    return (rows[step - 1] if step else None), (None if step == 3 and id % 5 else rows[step])


def body_of(format: str, number: int) -> dict[str, Any]:
    old, new = change(number)
    if format == "json":
        return row(number, random.Random(number))
    if format == "debezium-json":
        operation = "c" if old is None else "d" if new is None else "u"
        return {
            "before": old,
            "after": new,
            "op": operation,
            "source": {"db": "shop", "table": "orders"},
            "ts_ms": number,
        }
    kind = "INSERT" if old is None else "DELETE" if new is None else "UPDATE"
    data = {name: str(value) for name, value in (new or old or {}).items()}
    changed = [{"pieces": str((old or {})["pieces"])}] if kind == "UPDATE" else None
    return {
        "type": kind,
        "data": [data],
        "old": changed,
        "database": "shop",
        "table": "orders",
        "ts": number,
        "isDdl": False,
    }


def fill(servers: str, topic: str, format: str, count: int) -> None:
    """Write the changes of a topic: to a partition by id, the changes of an id in order."""
    # The package does not export these names for type checkers.
    of_admin: Any = admin
    made = of_admin.AdminClient({"bootstrap.servers": servers})
    made.create_topics([of_admin.NewTopic(topic, _PARTITIONS, 1)])[topic].result()
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        body = json.dumps(body_of(format, number), separators=(",", ":"))
        producer.produce(topic, body.encode(), str(number // 4).encode(), number // 4 % _PARTITIONS)
        if number % 50_000 == 0:
            producer.flush()
    assert producer.flush(120) == 0


def run(way: str, servers: str, topic: str, mysql: dict[str, Any], table: str) -> None:
    """Run one job, in this process, and print its CPU seconds and records."""
    changes = hr.stream("bench", table).from_kafka(topic, servers=servers, schema=SCHEMA, **WAYS[way])
    sums = changes.key_by("customer").agg(n="count(*)", total="sum(amount)", pieces="sum(pieces)")
    job = sums.to_mysql(table, mode="upsert", create_table=True, key=["customer"], **mysql)
    with tempfile.TemporaryDirectory() as checkpoint:
        report = job.run("light", checkpoint=checkpoint)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([used.ru_utime + used.ru_stime, report.records_read]))


def main(count: int) -> None:
    with own_server(KafkaServer) as kafka, own_server(MySQLServer) as server:
        place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        with contextlib.closing(pymysql.connect(**place)) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
        for format in dict.fromkeys(options["format"] for options in WAYS.values()):
            fill(kafka.bootstrap, format, format, count)
        print("| source | CPU seconds | records per second of CPU |\n|---|---|---|")
        for number, (way, options) in enumerate(WAYS.items()):
            given = json.dumps(
                [way, kafka.bootstrap, options["format"], {**place, "database": DATABASE}, f"sums_{number}"]
            )
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.change_jobs", "--run", given],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            seconds, records = json.loads(done.stdout.splitlines()[-1])
            assert records == count, (way, records)
            print(f"| {way} | {seconds:.2f} | {records / seconds:,.0f} |", flush=True)
        with (
            contextlib.closing(pymysql.connect(**place, database=DATABASE)) as connection,
            connection.cursor() as cursor,
        ):
            found = []
            for number in range(1, len(WAYS)):
                cursor.execute(f"SELECT * FROM sums_{number} ORDER BY customer")  # noqa: S608
                found.append(cursor.fetchall())
        assert found[0], "no sums"
        assert all(each == found[0] for each in found), "the ways give other sums"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(*json.loads(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
