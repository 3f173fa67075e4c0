"""The page has the options as they are declared, and the stores that are offered."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

from headrace.interfaces.settings import describe_options
from headrace_file import FileSourceSettings

PAGE = (Path(__file__).parents[3] / "docs" / "connectors" / "remote-files.md").read_text(encoding="utf-8")


def test_options() -> None:
    known = {option.name: option for option in describe_options(FileSourceSettings)}
    for name, default in re.findall(r"^\| `(\w+)` \| `(.*?)` \|", PAGE, re.MULTILINE):
        assert str(known[name].default) == default
    assert {"storage_options", "list_interval"} <= set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))


def test_schemes() -> None:
    offered = {point.name for point in entry_points(group="headrace.file_systems")}
    assert offered == set(re.findall(r"(\w+)://", "".join(re.findall(r"^\| `\w+://.*$", PAGE, re.MULTILINE))))
