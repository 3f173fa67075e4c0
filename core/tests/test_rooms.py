"""The architecture page names files that are there, and rooms import only what is below them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.house.test_house import CIRCLES

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


@dataclass(frozen=True, slots=True)
class Parts:
    """What is looked at of a file. Trees of all files would be millions of objects."""

    #: Each with whether it is for type annotations only.
    imports: tuple[tuple[str, bool], ...]
    #: Module and names of ``from … import …``; of each, the name in the module and the name here.
    from_imports: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    #: The name before the dot, if it is one, the name behind it, and the line.
    attributes: tuple[tuple[str | None, str, int], ...]
    functions: frozenset[str]


@functools.cache
def parts(path: Path) -> Parts:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    from_imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return Parts(
        tuple(imports(tree)),
        tuple((n.module or "", tuple((a.name, a.asname or a.name) for a in n.names)) for n in from_imports),
        tuple((n.value.id if isinstance(n.value, ast.Name) else None, n.attr, n.lineno) for n in attributes),
        frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef)),
    )


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"`((?:core|plugins|connectors|tests|docs)/[\w./-]+)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


def files_in_table(page: str, section: str) -> set[str]:
    """Return the files that the first table of a section names."""
    table = page.partition(f"## {section}\n")[2].partition("\n| step |")[2].partition("\n\n")[0]
    return set(re.findall(r"`((?:core|plugins|connectors)/[\w./-]+\.py)`", table))


def test_the_page_counts_the_files_of_a_record_and_the_modules_in_circles() -> None:
    page = PAGE.read_text(encoding="utf-8")
    light = files_in_table(page, "The way of one record, on light")
    spark = files_in_table(page, "The way of one record, on Spark")
    both = len(light | spark)
    assert (
        f"A record passes {len(light)} files on light (22 before) and {both - len(light)} more on Spark, {both} in all"
        in page
    )
    circles = [module for circle in CIRCLES for module in circle.split()]
    rows = re.findall(r"^\| `(headrace[\w-]*)` \|.*\| \d+ → (\d+) \| 0 \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for package, count in rows:
        name = package.replace("-", "_")
        assert sum(module.split(".")[0] == name for module in circles) == int(count), package


def test_the_page_says_how_many_files_a_record_passes() -> None:
    page = PAGE.read_text(encoding="utf-8")
    ways = [
        page.partition(f"## The way of one record, on {name}\n")[2].partition("\n## ")[0] for name in ("light", "Spark")
    ]
    rows = ["\n".join(re.findall(r"^\| \d+ \|.*$", way, re.MULTILINE)) for way in ways]
    on_light, on_spark = (set(re.findall(r"`((?:core|plugins|connectors)/[\w./-]+\.py)`", each)) for each in rows)
    assert not on_light & on_spark
    found = re.search(r"passes (\d+) files on light \(22 before\) and (\d+) more on Spark, (\d+) in all", page)
    assert found is not None
    assert list(map(int, found.groups())) == [len(on_light), len(on_spark), len(on_light) + len(on_spark)]


def test_the_picture_has_every_package() -> None:
    picture = PAGE.read_text(encoding="utf-8").partition("```mermaid")[2].partition("```")[0]
    drawn = set(re.findall(r"(?:headrace)?-(\w+)", picture))
    packages = {
        path.parent.name
        for room in ("plugins", "connectors", "contrib")
        for path in ROOT.glob(f"{room}/*/pyproject.toml")
    }
    assert len(packages) > 30
    assert packages - drawn == set()


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
        for name, for_types in parts(path).imports:
            words = name.split(".")
            if words[0] != "headrace" or len(words) < 2 or words[1] not in above:
                continue
            if not (for_types and (module, words[1]) in NAMED_IN_TYPES):
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def private_names(cls: str, path: Path) -> set[str]:
    """Return the private fields and methods of a class."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls)
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    names |= {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_no_package_imports_private_names_of_another() -> None:
    wrong = []
    for path in sorted(ROOT.glob("*/*/src/**/*.py")):
        package = path.relative_to(ROOT).parts[3]
        found = parts(path)
        foreign = set()
        for module, names in found.from_imports:
            if module.startswith("headrace") and module.split(".")[0] != package:
                foreign |= {here for _, here in names}
                wrong += [f"{path.name} imports {name}" for name, _ in names if name.startswith("_")]
        for value, attribute, line in found.attributes:
            is_private = attribute.startswith("_") and not attribute.startswith("__")
            if is_private and value in foreign:
                wrong.append(f"{path.name}:{line} {value}.{attribute}")
    assert wrong == []


def test_no_package_uses_private_names_of_streams_and_jobs() -> None:
    private = private_names("Stream", CORE / "jobs" / "dsl.py") | private_names("Job", CORE / "jobs" / "job.py")
    assert {"_edge", "_pipeline", "_append", "_stream"} <= private
    wrong = []
    for path in sorted(ROOT.glob("*/*/src/**/*.py")):
        found = parts(path)
        # Classes of the file itself may have private names that are spelled alike.
        own = {attribute for value, attribute, _ in found.attributes if value == "self"} | found.functions
        for _, attribute, line in found.attributes:
            if attribute in private - own:
                wrong.append(f"{path.relative_to(ROOT)}:{line} {attribute}")
    assert wrong == []
