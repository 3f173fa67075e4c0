"""Sends messages to a receiver: in datagrams, or over a connection that is opened again when it breaks."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import ssl
import struct
import sys
import termios
import time
from abc import ABC, abstractmethod

import polars as pl
from headrace.foundation.errors import JobError, RetriableError
from headrace.foundation.sockets import wait_until_readable
from headrace.interfaces.connection_options import client_tls_context

from headrace_syslog.sink_settings import SyslogSinkSettings

#: With TLS 1.3, a receiver that requires another certificate says so only after the handshake. The sink waits this long
#: for that.
_REFUSAL_SECONDS = 0.5
_PAUSE_SECONDS = 0.0005
_READ_BYTES = 16 * 1024


class Sender(ABC):
    """Sends messages. One thread uses it at a time."""

    @abstractmethod
    def open(self) -> None:
        """Check that the receiver can be reached, as far as the protocol allows. Raises RetriableError, JobError."""

    @abstractmethod
    def send(self, messages: pl.Series) -> None:
        """Send messages. Raises RetriableError; some of them may have been sent then."""

    @abstractmethod
    def close(self) -> None:
        """End the connection. May be called twice."""


def sender_of(settings: SyslogSinkSettings) -> Sender:
    """Return the sender for the options. It connects when it is used."""
    return DatagramSender(settings) if settings.protocol == "udp" else StreamSender(settings)


def _retriable(settings: SyslogSinkSettings, error: BaseException) -> RetriableError:
    return RetriableError(f"{settings.host} port {settings.to_port} cannot be reached: {error}", plugin="syslog")


class DatagramSender(Sender):
    """Sends each message as a datagram. Nothing tells whether it arrives."""

    def __init__(self, settings: SyslogSinkSettings) -> None:
        self._settings = settings
        self._socket: socket.socket | None = None
        self._address: tuple[object, ...] = ()

    def open(self) -> None:
        if self._socket is not None:
            return
        settings = self._settings
        try:
            [(family, kind, _, _, self._address), *_] = socket.getaddrinfo(
                settings.host, settings.to_port, type=socket.SOCK_DGRAM
            )
            self._socket = socket.socket(family, kind)
        except OSError as error:
            raise _retriable(settings, error) from error

    def send(self, messages: pl.Series) -> None:
        self.open()
        assert self._socket is not None
        send, address = self._socket.sendto, self._address
        try:
            for message in messages.cast(pl.Binary).to_list():
                send(message, address)
        except OSError as error:
            self.close()
            raise _retriable(self._settings, error) from error

    def close(self) -> None:
        made, self._socket = self._socket, None
        if made is not None:
            made.close()


class StreamSender(Sender):
    """Sends messages over a connection, with TLS or without. The number of octets precedes each message (RFC 6587)."""

    def __init__(self, settings: SyslogSinkSettings) -> None:
        self._settings = settings
        self._timeout_seconds = settings.timeout.total_seconds()
        self._context = (
            client_tls_context(settings, plugin="syslog", verify=settings.ssl_verify)
            if settings.protocol == "tls"
            else None
        )
        self._socket: socket.socket | None = None

    def open(self) -> None:
        if self._socket is None:
            self._socket = self._connected()

    def send(self, messages: pl.Series) -> None:
        framed = pl.select(messages.str.len_bytes().cast(pl.String) + " " + messages).to_series().str.join("")[0]
        self._check_open()  # it is no error that an idle connection has ended
        self.open()
        assert self._socket is not None
        try:
            self._socket.sendall(framed.encode())
            self._await_acknowledged(self._socket)
        except OSError as error:
            self.close()
            raise _retriable(self._settings, error) from error
        if not self._check_open():
            raise _retriable(self._settings, ConnectionError("it ended the connection while messages were sent"))

    def close(self) -> None:
        made, self._socket = self._socket, None
        if made is not None:
            with contextlib.suppress(OSError):
                made.close()

    def _connected(self) -> socket.socket:
        settings = self._settings
        try:
            made = socket.create_connection((settings.host, settings.to_port), timeout=self._timeout_seconds)
        except OSError as error:
            raise _retriable(settings, error) from error
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._context is None:
                return made
            secured = self._context.wrap_socket(made, server_hostname=settings.host)
        except ssl.SSLCertVerificationError as error:
            made.close()
            raise JobError(
                f"the certificate of {settings.host} is not trusted: {error.verify_message}", plugin="syslog", option="ssl_ca",
                hint="name the file with the certificate of its authority",
            ) from error  # fmt: skip
        except OSError as error:
            made.close()
            raise _retriable(settings, error) from error
        self._await_refusal(secured)
        return secured

    def _await_refusal(self, secured: ssl.SSLSocket) -> None:
        """Raise JobError if the receiver refuses our certificate. Without this check, the first messages would be
        lost.
        """
        if secured.version() != "TLSv1.3" or not wait_until_readable(secured, _REFUSAL_SECONDS):
            return
        try:
            _read_all(secured)
        except OSError as error:
            secured.close()
            raise JobError(
                f"{self._settings.host} ends the connection after the handshake: {error}", plugin="syslog", option="ssl_certificate",
                hint="it probably requires a client certificate that its authority has signed",
            ) from error  # fmt: skip
        finally:
            if secured.fileno() >= 0:
                secured.settimeout(self._timeout_seconds)

    def _check_open(self) -> bool:
        """Return whether there is an open connection. Close a connection that the receiver has ended."""
        made = self._socket
        if made is None:
            return False
        try:
            ended = _read_all(made)
            made.settimeout(self._timeout_seconds)
        except OSError:
            ended = True
        if ended:
            self.close()
        return not ended

    def _await_acknowledged(self, made: socket.socket) -> None:
        """Wait until the receiver's kernel has acknowledged all data. Only Linux can tell. Raises OSError."""
        if sys.platform != "linux":
            return
        until = time.monotonic() + self._timeout_seconds
        while True:
            [unsent] = struct.unpack("i", fcntl.ioctl(made, termios.TIOCOUTQ, b"\0" * 4))
            if error := made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, "the connection was reset")
            if not unsent:
                return
            if time.monotonic() > until:
                raise TimeoutError(f"it has not acknowledged {unsent} bytes")
            time.sleep(_PAUSE_SECONDS)


def _read_all(made: socket.socket) -> bool:
    """Read and ignore data of the receiver, which has no meaning in syslog. Return whether the receiver has ended the
    connection. Raises OSError.
    """
    made.settimeout(0)
    try:
        while made.recv(_READ_BYTES):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    return True
