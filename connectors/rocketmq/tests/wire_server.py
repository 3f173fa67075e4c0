"""A server of the remoting protocol on a real socket that does what a test tells it; for tests of connections."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace_rocketmq.errors import ProtocolError
from headrace_rocketmq.frame import Frame, FrameReader, encode_frame

Answer = Callable[["Peer", Frame], None]


@dataclass(eq=False)
class Peer:
    """One accepted connection."""

    connected: socket.socket
    received: list[Frame] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def answer(self, request: Frame, body: bytes = b"", *, code: int = 0, remark: str | None = None) -> None:
        self.connected.sendall(encode_frame(code, request.opaque, {}, body, flag=1, remark=remark))

    def ask(self, code: int, fields: dict[str, str], *, flag: int = 0) -> None:
        self.connected.sendall(encode_frame(code, 99, fields, flag=flag))

    def wait_for(self, count: int) -> list[Frame]:
        """The frames received, once there are that many."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.received) >= count, 10), f"got only {self.received}"
            return list(self.received)


class WireServer:
    """Listens on a free port; calls `answer` for each frame in the thread of its connection."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.peers: list[Peer] = []
        self._accepted = threading.Condition()
        self._is_closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def peer(self, number: int = 0) -> Peer:
        """The connection accepted as the first, second, …"""
        with self._accepted:
            assert self._accepted.wait_for(lambda: len(self.peers) > number, 10), "nobody connected"
            return self.peers[number]

    def close(self) -> None:
        """Stop listening and end all connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._accepted:
            self._is_closed = True
            peers = list(self.peers)
        for peer in peers:
            end(peer.connected)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connected,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError, ProtocolError), connected:
            if self._context is not None:
                connected = self._context.wrap_socket(connected, server_side=True)
            peer = Peer(connected)
            with self._accepted:
                if self._is_closed:  # it was accepted while the server closed
                    return
                self.peers.append(peer)
                self._accepted.notify_all()
            reader = FrameReader()
            with connected:
                while data := connected.recv(65536):
                    for frame in reader.feed(data):
                        with peer.arrived:
                            peer.received.append(frame)
                            peer.arrived.notify_all()
                        self._answer(peer, frame)


def end(connected: socket.socket) -> None:
    """Break a connection, also for a thread that waits in it."""
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serving(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[WireServer]:
    """A server for the length of a test."""
    server = WireServer(answer, context)
    try:
        yield server
    finally:
        server.close()


def echo(peer: Peer, frame: Frame) -> None:
    """Answer with what came."""
    peer.answer(frame, frame.body)


def silence(_peer: Peer, _frame: Frame) -> None:
    """Answer nothing."""
