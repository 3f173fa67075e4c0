"""A Python process that has imported what Spark's Python processes need and becomes each of them by a fork.

A local Spark starts seven Python processes for the first query and one for every other: each would import pyspark, numpy
and pyarrow again, which takes most of the time until the first row. The driver starts this server while Java starts.
What Spark then starts as Python is ``fork_client``: it hands its arguments, environment and standard streams to this
server, which forks. If the server cannot replace a new Python (another environment, another command), the client
starts one.

Started by ``forked_python`` with the file descriptor of the socket on which it answers; it ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from headrace_spark.processes.daemon import prepare

_STREAMS = 3
_LENGTH_BYTES = 8
_ASKING_SECONDS_MAX = 10.0
#: Environment variables of Python itself that a running Python can take over.
_TAKEN_OVER = ("PYTHONPATH", "PYTHONUNBUFFERED")


@dataclass(frozen=True)
class Request:
    """What a new Python process is to be."""

    arguments: list[str]
    directory: str
    environment: Mapping[str, str]

    @property
    def module(self) -> str | None:
        """The module that is run as a program; None: another kind of command."""
        return self.arguments[1] if self.arguments[:1] == ["-m"] and len(self.arguments) > 1 else None

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Return whether a process with this environment can become the requested one."""
        mine, wanted = _read_at_start(environment), _read_at_start(self.environment)
        # A process that does not set its hash seed may have any.
        wanted.setdefault("PYTHONHASHSEED", mine.get("PYTHONHASHSEED", ""))
        return self.module is not None and wanted == mine and "PYTHONSAFEPATH" not in mine


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that only a process that starts can follow: those of Python, of the language and of the linker."""
    return {
        name: value
        for name, value in environment.items()
        # PYTHON_… are pyspark's.
        if (name.startswith("PYTHON") and not name.startswith("PYTHON_") and name not in _TAKEN_OVER)
        or name.startswith(("LC_", "LANG", "LD_", "DYLD_"))
    }


class ForkServer:
    """Serves clients in one thread. In a forked process ``serve`` returns the request that this process must run."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._clients: dict[int, socket.socket] = {}
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        self._ready = selectors.DefaultSelector()
        for file in (sys.stdin.fileno(), self._wake, self._listening.fileno()):
            self._ready.register(file, selectors.EVENT_READ)

    def serve(self) -> Request | None:
        """Answer clients until standard input ends: then return None. Return a request in the process that is to run it."""
        with self._ready:
            while True:
                files = {key.fd: key.data for key, _ in self._ready.select()}
                if self._wake in files:
                    self._tell_ends()
                for process_id in filter(None, files.values()):
                    self._end_without_client(process_id)
                if sys.stdin.fileno() in files and not os.read(sys.stdin.fileno(), 1):
                    return None
                if self._listening.fileno() in files:
                    request = self._answer()
                    if request is not None:
                        return request

    def _end_without_client(self, process_id: int) -> None:
        """Kill a process whose client was killed: nobody could end it any more."""
        client = self._clients.get(process_id)
        if client is not None and not _is_there(client):
            self._ready.unregister(client)
            os.kill(process_id, signal.SIGKILL)  # it has not been waited for, so the number is still its own

    def _answer(self) -> Request | None:
        """Fork for a client if this process can become the requested one. Return the request in the new process."""
        client, _ = self._listening.accept()
        try:
            request, streams = _received(client)
        except (OSError, ValueError):  # it was killed while it asked
            client.close()
            return None
        try:
            process_id = os.fork() if request.fits(os.environ) else None
        except OSError:  # no process can be made now: a start of Python says why
            process_id = None
        if process_id == 0:
            self._leave()
            # Told by the new process, before it does anything: the client must not start another one if the server dies now.
            _tell(client, f"{os.getpid()}\n")
            client.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return request
        for stream in streams:
            os.close(stream)
        if process_id is None:
            client.close()
            return None
        self._clients[process_id] = client
        self._ready.register(client, selectors.EVENT_READ, process_id)
        return None

    def _leave(self) -> None:
        """Give up, in a forked process, what belongs to the server."""
        self._ready.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for file in (self._wake, self._woken):
            os.close(file)
        for other in (self._listening, *self._clients.values()):
            other.close()

    def _tell_ends(self) -> None:
        """Tell clients whose process has ended how it ended."""
        os.read(self._wake, 4096)
        while self._clients:
            process_id, status = os.waitpid(-1, os.WNOHANG)
            if process_id == 0:
                return
            client = self._clients.pop(process_id)
            if client in self._ready.get_map():
                self._ready.unregister(client)
            _tell(client, f"{os.waitstatus_to_exitcode(status)}\n")
            client.close()


def _received(client: socket.socket) -> tuple[Request, list[int]]:
    """Return the request of a client and its standard streams. Raises OSError, ValueError."""
    client.settimeout(_ASKING_SECONDS_MAX)
    first, streams, _, _ = socket.recv_fds(client, _LENGTH_BYTES, _STREAMS)
    try:
        if len(streams) != _STREAMS or len(first) != _LENGTH_BYTES:
            raise ValueError("the standard streams or the length are missing")
        with client.makefile("rb") as file:
            return Request(**json.loads(file.read(int.from_bytes(first, "big")))), streams
    except (OSError, ValueError, TypeError) as error:
        for stream in streams:
            os.close(stream)
        raise ValueError(str(error)) from error


def _is_there(client: socket.socket) -> bool:
    """Return whether a client lives that says nothing more."""
    try:
        return client.recv(1, socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _tell(client: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):  # it was killed: Spark knows
        client.sendall(text.encode())


def become(request: Request, own_path: str) -> None:
    """Run a module in this process as ``python -m`` does. ``own_path``: PYTHONPATH as it was when this Python started."""
    import runpy

    before = {os.path.abspath(path) for path in own_path.split(os.pathsep) if path}
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    given = [os.path.abspath(path) for path in request.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = list(dict.fromkeys([request.directory, *given, *(p for p in sys.path[1:] if p not in before)]))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through="PYTHONUNBUFFERED" in request.environment)  # type: ignore[union-attr]
    module = request.module
    assert module is not None
    if module == "pyspark.daemon":
        module = "headrace_spark.processes.daemon"
    sys.argv = [module, *request.arguments[2:]]
    # The module may have been imported already, and runpy warns of that. Here it is run on purpose.
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Run as the server; in a forked process, run the request of the client."""
    own_path = os.environ.get("PYTHONPATH", "")
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        listening.set_inheritable(False)
        try:
            prepare()
        except RuntimeError as error:
            sys.exit(f"headrace: Python processes of Spark are started one by one, which is slower: {error}")
        request = ForkServer(listening).serve()
    if request is not None:
        become(request, own_path)


if __name__ == "__main__":
    main()
