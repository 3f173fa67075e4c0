"""The pages of the API reference: the public names of headrace, from their docstrings.

Public is what ``headrace.__all__`` and ``headrace_contract.__all__`` have, and what docs/writing-plugins.md and the pages
around it name by its full path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import headrace
import headrace_contract

ROOT = Path(__file__).resolve().parents[1]

#: Names of ``headrace`` beside the modules that they come from, by page. The rest is for plug-ins.
_JOBS: Mapping[str, tuple[str, ...]] = {
    "Streams": ("headrace.jobs.dsl", "headrace.jobs.keyed"),
    "Jobs": ("headrace.jobs.job",),
    "Windows": ("headrace.interfaces.windows",),
    "Schemas": ("headrace.flow.schema",),
    "SQL and other languages": ("headrace.interfaces.language",),
    "Functions": ("headrace.interfaces.functions",),
    "Running jobs": ("headrace.interfaces.backend",),
}
_PLUGINS: Mapping[str, tuple[str, ...]] = {
    "Sources": ("headrace.interfaces.source", "headrace.interfaces.changes"),
    "Sinks": ("headrace.interfaces.sink",),
    "Operators": ("headrace.interfaces.operator",),
    "Formats": ("headrace.interfaces.codec",),
    "State stores": ("headrace.interfaces.state_store",),
    "Options": ("headrace.interfaces.settings",),
    "What flows": ("headrace.flow.messages",),
    "Hooks": ("headrace.interfaces.hookspecs",),
}
_ERRORS: Mapping[str, tuple[str, ...]] = {"": ("headrace.foundation.errors",)}
#: Pages for authors of plug-ins, which name some things by their full paths.
_PAGES_FOR_AUTHORS = ("writing-plugins.md", "contract-suite.md", "changelogs.md")
#: A module whose names are all in ``headrace``.
_LISTED = {"headrace.foundation.errors"}


def named_in_pages() -> list[str]:
    """Return what the pages for authors name by its full path, and ``headrace`` itself does not have."""
    named = {"headrace.testing"}
    for page in _PAGES_FOR_AUTHORS:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        named.update(re.findall(r"`(headrace\.[a-z_]+(?:\.\w+)+)", text))
        for module, names in re.findall(r"^from (headrace\.[\w.]+) import (.+)$", text, re.MULTILINE):
            named.update(f"{module}.{name.strip()}" for name in names.split(","))
    public = set(headrace.__all__)
    return sorted(name for name in named - _LISTED if name.rpartition(".")[2] not in public and not _in(name, named))


def _in(name: str, named: set[str]) -> bool:
    """Return whether a name is shown with the module or class that it is in."""
    return name.rpartition(".")[0] in named


def pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    return {
        "jobs.md": _page(
            "Reference: jobs",
            "After this page you can look up every call with which a job is written and run: `import headrace as hr`.",
            _JOBS,
        ),
        "plugins.md": _page(
            "Reference: plug-ins",
            "After this page you can look up every class and hook that a plug-in implements, and what it is given.",
            _PLUGINS,
        )
        + _section("Further names", named_in_pages()),
        "errors.md": _page(
            "Reference: errors", "After this page you can tell which error to raise, and which to catch.", _ERRORS
        ),
        "contract.md": "# Reference: contract suite\n\n"
        "After this page you can look up every contract and what it asks of you.\n"
        + _section("", (f"headrace_contract.{name}" for name in headrace_contract.__all__)),
    }


def _page(title: str, opening: str, sections: Mapping[str, tuple[str, ...]]) -> str:
    text = f"# {title}\n\n{opening}\n"
    for heading, modules in sections.items():
        names = [f"headrace.{name}" for module in modules for name in headrace._MODULES[module]]
        text += _section(heading, names)
    return text


def _section(heading: str, names: Iterable[str]) -> str:
    blocks = "".join(f"\n::: {name}\n" for name in names)
    return f"\n## {heading}\n{blocks}" if heading else blocks
