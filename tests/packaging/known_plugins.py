"""Writes what the packages of this workspace offer: ``python -m tests.packaging.known_plugins``.

Into core, for hints of what to install, and into the page of all plug-ins.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping
from pathlib import Path

from headrace.interfaces.registry import GROUP, HOOKS, Registry

from tests.packaging.wheels import DISTRIBUTIONS, ROOT

TABLE = ROOT / "core" / "src" / "headrace" / "interfaces" / "known_plugins.py"
_HEAD = '''"""What the packages of headrace offer, for hints of what to install. Written by ``python -m tests.packaging.known_plugins``."""

from __future__ import annotations

from collections.abc import Mapping

'''


def plugins_of_workspace() -> dict[str, tuple[str, str]]:
    """Return each plug-in that a ``pyproject.toml`` of the workspace names, with its distribution and its module."""
    found = {}
    for directory in DISTRIBUTIONS:
        project = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for name, module in project.get("entry-points", {}).get(GROUP, {}).items():
            found[name] = (project["name"], module)
    return found


def offers_of_workspace() -> dict[str, dict[str, str]]:
    """Return by kind each name that a package of the workspace offers, with the distribution."""
    offers: dict[str, dict[str, str]] = {}
    for name, (distribution, module) in sorted(plugins_of_workspace().items()):
        registry = Registry([])
        registry.register(importlib.import_module(module), name)
        for kind in HOOKS:
            for offered in registry.names(kind):
                if registry.owner(kind, offered) == name:
                    offers.setdefault(kind, {})[offered] = distribution
    return offers


def table_of(plugins: Mapping[str, str], offers: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of the module."""
    lines = ["#: The distribution of each plug-in, by the name of its entry point.", "PLUGINS: Mapping[str, str] = {"]
    lines += [f'    "{name}": "{distribution}",' for name, distribution in sorted(plugins.items())]
    lines += ["}", "#: The distribution that offers a name, by kind.", "OFFERS: Mapping[str, Mapping[str, str]] = {"]
    for kind in HOOKS:
        if kind in offers:
            lines.append(f'    "{kind}": {{')
            lines += [f'        "{name}": "{distribution}",' for name, distribution in sorted(offers[kind].items())]
            lines.append("    },")
    return _HEAD + "\n".join([*lines, "}"]) + "\n"


def written_table() -> str:
    """Return what the module should be."""
    plugins = {name: distribution for name, (distribution, _) in plugins_of_workspace().items()}
    return table_of(plugins, offers_of_workspace())


if __name__ == "__main__":
    from tests.packaging.plugin_list import PAGE, page

    Path(TABLE).write_text(written_table(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
