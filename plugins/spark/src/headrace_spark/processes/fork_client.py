"""Stands for Python where Spark starts one: asks the fork server for the process, and waits for its end.

Run by ``python -I -S fork_client.py <socket> <arguments of Python>``, without anything that is installed: it starts in
some 15 ms. Where there is no server, or the server cannot do it, it becomes a Python of its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

TYPE_CHECKING = False  # importing typing takes as long as all the rest
if TYPE_CHECKING:
    from typing import BinaryIO


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
    answers = _asked(place, arguments)
    told = _line(answers)
    if not told:
        for ours, handler in before.items():
            signal.signal(ours, handler)
        os.execv(sys.executable, [sys.executable, *arguments])
    forked.append(int(told))
    for sent in asked:  # while the answer was on its way
        _kill(forked[0], sent)
    code = _line(answers)
    if not code:
        # The server was killed. Whoever waits for this process waits for the one that it stands for.
        while _kill(forked[0], 0):
            time.sleep(_LOOK_SECONDS)
        return 1
    if int(code) < 0:
        if -int(code) in before:
            signal.signal(-int(code), signal.SIG_DFL)
        os.kill(os.getpid(), -int(code))
    return int(code)


def _asked(place: str, arguments: list[str]) -> BinaryIO | None:
    """Ask the server; return where it answers, None where there is none."""
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
    return server.makefile("rb")


def _line(answers: BinaryIO | None) -> bytes:
    """Return what the server says next; nothing where it has gone."""
    try:
        return b"" if answers is None else answers.readline()
    except OSError:
        return b""


def _kill(process_id: int, number: int) -> bool:
    """Send a signal. Return False when there is no such process."""
    try:
        os.kill(process_id, number)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
