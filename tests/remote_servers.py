"""A web server and an SSH server over directories, for tests."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually


class _Handler(SimpleHTTPRequestHandler):
    """Files of a directory, with ranges, as usual web servers give them."""

    server: WebServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *told: Any) -> None:
        self.server.requests.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())

    def send_head(self) -> Any:
        if self.server.status is not None:
            self.send_error(self.server.status)
            return None
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if found is None or not path.is_file() or not self.server.ranges:
            return super().send_head()
        begin, end = int(found[1]), int(found[2]) + 1
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read(end - begin)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(data) - 1}/{path.stat().st_size}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        return None


class WebServer(ThreadingHTTPServer):
    """Serves ``directory``. ``status``: what it answers instead of files; ``ranges``: whether it knows them."""

    daemon_threads = True

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), lambda *given: _Handler(*given, directory=str(directory)))
        self.directory = directory
        self.status: int | None = None
        self.ranges = True
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may go away."""

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class SshServer:
    """OpenSSH's server, of this user, for one key."""

    def __init__(self, directory: Path) -> None:
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        if not os.path.exists(program):
            pytest.skip("sshd is not installed")
        self._directory = directory
        for name in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
            subprocess.run(command, check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        shutil.copy(directory / "user.pub", directory / "authorized")
        key = (directory / "host.pub").read_text().rsplit(" ", 1)[0]
        self.known_hosts = directory / "known_hosts"
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {key}\n")
        self.key = directory / "user"
        lines = [
            f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {directory / 'host'}", "UsePAM no", "StrictModes no",
            f"AuthorizedKeysFile {directory / 'authorized'}", f"PidFile {directory / 'pid'}", "Subsystem sftp internal-sftp",
            "PermitRootLogin yes",
        ]  # fmt: skip
        (directory / "config").write_text("\n".join(lines) + "\n")
        os.makedirs("/run/sshd", exist_ok=True)
        self._program = program
        self.start()

    @property
    def url(self) -> str:
        return f"sftp://{getpass.getuser()}@127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [self._program, "-D", "-e", "-f", str(self._directory / "config")]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, start_new_session=True)
        eventually(self._listens, "sshd listens")

    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """End the server and the sessions that it has begun."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._process.terminate()
        self._process.wait()
        for child in children:
            subprocess.run(["kill", child], check=False, stderr=subprocess.DEVNULL)
