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
from tests.listening_sources import Listening


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


class Taking(Listening):
    """A source over ports that are free, with its reader."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(make(directory, **options))
        self.listener: SyslogListener
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


def counted(*bodies: bytes) -> bytes:
    """Return messages framed by their counts of octets."""
    return b"".join(b"%d %s" % (len(body), body) for body in bodies)
