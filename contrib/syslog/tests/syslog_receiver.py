"""A receiver of syslog over TCP or TLS that counts octets, written apart from what the source does."""

from __future__ import annotations

import contextlib
import fcntl
import re
import select
import socket
import ssl
import struct
import termios
import threading
from dataclasses import dataclass, field

from tests.eventually import eventually

_HEAD = re.compile(rb"<(\d+)>1 (\S+) (\S+) (\S+) (\S+) (\S+) (-|\[.*?\])(?: (.*))?", re.DOTALL)


@dataclass
class Message:
    priority: int
    time: str
    host: str
    app: str
    process_id: str
    message_id: str
    structured_data: str
    text: bytes | None


def parsed(message: bytes) -> Message:
    """Return the parts of a message. Structured data must not hold ] within values."""
    found = _HEAD.fullmatch(message)
    assert found is not None, message
    priority, time, host, app, process_id, message_id, data, text = found.groups()
    return Message(
        int(priority), time.decode(), host.decode(), app.decode(), process_id.decode(), message_id.decode(), data.decode(), text
    )  # fmt: skip


@dataclass
class Receiver:
    """Listens from when it is made until ``stop``; ``start`` listens on the same port again."""

    context: ssl.SSLContext | None = None
    messages: list[bytes] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.start()

    def start(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        self._open: dict[socket.socket, bool] = {}
        self._thread = threading.Thread(target=self._accept, args=(self._listening,))
        self._thread.start()

    def stop(self) -> None:
        self.settle()
        # A thread that waits in accept is woken by shutdown, not by close.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):  # the sender has gone a moment ago
                    each.shutdown(socket.SHUT_RDWR)

    def settle(self) -> None:
        """Wait until all that has arrived is in ``messages``. Not with TLS."""
        eventually(self._settled, "the receiver has read all")

    def _settled(self) -> bool:
        with self._lock:
            if readable(self._listening, 0):
                return False
            return all(idle and not _unread(each) for each, idle in self._open.items())

    def _accept(self, listening: socket.socket) -> None:
        while True:
            readable(listening, None)
            try:
                with self._lock:  # a connection that waits no more is among the open ones
                    connection, _ = listening.accept()
                    self._open[connection] = True
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        try:
            if self.context is not None:
                connection = self.context.wrap_socket(plain.dup(), server_side=True)
            rest = b""
            while True:
                if self.context is None:
                    plain.recv(1, socket.MSG_PEEK)
                    with self._lock:
                        self._open[plain] = False
                data = connection.recv(100_000)
                if not data:
                    return
                rest = self._take(rest + data)
                with self._lock:
                    self._open[plain] = True
        except OSError:
            return
        finally:
            with self._lock:  # who looks at the open ones must not find a closed one
                self._open.pop(plain, None)
                connection.close()
                plain.close()

    def _take(self, data: bytes) -> bytes:
        while True:
            count, blank, behind = data.partition(b" ")
            if not blank or len(behind) < int(count):
                return data
            self.messages.append(behind[: int(count)])
            data = behind[int(count) :]


def _unread(connection: socket.socket) -> int:
    [count] = struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, b"\0" * 4))
    return int(count)


def readable(listening: socket.socket, wait_milliseconds: float | None) -> bool:
    """Return whether a connection waits; by poll, because select takes no descriptor above 1023."""
    waiting = select.poll()
    waiting.register(listening, select.POLLIN)
    return bool(waiting.poll(wait_milliseconds))
