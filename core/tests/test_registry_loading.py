"""A plug-in that cannot be imported is named, each time it is needed, and can be left out."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from headrace.foundation.errors import JobError
from headrace.interfaces.registry import Registry


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EntryPoint:
    (tmp_path / "plugin_that_is_broken.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    return EntryPoint("broken", "plugin_that_is_broken", "headrace")


def test_a_plugin_that_cannot_be_imported_is_named(broken: EntryPoint) -> None:
    registry = Registry([broken])
    for _ in range(2):  # it does not count as loaded after the first try
        with pytest.raises(JobError, match=r"plug-in 'broken' \(plugin_that_is_broken\) cannot be loaded") as failure:
            registry.find("sink", "somewhere")
    assert "ModuleNotFoundError: No module named 'a_module_that_nobody_has'" in str(failure.value)
    assert "HEADRACE_PLUGINS=" in str(failure.value)
    assert isinstance(failure.value.__cause__, ModuleNotFoundError)


def test_it_does_not_matter_to_what_is_found_without_it(broken: EntryPoint) -> None:
    assert Registry([broken]).find("codec", "json").__name__ == "JsonCodec"
