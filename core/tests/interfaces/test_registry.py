"""Finding plug-ins: lazily, by name, with errors that say what to do."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Mapping
from importlib.metadata import EntryPoint

import pytest
from headrace.foundation.errors import JobError, MissingPluginError, PluginConflictError
from headrace.interfaces.hookspecs import hookimpl
from headrace.interfaces.registry import Registry
from headrace.testing import MemorySource


def plugin(**sources: object) -> object:
    class Plugin:
        @hookimpl
        def headrace_sources(self) -> Mapping[str, object]:
            return sources

    return Plugin()


def entry(name: str, module: str) -> EntryPoint:
    return EntryPoint(name, module, "headrace")


def test_a_registered_plugin_is_found() -> None:
    registry = Registry([])
    registry.register(plugin(memory=MemorySource), "memory")
    assert registry.find("source", "memory") is MemorySource


def test_a_thing_named_by_path_is_imported_when_it_is_used() -> None:
    registry = Registry([])
    registry.register(plugin(memory="headrace.testing:MemorySource"), "memory")
    assert registry.find("source", "memory") is MemorySource


def test_a_path_whose_library_is_missing_says_so() -> None:
    registry = Registry([])
    registry.register(plugin(kafka="headrace_not_there:Source"), "kafka")
    with pytest.raises(MissingPluginError, match=r"(?s)'headrace_not_there'.*pip install headrace-kafka"):
        registry.find("source", "kafka")


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("backend", "spark", "pip install headrace-spark"),
        ("source", "kafka", "pip install headrace-kafka"),
        ("operator", "where", "pip install headrace-columnar"),
        ("codec", "jsn", "did you mean 'json'"),
        ("sink", "nonsense", "no sink is installed"),
    ],
)
def test_what_is_missing_says_what_to_install(kind: str, name: str, hint: str) -> None:
    with pytest.raises(MissingPluginError, match=hint):
        Registry([]).find(kind, name)


def test_two_plugins_with_one_name_are_refused() -> None:
    registry = Registry([])
    registry.register(plugin(memory=MemorySource), "one")
    with pytest.raises(PluginConflictError, match=r"'one' and 'two' both offer the source 'memory'"):
        registry.register(plugin(memory=MemorySource), "two")


def test_two_distributions_with_one_entry_point_are_refused() -> None:
    with pytest.raises(PluginConflictError, match="two installed distributions offer the plug-in 'a'"):
        Registry([entry("a", "first_module"), entry("a", "second_module")])


def test_only_the_plugin_that_is_named_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("headrace_lazy_test")
    module.headrace_sources = hookimpl(lambda: {"lazy": MemorySource})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "headrace_lazy_test", module)
    registry = Registry([entry("broken", "headrace_there_is_no_such_module"), entry("lazy", "headrace_lazy_test")])
    assert registry.find("source", "lazy") is MemorySource
    with pytest.raises(JobError, match=r"(?s)plug-in 'broken'.*cannot be loaded.*HEADRACE_PLUGINS"):
        registry.load_all()


def test_a_plugin_with_an_unknown_hook_is_refused() -> None:
    class Wrong:
        @hookimpl
        def headrace_sauces(self) -> Mapping[str, object]:
            return {}

    with pytest.raises(Exception, match="headrace_sauces"):
        Registry([]).register(Wrong(), "wrong")


def test_plugins_can_be_limited_by_the_environment() -> None:
    code = "from headrace.interfaces.registry import default_registry as r; print([p.name for p in r().installed()])"
    found = subprocess.run(
        [sys.executable, "-c", code], env={"HEADRACE_PLUGINS": "light"}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() in ("['light']", "[]")
