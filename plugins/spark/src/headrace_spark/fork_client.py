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


def main(place: str, arguments: list[str]) -> int:
    """Return the exit code of the process that the server made."""
    server = _asked(place, arguments)
    answers = server.makefile("rb") if server is not None else None
    told = answers.readline() if answers is not None else b""
    if answers is None or not told:
        os.execv(sys.executable, [sys.executable, *arguments])
    process_id = int(told)

    def forward(number: int, _: object) -> None:
        try:  # noqa: SIM105 (importing contextlib takes as long as all the rest)
            os.kill(process_id, number)
        except ProcessLookupError:
            pass

    # Ctrl-C reaches every process of the terminal; the driver program ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    code = int(answers.readline() or b"1")
    if code < 0:
        if -code in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _asked(place: str, arguments: list[str]) -> socket.socket | None:
    request = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
    content = json.dumps(request).encode()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.connect(place)
        socket.send_fds(server, [len(content).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(content)
    except OSError:
        server.close()
        return None
    return server


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
