"""Writes messages as a broker stores them; for tests of the decoder. Written from the format, apart from the decoder."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """One message in a broker's commit log."""

    body: bytes
    topic: str = "topic"
    properties: bytes = b""
    queue_id: int = 0
    flag: int = 0
    offset: int = 0
    system_flag: int = 0
    born_ms: int = 0
    store_ms: int = 0
    reconsume_times: int = 0
    born_host: str = "10.1.2.3"
    store_host: str = "10.1.2.4"
    has_long_topic: bool = False

    def encode(self) -> bytes:
        born, store = _host(self.born_host), _host(self.store_host)
        system_flag = self.system_flag | (16 if len(born) == 20 else 0) | (32 if len(store) == 20 else 0)
        topic = self.topic.encode()
        rest = b"".join(
            [
                struct.pack(">i", -626843477 if self.has_long_topic else -626843481),
                struct.pack(">i", 0x0BADC0DE),  # checksum
                struct.pack(">i", self.queue_id),
                struct.pack(">i", self.flag),
                struct.pack(">q", self.offset),
                struct.pack(">q", 123456789),  # physical offset
                struct.pack(">i", system_flag),
                struct.pack(">q", self.born_ms),
                born,
                struct.pack(">q", self.store_ms),
                store,
                struct.pack(">i", self.reconsume_times),
                struct.pack(">q", 0),  # prepared transaction
                struct.pack(">i", len(self.body)),
                self.body,
                struct.pack(">H" if self.has_long_topic else ">B", len(topic)),
                topic,
                struct.pack(">H", len(self.properties)),
                self.properties,
            ]
        )
        return struct.pack(">i", 4 + len(rest)) + rest


def _host(address: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.inet_pton(family, address) + struct.pack(">i", 10911)
