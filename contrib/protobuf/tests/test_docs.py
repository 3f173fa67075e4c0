"""The examples of docs/protobuf.md run and print what it shows; the options that it tables are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headrace_protobuf.confluent import ConfluentSettings
from headrace_protobuf.settings import ProtobufSettings
from messages import add_message, file_of, write

from tests.pages import DOCS, rows_with_types, run_examples, section, tabled_rows

PAGE = DOCS / "protobuf.md"


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    _, compared = run_examples(PAGE, capsys, {"proto": lambda text: _compile(text, tmp_path / "shop.desc")})
    assert compared == 1


def _compile(text: str, path: Path) -> None:
    """Make a descriptor set of a text with one message, as protoc does."""
    found = re.findall(r"^  ((?:optional |repeated )?[\w.]+) (\w+) = (\d+);$", text, re.MULTILINE)
    assert [number for _, _, number in found] == [str(number) for number in range(1, len(found) + 1)]
    [imported] = re.findall(r'^import "(.*)";$', text, re.MULTILINE)
    [package] = re.findall(r"^package (\w+);$", text, re.MULTILINE)
    [message] = re.findall(r"^message (\w+) {$", text, re.MULTILINE)
    file = file_of("shop.proto", imports=[imported])
    file.package = package
    add_message(file, message, **{name: f".{kind}" if "." in kind else kind for kind, name, _ in found})
    write(path, file)


def test_options_are_tabled() -> None:
    for heading, settings in (("Options", ProtobufSettings), ("Options of protobuf-confluent", ConfluentSettings)):
        assert tabled_rows(section(PAGE, heading)) == rows_with_types(settings)
