"""Waiting for a socket, whatever its descriptor is: ``select.select`` takes none above 1023, and a job may have thousands of files open."""

from __future__ import annotations

import math
import select
import socket


def wait_until_readable(source: socket.socket | int, seconds: float) -> bool:
    """Return whether a socket, or the descriptor of one, can be read, or has ended, within some seconds. Called by connectors."""
    return _wait(source, select.POLLIN, seconds)


def wait_until_writable(source: socket.socket | int, seconds: float) -> bool:
    """Return whether a socket, or the descriptor of one, takes bytes, or has ended, within some seconds. Called by connectors."""
    return _wait(source, select.POLLOUT, seconds)


def _wait(source: socket.socket | int, event: int, seconds: float) -> bool:
    waiting = select.poll()
    waiting.register(source, event)
    return bool(waiting.poll(math.ceil(1000 * seconds)))
