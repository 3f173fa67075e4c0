"""What the jobs have in common that tests run as a process of their own, and kill."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Mapping
from typing import Any

import headrace as hr


def log_warnings() -> None:
    """Let warnings of the process be found in its output."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")


def run_until_stopped(job: hr.Job, backend: str, run: Mapping[str, Any]) -> None:
    """Run a job until SIGTERM comes, which stops it gracefully, or until it has failed. ``run``: options of the run.

    Prints ``started``, and the report at the end. Raises what the job failed with. On light, checkpoints are made each 300 ms if
    ``run`` does not say otherwise.
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    of_light = {"checkpoint_interval": "300 ms"} if backend == "light" else {}
    handle = job.start(backend, **{**of_light, **run})
    print("started", flush=True)
    while not stop.wait(0.05) and handle.status().error is None:
        pass
    handle.stop()
    print(handle.wait(), flush=True)
