"""A table of MariaDB, followed by a SQL text into Elasticsearch and PostgreSQL while it is killed: at the end all have what a query gives.

The short version runs with the other tests that need servers, the one of 100,000 transactions by hand:

    pytest tests/chaos/test_followed_into_two_stores.py -m slow -s        # HEADRACE_TEST_TRANSACTIONS, HEADRACE_TEST_KILLS
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests.chaos.test_mysql_changes import JOB, change, documents, query
from tests.eventually import eventually
from tests.servers.elasticsearch import ElasticsearchServer
from tests.servers.mysql import MySQLServer
from tests.servers.postgresql import PostgreSQLServer

TEXT = """
CREATE TABLE orders (id INT, customer STRING, amount BIGINT, note STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'mysql-cdc', 'hostname' = '{host}', 'port' = '{port}', 'username' = '{user}', 'password' = '{password}',
  'database-name' = '{database}', 'table-name' = 'orders', 'scan.incremental.snapshot.chunk.size' = '200');
CREATE TABLE found (id INT, customer STRING, amount BIGINT, note STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'elasticsearch-7', 'hosts' = '{url}', 'index' = '{index}', 'create-index' = 'true');
CREATE TABLE copied (id INT, customer STRING, amount BIGINT, note STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'orders', {login});
CREATE TABLE totals (customer STRING, n BIGINT, total BIGINT, PRIMARY KEY (customer) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = '{postgres}', 'table-name' = 'totals', {login});
INSERT INTO found SELECT id, customer, amount, UPPER(note) AS note FROM orders WHERE amount >= 10;
INSERT INTO copied SELECT id, customer, amount, note FROM orders;
INSERT INTO totals SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY customer;
"""
ROWS = 2_000


class Writers:
    """Clients of MariaDB that write random transactions, ``count`` in all."""

    def __init__(self, server: MySQLServer, database: str, count: int, seed: int, clients: int = 2) -> None:
        self.failed: list[BaseException] = []
        self.done = 0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(server, database, count // clients, seed + number))
            for number in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, server: MySQLServer, database: str, count: int, seed: int) -> None:
        chance = random.Random(seed)
        connection = pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, database=database, autocommit=True
        )  # fmt: skip
        try:
            for _ in range(count):
                if self._stop.is_set():
                    return
                try:
                    change(connection, chance)
                except pymysql.OperationalError as error:
                    if error.args[0] not in (1213, 1020):  # deadlock, or changed since it was read: rolled back
                        raise
                self.done += 1
        except BaseException as error:
            self.failed.append(error)
        finally:
            connection.close()

    @property
    def working(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Stores:
    """What the job is given and what it has stored."""

    def __init__(
        self,
        mysql: MySQLServer,
        database: str,
        postgres: PostgreSQLServer,
        name: str,
        elastic: ElasticsearchServer,
        index: str,
    ) -> None:
        self.mysql, self.database, self.elastic, self.index = mysql, database, elastic, index
        self.source = pymysql.connect(
            host=mysql.host, port=mysql.port, user=mysql.user, password=mysql.password, database=database, autocommit=True
        )  # fmt: skip
        self.target = psycopg.connect(
            host=postgres.host, port=postgres.port, user=postgres.user, password=postgres.password, dbname=name, autocommit=True
        )  # fmt: skip
        self.text = TEXT.format(
            host=mysql.host, port=mysql.port, user=mysql.user, password=mysql.password, database=database, url=elastic.url,
            index=index, postgres=f"jdbc:postgresql://{postgres.host}:{postgres.port}/{name}",
            login=f"'username' = '{postgres.user}', 'password' = '{postgres.password}'",
        )  # fmt: skip

    def prepare(self) -> None:
        query(
            self.source,
            "CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(9), amount BIGINT, note VARCHAR(9)) ENGINE = InnoDB",
        )
        query(
            self.source,
            f"INSERT INTO orders SELECT seq, CONCAT('c', seq % 17), seq % 100, 'row' FROM seq_1_to_{ROWS}",  # noqa: S608
        )
        self.target.execute("CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount BIGINT, note TEXT)")
        self.target.execute("CREATE TABLE totals (customer TEXT PRIMARY KEY, n BIGINT, total BIGINT)")

    def written(self) -> int:
        """Return the greatest position that PostgreSQL has."""
        if self.target.execute("SELECT to_regclass('headrace_offsets') IS NULL").fetchone() == (True,):
            return 0
        found = self.target.execute("SELECT max(last_offset) FROM headrace_offsets WHERE queue NOT LIKE '#job%'")
        return int((found.fetchone() or (0,))[0] or 0)

    def compare(self) -> str:
        """Fail unless all stores have what a query gives; return figures."""
        rows = query(self.source, "SELECT id, customer, amount, note FROM orders ORDER BY id")
        assert self.target.execute("SELECT id, customer, amount, note FROM orders ORDER BY id").fetchall() == rows
        wanted = query(
            self.source, "SELECT id, customer, amount, UPPER(note) FROM orders WHERE amount >= 10 ORDER BY id"
        )
        assert documents(self.elastic, self.index) == wanted
        sums = sorted(query(self.source, "SELECT customer, COUNT(*), SUM(amount) FROM orders GROUP BY customer"))
        assert sorted(self.target.execute("SELECT customer, n, total FROM totals").fetchall()) == sums
        return f"{len(rows)} rows, {len(wanted)} documents, {len(sums)} totals are equal"

    def close(self) -> None:
        self.source.close()
        self.target.close()


@pytest.fixture
def stores(
    logging_mysql_server: MySQLServer,
    logging_mysql_database: str,
    postgresql_server: PostgreSQLServer,
    postgresql_database: str,
    elasticsearch_server: ElasticsearchServer,
    fresh_name: Callable[[str], str],
) -> Iterator[Stores]:
    made = Stores(
        logging_mysql_server, logging_mysql_database, postgresql_server, postgresql_database, elasticsearch_server,
        fresh_name("orders"),
    )  # fmt: skip
    yield made
    made.close()


def follow(stores: Stores, directory: Path, *, transactions: int, kills: int, batch_records: int) -> None:
    """Let the job follow the table while transactions are written and it is killed, ``kills`` times or until all are written.

    Small batches meet more kills; each costs requests to three stores, and the job must keep up with the writers.
    """
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    stores.prepare()
    (directory / "job.sql").write_text(stores.text)
    log = directory / "log.txt"

    def start(until: str) -> subprocess.Popen[bytes]:
        with open(log, "ab") as file:
            command = [
                sys.executable,
                str(JOB),
                str(directory / "job.sql"),
                str(directory / "checkpoint"),
                until,
                str(batch_records),
            ]
            return subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, "POLARS_MAX_THREADS": "1"})

    writers = Writers(stores.mysql, stores.database, transactions, seed)
    killed = 0
    try:
        while killed < kills or writers.working:
            process, before = start("never"), stores.written()
            try:
                eventually(
                    lambda: stores.written() > before or process.poll() is not None or not writers.working,  # noqa: B023
                    "the job writes",
                    seconds=900,
                )
                threading.Event().wait(chance.uniform(0, 1.0 if killed < kills else 20.0))
                assert process.poll() is None, f"{killed}: {log.read_text()[-3000:]}"
            finally:
                process.kill()
                process.wait()
            killed += 1
    finally:
        if killed < kills:
            writers.stop()
        else:
            eventually(lambda: not writers.working, "all transactions are written", seconds=3000)
    assert not writers.failed
    process = start("end")
    assert process.wait(1800) == 0, log.read_text()[-3000:]
    print(f"\nseed {seed}: {writers.done} transactions, {killed} kills: {stores.compare()}")


@pytest.mark.timeout(600)
def test_two_stores_follow_a_table(stores: Stores, tmp_path: Path) -> None:
    follow(stores, tmp_path, transactions=400, kills=3, batch_records=200)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_stores_follow_a_table_through_100_000_transactions(stores: Stores, tmp_path: Path) -> None:
    transactions = int(os.environ.get("HEADRACE_TEST_TRANSACTIONS", "100000"))
    kills = int(os.environ.get("HEADRACE_TEST_KILLS", "100"))
    follow(stores, tmp_path, transactions=transactions, kills=kills, batch_records=2_000)
