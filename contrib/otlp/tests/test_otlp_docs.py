"""The examples of docs/otlp.md run and print what it shows; the page has the options and columns as they are declared."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from headrace.interfaces.settings import Settings, describe_options
from headrace_otlp import OtlpLogsSettings
from headrace_otlp.logs_codec import COLUMNS
from headrace_otlp.remote_write import COLUMNS as SAMPLES
from headrace_otlp.remote_write import RemoteWriteSettings

from tests.eventually import eventually

PAGE = (Path(__file__).parents[3] / "docs" / "otlp.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(python|text output)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def listens(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = int(found.getsockname()[1])
    (_, job), (_, sender), (_, output) = BLOCK.findall(PAGE)
    names: dict[str, Any] = {}
    exec(job.replace("4318", str(port)), names)
    printed = ""

    def rows() -> list[Any]:
        nonlocal printed
        printed += capsys.readouterr().out
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]

    try:
        eventually(lambda: listens(port), "it listens")
        exec(sender.replace("4318", str(port)), names)
        eventually(rows, "a row is printed")
    finally:
        names["job"].stop()
    assert rows() == [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize(
    ("part", "settings", "columns"), [(0, OtlpLogsSettings, COLUMNS), (1, RemoteWriteSettings, SAMPLES)]
)
def test_options_and_columns(part: int, settings: type[Settings], columns: Mapping[str, str]) -> None:
    page = PAGE.split("\n## Prometheus remote write\n")[part]
    row = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)
    options = [(option.name, f"`{option.default}`", option.description) for option in describe_options(settings)]
    names = {name for name, _, _ in options}
    assert [each for each in row.findall(page) if each[0] in names] == options
    lines = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \| (timestamp|int64|float64|boolean|string|json) \|", page, re.MULTILINE
    )
    assert {name: kind for shown, kind in lines for name in re.findall(r"\w+", shown)} == columns
