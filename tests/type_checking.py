"""mypy over everything of the workspace, in one process: what several packages import is read once.

    python -m tests.type_checking

Files are given to mypy by the names by which tests import them, because names of files repeat between packages: there is a
``conftest.py`` in most folders of tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("core", "plugins/*", "connectors/*", "contrib/*")
#: Folders of the workspace itself; their modules are named from the root.
_OF_ROOT = ("demo", "examples", "benchmarks", "website", "tests")
_IMPORTED = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)


def main() -> int:
    packages = sorted(path.parent for pattern in _PACKAGES for path in ROOT.glob(f"{pattern}/pyproject.toml"))
    on_path = [folder for package in packages if _is_put_on_the_path(folder := package / "tests")]
    modules = {"conftest"}
    for package in packages:
        modules |= {_name(path, package / "src") for path in (package / "src").rglob("*.py")}
        modules |= set(_tests(package / "tests", on_path=package / "tests" in on_path))
    for name in _OF_ROOT:
        modules |= {_name(path, ROOT) for path in (ROOT / name).rglob("*.py")}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"-m\n{module}\n" for module in sorted(modules))
        file.flush()
        environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, on_path))}
        command = [sys.executable, "-m", "mypy", *sys.argv[1:], f"@{file.name}"]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _is_put_on_the_path(folder: Path) -> bool:
    """Return whether the folder's conftest.py makes its modules importable by their short names."""
    conftest = folder / "conftest.py"
    return (
        conftest.exists() and re.search(r"^sys\.path", conftest.read_text(encoding="utf-8"), re.MULTILINE) is not None
    )


def _tests(folder: Path, *, on_path: bool) -> Iterator[str]:
    """Yield the names of a package's test modules: short ones for those that others import so, else names from the root."""
    files = sorted(folder.rglob("*.py"))
    imported = {name for file in files for name in _IMPORTED.findall(file.read_text(encoding="utf-8"))}
    for file in files:
        short = _name(file, folder)
        is_helper = not file.name.startswith(("test_", "conftest")) or short in imported
        yield short if on_path and is_helper else _name(file, ROOT)


def _name(path: Path, base: Path) -> str:
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    sys.exit(main())
