"""How a server talks with a runner: one JSON object per line over a Unix socket that only their user can open.

A request is ``{"do": NAME, …}``, its answer ``{"answer": …}`` or ``{"error": …, "hint": …}``.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from pathlib import Path
from typing import Any

import msgspec
from headrace.foundation.errors import JobError, RetriableError
from headrace.foundation.private_files import make_private_directory

#: Addresses of Unix sockets have at most 108 bytes on Linux, 104 on macOS.
_ADDRESS_MAX_BYTES = 100
#: Rule sets are the largest requests.
LINE_MAX_BYTES = 64 * 1024 * 1024


class RunnerAwayError(RetriableError):
    """No runner listens there, or it did not answer in time."""


class RefusedError(JobError):
    """A runner refuses a request, and says why."""


def socket_directory(data: Path) -> Path:
    """Return the directory for sockets of a server's runners, and make it: below the data directory unless its path is too long.

    Raises JobError if the directory belongs to somebody else.
    """
    wanted = data.absolute() / "run"
    if len(os.fsencode(wanted)) > _ADDRESS_MAX_BYTES - 24:
        digest = hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:12]
        wanted = Path("/tmp") / f"headrace-{os.getuid()}-{digest}"
    make_private_directory(wanted)
    found = wanted.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise JobError(
            f"{wanted} must be a directory that only this user can access",
            hint="remove it, or run the server as its owner",
        )
    return wanted


def ask(address: str | os.PathLike[str], do: str, *, timeout_seconds: float = 5.0, **arguments: Any) -> Any:
    """Send one request to a runner and return its answer. Raises RunnerAwayError, RefusedError."""
    line = msgspec.json.encode({"do": do, **arguments}) + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(os.fspath(address))
            connection.sendall(line)
            with connection.makefile("rb") as stream:
                found = stream.readline(LINE_MAX_BYTES)
    except OSError as error:
        raise RunnerAwayError(f"the runner at {os.fspath(address)} does not answer: {error}") from error
    if not found.endswith(b"\n"):
        raise RunnerAwayError(f"the runner at {os.fspath(address)} has ended while it answered")
    try:
        answer = msgspec.json.decode(found)
    except msgspec.MsgspecError as error:
        raise RunnerAwayError(f"the runner at {os.fspath(address)} gave an answer that is not JSON: {error}") from error
    if "error" in answer:
        raise RefusedError(answer["error"], hint=answer.get("hint"))
    return answer["answer"]
