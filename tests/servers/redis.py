"""Redis from the operating system's package; it writes an append-only file, so that a killed server comes back with its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.servers.certificates import Certificates, make_certificates
from tests.servers.directories import cache_directory
from tests.servers.login import Login, make_login
from tests.servers.login_server import LoginServer
from tests.servers.ports import reserve_ports
from tests.servers.processes import ProcessGroup
from tests.servers.programs import require_program
from tests.servers.server import START_TIMEOUT

_DEBIAN_PACKAGE = "redis-server"


@dataclass(frozen=True, kw_only=True)
class RedisOptions:
    """How to make a Redis server."""

    secure: bool = False
    """Take connections with TLS too, which ask for a certificate of the client if it has one (see RedisSecurity)."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Further settings, such as {"maxmemory": "10mb"}."""


@dataclass(frozen=True, kw_only=True)
class RedisSecurity:
    """How to reach a server with TLS."""

    certificates: Certificates
    port: int
    """The port with TLS."""


@dataclass(kw_only=True)
class RedisServer(LoginServer[RedisOptions]):
    """A Redis server. Process: `redis`."""

    outsider: Login | None = None
    """Can log in but may do nothing; None for a server that is not ours."""
    security: RedisSecurity | None = None
    """Only if it was made with RedisOptions(secure=True)."""

    kind: ClassVar[str] = "redis"
    variable: ClassVar[str] = "HEADRACE_TEST_REDIS"
    default_port: ClassVar[int] = 6379

    @classmethod
    def create(cls, directory: Path, options: RedisOptions | None = None) -> RedisServer:
        """See Server.create."""
        options = options or RedisOptions()
        port = reserve_ports(2, str(directory))
        login, outsider = make_login("headrace"), make_login("outsider")
        (directory / "data").mkdir()
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": f"{directory}/data",
            "appendonly": "yes",
            "appendfsync": "always",  # by default a killed server may lose a second
            "save": '""',
            "daemonize": "no",
            **options.config,
        }
        security = None
        if options.secure:
            security = RedisSecurity(certificates=make_certificates(directory / "certificates"), port=port + 1)
            files = security.certificates
            settings |= {
                "tls-port": str(port + 1),
                "tls-ca-cert-file": str(files.authority),
                "tls-cert-file": str(files.server),
                "tls-key-file": str(files.server_key),
                "tls-auth-clients": "optional",
            }
        lines = [f"{name} {value}" for name, value in settings.items()]
        lines += [
            f"user {login.name} on >{login.password} ~* &* +@all",
            f"user {outsider.name} on >{outsider.password} ~* +ping",
            # Not "off": Redis 7.0 reads its append-only file as this user, and would skip every transaction.
            f"user default on >{make_login('default').password} ~* &* +@all",
        ]
        path = directory / "redis.conf"
        path.touch(mode=0o600)  # it holds the passwords
        path.write_text("\n".join(lines) + "\n")
        server = cls(
            directory=directory, host="127.0.0.1", port=port, user=login.name, password=login.password,
            outsider=outsider, security=security,
        )  # fmt: skip
        server.save()
        return server

    @classmethod
    def prepared_marker(cls) -> Path:
        """See Server.prepared_marker."""
        require_program("redis-server", _DEBIAN_PACKAGE)
        path = cache_directory() / "redis"
        path.mkdir(exist_ok=True)
        return path / "prepared"

    def client(self, **options: Any) -> Any:
        """Return a client (redis-py) for a user who may do everything."""
        import redis  # not at the top: every test run loads this module

        given = {"username": self.user, "password": self.password, "protocol": 2, **options}
        return redis.Redis(host=self.host, port=self.port, **given)

    def _launch(self, processes: ProcessGroup) -> None:
        if not processes.is_alive("redis"):
            command = [str(require_program("redis-server", _DEBIAN_PACKAGE)), f"{self._own_directory()}/redis.conf"]
            processes.spawn("redis", command)
            processes.wait_until_logged("redis", "Ready to accept connections", START_TIMEOUT)
