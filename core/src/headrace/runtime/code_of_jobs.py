"""Finds the code of a job that must be sent with it: objects from modules that another process could not import."""

from __future__ import annotations

import importlib.machinery
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def unimportable_modules_by_value(pickler: Any) -> Iterator[None]:
    """Pickle objects of modules that a new process could not import by value, as for ``__main__``.

    Backends use it around ``dumps``. ``pickler``: the module cloudpickle, or a copy of it as pyspark has one.
    """
    modules = list(_unimportable_modules())
    for module in modules:
        pickler.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            pickler.unregister_pickle_by_value(module)


#: Modules that a new process can import, and the paths of imports that this was found with.
_known_importable: set[tuple[str, str]] = set()
_known_with: list[str] = []


def _unimportable_modules() -> Iterator[ModuleType]:
    if _known_with != sys.path:
        _known_importable.clear()
        _known_with[:] = sys.path
    installed = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or not isinstance(module, ModuleType) or not isinstance(file, str):
            continue
        if module.__name__ != name or file.startswith(installed) or (name, file) in _known_importable:
            continue
        if _importable(name, file):
            _known_importable.add((name, file))
        else:
            yield module


def _importable(name: str, file: str) -> bool:
    """Return whether ``import name`` in a new process would find this file. Does not ask ``sys.modules``."""
    places: Sequence[str] | None = None
    spec = None
    parts = name.split(".")
    for depth in range(len(parts)):
        spec = _find(".".join(parts[: depth + 1]), places)
        if spec is None:
            return False
        places = spec.submodule_search_locations
    if spec is None or not spec.has_location or spec.origin is None:
        return False
    try:
        return os.path.samefile(spec.origin, file)
    except OSError:  # it lies in a zip, or was removed
        return spec.origin == file


def _find(name: str, places: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
    # Development installations add their own finders, which a new process has too.
    for finder in sys.meta_path:
        spec = finder.find_spec(name, places)
        if spec is not None:
            return spec
    return None
