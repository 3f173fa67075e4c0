"""The password is not given to a server whose certificate was not checked, and not shown."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from headrace.foundation.errors import JobError, RetriableError
from headrace_postgres import PostgresSourceSettings
from headrace_postgres.connection import connect

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


class AskingServer:
    """A server that asks for the password in clear text, and keeps what it hears then."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heard = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            while True:
                head = connection.recv(4, socket.MSG_WAITALL)
                if not head:
                    return  # the client goes without TLS no further
                (length,) = struct.unpack("!I", head)
                body = connection.recv(length - 4, socket.MSG_WAITALL)
                if struct.unpack_from("!I", body)[0] not in (_SSL_REQUEST, _GSS_REQUEST):
                    break
                connection.sendall(b"N")
            connection.sendall(b"R" + struct.pack("!II", 8, 3))  # AuthenticationCleartextPassword
            while part := connection.recv(1000):
                self.heard += part

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)


@pytest.fixture
def asking() -> Iterator[AskingServer]:
    server = AskingServer()
    yield server
    server.close()


def settings(port: int, **more: object) -> PostgresSourceSettings:
    given = {"table": "t", "database": "d", "host": "127.0.0.1", "port": port, "user": "u", "password": "hunter2"}
    return PostgresSourceSettings.of({**given, **more}, plugin="postgres")


def test_a_server_that_asks_for_the_password_does_not_get_it(asking: AskingServer) -> None:
    with pytest.raises(JobError, match="asks for the password in clear text") as caught:
        connect(settings(asking.port))
    asking.close()
    assert b"hunter2" not in asking.heard
    assert "hunter2" not in str(caught.value)


def test_tls_that_is_required_and_not_there(asking: AskingServer) -> None:
    with pytest.raises(JobError, match=r"\[plugin 'postgres', option 'ssl_ca'\]"):
        connect(settings(asking.port, ssl=True))
    assert b"hunter2" not in asking.heard


def test_a_server_that_is_away_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(RetriableError, match="check that the server is running"):
        connect(settings(port, connect_timeout=timedelta(seconds=2)))


def test_settings_do_not_show_the_password() -> None:
    assert "hunter2" not in repr(settings(1))
