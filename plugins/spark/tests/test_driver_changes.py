"""Workers of a Spark that runs already have what its driver has now: variables and edited modules."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace_spark.processes.driver_changes import DriverChanges
from spark_parts import CountingSource, LineSink


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of the user's that is not installed."""
    write_module(tmp_path, "1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield importlib.import_module("edited_by_tests")
    del sys.modules["edited_by_tests"]


def write_module(place: Path, value: str) -> None:
    (place / "edited_by_tests.py").write_text(f"def value(row):\n    return {{'n': row['n'], 'value': {value}}}\n")


def test_nothing_is_told_while_nothing_changes(module: Any) -> None:
    changes, told = DriverChanges(), {"PYTHONHASHSEED": "0"}
    for _ in range(2):
        changes.tell(told)
        assert told == {"PYTHONHASHSEED": "0"}


def test_variables_are_told_as_they_are_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TEST_BEFORE", "1")
    changes, told = DriverChanges(), {"PYTHONHASHSEED": "0"}
    monkeypatch.setenv("HEADRACE_TEST_BEFORE", "2")
    monkeypatch.setenv("HEADRACE_TEST_LATER", "3")
    monkeypatch.setenv("SPARK_HOME", "/elsewhere")
    changes.tell(told)
    assert told == {"PYTHONHASHSEED": "0", "HEADRACE_TEST_BEFORE": "2", "HEADRACE_TEST_LATER": "3"}
    monkeypatch.delenv("HEADRACE_TEST_LATER")
    monkeypatch.setenv("HEADRACE_TEST_BEFORE", "1")
    changes.tell(told)
    assert told == {"PYTHONHASHSEED": "0"}


def test_each_change_of_a_module_has_a_number(module: Any, tmp_path: Path) -> None:
    changes, told = DriverChanges(), dict[str, str]()
    changes.tell(told)
    assert told == {}
    for number, value in (("1", "22"), ("2", "333")):
        write_module(tmp_path, value)
        for _ in range(2):
            changes.tell(told)
            assert told == {"HEADRACE_MODULES": number}


@pytest.mark.spark
def test_an_edited_module_and_a_variable_are_new_in_workers(
    source: CountingSource, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook: workers of the first job are there when the second one starts."""
    source.set_count("a", 20)
    schema = {"n": "int64", "value": "int64"}

    def run(name: str) -> tuple[set[int], set[str]]:
        sink = LineSink(tmp_path / name)
        stream = hr.stream("test", name).from_(source, format="json", schema={"n": "int64"})
        seen = stream.map(module.value, schema=schema).map(
            lambda row: {**row, "seen": os.environ.get("HEADRACE_TEST_SEEN", "")}, schema={**schema, "seen": "string"}
        )
        seen.to(sink).run("spark", show_progress=False)
        rows = sink.rows()
        assert sorted(row["n"] for row in rows) == list(range(20))
        return {row["value"] for row in rows}, {row["seen"] for row in rows}

    assert run("first") == ({1}, {""})
    monkeypatch.setenv("HEADRACE_TEST_SEEN", "later")
    assert run("variable") == ({1}, {"later"})
    write_module(tmp_path, "22")
    importlib.reload(module)
    assert run("module") == ({22}, {"later"})
    monkeypatch.delenv("HEADRACE_TEST_SEEN")
    assert run("gone") == ({22}, {""})
