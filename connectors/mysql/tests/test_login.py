"""Servers that are not what they say: none of them gets the password, whatever it asks for."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from headrace.foundation.errors import HeadraceError, JobError
from headrace_mysql import MySQLSource, MySQLSourceSettings

from tests.servers.certificates import Certificates, make_certificates

PASSWORD = "open sesame, open"
SALT = b"01234567890123456789"
#: Protocol 4.1, secure connection, login methods by name, TLS.
CAPABILITIES = 0x00000200 | 0x00008000 | 0x00080000
TLS = 0x00000800
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC_KEY = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

Script = Callable[["FakeServer"], None]


class FakeServer:
    """Answers one connection by a script, and keeps all that the client sends."""

    def __init__(self, first_method: bytes, script: Script, context: ssl.SSLContext | None = None) -> None:
        self.heard = b""
        self._method, self._script, self._context = first_method, script, context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sequence = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        self._socket, _ = self._listener.accept()
        self._socket.settimeout(30)
        try:
            capabilities = CAPABILITIES | (TLS if self._context else 0)
            self.send(
                b"\x0a8.0.36\0" + struct.pack("<I", 1) + SALT[:8] + b"\0" + struct.pack("<H", capabilities & 0xFFFF)
                + b"\x21\x02\x00" + struct.pack("<H", capabilities >> 16) + b"\x15" + bytes(10) + SALT[8:] + b"\0" + self._method + b"\0"
            )  # fmt: skip
            self.receive()
            if self._context:
                self._socket = self._context.wrap_socket(self._socket, server_side=True)
                self.receive()
            self._script(self)
        except OSError:  # the client has hung up, as it should
            pass
        finally:
            self._socket.close()

    def send(self, payload: bytes) -> None:
        self._socket.sendall(struct.pack("<I", len(payload))[:3] + bytes([self._sequence % 256]) + payload)
        self._sequence += 1

    def receive(self) -> bytes:
        """Return the next packet without its header; raises OSError when the client has hung up."""
        header = self._exactly(4)
        self._sequence = header[3] + 1
        payload = self._exactly(int.from_bytes(header[:3], "little"))
        self.heard += payload
        return payload

    def _exactly(self, size: int) -> bytes:
        # Not a byte more: the next ones may be those of TLS.
        data = b""
        while len(data) < size:
            if not (more := self._socket.recv(size - len(data))):
                raise ConnectionResetError
            data += more
        return data

    def close(self) -> None:
        self._listener.close()
        self._thread.join(30)
        assert not self._thread.is_alive()


@contextmanager
def serving(method: bytes, script: Script, context: ssl.SSLContext | None = None) -> Iterator[FakeServer]:
    server = FakeServer(method, script, context)
    try:
        yield server
    finally:
        server.close()


def switch_to(method: bytes, then: Script | None = None) -> Script:
    def script(server: FakeServer) -> None:
        server.send(b"\xfe" + method + b"\0" + SALT + b"\0")
        server.receive()
        if then:
            then(server)

    return script


def ask_for_all(server: FakeServer) -> None:
    """The full login of caching_sha2_password, with a key of the server's own choice."""
    server.send(b"\x01\x04")
    if server.receive() == b"\x02":
        server.send(b"\x01" + PUBLIC_KEY)
        server.receive()


def offer_key(server: FakeServer) -> None:
    server.send(b"\x01" + PUBLIC_KEY)
    server.receive()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def server_context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    return context


def log_in(port: int, **options: object) -> HeadraceError:
    settings = {"table": "t", "database": "d", "host": "127.0.0.1", "port": port, "user": "u", "password": PASSWORD}
    with pytest.raises(HeadraceError) as caught:
        MySQLSource(MySQLSourceSettings.of({**settings, **options}, plugin="mysql")).schema()
    return caught.value


ATTACKS: dict[str, tuple[bytes, Script]] = {
    "clear": (b"mysql_native_password", switch_to(b"mysql_clear_password")),
    "dialog": (b"mysql_native_password", switch_to(b"dialog")),
    "old": (b"mysql_native_password", switch_to(b"mysql_old_password")),
    "clear at once": (b"mysql_clear_password", switch_to(b"mysql_clear_password")),
    "sha256 at once": (b"sha256_password", offer_key),
    "sha256": (b"mysql_native_password", switch_to(b"sha256_password", offer_key)),
    "caching_sha2 at once": (b"caching_sha2_password", ask_for_all),
    "caching_sha2": (b"mysql_native_password", switch_to(b"caching_sha2_password", ask_for_all)),
    "caching_sha2 after sha256": (b"sha256_password", switch_to(b"caching_sha2_password", ask_for_all)),
}


@pytest.mark.parametrize("with_tls", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
def test_password_is_not_given_to_a_server_that_was_not_checked(
    attack: str, with_tls: bool, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    encrypted: list[bytes] = []

    def encrypt(password: bytes, *_: object) -> bytes:
        encrypted.append(password)
        return b""

    monkeypatch.setattr("pymysql._auth.sha2_rsa_encrypt", encrypt)
    method, script = ATTACKS[attack]
    with serving(method, script, server_context(certificates) if with_tls else None) as server:
        error = log_in(server.port)
    assert isinstance(error, JobError)
    assert "sends the password to the server, but the server's certificate was not checked" in str(error)
    assert "option 'ssl'" in str(error)
    assert "set ssl_ca to" in str(error)
    assert PASSWORD not in str(error)
    assert PASSWORD.encode() not in server.heard
    assert not encrypted


def test_full_login_goes_on_where_the_certificate_was_checked(certificates: Certificates, tmp_path: Path) -> None:
    """Else the refusals above would show nothing."""
    with serving(b"caching_sha2_password", ask_for_all, server_context(certificates)) as server:
        error = log_in(server.port, ssl_ca=str(certificates.authority))
    assert PASSWORD.encode() + b"\0" in server.heard
    assert "sends the password to the server" not in str(error)


def test_hash_is_enough_for_a_server_that_knows_the_user() -> None:
    def accept(server: FakeServer) -> None:
        server.send(b"\x01\x03")
        server.send(b"\x00\x00\x00\x02\x00\x00\x00")
        server.receive()

    with serving(b"caching_sha2_password", accept) as server:
        log_in(server.port)
    assert b"SET NAMES" in server.heard
    assert PASSWORD.encode() not in server.heard
