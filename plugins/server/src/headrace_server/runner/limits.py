"""Limits of a runner's process. They are set before any code of a job runs."""

from __future__ import annotations

import resource

from headrace.foundation.errors import OptionError


def set_limits(*, memory_max_bytes: int | None, open_files_max: int | None) -> None:
    """Limit this process and those that it starts. Raises OptionError if the system refuses a limit.

    ``memory_max_bytes`` limits private memory (the data segment): a job that wants more gets MemoryError or is ended by its library.
    """
    for kind, name, wanted in (
        (resource.RLIMIT_DATA, "memory_max_bytes", memory_max_bytes),
        (resource.RLIMIT_NOFILE, "open_files_max", open_files_max),
    ):
        if wanted is None:
            continue
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY and wanted > hard:
            raise OptionError(f"this user may have at most {hard:,}", option=name)
        try:
            resource.setrlimit(kind, (wanted, wanted))
        except (ValueError, OSError) as error:
            raise OptionError(f"the limit {wanted:,} was refused: {error}", option=name) from error
