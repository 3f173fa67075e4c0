"""Whoever names something that is not installed is told which package to install: for every name that a package here offers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest
from headrace.foundation.errors import MissingPluginError
from headrace.interfaces import known_plugins
from headrace.interfaces.registry import Registry

from tests.packaging.known_plugins import TABLE, offers_of_workspace, plugins_of_workspace, written_table

OFFERS = [(kind, name, package) for kind, names in offers_of_workspace().items() for name, package in names.items()]
#: What users write, the plug-ins that they have, and the package that they are told to install.
WRITTEN = {
    'rows.key_by("k").agg(n="count(*)")': ("columnar", "headrace-stateful"),
    'rows.key_by("k").window(hr.tumbling("1 min", on="ts")).agg(n="count(*)")': ("columnar", "headrace-stateful"),
    'rows.agg(n="count(*)")': ("columnar", "headrace-stateful"),
    'rows.distinct("k")': ("columnar", "headrace-stateful"),
    'rows.watermark("ts", delay="1 s")': ("columnar", "headrace-stateful"),
    'rows.join(rows, on="k")': ("columnar", "headrace-stateful"),
    'rows.lookup_join(rows, on="k")': ("columnar", "headrace-dimension"),
    "rows.rules({})": ("columnar", "headrace-rules"),
    'rows.where("k IS NULL")': ("file", "headrace-columnar"),
    'rows.to_mysql(table="t")': ("columnar", "headrace-mysql"),
    'rows.to(MemorySink()).run("light")': ("columnar", "headrace-light"),
    "rows.to(MemorySink()).run()": ("columnar,light", "headrace-spark"),
    'hr.sql("SELECT 1")': ("columnar", "headrace-sql"),
    'hr.stream("t", "other").from_kafka("topic", format="json", schema={"k": "string"})': (
        "columnar",
        "headrace-kafka",
    ),
}
PROGRAM = """
import json, sys
import headrace as hr
from headrace.testing import MemorySink, MemorySource
said = {}
for written in json.load(sys.stdin):
    rows = hr.stream("t", "hints").from_(MemorySource({}), format="json", schema={"k": "string", "ts": "timestamp"})
    try:
        eval(written)
    except (hr.HeadraceError, AttributeError) as error:
        said[written] = f"{type(error).__name__} {error}"
print(json.dumps(said))
"""


def test_the_table_is_what_the_packages_offer() -> None:
    assert TABLE.read_text(encoding="utf-8") == written_table(), "run python -m tests.packaging.known_plugins"
    assert len(plugins_of_workspace()) > 10
    assert known_plugins.OFFERS["operator"]["aggregate"] == "headrace-stateful"


@pytest.mark.parametrize(("kind", "name", "package"), OFFERS)
def test_every_name_has_its_package_in_the_hint(kind: str, name: str, package: str) -> None:
    with pytest.raises(MissingPluginError, match=f"no {kind} '{name}' is installed") as caught:
        Registry([]).find(kind, name)
    assert caught.value.hint == f"pip install {package}"


@pytest.mark.parametrize("plugin", plugins_of_workspace())
def test_a_plugin_whose_library_is_missing_names_its_package(plugin: str) -> None:
    class Broken:
        pass

    from headrace.interfaces.hookspecs import hookimpl

    Broken.headrace_sources = hookimpl(lambda self: {"broken": "headrace_not_there:Source"})  # type: ignore[attr-defined]
    registry = Registry([])
    registry.register(Broken(), plugin)
    with pytest.raises(MissingPluginError) as caught:
        registry.find("source", "broken")
    assert caught.value.hint == f"pip install {plugins_of_workspace()[plugin][0]} with its extras"


@cache
def _said(plugins: str) -> dict[str, str]:
    """Return what one process with these plug-ins says of everything that is written for it."""
    written = [each for each, (its_plugins, _) in WRITTEN.items() if its_plugins == plugins]
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "HEADRACE_PLUGINS": plugins}, input=json.dumps(written),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said: dict[str, str] = json.loads(found.stdout.splitlines()[-1])
    return said


@pytest.mark.parametrize("written", WRITTEN)
def test_what_users_write_without_the_package_names_it(written: str) -> None:
    plugins, package = WRITTEN[written]
    assert f"pip install {package}" in _said(plugins)[written]
