"""A broker that shakes hands as a test tells it, on a real socket. It keeps every byte that a client sent."""

from __future__ import annotations

import base64
import re
import socket
import struct
import threading
from collections.abc import Callable, Sequence

_PRODUCE_TO_METADATA = ((3, 0, 4), (17, 0, 1), (18, 0, 0), (36, 0, 0))
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36


class HostileBroker:
    """Answers ApiVersions, offers ``mechanisms`` and gives what ``authenticate`` makes of each token.

    ``authenticate`` is called with the token and how many came before; None closes the connection. ``raw`` is sent instead of
    any answer from the request numbered ``raw_from`` on, counted from 0 on each connection.
    """

    def __init__(
        self,
        mechanisms: Sequence[str] = (),
        authenticate: Callable[[bytes, int], bytes | None] | None = None,
        *,
        raw: Callable[[socket.socket], None] | None = None,
        raw_from: int = 0,
    ) -> None:
        self._mechanisms = mechanisms
        self._authenticate = authenticate
        self._raw = raw
        self._raw_from = raw_from
        #: All that came, of all connections; and the kinds of requests, in order.
        self.received = b""
        self.asked: list[int] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        tokens = requests = 0
        with connected:
            try:
                while frame := self._frame(connected):
                    kind, version, correlation = struct.unpack(">hhi", frame[:8])
                    self.asked.append(kind)
                    if self._raw is not None and requests >= self._raw_from:
                        self._raw(connected)
                        return
                    requests += 1
                    body = self._body(kind, version, frame, tokens)
                    tokens += kind == SASL_AUTHENTICATE
                    if body is None:
                        return
                    answer = struct.pack(">i", correlation) + body
                    connected.sendall(struct.pack(">i", len(answer)) + answer)
            except OSError:
                return

    def _frame(self, connected: socket.socket) -> bytes:
        head = self._exactly(connected, 4)
        return self._exactly(connected, struct.unpack(">i", head)[0]) if len(head) == 4 else b""

    def _exactly(self, connected: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size and (piece := connected.recv(size - len(data))):
            data += piece
        self.received += data
        return data

    def _body(self, kind: int, version: int, frame: bytes, tokens: int) -> bytes | None:
        if kind == API_VERSIONS:
            error = 0 if version == 0 else 35  # a client that is told so asks again, in version 0
            apis = b"".join(struct.pack(">hhh", *each) for each in _PRODUCE_TO_METADATA)
            return struct.pack(">hi", error, len(_PRODUCE_TO_METADATA)) + apis
        if kind == SASL_HANDSHAKE:
            (length,) = struct.unpack(">h", frame[8:10])
            asked = frame[10 + max(0, length) :]
            (size,) = struct.unpack(">h", asked[:2])
            known = asked[2 : 2 + size].decode() in self._mechanisms
            listed = b"".join(struct.pack(">h", len(each)) + each.encode() for each in self._mechanisms)
            return struct.pack(">hi", 0 if known else 33, len(self._mechanisms)) + listed
        if kind == SASL_AUTHENTICATE and self._authenticate is not None:
            (length,) = struct.unpack(">h", frame[8:10])
            rest = frame[10 + max(0, length) :]
            (size,) = struct.unpack(">i", rest[:4])
            token = self._authenticate(rest[4 : 4 + size], tokens)
            return None if token is None else struct.pack(">hhi", 0, -1, len(token)) + token
        return None


def scram_with_wrong_signature(token: bytes, before: int) -> bytes | None:
    """Play a server that does not know the password: it takes any proof and gives a signature of its own."""
    if before == 0:
        nonce = re.search(rb"r=([^,]+)", token)
        assert nonce is not None
        return b"r=" + nonce[1] + b"server,s=" + base64.b64encode(b"salt" * 4) + b",i=4096"
    return b"v=" + base64.b64encode(bytes(64))


def scram_that_takes_for_ever(token: bytes, before: int) -> bytes | None:
    """Ask for so many rounds of hashing that a client would be at it for hours."""
    nonce = re.search(rb"r=([^,]+)", token)
    assert nonce is not None
    return b"r=" + nonce[1] + b"server,s=" + base64.b64encode(b"salt" * 4) + b",i=2000000000"
