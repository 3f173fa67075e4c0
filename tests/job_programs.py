"""What the jobs have in common that tests run as a process of their own, and kill."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Mapping
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


def run_given(build: Callable[..., hr.Job], given: dict[str, Any]) -> None:
    """Run the job that ``build`` makes of ``given``, which also has ``backend`` and ``run``, until it is stopped."""
    log_warnings()
    backend, run = given.pop("backend"), given.pop("run")
    run_until_stopped(build(**given), backend, {"max_batch_records": 200, **run})


def windows_and_pairs(events: hr.Stream, mysql: Mapping[str, Any]) -> hr.Job:
    """Return a job with windows of ten seconds by key, and pairs of an even and an odd event of a key within a second."""
    counts = events.key_by("k").window(hr.tumbling("10 s", on="ts")).agg(n="count(*)", s="sum(n)")
    even, odd = events.where("n % 2 = 0").select("k", "ts", l="n"), events.where("n % 2 = 1").select("k", "ts", r="n")
    pairs = even.join(odd, "k", within=("-1 s", "1 s"), time="ts").select("k", "l", "r")
    options = {**mysql, "flush_interval": "50 ms", "batch_size": 500}
    written: hr.Job = counts.select("k", "window_start", "n", "s").to_mysql(table="counts", **options)
    return written.also(pairs.to_mysql(table="pairs", **options))
