"""The page shows the options as they are declared."""

from __future__ import annotations

from headrace.interfaces.sink import SinkSettings
from headrace_http import HttpSinkSettings, HttpSourceSettings

from tests.pages import DOCS, declared_options, tabled_options

PAGE = DOCS / "connectors" / "http.md"


def test_options() -> None:
    sink, source = PAGE.read_text(encoding="utf-8").split("\n## Source\n")
    assert tabled_options(sink) == declared_options(HttpSinkSettings, SinkSettings)
    assert tabled_options(source) == declared_options(HttpSourceSettings)
