"""Jobs that stop at a place in their input and go on elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.jobs.job import Job

from tests.formats.keep import lay_out, wait_for_records, within


def stop_at(
    build: Callable[[], Job], directory: Path, backend: str, *, clicks: int, orders: int = 0, read: int, **options: Any
) -> Path:
    """Run a job until it has read its input, of which so many records are there, and stop it with a savepoint; return that.

    ``read``: how many records it reads in this run.
    """
    lay_out(directory, clicks_count=clicks, orders_count=orders)
    savepoint = directory / f"savepoint-{backend}-{clicks}"
    with within(directory):
        handle = build().start(backend, **options)
        try:
            wait_for_records(handle, read)
        finally:
            handle.stop(savepoint=savepoint)
        handle.wait()
    return savepoint


def run_to_the_end(build: Callable[[], Job], directory: Path, backend: str, **options: Any) -> None:
    """Run a job over all of its input."""
    lay_out(directory, clicks_count=240, orders_count=120)
    with within(directory):
        build().run(backend, show_progress=False, **options)
