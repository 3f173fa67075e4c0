"""A job that a test kills while a savepoint is written: ``python -m tests.savepoints.killed_job BACKEND``, in its directory."""

from __future__ import annotations

import sys
from typing import Any

from tests.formats.jobs import job
from tests.formats.keep import wait_for_records

READ = 130


def main(backend: str, **options: Any) -> None:
    """Write a savepoint as soon as the input is read."""
    with job("aggregate", "join-within").start(backend, checkpoint="checkpoint", shards=3, **options) as handle:
        wait_for_records(handle, READ)
        handle.savepoint("savepoint")


if __name__ == "__main__":
    main(sys.argv[1])
