"""The rooms of the Spark backend import only those before them."""

from __future__ import annotations

import ast
from pathlib import Path

import headrace_spark
import pytest

from tests.imports import imported_modules

PACKAGE = Path(headrace_spark.__file__).parent
#: From the lowest to the highest.
ROOMS = ["processes", "checkpoints", "shards", "dataframes", "transit", "planning", "workers", "queries"]
#: Makes packages of jobs apart from any run. It knows the first room only, which recognizes such packages.
APART = "packaging"
#: What stands beside the rooms: the entry points.
ENTRANCES = {"__init__.py", "backend.py", "commands.py", "plugin.py"}


def test_every_file_is_in_a_room_that_says_what_lives_there() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == ENTRANCES
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == {*ROOMS, APART}
    for room in (*ROOMS, APART):
        assert ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))), room


@pytest.mark.parametrize("room", [*ROOMS, APART])
def test_a_room_imports_nothing_above_it(room: str) -> None:
    files = sorted((PACKAGE / room).glob("*.py"))
    assert len(files) >= 3
    others = ROOMS[1:] if room == APART else [*ROOMS[ROOMS.index(room) + 1 :], APART]
    entrances = [name.removesuffix(".py") for name in ENTRANCES - {"__init__.py"}]
    above = tuple(f"headrace_spark.{each}" for each in (*others, *entrances))
    wrong = {path.name: sorted(name for name in imported_modules(path) if name.startswith(above)) for path in files}
    assert {name: found for name, found in wrong.items() if found} == {}
