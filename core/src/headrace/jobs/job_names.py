"""Checks the names of jobs."""

from __future__ import annotations

from headrace.foundation.errors import OptionError


def check_job_name(namespace: str, pipeline: str) -> None:
    """Raise OptionError unless namespace and pipeline are valid names."""
    for what, value in (("namespace", namespace), ("pipeline", pipeline)):
        if not value or not value.replace("-", "").replace("_", "").isalnum() or not value.isascii():
            raise OptionError(f"{value!r} is not a valid name: use letters, digits, '-' and '_'", option=what)
