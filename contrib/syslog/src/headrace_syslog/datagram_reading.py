"""Reads datagrams of a socket, many with one call where the system can (Linux).

Each call of Python's ``socket`` releases the interpreter lock. If another thread is busy, the lock comes back up to
five milliseconds later. With one call for each datagram, a job that decodes records would leave time for a few hundred
datagrams a second. ``recvmmsg`` by ctypes keeps the lock, and never blocks.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
from abc import ABC, abstractmethod

import numpy as np

_AT_ONCE_MAX = 1024
_AREA_BYTES = 32 * 1024**2
_NAME_BYTES = 28
#: ``struct mmsghdr`` of 64-bit Linux, little-endian. The padding is where glibc and musl differ; it is zero.
_HEADER = np.dtype(
    [
        ("name", "<u8"), ("name_length", "<u4"), ("gap", "<u4"), ("parts", "<u8"), ("part_count", "<u8"), ("control", "<u8"),
        ("control_length", "<u8"), ("flags", "<i4"), ("gap_behind_flags", "<u4"), ("length", "<u4"), ("gap_at_end", "<u4"),
    ]
)  # fmt: skip
_PART = np.dtype([("base", "<u8"), ("length", "<u8")])
#: Position of the address in ``struct sockaddr_in`` and ``sockaddr_in6``.
_ADDRESSES = {socket.AF_INET: slice(4, 8), socket.AF_INET6: slice(8, 24)}


class DatagramReader(ABC):
    """Reads what a socket that does not block has received. Used by one thread."""

    @abstractmethod
    def read(self) -> tuple[list[bytes], list[str]]:
        """Return datagrams that are waiting and the address of each sender; an empty list if none is waiting. Raises
        OSError.

        A datagram that is longer than ``message_bytes`` is cut to one byte more.
        """


class EachDatagram(DatagramReader):
    """Reads one datagram after the other."""

    def __init__(self, of: socket.socket, message_bytes: int) -> None:
        self._socket = of
        self._size = message_bytes + 1

    def read(self) -> tuple[list[bytes], list[str]]:
        bodies: list[bytes] = []
        peers: list[str] = []
        try:
            while len(bodies) < _AT_ONCE_MAX:
                body, address = self._socket.recvfrom(self._size)
                bodies.append(body)
                peers.append(address[0])
        except (BlockingIOError, InterruptedError):
            pass
        return bodies, peers


class ManyDatagrams(DatagramReader):
    """Reads many datagrams with one call of ``recvmmsg``. Raises OSError where there is no such call."""

    def __init__(self, of: socket.socket, message_bytes: int) -> None:
        if not (sys.platform == "linux" and sys.byteorder == "little" and sys.maxsize > 2**32):
            raise OSError(errno.ENOSYS, "recvmmsg is called on 64-bit Linux only")
        self._family = socket.AddressFamily(of.family)
        self._descriptor = of.fileno()
        self._call = _recvmmsg()
        self._stride = message_bytes + 1
        self._count = max(16, min(_AT_ONCE_MAX, _AREA_BYTES // self._stride))
        # Pages into which no datagram is written need no memory.
        self._area = np.empty(self._count * self._stride, dtype=np.uint8)
        self._names = np.zeros((self._count, _NAME_BYTES), dtype=np.uint8)
        self._parts = np.zeros(self._count, dtype=_PART)
        self._headers = np.zeros(self._count, dtype=_HEADER)
        number = np.arange(self._count, dtype=np.uint64)
        self._parts["base"] = self._area.ctypes.data + number * np.uint64(self._stride)
        self._parts["length"] = self._stride
        self._headers["name"] = self._names.ctypes.data + number * np.uint64(_NAME_BYTES)
        self._headers["parts"] = self._parts.ctypes.data + number * np.uint64(_PART.itemsize)
        self._headers["part_count"] = 1

    def read(self) -> tuple[list[bytes], list[str]]:
        self._headers["name_length"] = _NAME_BYTES
        count = self._call(self._descriptor, self._headers.ctypes.data, self._count, socket.MSG_DONTWAIT, None)
        if count < 0:
            number = ctypes.get_errno()
            if number in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR):
                return [], []
            raise OSError(number, os.strerror(number))
        lengths = self._headers["length"][:count].tolist()
        view = self._area.data
        places = range(0, count * self._stride, self._stride)
        bodies = [bytes(view[place : place + length]) for place, length in zip(places, lengths, strict=True)]
        return bodies, self._peers(count)

    def _peers(self, count: int) -> list[str]:
        packed = np.ascontiguousarray(self._names[:count, _ADDRESSES[self._family]])
        each, numbers = np.unique(packed, axis=0, return_inverse=True)
        texts = [socket.inet_ntop(self._family, address.tobytes()) for address in each]
        return [texts[number] for number in numbers.reshape(-1).tolist()]


def reader_of(of: socket.socket, message_bytes: int) -> DatagramReader:
    """Return the best reader that the system has."""
    try:
        return ManyDatagrams(of, message_bytes)
    except OSError:
        return EachDatagram(of, message_bytes)


def _recvmmsg() -> ctypes._FuncPointer:
    """Return the function of the C library, called with the interpreter lock held. Raises OSError if the library has no
    such function.
    """
    try:
        found = ctypes.PyDLL(None, use_errno=True).recvmmsg
    except AttributeError:
        raise OSError(errno.ENOSYS, "the C library has no recvmmsg") from None
    found.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p]
    found.restype = ctypes.c_int
    return found
