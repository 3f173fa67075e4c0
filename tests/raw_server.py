"""A server that speaks no protocol: it does with each connection what a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable


class RawServer:
    """Reads one request of each connection and then does what it is told with the socket. Keeps all bytes that came."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self.received = b""
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.url = f"http://{self.address}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return
            with connected:
                try:
                    self.received += connected.recv(65536)
                    self._answer(connected)
                except OSError:
                    continue

    def close(self) -> None:
        self._listening.close()
