"""A relay before a Kafka server that can say for a while that its cluster has no brokers, as a broker does that has just started."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

METADATA = 3
#: From this version on, the sizes in an answer about metadata are varints.
_FLEXIBLE = 9
#: A client that has not forgotten everything asks again in this time.
_FORGOTTEN_SECONDS = 2.5


class FencedBroker:
    """Passes everything on, and takes the brokers out of answers about metadata while ``has_no_brokers``."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.target = ("127.0.0.1", 0)
        self.has_no_brokers = False
        #: How often it has said so.
        self.told = 0
        self._told_seconds = 0.0
        self._connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def is_forgotten(self) -> bool:
        """Whether clients that were told have gone, and do not come back."""
        return self._connections == 0 and self.told > 0 and time.monotonic() - self._told_seconds > _FORGOTTEN_SECONDS

    def close(self) -> None:
        """Take no more connections."""
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
                server = socket.create_connection(self.target)
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        #: The versions of the requests for metadata that are not answered, by correlation id.
        asked: dict[int, int] = {}
        with client, server:
            self._connections += 1
            back = threading.Thread(target=self._pass_on, args=(server, client, asked, True), daemon=True)
            back.start()
            self._pass_on(client, server, asked, False)
            back.join()
            self._connections -= 1

    def _pass_on(self, source: socket.socket, target: socket.socket, asked: dict[int, int], answers: bool) -> None:
        try:
            while head := _exactly(source, 4):
                frame = _exactly(source, struct.unpack(">i", head)[0])
                if answers:
                    version = asked.pop(struct.unpack(">i", frame[:4])[0], None)
                    if version is not None and self.has_no_brokers:
                        frame = _without_brokers(frame, version)
                        self.told += 1
                        self._told_seconds = time.monotonic()
                else:
                    kind, version, correlation = struct.unpack(">hhi", frame[:8])
                    if kind == METADATA:
                        asked[correlation] = version
                target.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError:
            pass
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := source.recv(size - len(data))):
        data += piece
    return data if len(data) == size else b""


def _without_brokers(frame: bytes, version: int) -> bytes:
    """Return an answer about metadata without brokers: https://kafka.apache.org/protocol#The_Messages_Metadata."""
    flexible = version >= _FLEXIBLE
    at = begin = 4 + flexible + 4 * (version >= 3)
    count, at = _varint(frame, at) if flexible else (struct.unpack_from(">i", frame, at)[0] + 1, at + 4)
    for _ in range(count - 1):
        at = _behind_text(frame, at + 4, flexible=flexible) + 4
        if version >= 1:
            at = _behind_text(frame, at, flexible=flexible)
        at += flexible
    return frame[:begin] + (b"\x01" if flexible else bytes(4)) + frame[at:]


def _behind_text(frame: bytes, at: int, *, flexible: bool) -> int:
    if flexible:
        size, at = _varint(frame, at)
        return at + max(0, size - 1)
    (size,) = struct.unpack_from(">h", frame, at)
    return at + 2 + max(0, int(size))


def _varint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (frame[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if frame[at - 1] < 0x80:
            return value, at
