"""A relay between a client and a server, which a test can cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol


class HasAddress(Protocol):
    """A server at an address."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class Address(NamedTuple):
    """The address of a server that a test knows by nothing else."""

    host: str
    port: int


class Relay:
    """Passes connections on to the server, until it is cut: an outage that takes no time to begin and end."""

    def __init__(self, server: HasAddress, address: str = "127.0.0.1") -> None:
        """``address``: where it takes connections itself."""
        self._address = address
        self._target = (server.host, server.port)
        self._ends: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.port = 0
        #: When a client says this, the server hears it, but its answer is lost, and the connection with it. Once.
        self.lose_answer_to: bytes | None = None
        self.open()

    def open(self) -> None:
        """Take connections, on the same port as before."""
        self._listener = socket.create_server((self._address, self.port))
        self.port = self._listener.getsockname()[1]
        self._start(self._accept, self._listener)

    def cut(self) -> None:
        """End all connections and take no more. May be called twice."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        _shut(listener)
        self._threads[0].join()  # which accepts: no connection is added any more
        listener.close()
        for end in list(self._ends):
            _shut(end)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._ends.clear()

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._ends |= {client, server}
            self._start(self._serve, client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            losing = threading.Event()
            back = threading.Thread(target=_pass_on, args=(server, client, losing.is_set), daemon=True)
            back.start()
            _pass_on(client, server, lambda: False, lambda data: self._heard(data, losing))
            back.join()

    def _heard(self, data: bytes, losing: threading.Event) -> None:
        if self.lose_answer_to is not None and self.lose_answer_to in data:
            self.lose_answer_to = None
            losing.set()


def _pass_on(
    one: socket.socket,
    other: socket.socket,
    losing: Callable[[], bool],
    heard: Callable[[bytes], None] = lambda data: None,
) -> None:
    try:
        while data := one.recv(65536):
            heard(data)
            if losing():
                return
            other.sendall(data)
    except OSError:
        pass  # cut, which is what this is for
    finally:
        _shut(one)
        _shut(other)


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # closed already


class RelayedChecks:
    """Base of contracts whose server is reached through a relay, which is cut for an outage. A fixture calls ``serve``."""

    database: Any
    relay: Relay

    def serve(self, database: Any, server: HasAddress) -> Iterator[None]:
        """Have a database, and a relay to its server, until the check is over."""
        self.database, self.relay = database, Relay(server)
        yield
        self.relay.cut()
        self.database.close()

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the options by which the database is reached."""
        found: dict[str, Any] = self.database.options(port=self.relay.port, **more)
        return found

    def begin_outage(self) -> None:
        self.relay.cut()

    def end_outage(self) -> None:
        self.relay.open()
