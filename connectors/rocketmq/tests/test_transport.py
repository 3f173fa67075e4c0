"""Plain and encrypted byte streams, against real sockets."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from headrace_rocketmq import Tls
from headrace_rocketmq.connection import Connection
from headrace_rocketmq.errors import ConfigurationError, ConnectionFailedError, ConnectionLostError
from headrace_rocketmq.transport import open_transport, split_address

from tests.servers.certificates import Certificates, make_certificates

from .wire_server import echo, end, serving, silence


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def server_context(certificates: Certificates, *, asks_for_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    if asks_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.authority)
    return context


def connect(address: str, tls: Tls) -> Connection:
    return Connection(address, open_transport(address, tls.context(), tls.server_name, 5.0))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_reading_and_writing_at_once_over_tls(certificates: Certificates, version: ssl.TLSVersion) -> None:
    context = server_context(certificates)
    context.maximum_version = context.minimum_version = version
    bodies = [bytes([number % 256]) * (number * 997 % 100_000) for number in range(300)]
    with (
        serving(echo, context) as server,
        closing(connect(server.address, Tls(ca_file=certificates.authority))) as connection,
        ThreadPoolExecutor(8) as threads,
    ):
        answers = threads.map(lambda body: connection.call(1, body=body, timeout_s=30).body, bodies)
        assert list(answers) == bodies


def test_a_server_of_an_unknown_authority_is_refused(certificates: Certificates) -> None:
    with serving(echo, server_context(certificates)) as server:
        with pytest.raises(ConnectionFailedError, match="certificate verify failed"):
            connect(server.address, Tls(ca_file=certificates.stranger_authority))
        with pytest.raises(ConnectionFailedError, match="certificate verify failed"):
            connect(server.address, Tls())


def test_a_certificate_for_another_host_is_refused(certificates: Certificates) -> None:
    with serving(echo, server_context(certificates)) as server:
        tls = Tls(ca_file=certificates.authority, server_name="broker.example.com")
        with pytest.raises(ConnectionFailedError, match=r"broker\.example\.com"):
            connect(server.address, tls)


@pytest.mark.parametrize("relaxed", ["check_host", "verify"])
def test_checks_can_be_relaxed(certificates: Certificates, relaxed: str) -> None:
    tls = {
        "check_host": Tls(ca_file=certificates.authority, server_name="broker.example.com", check_host=False),
        "verify": Tls(ca_file=certificates.stranger_authority, verify=False),
    }[relaxed]
    with serving(echo, server_context(certificates)) as server, closing(connect(server.address, tls)) as connection:
        assert connection.call(1, body=b"x", timeout_s=10).body == b"x"


def test_a_client_certificate(certificates: Certificates) -> None:
    tls = Tls(ca_file=certificates.authority, cert_file=certificates.client, key_file=certificates.client_key)
    with (
        serving(echo, server_context(certificates, asks_for_certificate=True)) as server,
        closing(connect(server.address, tls)) as connection,
    ):
        assert connection.call(1, body=b"x", timeout_s=10).body == b"x"


def test_the_end_of_an_encrypted_connection_is_noticed(certificates: Certificates) -> None:
    with (
        serving(silence, server_context(certificates)) as server,
        closing(connect(server.address, Tls(ca_file=certificates.authority))) as connection,
    ):

        def end_when_asked() -> None:
            server.peer().wait_for(1)
            end(server.peer().connected)

        waiting = threading.Thread(target=end_when_asked)
        waiting.start()
        with pytest.raises(ConnectionLostError):
            connection.call(1, timeout_s=10)
        waiting.join(10)


def test_plain_text_where_tls_is_expected(certificates: Certificates) -> None:
    with serving(echo) as server, pytest.raises(ConnectionFailedError, match=server.address):
        connect(server.address, Tls(ca_file=certificates.authority))


def test_files_that_cannot_be_used_are_named(tmp_path: Path, certificates: Certificates) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.pem"):
        Tls(ca_file=tmp_path / "missing.pem").context()
    with pytest.raises(ConfigurationError, match=r"client\.key"):
        Tls(ca_file=certificates.authority, cert_file=certificates.client_key).context()


def test_the_password_is_not_shown() -> None:
    assert "hidden" not in repr(Tls(key_password="hidden"))


def test_nobody_listens() -> None:
    with serving(echo) as server:
        address = server.address
    with pytest.raises(ConnectionFailedError, match="the server is running"):
        open_transport(address, None, None, 1.0)


def test_addresses() -> None:
    assert split_address("host:9876") == ("host", 9876)
    assert split_address("[::1]:9876") == ("::1", 9876)


def test_a_handshake_that_trickles_ends_in_time() -> None:
    """One bound for the whole handshake: a server that sends a byte now and then never lets a single step time out."""
    stop = threading.Event()
    sent: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            connected, _ = listener.accept()
            with connected, contextlib.suppress(OSError):
                # The head of a TLS record of 16 KiB, whose content comes byte by byte.
                connected.sendall(b"\x16\x03\x03\x40\x00")
                while len(sent) < 2_000 and not stop.wait(0.005):
                    connected.sendall(b"\x00")
                    sent.append(1)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ConnectionFailedError, match=r"TLS handshake was not done within 0\.2 s|timed out"):
            open_transport(address, Tls(verify=False).context(), None, 0.2)
        stop.set()
        thread.join()
    assert len(sent) < 2_000, "the server was done first"
