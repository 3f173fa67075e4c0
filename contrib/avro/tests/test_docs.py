"""The examples of docs/avro.md run and print what it shows; the options that it tables are those that there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace.interfaces.settings import Settings
from headrace_avro.registry_settings import ConfluentSettings
from headrace_avro.settings import AvroSettings

from tests.pages import DOCS, rows_with_types, run_examples, section, tabled_rows

PAGE = DOCS / "avro.md"


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    _, compared = run_examples(PAGE, capsys)
    assert compared == 1


@pytest.mark.parametrize(
    ("heading", "settings"), [("Options", AvroSettings), ("Options of avro-confluent", ConfluentSettings)]
)
def test_options_are_tabled(heading: str, settings: type[Settings]) -> None:
    assert tabled_rows(section(PAGE, heading)) == rows_with_types(settings)
