"""A set of connections with the objects that use them: a client has one, and so has each of its consumers.

A broker has one member of a group per connection; so two consumers of one process must not share connections.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace_rocketmq.codes import RequestCode
from headrace_rocketmq.credentials import Credentials
from headrace_rocketmq.errors import RocketMQError
from headrace_rocketmq.offsets import Offsets
from headrace_rocketmq.pool import ConnectionPool
from headrace_rocketmq.remoting import Remoting
from headrace_rocketmq.routes import RouteTable

logger = logging.getLogger("headrace_rocketmq")

_MAINTENANCE_INTERVAL_S = 30.0
"""How often to ask for routes and to say something to each broker: servers close connections silent for two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How to connect."""

    name_servers: Sequence[str]
    timeout_s: float
    connect_timeout_s: float
    context: ssl.SSLContext | None = None
    server_name: str | None = None
    credentials: Credentials | None = None
    address_map: Mapping[str, str] = field(default_factory=dict)


class Session:
    """Connections, routes and offsets. Connects when first needed. Thread safe."""

    def __init__(self, settings: SessionSettings) -> None:
        self.pool = ConnectionPool(
            context=settings.context,
            server_name=settings.server_name,
            credentials=settings.credentials,
            connect_timeout_s=settings.connect_timeout_s,
            address_map=settings.address_map,
        )
        self.remoting = Remoting(self.pool, settings.name_servers, timeout_s=settings.timeout_s)
        self.routes = RouteTable(self.remoting)
        self.offsets = Offsets(self.remoting, self.routes)
        self._name_servers = frozenset(settings.name_servers)
        self._thread = threading.Thread(target=self._maintain, name="rocketmq-maintenance", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections and end all threads; calls in progress fail. May be called twice."""
        self.remoting.closed.set()
        self.pool.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    def _maintain(self) -> None:
        body = json.dumps({"clientID": "keep-alive", "producerDataSet": [], "consumerDataSet": []}).encode()
        while not self.remoting.closed.wait(_MAINTENANCE_INTERVAL_S):
            self.routes.refresh_all()
            for connection in self.pool.open_connections():
                if connection.address in self._name_servers:
                    continue  # requests for routes kept it open
                try:
                    connection.call(RequestCode.HEART_BEAT, body=body, timeout_s=self.remoting.timeout_s)
                except RocketMQError as error:
                    logger.warning("heartbeat: %s", error)
