"""The page shows the options as they are declared, and its examples run."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import headrace as hr
import pytest
from headrace.interfaces.settings import describe_options
from headrace.interfaces.sink import SinkSettings
from headrace_sqlite import SQLiteSinkSettings
from headrace_sqlite.positions import STATEMENT

PAGE = (Path(__file__).parents[3] / "docs" / "connectors" / "sqlite.md").read_text(encoding="utf-8")


def block(language: str, number: int = 0) -> str:
    return str(re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)[number])


def test_options() -> None:
    inherited = {option.name for option in describe_options(SinkSettings)}
    declared = [
        (option.name, "required" if option.required else f"`{option.default}`", option.description)
        for option in describe_options(SQLiteSinkSettings)
        if option.name not in inherited
    ]
    table = PAGE.partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", table, re.M) == declared


def test_the_statement_of_the_table_of_positions() -> None:
    assert STATEMENT.format(table="headrace_offsets").strip() + ";" == block("sql", 1).strip()


@pytest.mark.parametrize("language", ["python", "sql"])
def test_examples_run(language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f'{{"sensor": "s{n % 3}", "at": "2026-01-01 00:00:0{n % 10}", "celsius": {20 + n}}}\n' for n in range(10)]
    Path("readings.ndjson").write_text("".join(lines))
    if language == "python":
        exec(compile(block("python"), "sqlite.md", "exec"), {})
    else:
        hr.sql(block("sql")).run("light", show_progress=False)
    with closing(sqlite3.connect("readings.db")) as database:
        rows = database.execute("SELECT sensor, celsius FROM newest ORDER BY sensor").fetchall()
    assert rows == [("s0", 29.0), ("s1", 27.0), ("s2", 28.0)]
