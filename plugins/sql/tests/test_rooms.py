"""The rooms of SQL import only what is below them, and no module imports another one in a function or in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "plugins" / "sql" / "src" / "headrace_sql"
#: From the lowest to the highest. The modules beside the rooms are above all of them.
ROOMS = ["operators", "reading", "binding", "compiling"]
#: Modules that import in functions, and why: the console loads ``commands`` to list its commands, and is no dependency; SQLAlchemy
#: is needed only by catalogs of servers.
IMPORTS_LATE = {"binding.jdbc_store": 1}
#: A builder of a function's call is given the translator, which calls it.
NAMED_IN_TYPES = {("binding.functions", "binding.expressions"), ("binding.json_calls", "binding.expressions")}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def own_imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules of this package that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "headrace_sql":
            place = node.module.partition(".")[2]
            for alias in node.names:
                inner = f"{place}.{alias.name}".strip(".")
                yield inner if inner in MODULES else place
        elif isinstance(node, ast.Import):
            yield from (each.name.partition(".")[2] for each in node.names if each.name.split(".")[0] == "headrace_sql")


def test_there_are_these_rooms_and_each_says_what_lives_there() -> None:
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == set(ROOMS)
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room in ROOMS:
        assert len(ast.get_docstring(MODULES[room]) or "") > 100, room
        assert f"`plugins/sql/src/headrace_sql/{room}`" in page


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    below = ROOMS[: ROOMS.index(room) + 1]
    wrong = [
        f"{module} imports {name}"
        for module, tree in MODULES.items()
        if module.split(".")[0] == room
        for name in own_imports(tree)
        if name.split(".")[0] not in below
    ]
    assert wrong == []


def test_functions_import_nothing() -> None:
    found = {}
    for module, tree in MODULES.items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        late = {
            id(each) for node in functions for each in ast.walk(node) if isinstance(each, ast.Import | ast.ImportFrom)
        }
        if late:
            found[module] = len(late)
    assert found == IMPORTS_LATE


def test_no_module_imports_itself_by_way_of_others() -> None:
    edges = {
        module: {name for name in own_imports(tree) if (module, name) not in NAMED_IN_TYPES}
        for module, tree in MODULES.items()
    }
    left = set(edges)
    while True:
        free = {module for module in left if not edges[module] & left}
        if not free:
            break
        left -= free
    assert sorted(left) == []
