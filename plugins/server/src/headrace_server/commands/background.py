"""A server in the background of one machine: ``headrace start DIRECTORY --detach`` and ``headrace stop``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import typer
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import JobError
from headrace.foundation.private_files import make_private_directory, private_opener

from headrace_server.commands.places import data_directory

_START_TIMEOUT_SECONDS = 30.0
_STOP_TIMEOUT_SECONDS = 180.0
_LOOK_SECONDS = 0.1


def start_in_background(jobs: str | None, data: Path | None, *, clock: Clock | None = None) -> None:
    """Start ``headrace serve`` in a new session, on a free port; return when it answers. Raises JobError if it ends at once."""
    clock = clock or SystemClock()
    if jobs is None or not Path(jobs).is_dir():
        raise JobError(f"{jobs} is not a directory of jobs", hint="headrace start jobs/ --detach")
    place = (data or data_directory()).absolute()
    make_private_directory(place)
    if (place / "server.json").exists() and _pid(place) is not None:
        raise JobError(f"a server runs with the data directory {place}", hint="headrace stop")
    log = place / "server.log"
    with open(log, "ab", opener=private_opener) as output:
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "headrace_console.command",
                "serve",
                "--jobs",
                jobs,
                "--data",
                str(place),
                "--port",
                "0",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    never, deadline = threading.Event(), clock.monotonic() + _START_TIMEOUT_SECONDS
    while _pid(place) != child.pid:
        if child.poll() is not None or clock.monotonic() >= deadline:
            last = log.read_text("utf-8", errors="replace").splitlines()[-5:]
            raise JobError("the server has not started:\n  " + "\n  ".join(last), hint=f"its log: {log}")
        clock.wait(never, _LOOK_SECONDS)
    url = json.loads((place / "server.json").read_text(encoding="utf-8"))["url"]
    typer.echo(f"a server runs at {url}, process {child.pid}; data and token in {place}; headrace stop ends it")


def stop_server(data: Path | None, *, clock: Clock | None = None) -> None:
    """End the server of a data directory, which stops its jobs at a checkpoint; return when it has ended. Raises JobError."""
    clock = clock or SystemClock()
    place = (data or data_directory()).absolute()
    pid = _pid(place)
    if pid is None:
        raise JobError(f"no server runs with the data directory {place}", hint="to stop only some jobs, name them")
    os.kill(pid, signal.SIGTERM)
    never, deadline = threading.Event(), clock.monotonic() + _STOP_TIMEOUT_SECONDS
    while _pid(place) == pid:
        if clock.monotonic() >= deadline:
            raise JobError(f"the server, process {pid}, has not stopped within {_STOP_TIMEOUT_SECONDS:g} s")
        clock.wait(never, _LOOK_SECONDS)
    typer.echo("the server and its jobs have stopped")


def _pid(data: Path) -> int | None:
    """Return the process of the server that runs with a data directory; None if there is none."""
    try:
        pid = int(json.loads((data / "server.json").read_text(encoding="utf-8"))["pid"])
        process = psutil.Process(pid)
        # The file of a server that was killed is still there, and its number may be another process by now.
        if process.status() == psutil.STATUS_ZOMBIE or "serve" not in " ".join(process.cmdline()):
            return None
    except (OSError, ValueError, KeyError, psutil.Error):
        return None
    return pid
