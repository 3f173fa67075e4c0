"""Makes the page of all plug-ins from the metadata of the packages; ``python -m tests.packaging.known_plugins`` writes it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.packaging.known_plugins import offers_of_workspace
from tests.packaging.wheels import DISTRIBUTIONS, ROOT

PAGE = ROOT / "docs" / "plugins.md"
#: Kinds of names that users write, in the order of the page, with the words for them. Others are for authors alone.
_KINDS: Mapping[str, str] = {
    "source": "sources", "sink": "sinks", "codec": "formats", "operator": "verbs", "function": "functions", "state store": "state stores",
    "backend": "backends", "language": "languages", "connector": "connectors in SQL", "secret store": "secret stores",
    "metrics exporter": "exporters of metrics", "decoder": "faster decoders", "accelerator": "faster functions",
}  # fmt: skip
_FOLDERS: Mapping[str, str] = {
    "core": "Core",
    "connectors": "Connectors",
    "plugins": "Plug-ins of headrace",
    "contrib": "Contributed plug-ins",
}
_HEAD = """# All plug-ins

After this page you know which package offers a source, a sink, a format or a verb. The page is made from the packages' metadata by
`python -m tests.packaging.known_plugins`; a test keeps it so. `headrace plugins` shows what is installed,
and `headrace plugins NAME` all options. `contrib/README.md` says how a plug-in gets into this list.
"""


def page() -> str:
    """Return the text of the page."""
    offers = offers_of_workspace()
    parts = [_HEAD]
    for folder, title in _FOLDERS.items():
        rows = [_row(place, offers) for place in DISTRIBUTIONS if place.relative_to(ROOT).parts[0] == folder]
        parts.append("\n".join([f"## {title}\n", "| package | what it is | offers |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _row(place: Path, offers: Mapping[str, Mapping[str, str]]) -> str:
    project = tomllib.loads((place / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        words: [name for name, distribution in sorted(offers.get(kind, {}).items()) if distribution == project["name"]]
        for kind, words in _KINDS.items()
    }
    named["commands"] = sorted(project.get("entry-points", {}).get("headrace.commands", {}))
    offered = "; ".join(
        f"{words}: {', '.join(f'`{name}`' for name in names)}" for words, names in named.items() if names
    )
    return f"| `{project['name']}` | {project['description'].replace('|', '/')} | {offered} |"
