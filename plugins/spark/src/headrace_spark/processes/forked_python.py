"""The driver's side of the fork server: starts it, and gives Spark a command that replaces Python."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

logger = logging.getLogger(__name__)

#: A longer path is no address of a socket on some systems. Spark's own sockets in the same directory have names of 42 bytes.
_DIRECTORY_BYTES_MAX = 60
_WAITING_MAX = 64
_END_SECONDS_MAX = 5.0
_SCRIPT = """#!/bin/sh
# Stands for Python where Spark starts one: a fork of a process that has imported what is needed.
exec {python} -I -S {client} {address} "$@"
"""


class ForkedPython:
    """A fork server and the command that asks it. Ends with ``stop``, or when the process that started it ends."""

    def __init__(self, directory: Path) -> None:
        self.command = directory / "python"
        self._address = directory / "fork"
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def is_started(self) -> bool:
        """Whether there is a server."""
        return self._server is not None

    def start(self, environment: Mapping[str, str]) -> bool:
        """Start the server with these environment variables, and do not wait for it. Return False where there can be none."""
        if len(str(self._address.parent).encode()) > _DIRECTORY_BYTES_MAX:
            logger.debug("%s is too long for the address of a socket: every Python process starts anew", self._address)
            return False
        try:
            self._start(environment)
        except OSError as error:
            logger.debug("every Python process starts anew: %s", error)
        if not os.access(self.command, os.X_OK):  # nothing in the temporary directory may be run
            self.stop()
        return self.is_started

    def _start(self, environment: Mapping[str, str]) -> None:
        self._write_command()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            # The socket is made here and not in the server, so that a client that connects early waits for the server.
            listening.bind(str(self._address))
            listening.listen(_WAITING_MAX)
            self._server = subprocess.Popen(
                [sys.executable, "-m", "headrace_spark.processes.fork_server", str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[listening.fileno()],
                start_new_session=True,  # Ctrl-C is for the driver alone
            )

    def _write_command(self) -> None:
        client = resources.files(__package__).joinpath("fork_client.py")
        parts = {"python": sys.executable, "client": str(client), "address": str(self._address)}
        self.command.write_text(_SCRIPT.format(**{name: shlex.quote(part) for name, part in parts.items()}))
        self.command.chmod(0o700)

    def stop(self) -> None:
        """End the server. Processes that it has made end when Spark's Java does. May be called twice."""
        if self._server is None:
            return
        assert self._server.stdin is not None
        self._server.stdin.close()
        try:
            self._server.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._server = None
