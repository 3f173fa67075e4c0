"""Free TCP ports that no other test server of this user has been promised."""

from __future__ import annotations

import json
import random
import socket
from contextlib import ExitStack

from tests.servers.directories import locked, run_directory
from tests.servers.errors import TestServerError

# Below the range from which the kernel takes ports for outgoing connections (32768 and up on Linux).
_FIRST_PORT, _LAST_PORT = 20_000, 31_999
_RESERVATIONS = "ports.json"


def reserve_ports(count: int, owner: str) -> int:
    """The first of `count` neighbouring free ports on 127.0.0.1, kept for `owner` until `release_ports(owner)`.

    They stay reserved while the server is down, so that it can come back on the same ports.
    """
    with locked(run_directory() / "ports.lock"):
        reserved = _read()
        taken = {port for ports in reserved.values() for port in ports}
        for _ in range(1000):
            first = random.randrange(_FIRST_PORT, _LAST_PORT - count)
            ports = range(first, first + count)
            if taken.isdisjoint(ports) and _all_free(ports):
                _write({**reserved, owner: [*reserved.get(owner, []), *ports]})
                return first
    raise TestServerError(f"no {count} neighbouring free ports between {_FIRST_PORT} and {_LAST_PORT}")


def release_ports(owner: str) -> None:
    """Give back every port of `owner`; nothing happens if it has none."""
    with locked(run_directory() / "ports.lock"):
        reserved = _read()
        if reserved.pop(owner, None) is not None:
            _write(reserved)


def _read() -> dict[str, list[int]]:
    path = run_directory() / _RESERVATIONS
    return json.loads(path.read_text()) if path.exists() else {}


def _write(reserved: dict[str, list[int]]) -> None:
    (run_directory() / _RESERVATIONS).write_text(json.dumps(reserved, indent=1))


def _all_free(ports: range) -> bool:
    with ExitStack() as stack:
        for port in ports:
            probe = stack.enter_context(socket.socket())
            # As the servers do: a port that only waits out old connections counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
