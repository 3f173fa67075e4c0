"""Both ways of reading datagrams give the same."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest
from headrace_syslog.datagram_reading import DatagramReader, EachDatagram, ManyDatagrams
from taking import has_ipv6

from tests.eventually import eventually

READERS = [EachDatagram, *([ManyDatagrams] if sys.platform == "linux" else [])]


@pytest.fixture(params=["127.0.0.1", "::1"])
def sockets(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    host = str(request.param)
    if host == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as receiving, socket.socket(family, socket.SOCK_DGRAM) as sending:
        receiving.bind((host, 0))
        receiving.setblocking(False)
        sending.connect(receiving.getsockname())
        yield receiving, sending


@pytest.mark.parametrize("kind", READERS)
def test_datagrams(sockets: tuple[socket.socket, socket.socket], kind: type[EachDatagram | ManyDatagrams]) -> None:
    receiving, sending = sockets
    reader: DatagramReader = kind(receiving, 500)
    assert reader.read() == ([], [])
    sent = [b"%d %s" % (number, b"x" * (number % 510)) for number in range(0, 3_000, 7)]
    found: list[bytes] = []
    peers: set[str] = set()
    for first in range(0, len(sent), 20):
        for body in sent[first : first + 20]:
            sending.send(body)
        wanted = min(first + 20, len(sent))

        def read(count: int = wanted) -> bool:
            bodies, addresses = reader.read()
            assert len(bodies) == len(addresses)
            found.extend(bodies)
            peers.update(addresses)
            return len(found) >= count

        eventually(read, "datagrams arrive")
    sending.send(b"")
    eventually(lambda: reader.read() == ([b""], [*peers]), "an empty datagram arrives")
    assert found == [body[:501] for body in sent]
    assert peers == {sending.getsockname()[0]}


@pytest.mark.parametrize("kind", READERS)
def test_a_socket_that_is_closed(kind: type[EachDatagram | ManyDatagrams]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiving:
        receiving.setblocking(False)
        reader = kind(receiving, 500)
    with pytest.raises(OSError):
        reader.read()
