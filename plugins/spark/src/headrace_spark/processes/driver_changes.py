"""What has changed in this process since its Spark was started: variables of the environment, and modules that were edited.

Java has the environment that it was started with, and Spark's Python processes have that of Java. Workers stay for the next job and
keep the modules that they have imported. In a notebook both become old: a password is set after a first job has failed, a module
is edited and loaded again. Spark starts new Python processes for functions with other variables, and that is how they learn of it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping, MutableMapping

#: Says which state of the modules a Python process was started for.
_STATE_OF_MODULES = "HEADRACE_MODULES"
#: Spark, pyspark and Python set these variables themselves. pytest's variable changes with every test and has no meaning for workers.
_NOT_TAKEN_OVER = (
    "SPARK_",
    "PYSPARK_",
    "PYTHON",
    "JAVA_HOME",
    "LC_",
    "LANG",
    "LD_",
    "DYLD_",
    "PYTEST_",
    _STATE_OF_MODULES,
)


class DriverChanges:
    """Compares the process with its state when Spark was started. Used by one thread at a time."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._modules: dict[str, tuple[str, int, int]] = {}
        self._state = 0
        self._told: set[str] = set()

    def tell(self, environment: MutableMapping[str, str]) -> None:
        """Apply changed variables to the environment with which Spark starts Python processes. Called before each job.

        A variable that was removed since then stays as it was.
        """
        changed = {
            name: value
            for name, value in os.environ.items()
            if self._environment.get(name) != value and not name.startswith(_NOT_TAKEN_OVER)
        }
        found = dict(_files_of_modules())
        if any(found.get(name, at) != at for name, at in self._modules.items()):
            self._state += 1
        self._modules.update(found)
        if self._state:
            changed[_STATE_OF_MODULES] = str(self._state)
        for name in self._told - changed.keys():
            del environment[name]
        environment.update(changed)
        self._told = set(changed)


def _files_of_modules() -> Iterator[tuple[str, tuple[str, int, int]]]:
    """Yield the modules of this process that are not installed: their names, and file, time and size by which a change is seen."""
    paths: Mapping[str, str] = sysconfig.get_paths()
    installed = tuple({paths[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or file.startswith(installed):
            continue
        with contextlib.suppress(OSError):  # its file was removed, or it is in an archive
            status = os.stat(file)
            yield name, (file, status.st_mtime_ns, status.st_size)
