"""The example of docs/json-schema.md runs and prints what it shows; the options that it tables are those that there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace.codecs.json import JsonSettings
from headrace_jsonschema.settings import ConfluentSettings, JsonSchemaSettings

from tests.pages import DOCS, rows_with_types, run_examples, section, tabled_rows

PAGE = DOCS / "json-schema.md"


def test_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    _, compared = run_examples(PAGE, capsys)
    assert compared == 1


def test_options_are_tabled() -> None:
    shared = set(JsonSettings.__struct_fields__)
    for heading, settings, left_out in (
        ("Options", JsonSchemaSettings, shared),
        ("Options of json-schema-confluent", ConfluentSettings, set()),
    ):
        assert tabled_rows(section(PAGE, heading)) == rows_with_types(settings, left_out)
