"""Which machine this is, and which processes of it still live."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import threading
import uuid
from pathlib import Path

import psutil
from headrace.foundation.clock import Clock

from headrace_server.registry.records import RunnerNote

#: Tells machines apart that say the same of themselves, such as containers.
MACHINE_VARIABLE = "HEADRACE_MACHINE"
_KILL_TIMEOUT_SECONDS = 10.0


def machine_id() -> str:
    """Return an id of the scope of process ids: a machine, or a container with its own processes."""
    named = os.environ.get(MACHINE_VARIABLE)
    if named:
        return named[:100]
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/etc/machine-id").read_text(encoding="ascii"))
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # macOS has neither
        parts.append(str(uuid.getnode()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def runs_here(note: RunnerNote) -> bool:
    """Return whether the process of a note lives on this machine. Only asked for notes with the id of this machine."""
    return is_process(note.pid, note.specification)


def is_process(pid: int, argument: str) -> bool:
    """Return whether a process has this number and this argument of its command line."""
    try:
        found = psutil.Process(pid)
        return found.status() != psutil.STATUS_ZOMBIE and argument in found.cmdline()
    except psutil.Error:
        return False


def kill_runner(note: RunnerNote, clock: Clock) -> bool:
    """End a runner that shows no sign of life, with all that it has started. Return whether it is gone."""
    never, deadline = threading.Event(), clock.monotonic() + _KILL_TIMEOUT_SECONDS
    while runs_here(note):
        try:
            os.killpg(note.pid, signal.SIGKILL)  # its own session: the group has its number
        except (ProcessLookupError, PermissionError):
            return not runs_here(note)
        if clock.monotonic() >= deadline:
            return False
        clock.wait(never, 0.05)
    return True
