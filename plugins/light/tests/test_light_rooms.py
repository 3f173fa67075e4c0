"""Who may import whom in the light backend: the engine knows the interface of its stages, and no implementation that does work."""

from __future__ import annotations

import ast
from pathlib import Path

import headrace_light
import pytest

PACKAGE = Path(headrace_light.__file__).parent
IMPLEMENTATIONS = {"headrace_light.stages.local", "headrace_light.shared.stages"}


def imported(path: Path) -> set[str]:
    """Return the modules of this package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("headrace_light")}


def test_only_the_backend_chooses_an_implementation() -> None:
    users = {path.name for path in PACKAGE.rglob("*.py") if imported(path) & IMPLEMENTATIONS}
    assert users == {"backend.py"}


@pytest.mark.parametrize(
    ("room", "above"),
    [
        ("stages", ("headrace_light.engine", "headrace_light.backend", "headrace_light.shared")),
        ("shared", ("headrace_light.engine", "headrace_light.backend")),
    ],
)
def test_a_room_imports_nothing_above_it(room: str, above: tuple[str, ...]) -> None:
    files = sorted((PACKAGE / room).glob("*.py"))
    assert len(files) > 5
    wrong = {path.name: sorted(name for name in imported(path) if name.startswith(above)) for path in files}
    assert {name: found for name, found in wrong.items() if found} == {}
