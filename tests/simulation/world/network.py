"""The network of a simulated world: connections to servers that are objects of the world.

What a client sends is given to the server at once, in the client's thread; what the server sends arrives a moment later, in order. A
connection breaks when its server goes away, by chance, or because its process was killed, which the server notices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from tests.simulation.world.scheduler import Crashed, Process, Task, World

_LATENCY_US = 300


class NetworkServer(ABC):
    """A server. ``away``: spans of microseconds in which it is not there; ``lossy``: how many of 100 sends break the connection."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.away: list[tuple[int, int]] = []
        self.lossy = 0.0
        self.connections: list[Connected] = []

    @abstractmethod
    def received(self, connection: Connected, data: bytes) -> None:
        """Take what a client has sent."""

    def lost(self, connection: Connected) -> None:
        """A connection has ended, whoever ended it."""

    @property
    def is_away(self) -> bool:
        return any(begin <= self.world.us < end for begin, end in self.away)

    def notice(self) -> None:
        """End the connections of processes that were killed, and all of them while the server is away. Call it now and then."""
        for each in list(self.connections):
            if each.process.dead:
                each.end()
            elif self.is_away:
                each.end(ConnectionResetError(104, "Connection reset by peer"))


class Network:
    """All servers, by host and port."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.servers: dict[tuple[str, int], NetworkServer] = {}

    def connect(self, address: tuple[str, int]) -> Connected:
        """Connect, as ``socket.create_connection`` does. Raises OSError."""
        server = self.servers[address]
        self.world.step(server.name, "connect")
        self.world.pause(_LATENCY_US)
        server.notice()
        if server.is_away or self.world.random.random() < server.lossy:
            self.world.trace.add(self.world.us, server.name, "fails", "connect: it is not there")
            raise ConnectionRefusedError(111, "Connection refused")
        return Connected(server)


class Connected:
    """A connected socket, as far as it is used. One thread reads it; any may write."""

    def __init__(self, server: NetworkServer) -> None:
        self._server, self._world = server, server.world
        self.process: Process = self._world.current.process
        self._arrived: deque[tuple[int, bytes]] = deque()
        self._failure: OSError | None = None
        self._is_open = True
        self._reader: Task | None = None
        server.connections.append(self)

    # ------------------------------------------------------------------------------------------ what a client calls

    def sendall(self, data: bytes) -> None:
        world, server = self._world, self._server
        world.step(server.name, f"send {len(data)} bytes")
        server.notice()
        if not self._is_open:
            raise self._failure or BrokenPipeError(32, "Broken pipe")
        draw = world.random.random()
        if draw < server.lossy / 2:
            world.trace.add(world.us, server.name, "fails", "send: it is not there")
        else:
            server.received(self, bytes(data))
        if draw < server.lossy and self._is_open:
            if draw >= server.lossy / 2:
                world.trace.add(world.us, server.name, "fails", "send: its answer was lost")
                self._arrived.clear()
            self.end(ConnectionResetError(104, "Connection reset by peer"))

    def recv_into(self, view: memoryview) -> int:
        world = self._world
        while True:
            if world.current.process.dead:
                raise Crashed
            if self._arrived and self._arrived[0][0] <= world.us:
                _, data = self._arrived.popleft()
                size = min(len(data), len(view))
                view[:size] = data[:size]
                if size < len(data):
                    self._arrived.appendleft((world.us, data[size:]))
                world.step(f"{self._server.name}.done", f"receive {size} bytes")
                return size
            if not self._is_open:
                if self._failure is not None:
                    raise self._failure
                return 0
            self._reader = world.current
            world.pause(self._arrived[0][0] - world.us if self._arrived else None)

    def shutdown(self, how: int) -> None:
        if self._world.current.process.dead:
            raise Crashed
        self.end()

    def close(self) -> None:
        self.shutdown(0)

    def settimeout(self, seconds: float | None) -> None:
        """Connecting is all that has one."""

    def setsockopt(self, *_: Any) -> None:
        """Nothing to set."""

    # ------------------------------------------------------------------------------------------ what a server calls

    @property
    def is_open(self) -> bool:
        return self._is_open

    def send(self, data: bytes, *, after_us: int = 0) -> None:
        """Let something arrive at the client."""
        if not self._is_open:
            return
        world = self._world
        at = world.us + after_us + int(_LATENCY_US * (0.5 + world.random.random()))
        self._arrived.append((max(at, self._arrived[-1][0]) if self._arrived else at, data))
        if self._reader is not None:
            world.wake(self._reader)

    def end(self, failure: OSError | None = None) -> None:
        """End the connection in both directions."""
        if self._is_open:
            self._is_open, self._failure = False, failure
            self._server.connections.remove(self)
            self._server.lost(self)
            if self._reader is not None:
                self._world.wake(self._reader)
