"""What workers on this machine print, printed by the driver program: where the user looks for it.

Spark sends the standard output of Python workers to its own standard error. Here workers write into a named pipe that
the driver reads and prints to whatever its ``sys.stdout`` is: a terminal, a file behind ``>``, a notebook.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import io
import os
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

#: Names the pipe to worker processes.
VARIABLE = "HEADRACE_SPARK_OUTPUT"
_READ_BYTES = 65_536
#: A worker may still be writing earlier output when the driver asks for all output.
_FLUSH_SECONDS_MAX = 5.0


class OutputRelay:
    """Reads the pipe in a thread of the driver. One per Java process that headrace starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path, 0o600)
        # Open for writing as well: the pipe has no end while there is no worker.
        self._pipe = os.open(path, os.O_RDWR)
        self._marks: dict[bytes, threading.Event] = {}
        threading.Thread(target=self._relay, name="headrace output", daemon=True).start()

    def flush(self) -> None:
        """Return when everything that workers have written so far is printed."""
        mark = b"\0" + uuid.uuid4().bytes.hex().encode() + b"\0"
        event = self._marks[mark] = threading.Event()
        with _locked(self._pipe):
            os.write(self._pipe, mark)
        event.wait(_FLUSH_SECONDS_MAX)

    def _relay(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        waiting = b""
        while True:
            waiting += os.read(self._pipe, _READ_BYTES)
            for mark in list(self._marks):
                before, found, after = waiting.partition(mark)
                if found:
                    self._print(decoder.decode(before))
                    waiting = after
                    self._marks.pop(mark).set()
            if self._marks and b"\0" in waiting:
                continue  # a mark that has not come as a whole
            self._print(decoder.decode(waiting))
            waiting = b""

    @staticmethod
    def _print(text: str) -> None:
        # The reader of the output may have ended (``| head``). The job continues, as it does when a file is full.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(text)
            sys.stdout.flush()


class RelayedOutput(io.TextIOBase):
    """Replaces ``sys.stdout`` in a worker: whole lines reach the driver, and text that is written at once stays together."""

    encoding = "utf-8"

    def __init__(self, path: str) -> None:
        self._pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # fails at once when the driver has gone
        os.set_blocking(self._pipe, True)
        self._begun_line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        whole, newline, rest = text.rpartition("\n")
        if newline:
            self._send(self._begun_line + whole + newline)
            self._begun_line = rest
        else:
            self._begun_line += text
        return len(text)

    def flush(self) -> None:
        if self._begun_line:
            self._send(self._begun_line)
            self._begun_line = ""

    def _send(self, text: str) -> None:
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        with _locked(self._pipe):
            while left:
                left = left[os.write(self._pipe, left) :]


def print_to_driver() -> None:
    """Send the output of this worker process to the driver, if the driver listens. May be called several times."""
    path = os.environ.get(VARIABLE)
    if path is None or isinstance(sys.stdout, RelayedOutput):
        return
    with contextlib.suppress(OSError):
        sys.stdout = RelayedOutput(path)


@contextlib.contextmanager
def _locked(pipe: int) -> Iterator[None]:
    """Keep other processes from writing at the same time: the system mixes texts that are longer than a page."""
    fcntl.flock(pipe, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(pipe, fcntl.LOCK_UN)
