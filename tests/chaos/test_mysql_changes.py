"""A table of MariaDB, followed by a SQL text into Elasticsearch and into another table, under kills: both are as a query gives them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.eventually import eventually
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.mysql import MySQLServer

JOB = Path(__file__).with_name("mysql_changes_job.py")
TEXT = """
CREATE TABLE orders (id INT, customer STRING, amount BIGINT, note STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '{host}', 'port' = '{port}', 'username' = '{user}', 'password' = '{password}',
  'database-name' = '{database}', 'table-name' = 'orders');
CREATE TABLE found (id INT, customer STRING, amount BIGINT, note STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'elasticsearch-7', 'hosts' = '{url}', 'index' = '{index}', 'create-index' = 'true');
CREATE TABLE totals (customer STRING, n BIGINT, total BIGINT, PRIMARY KEY (customer) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:mysql://{host}:{port}/{database}', 'table-name' = 'totals', 'username' = '{user}',
  'password' = '{password}');
INSERT INTO found SELECT id, customer, amount, UPPER(note) AS note FROM orders WHERE amount >= 10;
INSERT INTO totals SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY customer;
"""
ROWS, TRANSACTIONS, KILLS = 2_000, 600, 6


@pytest.fixture
def database(logging_mysql_server: MySQLServer, logging_mysql_database: str) -> Iterator[Any]:
    server = logging_mysql_server
    connection = pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, database=logging_mysql_database,
        autocommit=True,
    )  # fmt: skip
    yield connection
    connection.close()


def query(database: Any, statement: str) -> list[tuple[Any, ...]]:
    with database.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def change(database: Any, chance: random.Random) -> None:
    """Write a random transaction."""
    query(database, "BEGIN")
    for _ in range(chance.randint(1, 6)):
        number, amount = chance.randrange(ROWS + 500), chance.randrange(100)
        statement = chance.choice(
            [
                f"INSERT INTO orders VALUES ({number}, 'c{number % 17}', {amount}, 'new') ON DUPLICATE KEY UPDATE amount = {amount}",  # noqa: S608
                f"UPDATE orders SET customer = 'c{amount % 17}', note = 'moved' WHERE id BETWEEN {number} AND {number + 5}",  # noqa: S608
                f"DELETE FROM orders WHERE id = {number}",  # noqa: S608
                f"REPLACE INTO orders VALUES ({number}, 'nobody', {amount}, NULL)",  # noqa: S608
            ]
        )
        query(database, statement)
    query(database, "ROLLBACK" if chance.random() < 0.1 else "COMMIT")


def written(database: Any) -> int:
    """Return the greatest position of the totals that is stored."""
    if not query(database, "SHOW TABLES LIKE 'headrace_offsets'"):
        return 0
    [(found,)] = query(database, "SELECT MAX(last_offset) FROM headrace_offsets WHERE queue NOT LIKE '#job%'")
    return int(found or 0)


def documents(server: ElasticsearchServer, index: str) -> list[tuple[Any, ...]]:
    def get(path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"{server.url}/{index}/{path}", method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    get("_refresh", "POST")
    found = [each["_source"] for each in get("_search?size=10000")["hits"]["hits"]]
    return sorted((each["id"], each["customer"], each["amount"], each["note"]) for each in found)


@pytest.mark.slow
def test_elasticsearch_and_totals_follow_the_table(
    database: Any,
    logging_mysql_server: MySQLServer,
    logging_mysql_database: str,
    elasticsearch_server: ElasticsearchServer,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    server, index = logging_mysql_server, fresh_name("orders")
    query(
        database,
        "CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(9), amount BIGINT, note VARCHAR(9)) ENGINE = InnoDB",
    )
    query(
        database, "CREATE TABLE totals (customer VARCHAR(9), n BIGINT, total BIGINT, UNIQUE (customer)) ENGINE = InnoDB"
    )
    query(database, f"INSERT INTO orders SELECT seq, CONCAT('c', seq % 17), seq % 100, 'row' FROM seq_1_to_{ROWS}")  # noqa: S608
    place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    text = TEXT.format(**place, database=logging_mysql_database, url=elasticsearch_server.url, index=index)
    (tmp_path / "job.sql").write_text(text)
    log = tmp_path / "log.txt"

    def start(until: str) -> subprocess.Popen[bytes]:
        with open(log, "ab") as file:
            command = [sys.executable, str(JOB), str(tmp_path / "job.sql"), str(tmp_path / "checkpoint"), until]
            return subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, "POLARS_MAX_THREADS": "1"})

    for kill in range(KILLS):
        process, before = start("never"), written(database)
        try:
            for number in range(TRANSACTIONS // KILLS):
                change(database, chance)
                if number == TRANSACTIONS // KILLS // 2:
                    eventually(lambda: written(database) > before or process.poll() is not None, "the job writes")  # noqa: B023
            threading.Event().wait(chance.uniform(0, 0.2))
            assert process.poll() is None, f"{kill}: {log.read_text()[-3000:]}"
        finally:
            process.kill()
            process.wait()
    process = start("end")
    assert process.wait(180) == 0, log.read_text()[-3000:]
    wanted = query(database, "SELECT id, customer, amount, UPPER(note) FROM orders WHERE amount >= 10 ORDER BY id")
    assert documents(elasticsearch_server, index) == wanted
    sums = "SELECT customer, COUNT(*), SUM(amount) FROM orders GROUP BY customer ORDER BY customer"
    assert query(database, "SELECT * FROM totals ORDER BY customer") == query(database, sums)
