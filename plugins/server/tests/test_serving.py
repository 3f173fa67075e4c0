"""The sockets of the server."""

from __future__ import annotations

import socket

from headrace_server.serving import _listening


def test_an_answer_is_sent_at_once() -> None:
    """Its second part does not wait until the client has confirmed the first one."""
    with (
        _listening("127.0.0.1", 0, "port") as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
