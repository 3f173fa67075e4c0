"""The examples of docs/buffer.md work: the source takes lines and answers them, and the log prints what the page shows."""

from __future__ import annotations

import importlib
import re
import socket
from pathlib import Path

import headrace as hr
import pytest
from headrace.interfaces.settings import describe_options
from headrace_buffer import BufferedSourceSettings

PAGE = Path(__file__).parents[3] / "docs" / "buffer.md"
BLOCKS = dict(re.findall(r"^```\w+ (\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("lines_of_page.py").write_text(BLOCKS["source"].replace("PORT = 5140", f"PORT = {port}"), encoding="utf-8")
    names = vars(importlib.import_module("lines_of_page"))
    exec(BLOCKS["log"], names)
    assert capsys.readouterr().out == BLOCKS["output"]
    source = names["LinesSource"](names["LinesSettings"].of({"port": port, "buffer": "lines-buffer"}))
    source.open(hr.Queue("buffer"), hr.EARLIEST)
    with socket.create_connection(("127.0.0.1", port)) as sender, sender.makefile("rwb") as stream:
        stream.write(b"one\ntwo\n")
        stream.flush()
        assert [stream.readline(), stream.readline()] == [b"ok\n", b"ok\n"]
    source.close()
    rows = names["lines"].collect()
    assert rows.to_series(0).to_list() == ["one", "two"]


def test_options_are_tabled() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8").split("| option |")[1].split("\n## ")[0], re.MULTILINE
    )
    assert rows == [option.name for option in describe_options(BufferedSourceSettings)]
