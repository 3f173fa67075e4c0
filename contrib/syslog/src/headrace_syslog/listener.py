"""Listens while the source is open: datagrams and connections write into one log."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Mapping

from headrace.foundation.errors import JobError
from headrace_buffer import Listener, RecordLog

from headrace_syslog.connections import ConnectionReceiver
from headrace_syslog.datagrams import DatagramReceiver
from headrace_syslog.losses import Losses
from headrace_syslog.sockets import listening, receiving, tls_context
from headrace_syslog.source_settings import SyslogSourceSettings

logger = logging.getLogger(__name__)


class SyslogListener(Listener):
    """Listens from its creation until ``close``. Raises JobError if a port or the certificate cannot be used."""

    def __init__(self, log: RecordLog, settings: SyslogSourceSettings) -> None:
        self._losses = Losses()
        self._datagrams: DatagramReceiver | None = None
        self._connections: ConnectionReceiver | None = None
        #: The ports it listens on, by protocol: ``udp``, ``tcp``, ``tls``.
        self.ports: dict[str, int] = {}
        made: list[socket.socket] = []
        streams: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        datagrams: socket.socket | None = None
        try:
            context = None if settings.tls_port is None else tls_context(settings)
            for protocol, port in (("udp", settings.udp_port), ("tcp", settings.tcp_port), ("tls", settings.tls_port)):
                if port is None:
                    continue
                make = receiving if protocol == "udp" else listening
                made.append(make(settings, port, f"{protocol}_port"))
                self.ports[protocol] = made[-1].getsockname()[1]
                if protocol == "udp":
                    datagrams = made[-1]
                else:
                    streams.append((made[-1], context if protocol == "tls" else None))
        except BaseException:
            for each in made:
                each.close()
            raise
        if datagrams is not None:
            self._datagrams = DatagramReceiver(log, datagrams, settings, self._losses)
        if streams:
            self._connections = ConnectionReceiver(log, streams, settings, self._losses)
        shown = ", ".join(f"{port} ({protocol})" for protocol, port in self.ports.items())
        logger.info("syslog is taken at %s port %s", settings.host, shown)

    def check(self) -> None:
        """Raise JobError if a receiver has ended; log what was lost."""
        for receiver in (self._datagrams, self._connections):
            if receiver is not None and receiver.failure is not None:
                error = receiver.failure
                raise JobError(f"the source accepts no more syslog messages: {error}", plugin="syslog") from error
        self._losses.tell()

    def losses(self) -> Mapping[str, int]:
        """Return how many messages were lost since the start, by reason."""
        if self._datagrams is not None:
            self._datagrams.count_kernel_losses()
        return self._losses.counts()

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()
        if self._datagrams is not None:
            self._datagrams.close()
        self._losses.tell(at_once=True)
