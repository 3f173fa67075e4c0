"""Mosquitto, a broker of MQTT, from the operating system's package."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.servers.certificates import Certificates, make_certificates
from tests.servers.directories import cache_directory
from tests.servers.errors import TestServerError
from tests.servers.login import Login, make_login
from tests.servers.login_server import LoginServer
from tests.servers.ports import reserve_ports
from tests.servers.processes import ProcessGroup
from tests.servers.programs import require_program
from tests.servers.server import START_TIMEOUT

_DEBIAN_PACKAGE = "mosquitto"


@dataclass(frozen=True, kw_only=True)
class MosquittoOptions:
    """How to make a broker."""

    config: Mapping[str, str] = field(default_factory=dict)
    """Further settings, such as {"message_size_limit": "1000"}."""


@dataclass(kw_only=True)
class MosquittoServer(LoginServer[MosquittoOptions]):
    """A broker that keeps sessions and their messages when it is stopped cleanly. Process: `mosquitto`."""

    outsider: Login | None = None
    """Can log in but may do nothing; None for a broker that is not ours."""
    tls_port: int = 0
    certificates: Certificates | None = None
    """What ``tls_port`` uses; clients may have a certificate, too."""

    kind: ClassVar[str] = "mosquitto"
    variable: ClassVar[str] = "HEADRACE_TEST_MOSQUITTO"
    default_port: ClassVar[int] = 1883

    @classmethod
    def create(cls, directory: Path, options: MosquittoOptions | None = None) -> MosquittoServer:
        """See Server.create."""
        options = options or MosquittoOptions()
        port = reserve_ports(2, str(directory))
        login, outsider = make_login("headrace"), make_login("outsider")
        (directory / "data").mkdir()
        for each in (login, outsider):
            _add_password(directory / "passwords", each)
        access = directory / "access"
        access.touch(mode=0o600)
        access.write_text(f"user {login.name}\ntopic readwrite #\n")
        files = make_certificates(directory / "certificates")
        settings = {
            "per_listener_settings": "false", "allow_anonymous": "false", "password_file": f"{directory}/passwords",
            "acl_file": f"{directory}/access", "persistence": "true", "persistence_location": f"{directory}/data/",
            "max_queued_messages": "0",
            "max_inflight_messages": "1000", "user": "root", "log_dest": "stderr", **options.config,
        }  # fmt: skip
        lines = [f"{name} {value}" for name, value in settings.items()]
        lines += [f"listener {port} 127.0.0.1", f"listener {port + 1} 127.0.0.1"]
        lines += [f"cafile {files.authority}", f"certfile {files.server}", f"keyfile {files.server_key}"]
        (directory / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        server = cls(
            directory=directory, host="127.0.0.1", port=port, user=login.name, password=login.password, outsider=outsider,
            tls_port=port + 1, certificates=files,
        )  # fmt: skip
        server.save()
        return server

    @classmethod
    def prepared_marker(cls) -> Path:
        """See Server.prepared_marker."""
        require_program("mosquitto", _DEBIAN_PACKAGE)
        path = cache_directory() / "mosquitto"
        path.mkdir(exist_ok=True)
        return path / "prepared"

    def _launch(self, processes: ProcessGroup) -> None:
        if not processes.is_alive("mosquitto"):
            program = require_program("mosquitto", _DEBIAN_PACKAGE)
            processes.spawn("mosquitto", [str(program), "-c", f"{self._own_directory()}/mosquitto.conf"])
            processes.wait_until("mosquitto", self._answers, START_TIMEOUT)

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
        except OSError:
            return False
        return True


def _add_password(path: Path, login: Login) -> None:
    path.touch(mode=0o600)
    command = [str(require_program("mosquitto_passwd", _DEBIAN_PACKAGE)), "-b", str(path), login.name, login.password]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestServerError(f"mosquitto_passwd failed: {done.stderr}")
