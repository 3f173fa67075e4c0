"""Checks the host key of an SSH server."""

from __future__ import annotations

import os
from typing import Any

import paramiko


class UnknownHostKeyError(paramiko.SSHException):  # type: ignore[misc]
    """The key of a server is not known."""


class KnownHostsPolicy(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Accepts the keys of a known_hosts file in the format of OpenSSH, and refuses all other keys."""

    def __init__(self, path: str) -> None:
        self._path = os.path.expanduser(path)

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Raise UnknownHostKeyError unless the file has this key for this host."""
        known = paramiko.HostKeys()
        if os.path.exists(self._path):
            known.load(self._path)
        if not known.check(hostname, key):
            raise UnknownHostKeyError(
                f"the key of {hostname} ({key.get_name()}) is not in {self._path}: add it, as by ssh-keyscan, or name the right file by "
                "the option known_hosts"
            )
