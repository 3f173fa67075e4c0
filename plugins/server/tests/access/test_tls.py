"""TLS: what is refused before the server starts, and a real uvicorn with the middleware behind it."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from pathlib import Path

import httpx
import pytest
import uvicorn
from access_world import World
from headrace.foundation.errors import OptionError
from headrace_server.access import Limits, Origins, TLSOptions

from tests.eventually import eventually
from tests.servers.certificates import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def options(certificates: Certificates, **more: str) -> TLSOptions:
    Path(certificates.server_key).chmod(0o600)
    return TLSOptions.of({"certificate": str(certificates.server), "key": str(certificates.server_key), **more})


class Running(uvicorn.Server):
    """uvicorn in a thread."""

    def __init__(self, world: World, **more: object) -> None:
        config = uvicorn.Config(world.app, host="127.0.0.1", port=0, log_level="error", **more)  # type: ignore[arg-type]
        super().__init__(config)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.serve()))

    def __enter__(self) -> int:
        self.thread.start()
        eventually(lambda: self.started, "uvicorn has started")
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port

    def __exit__(self, *error: object) -> None:
        self.should_exit = True
        self.thread.join()


def test_a_key_that_others_can_read_is_refused(certificates: Certificates) -> None:
    tls = options(certificates)
    Path(tls.key).chmod(0o644)
    with pytest.raises(OptionError, match="other users can read the key"):
        tls.context()


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of root")
def test_a_key_of_root_may_be_read_by_a_group_as_kubernetes_mounts_secrets(certificates: Certificates) -> None:
    tls = options(certificates)
    Path(tls.key).chmod(0o440)
    tls.context()
    os.chown(tls.key, 1, -1)
    with pytest.raises(OptionError, match="other users can read the key"):
        tls.context()


def test_files_that_do_not_fit_are_named(certificates: Certificates, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("x")
    wrong.chmod(0o600)
    changes = [{option: str(wrong)} for option in ("certificate", "key", "client_authority")]
    for change in (*changes, {"certificate": "/none"}, {"key": "/none"}):
        with pytest.raises(OptionError) as caught:
            options(certificates, **change).context()
        assert caught.value.option == next(iter(change)) or str(wrong) in str(caught.value)
    with pytest.raises(OptionError):
        options(certificates, version_min="1.1")


@pytest.fixture
def secure_world(world: World) -> World:
    world.guard(origins=Origins(secure=True), limits=Limits(body_bytes_max=1000))
    return world


def test_https_answers_and_old_versions_are_refused(secure_world: World, certificates: Certificates) -> None:
    with Running(secure_world, **options(certificates).uvicorn_options()) as port:
        trusted = ssl.create_default_context(cafile=str(certificates.authority))
        with httpx.Client(verify=trusted, base_url=f"https://127.0.0.1:{port}") as client:
            assert client.get("/health").status_code == 200
            assert "strict-transport-security" in client.get("/v1/jobs").headers
        old = ssl.create_default_context(cafile=str(certificates.authority))
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert _version(port, old) == "TLSv1.2"
    with Running(secure_world, **options(certificates, version_min="1.3").uvicorn_options()) as port:
        with pytest.raises(ssl.SSLError):
            _version(port, old)
        assert _version(port, trusted) == "TLSv1.3"


def _version(port: int, context: ssl.SSLContext) -> str | None:
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        return secure.version()


def test_the_oldest_version_is_1_2_unless_told_otherwise(certificates: Certificates) -> None:
    assert options(certificates).context().minimum_version == ssl.TLSVersion.TLSv1_2
    assert (
        options(certificates, client_authority=str(certificates.authority)).context().verify_mode == ssl.CERT_REQUIRED
    )


def test_raw_attacks_on_a_real_server(world: World) -> None:
    """What httpx would never send: chunked bodies without end, paths with dots, two hosts."""
    world.guard(limits=Limits(body_bytes_max=1000))
    token = world.bearer()[1]
    with Running(world) as port:
        head = f"Host: localhost:{port}\r\nAuthorization: {token}\r\nConnection: close\r\n"
        chunk = b"100\r\n" + b"x" * 256 + b"\r\n"
        chunked = f"PUT /v1/jobs/a HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n".encode()
        assert _raw(port, chunked + chunk * 3 + b"0\r\n\r\n") == 200
        assert _raw(port, chunked + chunk * 5) == 413
        for path in ("/v1/jobs/../x", "/v1/jobs/%2e%2e/x", "/v1/jobs/a%0d%0ab", "/v1/jobs?token=x", "//evil"):
            assert _raw(port, f"GET {path} HTTP/1.1\r\n{head}\r\n".encode()) == 400, path
        assert _raw(port, f"GET /v1/jobs HTTP/1.1\r\n{head}Host: evil\r\n\r\n".encode()) == 400
        assert _raw(port, f"GET /v1/jobs HTTP/1.1\r\n{head}\r\n".encode()) == 200


def _raw(port: int, request: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(30)
        connection.sendall(request)
        answer = b""
        while b"\r\n" not in answer:
            part = connection.recv(4096)
            assert part, "the server said nothing"
            answer += part
    return int(answer.split()[1])
