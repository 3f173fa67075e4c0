"""The page of all plug-ins is what the packages' metadata say."""

from __future__ import annotations

import tomllib

from tests.packaging.plugin_list import PAGE, page
from tests.packaging.wheels import DISTRIBUTIONS


def test_the_page_is_what_the_packages_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(), "run python -m tests.packaging.known_plugins"
    for place in DISTRIBUTIONS:
        name = tomllib.loads((place / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
        assert f"| `{name}` |" in text
    assert "sinks: `file`" in text
