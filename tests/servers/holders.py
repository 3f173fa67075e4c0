"""Which test processes use a server: a list in the server's directory, counted by who of them is still alive."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.servers.processes import start_ticks

_Holder = tuple[int, int | None]


def _path(directory: Path) -> Path:
    return directory / "holders.json"


def _me() -> _Holder:
    return os.getpid(), start_ticks(os.getpid())


def _read(directory: Path) -> list[_Holder]:
    """The holders that are alive: one that was killed cannot say that it left."""
    path = _path(directory)
    if not path.exists():
        return []
    return [(pid, ticks) for pid, ticks in json.loads(path.read_text()) if start_ticks(pid) == ticks]


def _write(directory: Path, holders: list[_Holder]) -> None:
    _path(directory).write_text(json.dumps(holders))


def add_me(directory: Path) -> None:
    """Note that this process uses the server; the caller holds the server's lock."""
    _write(directory, [*_read(directory), _me()])


def remove_me(directory: Path) -> bool:
    """Note that this process is done with the server; True if nobody is left. The caller holds the server's lock."""
    holders = _read(directory)
    if _me() in holders:
        holders.remove(_me())
    _write(directory, holders)
    return not holders


def others(directory: Path) -> list[int]:
    """The ids of other living processes that use the server."""
    return sorted({pid for pid, _ in _read(directory)} - {os.getpid()})


def are_all_gone(directory: Path) -> bool:
    """Whether the server was started for test processes of which none is left (so it is an orphan)."""
    return _path(directory).exists() and not _read(directory)
