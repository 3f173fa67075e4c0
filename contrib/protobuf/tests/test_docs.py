"""The examples of docs/protobuf.md run and print what it shows; the options that it tables are those that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from headrace.interfaces.settings import Settings, describe_options
from headrace_protobuf.confluent import ConfluentSettings
from headrace_protobuf.settings import ProtobufSettings
from messages import add_message, file_of, write

PAGE = Path(__file__).parents[3] / "docs" / "protobuf.md"
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    compared = 0
    for kind, what, text in BLOCK.findall(PAGE.read_text()):
        if kind == "proto":
            _compile(text, tmp_path / "shop.desc")
        elif (kind, what) == ("python", ""):
            exec(text, names)
        elif (kind, what) == ("text", "output"):
            printed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
            assert sorted(map(str, printed)) == sorted(str(json.loads(line)) for line in text.splitlines())
            compared += 1
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
        section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
        assert [line for line in section.splitlines() if line.startswith("| `")] == option_rows(settings)


def option_rows(settings: type[Settings]) -> list[str]:
    """Return the rows of the table."""

    def code(text: str) -> str:
        return "`" + text.replace("|", r"\|") + "`"

    return [
        f"| `{found.name}` | {code(found.type)} | {code(found.default or 'required')} | {found.description} |"
        for found in describe_options(settings)
    ]
