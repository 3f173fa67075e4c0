"""PostgreSQL, from the operating system's package."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.servers.directories import cache_directory, digest
from tests.servers.errors import TestServerError
from tests.servers.login import make_login
from tests.servers.login_server import LoginServer
from tests.servers.mysql import give
from tests.servers.ports import reserve_ports
from tests.servers.processes import Account, ProcessGroup
from tests.servers.programs import install_debian_package
from tests.servers.server import START_TIMEOUT

_DEBIAN_PACKAGE = "postgresql"
#: Debian keeps the programs of each version beside each other, and not on the path.
_PROGRAMS = Path("/usr/lib/postgresql")


@dataclass(frozen=True, kw_only=True)
class PostgreSQLOptions:
    """How to make a PostgreSQL server."""

    config: Mapping[str, str] = field(default_factory=dict)
    """Further settings, such as {"max_connections": "5"}."""


@dataclass(kw_only=True)
class PostgreSQLServer(LoginServer[PostgreSQLOptions]):
    """A PostgreSQL server with one user, who may do everything. Process: `postgres`."""

    arguments: list[str] = field(default_factory=list)

    kind: ClassVar[str] = "postgresql"
    variable: ClassVar[str] = "HEADRACE_TEST_POSTGRESQL"
    default_port: ClassVar[int] = 5432

    @classmethod
    def create(cls, directory: Path, options: PostgreSQLOptions | None = None) -> PostgreSQLServer:
        """See Server.create."""
        options = options or PostgreSQLOptions()
        login = make_login("headrace")
        server = cls(
            directory=directory,
            host="127.0.0.1",
            port=reserve_ports(1, str(directory)),
            user=login.name,
            password=login.password,
            arguments=[word for name, value in options.config.items() for word in ("-c", f"{name}={value}")],
        )
        secret = directory / "password"
        secret.touch(mode=0o600)
        secret.write_text(login.password)
        give(directory, _account())
        account = _account()
        command = [str(_program("initdb")), "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", "--auth=scram-sha-256"]
        done = subprocess.run(
            [*command, f"--username={login.name}", f"--pwfile={secret}", f"--pgdata={directory / 'data'}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=directory,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        secret.unlink()
        if done.returncode:
            raise TestServerError(f"initdb failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        server.save()
        return server

    @classmethod
    def prepared_marker(cls) -> Path:
        """See Server.prepared_marker."""
        version = subprocess.run([_program("postgres"), "--version"], capture_output=True, check=True).stdout
        path = cache_directory() / f"postgresql-{digest(version)}"
        path.mkdir(exist_ok=True)
        return path / "prepared"

    def _launch(self, processes: ProcessGroup) -> None:
        if processes.is_alive("postgres"):
            return
        data = self._own_directory() / "data"
        settings = {
            "listen_addresses": self.host,
            "unix_socket_directories": "",
            # A commit reaches the operating system but not the disk: safe from a killed server, quick for tests.
            "fsync": "off",
            "shared_buffers": "32MB",
        }
        command = [str(_program("postgres")), "-D", str(data), "-p", str(self.port)]
        command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        processes.spawn("postgres", [*command, *self.arguments], account=_account())
        processes.wait_until_logged("postgres", "database system is ready to accept connections", START_TIMEOUT)


def _program(name: str) -> Path:
    found = sorted(_PROGRAMS.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    if not found:
        install_debian_package(name, _DEBIAN_PACKAGE)
        found = sorted(_PROGRAMS.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    if not found:
        raise TestServerError(f"{name} is still missing after {_DEBIAN_PACKAGE} was installed")
    return found[-1]


def _account() -> Account | None:
    """Whom postgres runs as: it refuses to be root."""
    if os.getuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        entry = pwd.getpwnam("nobody")
    return Account(entry.pw_uid, entry.pw_gid)
