"""Control groups that limit the memory of a process and what it starts, version 1 or 2, for root."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")


class Group:
    """A control group with a limit of memory."""

    def __init__(self, place: Path, limit_bytes: int) -> None:
        self.place = place
        self._second = (place / "memory.max").exists()
        (place / ("memory.max" if self._second else "memory.limit_in_bytes")).write_text(str(limit_bytes))

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command in the group, on one core; it keeps the number of its process."""
        core = str(min(os.sched_getaffinity(0)))
        enter = f'echo $$ > {self.place}/cgroup.procs; exec taskset -c {core} "$@"'
        return ["sh", "-c", enter, "sh", *command]

    def run(self, command: Sequence[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in the group, on one core."""
        return subprocess.run(self.inside(command), capture_output=True, text=True, check=False, cwd=cwd)

    @property
    def kills(self) -> int:
        """How many processes the system has ended because of the limit."""
        file = self.place / ("memory.events" if self._second else "memory.oom_control")
        return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith("oom_kill "))


@contextmanager
def limited(limit_bytes: int) -> Iterator[Group]:
    """Give a group. Skips the test where none can be made, or where a limit has no effect."""
    parent = _ROOT if (_ROOT / "cgroup.controllers").exists() else _ROOT / "memory"
    place = parent / f"headrace-test-{uuid.uuid4().hex[:12]}"
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        try:
            group = Group(place, limit_bytes)
        except OSError as error:
            pytest.skip(f"the control group cannot limit memory: {error}")
        taken = limit_bytes + 64 * 2**20
        if group.run([sys.executable, "-c", f"bytearray(b'x') * {taken}"]).returncode == 0:
            pytest.skip("the limit has no effect, perhaps because there is swap")
        yield group
    finally:
        place.rmdir()
