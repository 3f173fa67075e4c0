"""The stream of the log over TLS: with a check of the certificate, in small and large pieces, and while it is idle."""

from __future__ import annotations

from typing import Any

from changes_world import changes_in, latest, opened
from mysql_world import Database

from tests.change_readers import SECOND, read_to_end
from tests.servers.fixtures import StartMySQLServer
from tests.servers.mysql import MySQLOptions


def test_the_log_over_tls(start_mysql_server: StartMySQLServer) -> None:
    config = {"log-bin": "b", "binlog-format": "ROW", "server-id": "1"}
    server = start_mysql_server(MySQLOptions(secure=True, config=config))
    Database(server, "mysql").execute("CREATE DATABASE shop")
    database = Database(server, "shop")
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT) ENGINE = InnoDB")
    assert server.security is not None
    login = server.security.certificate_user
    files = server.security.certificates
    options: dict[str, Any] = {
        "user": login.name, "password": login.password, "ssl_ca": str(files.authority),
        "ssl_certificate": str(files.client), "ssl_key": str(files.client_key),
    }  # fmt: skip
    begin = latest(database, **options)
    with opened(database, begin, **options) as reader:
        for number in range(3):
            assert reader.poll(10, SECOND / 10) is None or number
            database.execute("INSERT INTO t VALUES (%s, 'small')", (number,))
            assert changes_in(read_to_end(reader)) == [(0, number, "small")]
        database.execute("INSERT INTO t VALUES (3, REPEAT('x', 5000000)), (4, 'y')")
        assert [(row[1], len(row[2])) for row in changes_in(read_to_end(reader))] == [(3, 5_000_000), (4, 1)]
    database.close()
