"""The architecture page names files that are there, and rooms import only what is below them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
CORE = ROOT / "core" / "src" / "headrace"
#: From the lowest to the highest.
ROOMS = ["foundation", "flow", "interfaces", "codecs", "plan", "runtime", "jobs"]
#: Interfaces speak of the plan and of jobs in the types of their methods.
NAMED_IN_TYPES = {
    ("headrace.interfaces.backend", "plan"),
    ("headrace.interfaces.backend", "jobs"),
    ("headrace.interfaces.operator", "jobs"),
    ("headrace.interfaces.hookspecs", "plan"),
    ("headrace.interfaces.language", "jobs"),
}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"`((?:core|plugins|connectors|tests|docs)/[\w./-]+)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_room_says_what_lives_there_and_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rooms = {path.parent.name for path in CORE.glob("*/__init__.py")}
    assert rooms == set(ROOMS)
    for room in rooms:
        assert ast.get_docstring(ast.parse((CORE / room / "__init__.py").read_text(encoding="utf-8"))), room
        assert f"`core/src/headrace/{room}`" in page


def imports(node: ast.AST, *, types: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the modules that are imported below a node, and whether for type annotations only."""
    for child in ast.iter_child_nodes(node):
        for_types = types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
        if isinstance(child, ast.Import):
            yield from ((alias.name, for_types) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module is not None:
            yield from ((f"{child.module}.{alias.name}", for_types) for alias in child.names)
        yield from imports(child, types=for_types)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    above = set(ROOMS[ROOMS.index(room) + 1 :])
    wrong = []
    for path in sorted((CORE / room).rglob("*.py")):
        module = ".".join(["headrace", *path.relative_to(CORE).with_suffix("").parts])
        for name, for_types in imports(parsed(path)):
            parts = name.split(".")
            if parts[0] != "headrace" or len(parts) < 2 or parts[1] not in above:
                continue
            if not (for_types and (module, parts[1]) in NAMED_IN_TYPES):
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def private_names(cls: str, path: Path) -> set[str]:
    """Return the private fields and methods of a class."""
    tree = parsed(path)
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls)
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    names |= {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_no_package_imports_private_names_of_another() -> None:
    wrong = []
    for path in sorted(ROOT.glob("*/*/src/**/*.py")):
        package = path.relative_to(ROOT).parts[3]
        tree = parsed(path)
        foreign = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace"):
                if str(node.module).split(".")[0] == package:
                    continue
                foreign |= {alias.asname or alias.name for alias in node.names}
                wrong += [f"{path.name} imports {alias.name}" for alias in node.names if alias.name.startswith("_")]
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        for node in attributes:
            is_private = node.attr.startswith("_") and not node.attr.startswith("__")
            if is_private and isinstance(node.value, ast.Name) and node.value.id in foreign:
                wrong.append(f"{path.name}:{node.lineno} {node.value.id}.{node.attr}")
    assert wrong == []


def test_no_package_uses_private_names_of_streams_and_jobs() -> None:
    private = private_names("Stream", CORE / "jobs" / "dsl.py") | private_names("Job", CORE / "jobs" / "job.py")
    assert {"_edge", "_pipeline", "_append", "_stream"} <= private
    wrong = []
    for path in sorted(ROOT.glob("*/*/src/**/*.py")):
        nodes = list(ast.walk(parsed(path)))
        attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
        # Classes of the file itself may have private names that are spelled alike.
        own = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "self"}
        own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        for node in attributes:
            if node.attr in private - own:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.attr}")
    assert wrong == []
