"""Looks jobs up for requests."""

from __future__ import annotations

from headrace.foundation.errors import JobError

from headrace_server.api.endpoints import NotThereError
from headrace_server.registry.database import Registry
from headrace_server.registry.records import JobRecord


def known_job(registry: Registry, name: str) -> JobRecord:
    """Return a job. Raises NotThereError, which becomes the status 404."""
    try:
        return registry.job(name)
    except JobError as error:
        raise NotThereError(error.message, hint=error.hint) from None
