"""The process that Spark forks its Python workers from, with what all of them need imported beforehand.

Named by ``spark.python.daemon.module``; Spark starts it as ``python -m headrace_spark.daemon <worker module>``. Beside
Spark's own daemon it does two things:

- It imports what workers need before it forks, so that they start in milliseconds and share the memory.
- Spark collects garbage after every task, which costs 25 ms because it walks everything that was imported. Here what is
  there after the first task is taken out of the collector's sight, which leaves it little to walk.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from types import ModuleType
from typing import Any

#: Imported before forking. None of them may start a thread: a fork has no other thread than the one that forks, and
#: locks that others hold stay locked for ever. polars starts one, so every worker imports it itself.
_BEFORE_FORK = ("numpy", "pyarrow", "pyspark.worker", "pyspark.sql.worker.utils", "headrace_spark.streaming")


class _Collector(ModuleType):
    """Stands for the module ``gc`` in Spark's daemon."""

    def __init__(self) -> None:
        super().__init__("gc")
        self._frozen = False

    def collect(self, generation: int = 2) -> int:
        """Collect; the first time, exempt what survives."""
        found = gc.collect(generation)
        if not self._frozen:
            gc.freeze()
            self._frozen = True
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(gc, name)


def prepare() -> None:
    """Import what workers need and exempt it from garbage collection."""
    # Their memory allocators would start a thread of their own.
    for variable in ("_RJEM_MALLOC_CONF", "JE_ARROW_MALLOC_CONF"):
        os.environ.setdefault(variable, "background_thread:false")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    for name in _BEFORE_FORK:
        importlib.import_module(name)
        if len(os.listdir("/proc/self/task")) > 1 if os.path.isdir("/proc/self/task") else False:
            raise RuntimeError(f"importing {name} started a thread; forking workers from here is not safe")
    gc.collect()
    gc.freeze()


def main() -> None:
    """Be Spark's daemon."""
    from pyspark import daemon

    if sys.argv[1:] == ["pyspark.worker"]:
        prepare()
    daemon.gc = _Collector()  # type: ignore[assignment]
    daemon.manager()


if __name__ == "__main__":
    main()
