"""Where test servers keep what is downloaded once (the cache) and what a running server writes (the run directory)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.errors import TestServerError

CACHE_VARIABLE = "HEADRACE_TEST_SERVERS_CACHE"


def cache_directory() -> Path:
    """Downloads and templates, kept between runs: $HEADRACE_TEST_SERVERS_CACHE or ~/.cache/headrace/test-servers.

    Do not move it once it is filled: the class data archives in it hold absolute paths.
    """
    configured = os.environ.get(CACHE_VARIABLE)
    path = Path(configured).expanduser() if configured else Path.home() / ".cache" / "headrace" / "test-servers"
    path.mkdir(parents=True, exist_ok=True)
    return path


def run_directory() -> Path:
    """Data and logs of the running servers of this user, below the system's temporary directory.

    Others may pass through it but not list it (mode 711): mariadbd, started by root, runs as another user.
    """
    path = Path(tempfile.gettempdir()) / f"headrace-test-servers-{os.getuid()}"
    path.mkdir(mode=0o711, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise TestServerError(f"{path} belongs to another user; remove it or set TMPDIR to a directory of your own")
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file `path` between processes; waits for it. Not reentrant.

    Who holds the lock may unlink the file: those who waited on it then lock the file that took its place.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                yield
                return


def digest(data: bytes) -> str:
    """Ten hexadecimal digits that change when `data` does; names what the cache holds for it."""
    return hashlib.sha256(data).hexdigest()[:10]
