"""Limits of a runner's process. They are set before any code of a job runs."""

from __future__ import annotations

import resource
from pathlib import Path

import msgspec
from headrace.foundation.errors import OptionError

#: What Python says when there is no memory for the stack of a thread.
_NO_THREAD = "can't start new thread"
#: What libraries print when the system gives them no memory: Rust's allocator (polars), C++ (Arrow), Python.
_SIGNS = (
    "memory allocation of ",
    "std::bad_alloc",
    "bad_alloc",
    "MemoryError",
    "Cannot allocate memory",
    "malloc of size",
    _NO_THREAD,
)
_END_OF_LOG_BYTES = 16_384


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner may use; None: as much as there is."""

    memory_max_bytes: int | None = None
    #: Its share beside other groups that want more than there is; 100 is that of a group without a weight.
    cpu_weight: int | None = None
    #: In cores.
    cpu_max: float | None = None
    open_files_max: int | None = None

    @property
    def needs_group(self) -> bool:
        """Return whether some of them are better, or only, set on a control group."""
        return (self.memory_max_bytes, self.cpu_weight, self.cpu_max) != (None, None, None)


def set_limits(limits: Limits, *, group: str | None) -> None:
    """Limit this process and those that it starts. Raises OptionError if the system refuses a limit.

    With a control group, which has the limits already, this process only enters it. Without one, ``memory_max_bytes`` limits private
    memory (the data segment): a job that wants more gets MemoryError or is ended by its library.
    """
    memory_max_bytes = limits.memory_max_bytes
    if group is not None:
        try:
            Path(group, "cgroup.procs").write_text("0")
        except OSError as error:
            raise OptionError(
                f"the control group {group} cannot be joined: {error}", option="memory_max_bytes"
            ) from error
        memory_max_bytes = None
    for kind, name, wanted in (
        (resource.RLIMIT_DATA, "memory_max_bytes", memory_max_bytes),
        (resource.RLIMIT_NOFILE, "open_files_max", limits.open_files_max),
    ):
        if wanted is None:
            continue
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY and wanted > hard:
            raise OptionError(f"the system allows this user at most {hard:,}", option=name)
        try:
            resource.setrlimit(kind, (wanted, wanted))
        except (ValueError, OSError) as error:
            raise OptionError(f"the limit {wanted:,} was refused: {error}", option=name) from error


def over_memory(limits: Limits) -> str:
    """Return the message about a process that needed more memory than its limit."""
    return f"over its limit of {size_text(limits.memory_max_bytes or 0)} of memory (memory_max_bytes)"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of a process with a limit says that it got no more memory: also for the stack of a new thread."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and str(error) == _NO_THREAD)


def says_out_of_memory(log: str) -> bool:
    """Return whether a process whose memory is limited by the system says at the end of its log that it got no more."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, Path(log).stat().st_size - _END_OF_LOG_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return False
    return any(sign in text for sign in _SIGNS)


def size_text(count: int) -> str:
    """Return a number of bytes as ``job.yaml`` may have it: in the largest unit that shows it exactly, else in MB."""
    units = {"GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20, "MB": 10**6}
    for name, size in units.items():
        if count and count % size == 0:
            return f"{count // size} {name}"
    return f"{count / 10**6:,.1f} MB"
