"""Makes the sockets that the source listens on, and reads how many datagrams the kernel dropped."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from pathlib import Path

from headrace.foundation.errors import JobError

from headrace_syslog.source_settings import SyslogSourceSettings

logger = logging.getLogger(__name__)
_BACKLOG = 512
_PROC_TABLES = (Path("/proc/net/udp"), Path("/proc/net/udp6"))


def listening(settings: SyslogSourceSettings, port: int, option: str) -> socket.socket:
    """Return a socket that listens on a TCP port. Raises JobError."""
    try:
        made = socket.create_server(
            (settings.host, port), family=_family(settings.host), backlog=_BACKLOG,
            dualstack_ipv6=settings.host == "::" and socket.has_dualstack_ipv6(),
        )  # fmt: skip
    except OSError as error:
        raise _refused(settings, port, option, error) from error
    made.setblocking(False)
    return made


def receiving(settings: SyslogSourceSettings, port: int, option: str) -> socket.socket:
    """Return a socket that receives datagrams. Raises JobError."""
    made = socket.socket(_family(settings.host), socket.SOCK_DGRAM)
    try:
        if settings.host == "::" and socket.has_dualstack_ipv6():
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.udp_receive_bytes)
        made.bind((settings.host, port))
    except OSError as error:
        made.close()
        raise _refused(settings, port, option, error) from error
    made.setblocking(False)
    # Linux doubles the requested size, because it counts its own overhead, too.
    given = made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    if given < settings.udp_receive_bytes:
        logger.info(
            "syslog: the kernel keeps %d bytes of datagrams, not %d; raise net.core.rmem_max if datagrams are lost",
            given, settings.udp_receive_bytes,
        )  # fmt: skip
    return made


def dropped_datagrams(of: socket.socket) -> int:
    """Return how many datagrams the kernel has dropped since the socket was created; 0 on systems that do not tell."""
    number = str(os.fstat(of.fileno()).st_ino)
    for table in _PROC_TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if len(fields) >= 13 and fields[9] == number:
                return int(fields[12])
    return 0


def tls_context(settings: SyslogSourceSettings) -> ssl.SSLContext:
    """Return the TLS context for connections. Raises JobError."""
    assert settings.ssl_certificate is not None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # No session tickets are sent. Many senders of syslog never read. If such a sender closes its connection while a
    # ticket is unread, its kernel resets the connection, and our kernel drops what the sender had sent before.
    context.num_tickets = 0
    try:
        context.load_cert_chain(settings.ssl_certificate, settings.ssl_key)
        if settings.ssl_client_ca:
            context.load_verify_locations(settings.ssl_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise JobError(
            f"the certificate or its key cannot be used: {error}", plugin="syslog", option="ssl_certificate"
        ) from error
    return context


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _refused(settings: SyslogSourceSettings, port: int, option: str, error: OSError) -> JobError:
    low = 0 < port < 1024 and isinstance(error, PermissionError)
    return JobError(
        f"cannot listen on {settings.host} port {port}: {error}", plugin="syslog", option=option,
        hint="ports below 1024 need the capability CAP_NET_BIND_SERVICE: give it, or forward the port to a higher one" if low
        else "another program probably uses the port: choose another port",
    )  # fmt: skip
