"""Users without rights, TLS, and servers that are not there: errors that say what to mend."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from headrace.flow.messages import Queue
from headrace.foundation.errors import JobError, RetriableError
from headrace_mysql import MySQLSink, MySQLSinkSettings
from headrace_mysql.positions import STATEMENT
from mysql_world import Database

from tests.servers.login import Login
from tests.servers.mysql import MySQLServer
from tests.sink_tests import insert, numbers

ID = {"id": "int64"}


@pytest.fixture
def user(database: Database) -> Iterator[Login]:
    """A user who may do nothing yet."""
    login = Login(f"user_{secrets.token_hex(4)}", secrets.token_hex(8))
    database.execute(f"CREATE USER '{login.name}'@'%' IDENTIFIED BY '{login.password}'")
    yield login
    database.execute(f"DROP USER '{login.name}'@'%'")


def text_of(kind: type[Exception], action: Any) -> str:
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


def grant(database: Database, login: Login, *rights: str) -> None:
    for right in rights:
        what, _, where = right.partition(" ON ")
        database.execute(f"GRANT {what} ON `{database.name}`.{where} TO '{login.name}'@'%'")


class TestRights:
    def test_none_on_the_database(self, database: Database, user: Login) -> None:
        text = text_of(JobError, lambda: database.sink(ID, user=user.name, password=user.password))
        assert f"Access denied for user '{user.name}'@'%' to database '{database.name}' (error 1044)" in text
        assert f"[plugin 'mysql', option 'user']\n  hint: grant the user '{user.name}' what it needs" in text

    def test_none_to_write(self, database: Database, user: Login) -> None:
        database.sink(ID, create_table=True).close()
        grant(database, user, "SELECT ON *", "UPDATE ON headrace_offsets")
        text = text_of(JobError, lambda: database.sink(ID, user=user.name, password=user.password))
        assert f"table {database.name}.t: INSERT command denied to user '{user.name}'" in text
        assert "option 'user'" in text

    @pytest.mark.parametrize(("mode", "needed"), [("upsert", "UPDATE"), ("replace", "DELETE")])
    def test_each_mode_has_its_own(self, database: Database, user: Login, mode: str, needed: str) -> None:
        database.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        database.sink(ID).close()
        options: dict[str, Any] = {"user": user.name, "password": user.password, "mode": mode}
        grant(database, user, "SELECT, INSERT ON t", "SELECT, INSERT, UPDATE ON headrace_offsets")
        assert f"{needed} command denied" in text_of(JobError, lambda: database.sink(ID, **options))
        grant(database, user, f"{needed} ON t")
        sink = database.sink(ID, **options)
        insert(sink, numbers("q", 0, 2))
        sink.close()
        assert database.ids() == [0, 1]

    def test_none_to_create_the_table_of_positions(self, database: Database, user: Login) -> None:
        """An administrator can create it; then the user needs no right to create."""
        database.execute("CREATE TABLE t (id BIGINT)")
        grant(database, user, "SELECT, INSERT ON t")
        options: dict[str, Any] = {"user": user.name, "password": user.password}
        text = text_of(JobError, lambda: database.sink(ID, **options))
        assert f"user '{user.name}' may not create the table {database.name}.headrace_offsets" in text
        assert "let an administrator create it once" in text
        database.execute(STATEMENT.format(table="headrace_offsets"))
        grant(database, user, "SELECT, INSERT, UPDATE ON headrace_offsets")
        sink = database.sink(ID, **options)
        insert(sink, numbers("q", 0, 2))
        sink.close()
        assert database.ids() == [0, 1]

    def test_none_to_see_the_table(self, database: Database, user: Login) -> None:
        database.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        database.execute("CREATE TABLE seen (id BIGINT)")
        grant(database, user, "SELECT ON seen")
        text = text_of(JobError, lambda: database.source(user=user.name, password=user.password).schema())
        assert f"there is no table 't' in database '{database.name}' that user '{user.name}' may see" in text


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_no_server(database: Database) -> None:
    port = closed_port()
    text = text_of(RetriableError, lambda: database.sink(ID, port=port))
    assert text.startswith(f"MySQL at 127.0.0.1:{port}, table {database.name}.t: Can't connect to MySQL server")
    assert "hint: is the server running, and are host and port right?" in text
    text = text_of(RetriableError, lambda: database.source(port=port).schema())
    assert f"MySQL at 127.0.0.1:{port}" in text


def test_a_server_that_says_nothing(database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        text = text_of(RetriableError, lambda: database.sink(ID, port=port, connect_timeout="1 s", read_timeout="1 s"))
    assert f"MySQL at 127.0.0.1:{port}" in text


def test_a_password_from_the_environment(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_TEST_PASSWORD", database.server.password)
    sink = database.sink(ID, create_table=True, password="${MYSQL_TEST_PASSWORD}")
    assert sink.last_offset(Queue("q")) is None
    sink.close()


class TestTLS:
    @pytest.fixture
    def secure(self, secure_mysql_server: MySQLServer, fresh_name: Any) -> Iterator[Database]:
        name = fresh_name("database")
        made = Database(secure_mysql_server, "information_schema")
        made.execute(f"CREATE DATABASE `{name}`")
        made.name = name
        yield made
        made.execute(f"DROP DATABASE `{name}`")
        made.close()

    def cipher(self, database: Database, login: Login, **options: Any) -> str:
        """Connect as the sink does and return the cipher in use."""
        sink = database.sink(ID, create_table=True, user=login.name, password=login.password, **options)
        with sink._connection.cursor() as cursor:
            cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
            [(_, cipher)] = cursor.fetchall()
        insert(sink, numbers("q", 0, 3))
        sink.close()
        return str(cipher)

    def test_a_server_of_a_known_authority(self, secure: Database) -> None:
        security = secure.server.security
        assert security is not None
        assert self.cipher(secure, security.tls_user, ssl_ca=str(security.certificates.authority))

    def test_a_server_of_another_authority(self, secure: Database) -> None:
        security = secure.server.security
        assert security is not None
        stranger = str(security.certificates.stranger_authority)
        for options in ({"ssl_ca": stranger}, {"ssl": True}):
            text = text_of(JobError, lambda: self.cipher(secure, security.tls_user, **options))  # noqa: B023
            assert f"MySQL at 127.0.0.1:{secure.server.port}, table {secure.name}.t:" in text
            assert "certificate verify failed" in text
            assert "[plugin 'mysql', option 'ssl_ca']\n  hint: check the certificates, and that the server" in text

    def test_a_client_with_a_certificate(self, secure: Database) -> None:
        security = secure.server.security
        assert security is not None
        files = security.certificates
        trusting = {"ssl_ca": str(files.authority)}
        text = text_of(JobError, lambda: self.cipher(secure, security.certificate_user, **trusting))
        assert "Access denied for user 'certificate_user'" in text
        own = {"ssl_certificate": str(files.client), "ssl_key": str(files.client_key)}
        assert self.cipher(secure, security.certificate_user, **trusting, **own)

    def test_files_that_are_not_there(self, secure: Database) -> None:
        security = secure.server.security
        assert security is not None
        text = text_of(JobError, lambda: self.cipher(secure, security.tls_user, ssl_ca="/nowhere/ca.pem"))
        assert "cannot use '/nowhere/ca.pem': No such file or directory [plugin 'mysql', option 'ssl_ca']" in text
        options = {"ssl_ca": str(security.certificates.authority), "ssl_certificate": "/nowhere/client.pem"}
        text = text_of(JobError, lambda: self.cipher(secure, security.tls_user, **options))
        assert "'/nowhere/client.pem': No such file or directory [plugin 'mysql', option 'ssl_certificate']" in text

    def test_a_server_without_tls(self, database: Database) -> None:
        """Nothing is sent in the clear when TLS was asked for."""
        made = MySQLSink(MySQLSinkSettings.of(database.options(ssl=True), plugin="mysql"))
        text = text_of(JobError, made.open)
        assert "SSL is required but the server doesn't support it" in text
        assert "option 'ssl_ca'" in text
