"""Finds the modules that a job needs, and says of each whether it is of Python, of a distribution or of the user's own files."""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from headrace.foundation.errors import JobError


@dataclass(frozen=True)
class FoundModule:
    """A module or package at the top level of the import path."""

    name: str
    #: Its file, or its directory if it is a package.
    path: Path


def needed_modules(job_file: Path, loaded: Iterable[ModuleType]) -> list[FoundModule]:
    """Return the modules at top level that a job needs and that are not Python's own.

    ``loaded`` are the modules that were loaded when the job was built. Modules that the job file and the user's own
    modules import only later, in functions, are found in their text. Raises JobError for a text that is no Python.
    """
    found: dict[str, FoundModule] = {}
    waiting = [module.__name__.partition(".")[0] for module in loaded]
    if job_file.suffix == ".py":
        waiting += imported_names(job_file)
    while waiting:
        name = waiting.pop()
        if name in found or name in sys.stdlib_module_names:
            continue
        module = find_module(name)
        if module is None:  # an import that the job can do without, in a try statement
            continue
        found[name] = module
        if not in_site_packages(module.path):
            for file in python_files(module.path):
                waiting += imported_names(file)
    return [found[name] for name in sorted(found)]


def imported_names(file: Path) -> set[str]:
    """Return the names at top level that a Python file imports, also in functions. Raises JobError."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        raise JobError(f"{file} cannot be read as Python: {error}", plugin="spark") from error
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def find_module(name: str) -> FoundModule | None:
    """Return where a module at top level is; None if there is none, or it is built into Python."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module that was made by hand
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return FoundModule(name, Path(next(iter(spec.submodule_search_locations))).resolve())
    if not spec.has_location or spec.origin is None:
        return None
    path = Path(spec.origin).resolve()
    return None if path.is_relative_to(_standard_library()) and not in_site_packages(path) else FoundModule(name, path)


def python_files(path: Path) -> Iterator[Path]:
    """Yield the Python files of a module or package."""
    yield from path.rglob("*.py") if path.is_dir() else ([path] if path.suffix == ".py" else [])


def in_site_packages(path: Path) -> bool:
    """Return whether a file belongs to an installed distribution, other than an editable one."""
    return any(path.is_relative_to(place) for place in site_packages())


def site_packages() -> Mapping[Path, None]:
    """Return the directories that pip installs into, and those of the base Python that this environment also imports from."""
    places = [Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")]
    named = [Path(entry).resolve() for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    return dict.fromkeys([*places, *named])


def _standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()
