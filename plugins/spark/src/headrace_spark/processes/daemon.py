"""The process that Spark forks its Python workers from, which has imported what all workers need.

Named by ``spark.python.daemon.module``; Spark starts it as ``python -m headrace_spark.processes.daemon <worker module>``. It is
Spark's own daemon, but imports what workers need before it forks, so that they start quickly and share the memory, and a
worker ends without a word when Spark does.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import pkgutil
import signal
import socket
import sys
from pathlib import Path

from headrace.foundation.freed_memory import keep_freed_memory

from headrace_spark.processes import sticky_workers
from headrace_spark.processes.kept_memory import keep_memory_of_polars

#: Imported before forking. None of them may start a thread: a fork has no other thread than the one that forks, and
#: locks that others hold stay locked for ever. polars starts one, so every worker imports it itself.
_BEFORE_FORK = (
    "numpy",
    "pyarrow",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "headrace_spark.workers.streaming",
    "headrace_spark.planning.planner",
    "headrace_spark.transit.task_counts",
    # What a source asks for faster code.
    "headrace.interfaces.accelerators",
    "headrace.interfaces.builtin_plugin",
    "headrace.interfaces.known_plugins",
)

_KEPT_BYTES_MAX = 256 * 1024**2


def prepare() -> None:
    """Import what workers need and exempt it from garbage collection."""
    # Their memory allocators would start threads.
    keep_memory_of_polars(threads=False)
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    keep_freed_memory(_KEPT_BYTES_MAX)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    for name in _BEFORE_FORK:
        importlib.import_module(name)
        if threads_of_this_process() > 1:
            raise RuntimeError(f"importing {name} started a thread; forking workers from here is not safe")
    _read_jar()
    gc.collect()
    gc.freeze()


def _read_jar() -> None:
    """Read the directory of the jar that Spark puts on the path of its Python processes: each would do so before its first import."""
    found = importlib.util.find_spec("pyspark")
    if found is not None and found.origin is not None:
        for jar in (Path(found.origin).parent / "jars").glob("spark-core_*.jar"):
            pkgutil.get_importer(str(jar))


def threads_of_this_process() -> int:
    """Return how many threads there are, native ones included; 1 where the system does not tell."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1


def unless_spark_is_gone(serve: sticky_workers.Serve) -> sticky_workers.Serve:
    """Return ``serve``, which ends without a trace if Spark has closed the connection: a query was stopped, or Java has ended.

    ``serve`` reports errors of a task to Spark and does not raise them. It raises an error if it cannot report to Spark.
    """

    def served(sock: socket.socket, authenticated: bool) -> int:
        try:
            return serve(sock, authenticated)
        except ConnectionError:
            return 1

    return served


def main() -> None:
    """Be Spark's daemon."""
    from pyspark import daemon

    serve = unless_spark_is_gone(daemon.worker)
    if sys.argv[1:] == ["pyspark.worker"]:
        prepare()
        serve = sticky_workers.begin(serve) or serve

    def worker(sock: socket.socket, authenticated: bool) -> int:
        """Do what Spark next asks of this worker. Return another code than 0 if it asks no more."""
        # As Spark's own function does, but before this waits: until then the handlers are those of the daemon.
        for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        try:
            asked = sock.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            asked = b""
        # Spark's own function tells Java that it has gone, fails because it has gone, and prints that.
        return serve(sock, authenticated) if asked else 1

    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
