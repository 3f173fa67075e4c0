"""MySQL's protocol and dialect, served by MariaDB from the operating system's package."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.servers.certificates import Certificates, make_certificates
from tests.servers.directories import cache_directory, digest, locked, run_directory
from tests.servers.errors import TestServerError
from tests.servers.login import Login, make_login
from tests.servers.login_server import LoginServer
from tests.servers.ports import reserve_ports
from tests.servers.processes import Account, ProcessGroup
from tests.servers.programs import require_program
from tests.servers.server import START_TIMEOUT

_DEBIAN_PACKAGE = "mariadb-server"
_LOG_FILE_SIZE = "--innodb-log-file-size=16M"


@dataclass(frozen=True, kw_only=True)
class MySQLOptions:
    """How to make a MariaDB server."""

    secure: bool = False
    """Offer TLS, and make users that must use it (see MySQLSecurity)."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Further options of mariadbd, such as {"max-connections": "5"}."""


@dataclass(frozen=True, kw_only=True)
class MySQLSecurity:
    """How to reach a server that offers TLS; its other users may connect without TLS too."""

    certificates: Certificates
    tls_user: Login
    """May do everything, but must use TLS."""
    certificate_user: Login
    """May do everything, but must present the client's certificate too."""


@dataclass(kw_only=True)
class MySQLServer(LoginServer[MySQLOptions]):
    """A MariaDB server (or, named by the variable, MySQL). Process: `mariadbd`."""

    outsider: Login | None = None
    """Can log in but may do nothing; None for a server that is not ours."""
    security: MySQLSecurity | None = None
    """Only if it was made with MySQLOptions(secure=True)."""
    arguments: list[str] = field(default_factory=list)

    kind: ClassVar[str] = "mysql"
    variable: ClassVar[str] = "HEADRACE_TEST_MYSQL"
    default_port: ClassVar[int] = 3306

    @classmethod
    def create(cls, directory: Path, options: MySQLOptions | None = None) -> MySQLServer:
        """See Server.create."""
        options = options or MySQLOptions()
        login = make_login("headrace")
        security = None
        if options.secure:
            security = MySQLSecurity(
                certificates=make_certificates(directory / "certificates"),
                tls_user=make_login("tls_user"),
                certificate_user=make_login("certificate_user"),
            )
        server = cls(
            directory=directory,
            host="127.0.0.1",
            port=reserve_ports(1, str(directory)),
            user=login.name,
            password=login.password,
            outsider=make_login("outsider"),
            security=security,
            arguments=[f"--{key}={value}" for key, value in options.config.items()],
        )
        shutil.copytree(_template(), directory / "data")
        server._write_init_file()
        give(directory, account())
        server.save()
        return server

    @classmethod
    def prepared_marker(cls) -> Path:
        """See Server.prepared_marker."""
        return _program_cache() / "prepared"

    def _write_init_file(self) -> None:
        """The statements that the server runs whenever it starts; one a line."""
        users = [(Login(self.user, self.password), "")]
        if self.security:
            users += [(self.security.tls_user, "SSL"), (self.security.certificate_user, "X509")]
        lines = [
            line
            for login, requirement in users
            for line in (_create_user(login, requirement), f"GRANT ALL ON *.* TO '{login.name}'@'%' WITH GRANT OPTION;")
        ]
        if self.outsider:
            lines.append(_create_user(self.outsider, ""))
        path = self._own_directory() / "init.sql"
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")

    def _launch(self, processes: ProcessGroup) -> None:
        if processes.is_alive("mariadbd"):
            return
        directory = self._own_directory()
        data = directory / "data"
        tls = []
        if self.security:
            files = self.security.certificates
            tls = [f"--ssl-ca={files.authority}", f"--ssl-cert={files.server}", f"--ssl-key={files.server_key}"]
        command = [
            str(_mariadbd()),
            "--no-defaults",
            f"--datadir={data}",
            f"--tmpdir={data}",  # the system's may be closed to the server's user
            f"--init-file={directory}/init.sql",
            f"--bind-address={self.host}",
            f"--port={self.port}",
            f"--socket={data}/socket",
            f"--pid-file={data}/pid",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--character-set-server=utf8mb4",
            # A commit reaches the operating system but not the disk: safe from a killed server, quick for tests.
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=128M",
            _LOG_FILE_SIZE,
            *tls,
            *self.arguments,
        ]
        processes.spawn("mariadbd", command, account=account())
        processes.wait_until_logged("mariadbd", "ready for connections", START_TIMEOUT)


def _create_user(login: Login, requirement: str) -> str:
    require = f" REQUIRE {requirement}" if requirement else ""
    return f"CREATE USER IF NOT EXISTS '{login.name}'@'%' IDENTIFIED BY '{login.password}'{require};"


def _mariadbd() -> Path:
    return require_program("mariadbd", _DEBIAN_PACKAGE)


def account() -> Account | None:
    """Whom mariadbd runs as: it refuses to be root."""
    if os.getuid() != 0:
        return None
    for name in ("mysql", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise TestServerError("mariadbd refuses to run as root, and there is neither a user mysql nor a user nobody")


def give(directory: Path, account: Account | None) -> None:
    """Make the account the owner of all files below the directory."""
    if account is None:
        return
    for path in [directory, *directory.rglob("*")]:
        os.chown(path, account.uid, account.gid)


def _program_cache() -> Path:
    """The cache of this version of MariaDB."""
    version = subprocess.run([_mariadbd(), "--version"], capture_output=True, check=True).stdout
    path = cache_directory() / f"mysql-{digest(version)}"
    path.mkdir(exist_ok=True)
    return path


def _template() -> Path:
    """A data directory with the system tables and no users but root, made once and then copied."""
    template = _program_cache() / "data"
    with locked(cache_directory() / "mysql.template.lock"):
        if not template.is_dir():
            with tempfile.TemporaryDirectory(dir=run_directory()) as scratch:
                give(Path(scratch), account())
                install(Path(scratch) / "data")
                part = template.with_suffix(".part")
                shutil.rmtree(part, ignore_errors=True)
                shutil.copytree(Path(scratch) / "data", part)
                part.rename(template)
    return template


def install(data: Path) -> None:
    """Make a data directory with the system tables, as the server's user, who must own the directory around it."""
    program = require_program("mariadb-install-db", _DEBIAN_PACKAGE)
    # With this method root logs in through the local socket only, without a password, and never over TCP.
    options = ["--auth-root-authentication-method=socket", "--skip-test-db", _LOG_FILE_SIZE]
    who = account()
    done = subprocess.run(
        [program, "--no-defaults", f"--datadir={data}", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=data.parent,
        env={**os.environ, "TMPDIR": str(data.parent)},  # that of the tests may be closed to the server's user
        user=who.uid if who else None,
        group=who.gid if who else None,
        extra_groups=[] if who else None,
    )
    if done.returncode:
        raise TestServerError(f"mariadb-install-db failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
