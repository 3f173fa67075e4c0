"""Sockets are waited for whatever their descriptor is."""

from __future__ import annotations

import fcntl
import os
import resource
import socket

import pytest
from headrace.foundation.sockets import wait_until_readable, wait_until_writable


def test_a_descriptor_above_1023() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= 1100:
        pytest.skip("this process may not have so many descriptors")
    one, other = socket.socketpair()
    with one, other:
        high = fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, 1050)
        try:
            assert high >= 1050
            assert not wait_until_readable(high, 0)
            assert wait_until_writable(high, 0)
            other.send(b"x")
            assert wait_until_readable(high, 60)
            assert wait_until_readable(one, 60)
        finally:
            os.close(high)


def test_a_socket_that_has_ended_can_be_read() -> None:
    one, other = socket.socketpair()
    with one:
        other.close()
        assert wait_until_readable(one, 60)
