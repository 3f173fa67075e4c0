"""Who may import whom in the light backend: the engine knows the interface of its stages, and no implementation that does work."""

from __future__ import annotations

from pathlib import Path

import headrace_light
import pytest

from tests.imports import imported_modules

PACKAGE = Path(headrace_light.__file__).parent
IMPLEMENTATIONS = {"headrace_light.stages.local", "headrace_light.shared.stages"}


def test_only_the_backend_chooses_an_implementation() -> None:
    users = {path.name for path in PACKAGE.rglob("*.py") if imported_modules(path) & IMPLEMENTATIONS}
    assert users == {"backend.py"}


@pytest.mark.parametrize(
    ("room", "above"),
    [
        ("stages", ("headrace_light.engine", "headrace_light.backend", "headrace_light.shared")),
        ("shared", ("headrace_light.engine", "headrace_light.backend")),
        (
            "workers",
            ("headrace_light.engine", "headrace_light.backend", "headrace_light.stages", "headrace_light.shared"),
        ),
    ],
)
def test_a_room_imports_nothing_above_it(room: str, above: tuple[str, ...]) -> None:
    files = sorted((PACKAGE / room).glob("*.py"))
    assert len(files) > 5
    wrong = {path.name: sorted(name for name in imported_modules(path) if name.startswith(above)) for path in files}
    assert {name: found for name, found in wrong.items() if found} == {}
