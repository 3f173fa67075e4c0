"""Byte streams to a server: plain TCP and TLS.

A connection has one reading thread and any number of writing ones. A plain socket allows this. A TLS session does not allow
reading and writing at the same time, so `TlsTransport` holds the session between two memory buffers: the session is touched
under a lock, briefly, and the socket is read and written outside of it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headrace_rocketmq.errors import ConfigurationError, ConnectionFailedError

_RECEIVE_BYTES = 256 * 1024
_KEEP_ALIVE_IDLE_S = 30
_KEEP_ALIVE_INTERVAL_S = 10
_KEEP_ALIVE_PROBES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The TLS settings for name servers and brokers.

    By default the server's certificate must be signed by a known authority and contain the host of the address; brokers mostly
    have IP addresses, which the certificate must then contain as an alternative name.
    """

    ca_file: Path | str | None = None
    """Certificates of the trusted authorities, PEM; None: those of the system."""
    cert_file: Path | str | None = None
    """The client's certificate, if the server asks for one."""
    key_file: Path | str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    """False accepts any certificate: the connection is encrypted, but anybody on the way can read and change the data."""
    check_host: bool = True
    """False accepts a trusted certificate of any host."""
    server_name: str | None = None
    """The name to ask for and to check, instead of the address's host."""

    def context(self) -> ssl.SSLContext:
        """The settings as a context of Python's ssl module. Raises ConfigurationError for files that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file, self.key_password)
        except (OSError, ssl.SSLError) as error:
            files = f"ca_file={self.ca_file}, cert_file={self.cert_file}, key_file={self.key_file}"
            raise ConfigurationError(f"the TLS files cannot be used ({files}): {error}") from error
        if not (self.verify and self.check_host):
            context.check_hostname = False
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        return context


class Transport(Protocol):
    """A connected byte stream. `send` may be called from several threads if these hold one lock; `receive` by one."""

    def send(self, data: bytes) -> None:
        """Send all bytes; wait as long as the peer does not read."""

    def receive(self) -> bytes | memoryview:
        """The received bytes; waits for at least one byte; empty at the end. Valid until the next call."""

    def shut_down(self) -> None:
        """End both directions; wakes a waiting `receive` or `send`, which then raises or gives nothing."""

    def close(self) -> None:
        """Free the socket; called when no other thread uses it any more, because its number may be used again."""


class PlainTransport:
    """TCP without encryption."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._view = memoryview(bytearray(_RECEIVE_BYTES))

    def send(self, data: bytes) -> None:
        """See Transport."""
        self._socket.sendall(data)

    def receive(self) -> bytes | memoryview:
        """See Transport."""
        return self._view[: self._socket.recv_into(self._view)]

    def shut_down(self) -> None:
        """See Transport."""
        _shut_down(self._socket)

    def close(self) -> None:
        """See Transport."""
        self._socket.close()


class TlsTransport:
    """TLS over TCP."""

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, server_name: str, timeout_s: float) -> None:
        """Makes the handshake, in ``timeout_s`` in total, also if the peer sends byte by byte.

        Raises OSError, of which ssl.SSLError is one.
        """
        self._socket = connected
        deadline = time.monotonic() + timeout_s
        self._lock = threading.Lock()  # guards the session and its two buffers
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        while True:
            try:
                self._session.do_handshake()
                break
            except ssl.SSLWantReadError:
                _bound_by(self._socket, deadline, timeout_s)
                self._socket.sendall(self._outgoing.read())
                _bound_by(self._socket, deadline, timeout_s)
                data = self._socket.recv(_RECEIVE_BYTES)
                if not data:
                    raise ConnectionResetError("closed during the TLS handshake") from None
                self._incoming.write(data)
        _bound_by(self._socket, deadline, timeout_s)
        self._socket.sendall(self._outgoing.read())

    def send(self, data: bytes) -> None:
        """See Transport."""
        with self._lock, memoryview(data) as view:
            written = 0
            while written < len(view):
                written += self._session.write(view[written:])  # one TLS record at a time
            encrypted = self._outgoing.read()
        self._socket.sendall(encrypted)

    def receive(self) -> bytes | memoryview:
        """See Transport."""
        while True:
            with self._lock:
                try:
                    # Messages of the session itself (key updates) are sent with the next `send`.
                    return self._session.read(_RECEIVE_BYTES)
                except ssl.SSLWantReadError:
                    pass
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return b""
            data = self._socket.recv(_RECEIVE_BYTES)
            with self._lock:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()

    def shut_down(self) -> None:
        """See Transport."""
        _shut_down(self._socket)

    def close(self) -> None:
        """See Transport."""
        self._socket.close()


def _bound_by(connected: socket.socket, deadline: float, timeout_s: float) -> None:
    """Give the next step the remaining time of the handshake. Raises TimeoutError when nothing is."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"the TLS handshake was not done within {timeout_s:g} s")
    connected.settimeout(left)


def _shut_down(connected: socket.socket) -> None:
    # shutdown, unlike close, wakes a thread that waits in recv; it fails if the peer was faster.
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of "host:port", "[::1]:port" too. Raises ConfigurationError."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"{address!r} is not of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def open_transport(
    address: str, context: ssl.SSLContext | None, server_name: str | None, timeout_s: float
) -> Transport:
    """Connect to host:port, with TLS if there is a context. Raises ConnectionFailedError."""
    host, port = split_address(address)
    try:
        connected = socket.create_connection((host, port), timeout_s)
    except OSError as error:
        raise ConnectionFailedError(
            address, f"{error}: check that the server is running and that this is its address"
        ) from error
    try:
        _set_options(connected)
        if context is None:
            transport: Transport = PlainTransport(connected)
        else:
            transport = TlsTransport(connected, context, server_name or host, timeout_s)
        connected.settimeout(None)
    except OSError as error:
        connected.close()
        raise ConnectionFailedError(address, f"{error}") from error
    return transport


def _set_options(connected: socket.socket) -> None:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEP_ALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEP_ALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEP_ALIVE_PROBES),
    ):
        if hasattr(socket, name):  # not on every system
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
