"""Connections by address: opened when first needed, opened again with back-off when lost."""

from __future__ import annotations

import logging
import os
import random
import ssl
import threading
from collections.abc import Callable, Mapping

from headrace.foundation.retrying import Backoff

from headrace_rocketmq.codes import RequestCode, ResponseCode
from headrace_rocketmq.connection import Clock, Connection, monotonic_seconds
from headrace_rocketmq.credentials import Credentials
from headrace_rocketmq.errors import ClientClosedError, ConnectionFailedError
from headrace_rocketmq.frame import Frame
from headrace_rocketmq.transport import open_transport

logger = logging.getLogger("headrace_rocketmq")

_HOUSEKEEPING_INTERVAL_S = 1.0


class _Slot:
    """The state of one address. Its lock is held while connecting, so that one thread connects and the others wait."""

    def __init__(self, backoff: Backoff) -> None:
        self.lock = threading.Lock()
        self.connection: Connection | None = None
        self.backoff = backoff
        self.last_error = ""


class ConnectionPool:
    """All connections of a client, one per address. Thread safe."""

    def __init__(
        self,
        *,
        context: ssl.SSLContext | None = None,
        server_name: str | None = None,
        credentials: Credentials | None = None,
        connect_timeout_s: float = 5.0,
        address_map: Mapping[str, str] | None = None,
        clock: Clock = monotonic_seconds,
    ) -> None:
        """Opens nothing yet. `address_map`: address to connect to, by the address that a name server gives."""
        self._context = context
        self._server_name = server_name
        self._credentials = credentials
        self._connect_timeout_s = connect_timeout_s
        self._address_map = dict(address_map or {})
        self._clock = clock
        self._lock = threading.Lock()  # guards _slots and the replacing of the lists of listeners
        self._slots: dict[str, _Slot] = {}
        self._process_id = os.getpid()
        self._closed = threading.Event()
        self._request_listeners: list[Callable[[Connection, Frame], None]] = []
        self._lost_listeners: list[Callable[[str], None]] = []
        self._housekeeper = threading.Thread(target=self._keep_house, name="rocketmq-housekeeping", daemon=True)
        self._housekeeper.start()

    def on_request(self, listener: Callable[[Connection, Frame], None]) -> None:
        """Call `listener` with the requests of servers, in the reading thread of the connection."""
        with self._lock:
            self._request_listeners = [*self._request_listeners, listener]

    def on_lost(self, listener: Callable[[str], None]) -> None:
        """Tell `listener` the address of each connection that ends."""
        with self._lock:
            self._lost_listeners = [*self._lost_listeners, listener]

    def forget(
        self, request_listener: Callable[[Connection, Frame], None], lost_listener: Callable[[str], None]
    ) -> None:
        """Remove these two listeners, if they were registered."""
        with self._lock:
            self._request_listeners = [each for each in self._request_listeners if each != request_listener]
            self._lost_listeners = [each for each in self._lost_listeners if each != lost_listener]

    def get(self, address: str) -> Connection:
        """The connection to `address`; opened if necessary, which takes up to the connect timeout.

        Raises ConnectionFailedError, at once if the address failed a moment ago, and ClientClosedError.
        """
        if os.getpid() != self._process_id:  # threads do not survive a fork: calls would wait for ever
            raise ClientClosedError("the client was made before this process was forked; make one in each process")
        with self._lock:
            slot = self._slots.get(address)
            if slot is None:
                slot = self._slots[address] = _Slot(Backoff(monotonic=self._clock, jitter=random.random))
        connection = slot.connection
        if connection is not None and connection.is_open and not self._closed.is_set():
            return connection
        with slot.lock:
            if self._closed.is_set():
                raise ClientClosedError("the client is closed")
            if slot.connection is not None and slot.connection.is_open:
                return slot.connection
            if (remaining_s := slot.backoff.remaining_seconds()) > 0:
                raise ConnectionFailedError(address, slot.last_error, retry_after_s=remaining_s)
            slot.connection = self._open(address, slot)
            return slot.connection

    def is_troubled(self, address: str) -> bool:
        """Whether a connection to the address was wanted, and there is none now."""
        with self._lock:
            slot = self._slots.get(address)
        return slot is not None and (slot.connection is None or not slot.connection.is_open)

    def open_connections(self) -> list[Connection]:
        """The connections that are open at this moment."""
        with self._lock:
            slots = list(self._slots.values())
        return [slot.connection for slot in slots if slot.connection is not None and slot.connection.is_open]

    def close(self) -> None:
        """Close all connections and end all threads. Open requests fail with ConnectionLostError."""
        self._closed.set()
        with self._lock:
            slots = list(self._slots.values())
        for slot in slots:
            with slot.lock:  # after a thread that is connecting at this moment
                if slot.connection is not None:
                    slot.connection.close()
        if threading.current_thread() is not self._housekeeper:
            self._housekeeper.join(5.0)

    def _open(self, address: str, slot: _Slot) -> Connection:
        target = self._address_map.get(address, address)
        try:
            transport = open_transport(target, self._context, self._server_name, self._connect_timeout_s)
        except ConnectionFailedError as error:
            slot.last_error = error.reason
            error.retry_after_s = slot.backoff.failed()
            raise
        return Connection(
            address,
            transport,
            credentials=self._credentials,
            on_request=self._tell_request,
            on_lost=self._tell_lost,
            clock=self._clock,
        )

    def _tell_request(self, connection: Connection, frame: Frame) -> None:
        for listener in self._request_listeners:
            listener(connection, frame)
        if frame.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            remark = f"this client does not answer request {frame.code}"
            connection.answer(frame, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    def _tell_lost(self, connection: Connection) -> None:
        with self._lock:
            backoff = self._slots[connection.address].backoff
        if connection.has_answered:
            backoff.succeeded()
        else:
            backoff.failed()
        if not self._closed.is_set():
            logger.warning("%s", connection.failure())
        for listener in self._lost_listeners:
            listener(connection.address)

    def _keep_house(self) -> None:
        while not self._closed.wait(_HOUSEKEEPING_INTERVAL_S):
            for connection in self.open_connections():
                connection.expire()
