"""``headrace sql`` as a command, and through a real pseudo-terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pexpect = pytest.importorskip("pexpect")
SCRIPT = Path(sys.executable).with_name("headrace")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07")


def run(place: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, "sql", *arguments], input=given, capture_output=True, text=True, cwd=place, check=False
    )


def test_texts_files_and_standard_input(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text("CREATE VIEW v AS SELECT * FROM (VALUES (1, '${WORD}')) AS t(a, b);")
    done = run(
        tmp_path,
        "-i",
        "tables.sql",
        "--set",
        "WORD=x",
        "--format",
        "csv",
        "-e",
        "SELECT a FROM v",
        "-e",
        "SELECT b FROM v",
    )
    assert (done.returncode, done.stdout) == (0, "a\n1\nb\nx\n")
    piped = run(tmp_path, "--format", "json", given="SELECT 1 AS a;\n")
    assert (piped.returncode, json.loads(piped.stdout)) == (0, {"a": 1})


def test_functions_of_the_directory_can_be_called(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    done = run(tmp_path, "--format", "csv", "-e", "CREATE FUNCTION d AS 'mine:double'; SELECT d(4) AS x")
    assert (done.returncode, done.stdout) == (0, "x\n8\n")


def test_a_mistake_is_told_and_nothing_of_its_text_runs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = (
        f"CREATE TABLE s (a INT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'json'); "
        "INSERT INTO s SELECT 1; INSERT INTO s SELECT nope"
    )
    done = run(tmp_path, "-e", text)
    assert done.returncode == 2
    assert "unknown column 'nope'" in done.stderr
    assert not out.exists()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Any]:
    environment = {
        **os.environ,
        "TERM": "xterm",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    child = pexpect.spawn(
        str(SCRIPT),
        ["sql"],
        cwd=str(tmp_path),
        env=environment,
        encoding="utf-8",
        dimensions=(40, 100),
        timeout=100,
        use_poll=True,  # select() refuses descriptors from 1,024 on
    )
    child.expect("headrace>")
    yield child
    if child.isalive():  # close(force=True) would give up after 0.2 s, in which a busy machine may not have ended it
        child.kill(signal.SIGKILL)
        child.wait()
    child.close()


def shown(child: Any, until: str) -> str:
    """Return what the terminal shows up to a text, without colours."""
    child.expect(until)
    return _COLOURS.sub("", child.before + child.after)


def test_statements_on_a_terminal(terminal: Any, tmp_path: Path) -> None:
    terminal.send("SELECT 40 +\r")  # not complete: a new line
    terminal.send("2 AS answer;\r")
    assert "42" in shown(terminal, "1 row")
    terminal.expect("headrace>")
    terminal.send("SELECT nope;\r")
    assert "unknown column 'nope'" in shown(terminal, "hint")
    terminal.expect("headrace>")
    terminal.send("\\timing on\r")
    terminal.expect("timing is on")
    terminal.expect("headrace>")
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    history = tmp_path / "state" / "headrace" / "sql-history"
    assert "2 AS answer;" in history.read_text()
    assert oct(history.stat().st_mode & 0o777) == "0o600"


def test_tab_completes(terminal: Any) -> None:
    terminal.send("CREATE VIEW wonderful AS SELECT 1 AS x;\r")
    terminal.expect("ok")
    terminal.expect("headrace>")
    terminal.send("SELECT x FROM wonderf")
    terminal.expect("wonderful")  # offered
    terminal.send("\t;\r")
    assert "1" in shown(terminal, "1 row")


def test_a_running_select_is_refreshed_until_it_is_stopped(terminal: Any, tmp_path: Path) -> None:
    source = tmp_path / "in.ndjson"
    source.write_text('{"k": "a"}\n{"k": "b"}\n{"k": "a"}\n')
    terminal.send(
        f"CREATE TABLE t (k STRING) WITH ('connector' = 'filesystem', 'path' = '{source}', 'format' = 'json');\r"
    )
    terminal.expect("ok")
    terminal.expect("headrace>")
    terminal.send("\\until never\r")
    terminal.expect("headrace>")
    terminal.send("SELECT k, COUNT(*) AS n FROM t GROUP BY k;\r")
    terminal.expect("2 rows")
    terminal.expect("Ctrl-C stops")
    with source.open("a") as more:
        more.write('{"k": "c"}\n')
    terminal.expect("3 rows")  # refreshed in place
    terminal.sendintr()
    assert "c" in shown(terminal, "stopped")
    terminal.expect("headrace>")
    terminal.send("SELECT 7 AS seven;\r")
    assert "7" in shown(terminal, "1 row")
