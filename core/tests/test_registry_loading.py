"""A plug-in that cannot be imported is named, each time it is needed, and can be left out."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from headrace.foundation.errors import JobError
from headrace.interfaces.hookspecs import hookimpl
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


def test_threads_that_ask_at_the_same_time_load_a_plugin_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner of Spark opens its files in several threads, and each of them asks for the fastest search of newlines."""
    loading, asked, loads = threading.Event(), threading.Event(), []

    class Accelerators:
        @hookimpl
        def headrace_accelerators(self) -> dict[str, object]:
            return {"search": object}

    def load(entry: EntryPoint) -> object:
        loads.append(entry.name)
        if len(loads) == 1:
            loading.set()
            assert asked.wait(60)
        asked.set()
        return Accelerators()

    class Noticed:
        """The registry's lock, which notices that a second thread wants it."""

        def __init__(self) -> None:
            self._lock = threading.RLock()

        def __enter__(self) -> None:
            if loading.is_set():
                asked.set()
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    monkeypatch.setattr(EntryPoint, "load", load)
    registry = Registry([EntryPoint("fast", "headrace_fast", "headrace")])
    monkeypatch.setattr(registry, "_lock", Noticed())
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(registry.has, "accelerator", "search")
        assert loading.wait(60)
        second = threads.submit(registry.has, "accelerator", "search")
        assert (first.result(60), second.result(60)) == (True, True)
    assert loads == ["fast"]


def test_what_a_package_of_headrace_offers_is_found_without_loading_others() -> None:
    code = """
import sys
from headrace.interfaces.accelerators import accelerated
accelerated("find_byte", str)
print([name for name in sys.modules if name.endswith(".plugin") and "turbo" not in name], "polars" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[] False"
