"""What ``import headrace`` costs and pulls in, and what core may import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import headrace

SOURCES = Path(headrace.__file__).parent
#: Never loaded by ``import headrace``; the first four are core's own dependencies, loaded when first needed.
HEAVY = {"polars", "numpy", "msgspec", "pluggy", "pyarrow", "sqlglot", "pyspark"}


def in_a_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout


def test_import_loads_nothing_of_headrace_but_its_names() -> None:
    """How long it takes is measured by ``benchmarks.start_up``."""
    loaded = set(json.loads(in_a_new_process("import sys, json, headrace; print(json.dumps(sorted(sys.modules)))")))
    own = {name for name in loaded if name.partition(".")[0] == "headrace"}
    assert own == {"headrace", "headrace.foundation", "headrace.foundation.lazy_names"}


def test_import_loads_no_plugin_and_nothing_heavy() -> None:
    loaded = set(json.loads(in_a_new_process("import sys, json, headrace; print(json.dumps(sorted(sys.modules)))")))
    assert not HEAVY & loaded
    assert not [name for name in loaded if name.startswith("headrace_")]


def test_core_imports_no_plugin() -> None:
    offending = []
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            offending += [f"{file.name}: {name}" for name in names if name.startswith("headrace_")]
    assert offending == []


def test_every_public_name_can_be_imported() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None


def test_public_names_are_these() -> None:
    assert set(headrace.__all__) == set((Path(__file__).parent / "public_names.txt").read_text().split())


def test_submodules_do_not_hide_public_names() -> None:
    code = "import headrace.jobs.dsl, headrace.jobs.job, headrace as hr; print(callable(hr.stream), callable(hr.job))"
    assert in_a_new_process(code).split() == ["True", "True"]
