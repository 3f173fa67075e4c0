"""Stands for Spark's daemon in tests of sticky workers: forks a worker for each connection, which hands its tasks over.

    python sticky_program.py SOCKET

A task is what Spark's begins with, and in its JSON what to do. The answer is the id of the process that does it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from typing import Any

from headrace_spark.processes import sticky_workers

NUMBER = struct.Struct("!q")


def serve(sock: socket.socket, authenticated: bool) -> int:
    assert authenticated
    _, length, _ = struct.unpack("!iii", _read(sock, 12))
    told: dict[str, Any] = json.loads(_read(sock, length - 4))
    sock.sendall(NUMBER.pack(os.getpid()))
    if told["do"] == "wait":
        sock.recv(1)
    elif told["do"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return 3 if told["do"] == "fail" else 0


def _read(sock: socket.socket, count: int) -> bytes:
    content = sock.recv(count, socket.MSG_WAITALL)
    assert len(content) == count
    return content


def main() -> None:
    hand_over = sticky_workers.begin(serve)
    assert hand_over is not None
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen()
        print("ready", flush=True)
        while True:
            sock, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                sock.sendall(NUMBER.pack(os.getpid()))
                while sock.recv(1, socket.MSG_PEEK):
                    if hand_over(sock, True):
                        break
                os._exit(0)
            sock.close()


if __name__ == "__main__":
    main()
