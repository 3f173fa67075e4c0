"""``kill -9`` of a SQL text whose results change and go into tables of MySQL by their keys: in the end every row is right."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import headrace as hr
import pymysql
import pytest

from tests.servers.mysql import MySQLServer
from tests.sql.killing import ORDERS_AND_PAYS, Killable

SINKS = """
CREATE TABLE best (cur VARCHAR, rn BIGINT, oid BIGINT, amount DECIMAL(12, 2), PRIMARY KEY (cur, rn) NOT ENFORCED) WITH (${best});
CREATE TABLE paid (oid BIGINT, n BIGINT, total DECIMAL(38, 2), PRIMARY KEY (oid) NOT ENFORCED) WITH (${paid});
CREATE TABLE minutes (cur VARCHAR, w_end TIMESTAMP(3), n BIGINT, PRIMARY KEY (cur, w_end) NOT ENFORCED) WITH (${minutes});
"""
QUERIES = """
INSERT INTO best SELECT cur, rn, oid, amount FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY amount DESC, oid) AS rn FROM orders WHERE cur IS NOT NULL) WHERE rn <= 5;
INSERT INTO paid SELECT o.oid, p.n, p.s FROM (SELECT oid, COUNT(*) AS orders_of FROM orders WHERE oid IS NOT NULL GROUP BY oid) o
  LEFT JOIN (SELECT oid, COUNT(*) AS n, SUM(paid) AS s FROM pays GROUP BY oid) p ON o.oid = p.oid;
INSERT INTO minutes SELECT cur, TUMBLE_END(otime, INTERVAL '1' MINUTE), COUNT(*) FROM orders WHERE cur IS NOT NULL
  GROUP BY cur, TUMBLE(otime, INTERVAL '1' MINUTE);
"""
TABLES = {
    "best": "cur VARCHAR(20), rn BIGINT, oid BIGINT, amount DECIMAL(12, 2), PRIMARY KEY (cur, rn)",
    "paid": "oid BIGINT PRIMARY KEY, n BIGINT, total DECIMAL(38, 2)",
    "minutes": "cur VARCHAR(20), w_end DATETIME(3), n BIGINT, PRIMARY KEY (cur, w_end)",
}


def connect(server: MySQLServer) -> pymysql.Connection:
    return pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    )


def with_sinks(text: str, options: Callable[[str], str]) -> str:
    for name in TABLES:
        text = text.replace(f"${{{name}}}", options(name))
    return text


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_upserts_are_right_after_kills(
    backend: str, mysql_server: MySQLServer, fresh_name: Callable[[str], str], data: Path, tmp_path: Path
) -> None:
    database = fresh_name("sql").replace("-", "_")[-60:]
    server = mysql_server
    with connect(server) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        for name, columns in TABLES.items():
            cursor.execute(f"CREATE TABLE {database}.{name} ({columns})")
    login = f"'username' = '{server.user}', 'password' = '{server.password}'"
    url = f"jdbc:mysql://{server.host}:{server.port}/{database}"
    text = with_sinks(SINKS, lambda name: f"'connector' = 'jdbc', 'url' = '{url}', 'table-name' = '{name}', {login}")
    job = Killable("upserts", tmp_path, backend)
    job.job.write_text((ORDERS_AND_PAYS + text + QUERIES).replace("${DATA}", data.as_uri()))
    for fault in ("checkpoint.after_flush:2", "sink.after_insert:5", "sink.before_insert:4", "checkpoint.after_save:2"):
        code = job.run(fault=fault if backend == "light" else "sink.after_insert:1")
        assert backend == "spark" or code == -signal.SIGKILL, job.log.read_text()[-3000:]
        if backend == "spark":
            break
    job.finish()
    clean = with_sinks(SINKS, lambda name: "'connector' = 'blackhole'")
    wanted = hr.sql((ORDERS_AND_PAYS + clean + QUERIES).replace("${DATA}", data.as_uri())).collect()
    with connect(server) as connection, connection.cursor() as cursor:
        for name, frame in wanted.items():
            cursor.execute(f"SELECT * FROM {database}.{name}")  # noqa: S608  # our own names
            assert sorted(cursor.fetchall(), key=repr) == sorted(frame.rows(), key=repr), name
        cursor.execute(f"DROP DATABASE {database}")
