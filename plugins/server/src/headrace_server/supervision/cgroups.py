"""Control groups of Linux, version 2: one for each runner with limits, below a group that belongs to the server.

https://docs.kernel.org/admin-guide/cgroup-v2.html: a group whose controllers its children use must not contain processes, so the
server moves itself into a child of the group in which it was started.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.foundation.errors import JobError

from headrace_server.runner.limits import Limits

logger = logging.getLogger(__name__)
#: The child with the server itself. systemd makes it for a unit with ``DelegateSubgroup=server``.
SERVER = "server"
_PREFIX = "job-"
_NEEDED = ("memory", "cpu")
_CPU_PERIOD_MICROSECONDS = 100_000


class NoCgroupsError(JobError):
    """This process may not make control groups with limits, and why."""


@dataclass(frozen=True)
class Cgroups:
    """Makes and removes the groups of runners. ``root`` belongs to the server, which has no process in it, and enables both controllers."""

    root: Path

    def make(self, unit: str, generation: str, limits: Limits) -> str:
        """Make the group of a runner, with its limits; return its directory. Raises JobError."""
        place = self.root / f"{_PREFIX}{unit.replace('/', '.')}-{generation}"
        try:
            place.mkdir()
            for name, value in _files_of(limits).items():
                (place / name).write_text(value)
        except OSError as error:
            place.rmdir() if place.exists() else None
            raise JobError(f"the limits of {unit} cannot be set: {error}", hint=f"they are set in {place}") from error
        return str(place)

    def remove_left(self, used: set[str]) -> None:
        """Remove the groups of runners that have ended while no server was there. Called once, when the runners were found."""
        for place in self.root.glob(f"{_PREFIX}*/"):
            if str(place) not in used:
                remove(str(place))


def _files_of(limits: Limits) -> dict[str, str]:
    found: dict[str, str] = {}
    if limits.memory_max_bytes is not None:
        # Swap would make a job slow instead of ending it. The whole group is ended: half of a job is of no use.
        found |= {"memory.max": str(limits.memory_max_bytes), "memory.oom.group": "1"}
        if Path("/proc/swaps").exists() and len(Path("/proc/swaps").read_text().splitlines()) > 1:
            found["memory.swap.max"] = "0"
    if limits.cpu_weight is not None:
        found["cpu.weight"] = str(limits.cpu_weight)
    if limits.cpu_max is not None:
        found["cpu.max"] = f"{round(limits.cpu_max * _CPU_PERIOD_MICROSECONDS)} {_CPU_PERIOD_MICROSECONDS}"
    return found


def was_out_of_memory(group: str | None) -> bool:
    """Return whether the kernel has ended a process of a group for its memory. False if the group is not there any more."""
    if group is None:
        return False
    try:
        events = Path(group, "memory.events").read_text()
    except OSError:
        return False
    counts = dict(line.split() for line in events.splitlines())
    return int(counts.get("oom_kill", 0)) > 0


def remove(group: str | None) -> None:
    """Remove the group of a runner that has ended. One that has processes still stays; the next server looks again."""
    if group is None:
        return
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.EBUSY:
            logger.warning("the control group %s cannot be removed: %s", group, error)


def of_this_process(*, on_stop: Literal["stop", "leave"], proc: Path = Path("/proc")) -> Cgroups:
    """Take the group in which this process was started for its runners. Called once, before any runner. Raises NoCgroupsError."""
    if sys.platform != "linux":
        raise NoCgroupsError("only Linux has control groups")
    own = _own_group(proc)
    if own.name == SERVER and os.access(own.parent / "cgroup.procs", os.W_OK):
        root = own.parent
    elif own.suffix == ".service" and on_stop == "leave":
        # Once its children have controllers, systemd cannot start the service in that group again while jobs run in it.
        raise NoCgroupsError("a service whose jobs go on without it needs DelegateSubgroup=server of systemd 254")
    else:
        root = own
    try:
        _enable(root, own)
    except OSError as error:
        raise NoCgroupsError(f"the control group {root} does not belong to this server: {error.strerror}") from error
    return Cgroups(root)


def _own_group(proc: Path) -> Path:
    """Return the directory of this process's group. Raises NoCgroupsError if version 2 is not mounted."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
        mounts = [line.split() for line in (proc / "self/mountinfo").read_text().splitlines()]
    except OSError as error:
        raise NoCgroupsError(f"the control group cannot be read from /proc: {error.strerror}") from error
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    # https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html: root, place, options, optional fields, "-", type
    places = [(each[3], each[4]) for each in mounts if each[each.index("-") + 1] == "cgroup2"]
    for root, place in places:
        if own is not None and Path(own).is_relative_to(root):
            return Path(place) / Path(own).relative_to(root)
    raise NoCgroupsError("control groups of version 2 are not mounted")


def _enable(root: Path, own: Path) -> None:
    """Let the children of a group have limits. Raises NoCgroupsError, OSError."""
    available = (root / "cgroup.controllers").read_text().split()
    missing = [each for each in _NEEDED if each not in available]
    if missing:
        raise NoCgroupsError(f"the control group {root} does not have the controllers {' and '.join(missing)}")
    enabled = (root / "cgroup.subtree_control").read_text().split()
    # Only the root of the machine may have processes beside children with controllers; it has no type.
    if root == own and (root / "cgroup.type").exists() and set(_NEEDED) - set(enabled):
        others = set((root / "cgroup.procs").read_text().split()) - {str(os.getpid())}
        if others:
            raise NoCgroupsError(f"other processes are in the control group {root}: {', '.join(sorted(others))}")
        (root / SERVER).mkdir(exist_ok=True)
        (root / SERVER / "cgroup.procs").write_text(str(os.getpid()))
    for each in _NEEDED:
        if each not in enabled:
            (root / "cgroup.subtree_control").write_text(f"+{each}")
