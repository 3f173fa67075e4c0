"""Stands for Python where Spark starts one: asks the fork server for the process, and waits for its end.

Run by ``python -I -S fork_client.py <socket> <arguments of Python>``, without anything that is installed: it starts in
about 15 ms. If there is no server, or the server cannot do it, the client becomes a new Python process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time

#: How often this looks whether a process lives whose server has gone.
_LOOK_SECONDS = 0.1


def main(place: str, arguments: list[str]) -> int:
    """Return the exit code of the process that the server made."""
    forked: list[int] = []
    asked: list[int] = []

    def forward(number: int, _: object) -> None:
        asked.append(number)
        for process_id in forked:
            _kill(process_id, number)

    # Ctrl-C reaches every process of the terminal; the driver program ends this one.
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        before[number] = signal.signal(number, forward)
    answers = _Answers(_asked(place, arguments))
    told = answers.line()
    if not told:
        for ours, handler in before.items():
            signal.signal(ours, handler)
        for sent in asked:  # to the process that this one becomes
            os.kill(os.getpid(), sent)
        os.execv(sys.executable, [sys.executable, *arguments])
    forked.append(int(told))
    for sent in asked:  # while the answer was on its way
        _kill(forked[0], sent)
    code = answers.line()
    if not code:
        # The server was killed. A process that waits for this one must keep waiting for the forked process that it represents.
        while _kill(forked[0], 0):
            time.sleep(_LOOK_SECONDS)
        return 1
    if int(code) < 0:
        if -int(code) in before:
            signal.signal(-int(code), signal.SIG_DFL)
        os.kill(os.getpid(), -int(code))
    return int(code)


def _asked(place: str, arguments: list[str]) -> socket.socket | None:
    """Ask the server; return the connection to it, None where there is none."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        request = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
        content = json.dumps(request).encode()
        server.connect(place)
        socket.send_fds(server, [len(content).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(content)
    except OSError:
        server.close()
        return None
    return server


class _Answers:
    """What the server says. Signals are handled while this waits.

    A signal that comes just before a process begins to read is handled when it has read, so possibly never. So this
    waits for either: each signal also writes a byte to a pipe.
    """

    def __init__(self, server: socket.socket | None) -> None:
        self._server = server
        self._read = b""
        self._signalled, written = os.pipe()
        os.set_blocking(self._signalled, False)
        os.set_blocking(written, False)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        self._ready = select.poll()
        self._ready.register(self._signalled, select.POLLIN)
        if server is not None:
            self._ready.register(server, select.POLLIN)

    def line(self) -> bytes:
        """Return the next message of the server; empty if the server has ended."""
        if self._server is None:
            return b""
        while b"\n" not in self._read:
            for number, _ in self._ready.poll():
                if number == self._signalled:
                    os.read(number, 4096)
                    continue
                try:
                    received = self._server.recv(4096)
                except OSError:
                    received = b""
                if not received:
                    return b""
                self._read += received
        line, _, self._read = self._read.partition(b"\n")
        return line


def _kill(process_id: int, number: int) -> bool:
    """Send a signal. Return False when there is no such process."""
    try:
        os.kill(process_id, number)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
