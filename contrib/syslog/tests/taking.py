"""A source that listens, and what tests send to it."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import headrace as hr
from headrace_buffer import Records
from headrace_syslog import SyslogSource, SyslogSourceSettings
from headrace_syslog.listener import SyslogListener

from tests.eventually import eventually


def free_port() -> int:
    """Return a port that is free for TCP and for UDP."""
    with socket.create_server(("127.0.0.1", 0)) as found, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(found.getsockname())
        return int(found.getsockname()[1])


def has_ipv6() -> bool:
    """Return whether this machine has the loopback address of IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return socket.has_dualstack_ipv6()


def make(directory: Path, **options: Any) -> SyslogSource:
    given = {"buffer": str(directory / "buffer"), **options}
    return SyslogSource(SyslogSourceSettings.of(given, plugin="syslog"))


class Taking:
    """A source over ports that are free, with its reader."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.source = make(directory, **options)
        self.reader = self.source.open(hr.Queue("buffer"), hr.EARLIEST)
        shared = self.source._shared
        assert shared is not None
        assert isinstance(shared.listener, SyslogListener)
        self.log = shared.log
        self.listener = shared.listener
        self.ports = self.listener.ports

    def connect(self, protocol: str = "tcp", *, host: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection((host, self.ports[protocol]))

    def connect_tls(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        return context.wrap_socket(self.connect("tls"), server_hostname="localhost")

    def send(self, data: bytes) -> None:
        """Send bytes over a TCP connection of their own."""
        with self.connect() as connection:
            connection.sendall(data)

    def send_datagrams(self, *bodies: bytes) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for body in bodies:
                sender.sendto(body, ("127.0.0.1", self.ports["udp"]))

    def records(self) -> Records | None:
        return self.log.read(self.log.earliest, 1_000_000)

    def stored(self) -> list[bytes]:
        """Return the first million of bodies that the buffer holds."""
        bodies: list[bytes] = []
        offset = self.log.earliest
        while (found := self.log.read(offset, 10_000)) is not None:
            bodies += found.bodies
            offset = found.end
        return bodies

    def await_stored(self, count: int) -> list[bytes]:
        """Return all bodies when there are so many."""
        eventually(lambda: self.log.latest - self.log.earliest >= count, f"{count} messages", shown=self.stored)
        return self.stored()

    def await_loss(self, reason: str, count: int) -> None:
        eventually(lambda: self.listener.losses().get(reason, 0) >= count, reason, shown=self.listener.losses)
        assert self.listener.losses()[reason] == count

    def trim(self) -> None:
        """Forget all records, as a checkpoint does."""
        self.source.stored({hr.Queue("buffer"): hr.ReadPosition(self.log.latest)})

    def close(self) -> None:
        self.source.close()


def counted(*bodies: bytes) -> bytes:
    """Return messages framed by their counts of octets."""
    return b"".join(b"%d %s" % (len(body), body) for body in bodies)
