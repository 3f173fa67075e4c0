"""Every distribution names what it imports: in an environment where others are missing it would fail at the first use."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = sorted(
    path
    for pattern in ("core", "plugins/*", "connectors/*", "contrib/*")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)
#: Commands are loaded by the console, which brings what they import.
_COMMANDS = {
    "plugins/pipeline/src/headrace_pipeline/commands.py",
    "plugins/rules/src/headrace_rules/commands.py", "plugins/rules/src/headrace_rules/console.py",
    "plugins/spark/src/headrace_spark/commands.py", "plugins/spark/src/headrace_spark/packaging/making.py",
}  # fmt: skip
#: Imports of what need not be declared, by module: the files that may import it.
ALLOWED = {
    "headrace_console": _COMMANDS,
    "typer": _COMMANDS,
    "rich": _COMMANDS,
    # PySpark brings it, in the one version with which it works.
    "py4j": {"plugins/spark/src/headrace_spark/queries/handle.py"},
    # It is used where a connector's extra has brought it; a job with state_memory that needs it says so when it starts.
    "pyarrow": {"core/src/headrace/flow/byte_slices.py", "core/src/headrace/interfaces/mapped_memory.py"},
    # A checkpoint of Spark is shown where Spark is installed; SQL texts and rules are tried where their packages are.
    "headrace_spark": {"plugins/console/src/headrace_console/state_showing.py"},
    "headrace_rules": {"plugins/server/src/headrace_server/trials/rules.py"},
    "headrace_sql": {"plugins/server/src/headrace_server/trials/sql.py"},
}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Return the installed distributions by the modules that they offer: all files of the environment are looked at."""
    return metadata.packages_distributions()


def _declared(project: dict[str, Any]) -> set[str]:
    lists = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    return {_normal(re.split(r"[\s\[<>=!~;]", each, maxsplit=1)[0]) for of in lists for each in of}


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the top-level modules that are imported, but not for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((each.name.split(".")[0], node.lineno) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module is not None:
            yield node.module.split(".")[0], node.lineno
        else:
            yield from _imports(node)


@pytest.mark.parametrize("file", PROJECTS, ids=lambda path: path.parent.name)
def test_what_is_imported_is_declared(file: Path) -> None:
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    declared, own = _declared(project), _normal(project["name"])
    distributions = _distributions()
    missing: dict[str, list[str]] = {}
    sources = sorted((file.parent / "src").rglob("*.py"))
    assert sources
    for source in sources:
        for module, line in _imports(ast.parse(source.read_text(encoding="utf-8"))):
            if module in sys.stdlib_module_names:
                continue
            offered = {_normal(each) for each in distributions.get(module, [module])}
            place = source.relative_to(ROOT).as_posix()
            if not offered & {own, *declared} and place not in ALLOWED.get(module, set()):
                missing.setdefault(module, []).append(f"{place}:{line}")
    assert missing == {}
