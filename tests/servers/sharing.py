"""Start each server once for a test run, however many processes the run has, and leave nothing behind.

A run is one pytest command: its process, or all pytest-xdist workers that it starts. Runs do not share servers, so
several people (or commands) can test on one machine at the same time.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.servers import holders
from tests.servers.directories import locked, run_directory
from tests.servers.server import Server, remove_server

ServerT = TypeVar("ServerT", bound=Server[Any])


def run_id() -> str:
    """The same in every pytest-xdist worker of one run, and in no other run that is alive."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"pid-{os.getpid()}"


@contextmanager
def shared_server(kind: type[ServerT], name: str, options: object | None = None) -> Iterator[ServerT]:
    """The server that all processes of this run share under `name`: started by the first, removed by the last.

    `options` must be the same for the same name. Processes that need it while it starts wait for it.
    """
    kind.prepare()
    destroy_orphans()
    directory = run_directory() / run_id() / name
    with locked(_lock_path(directory)):
        server = _acquire(kind, directory, options)
    try:
        yield server
    finally:
        with locked(_lock_path(directory)):
            if holders.remove_me(directory):
                server.destroy()
                _forget(directory)


@contextmanager
def own_server(kind: type[ServerT], options: object | None = None) -> Iterator[ServerT]:
    """A server that nobody else uses, for tests that stop it or need options of their own; removed at the end."""
    with shared_server(kind, f"{kind.kind}-{secrets.token_hex(4)}", options) as server:
        yield server


def destroy_orphans() -> None:
    """Kill and remove the servers of test processes that were killed and so could not do it themselves."""
    for path in run_directory().glob("*/*/holders.json"):
        directory = path.parent
        with locked(_lock_path(directory)):
            if holders.are_all_gone(directory):
                remove_server(directory)
                _forget(directory)


def _lock_path(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.lock")


def _forget(directory: Path) -> None:
    """Remove the lock's file, which we hold, and the run's directory if this was its last server."""
    _lock_path(directory).unlink()
    if not any(directory.parent.iterdir()):
        with contextlib.suppress(OSError):  # another process of the run came in just now
            directory.parent.rmdir()


def _acquire(kind: type[ServerT], directory: Path, options: object | None) -> ServerT:
    if (directory / "server.json").exists():
        holders.add_me(directory)
        return kind.load(directory)
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)  # the account that mariadbd runs as must reach its data
    directory.parent.chmod(0o755)
    holders.add_me(directory)  # first of all: if we are killed while it starts, the next run finds it as an orphan
    try:
        server = kind.create(directory, options)
        server.start()
    except BaseException:
        remove_server(directory)
        _forget(directory)
        raise
    return server
