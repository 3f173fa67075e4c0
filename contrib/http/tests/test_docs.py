"""The page shows the options as they are declared."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.interfaces.settings import describe_options
from headrace.interfaces.sink import SinkSettings
from headrace_http import HttpSinkSettings

PAGE = Path(__file__).parents[3] / "docs" / "connectors" / "http.md"


def test_options() -> None:
    inherited = {option.name for option in describe_options(SinkSettings)}
    declared = [
        (option.name, "required" if option.required else f"`{option.default}`", option.description)
        for option in describe_options(HttpSinkSettings)
        if option.name not in inherited
    ]
    assert re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == declared
