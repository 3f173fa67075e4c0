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
from headrace_http import RequestSinkSettings
from headrace_otlp import OtlpSettings, OtlpSinkSettings, RemoteWriteSinkSettings
from headrace_otlp.codec import DATA_POINT_COLUMNS, LOG_COLUMNS, SPAN_COLUMNS
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


PARTS = re.split(r"^## (?:Traces|Metrics|Prometheus|Sending)", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("part", "columns"), [(0, LOG_COLUMNS), (1, SPAN_COLUMNS), (2, DATA_POINT_COLUMNS), (3, SAMPLES)]
)
def test_columns(part: int, columns: Mapping[str, str]) -> None:
    lines = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \| (timestamp|int64|float64|boolean|string|json) \|", PARTS[part], re.MULTILINE
    )
    assert {name: kind for shown, kind in lines for name in re.findall(r"\w+", shown)} == columns


@pytest.mark.parametrize(("part", "settings"), [(0, OtlpSettings), (3, RemoteWriteSettings)])
def test_options(part: int, settings: type[Settings]) -> None:
    row = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)
    options = [(option.name, f"`{option.default}`", option.description) for option in describe_options(settings)]
    names = {name for name, _, _ in options}
    assert [each for each in row.findall(PARTS[part]) if each[0] in names] == options


@pytest.mark.parametrize(("part", "settings"), [(4, OtlpSinkSettings), (5, RemoteWriteSinkSettings)])
def test_options_of_sinks(part: int, settings: type[Settings]) -> None:
    shared = {option.name for option in describe_options(RequestSinkSettings)}
    row = re.compile(r"^\| `(\w+)` \| (required|`.*?`) \| (.*?) \|$", re.MULTILINE)
    assert row.findall(PARTS[part]) == [
        (option.name, "required" if option.required else f"`{option.default}`", option.description)
        for option in describe_options(settings)
        if option.name not in shared
    ]
